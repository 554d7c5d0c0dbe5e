"""The model behind a running endpoint: what its files on the host or the catalogue say it is made of."""

from bringup.errors import BringupError
from bringup.parse import model_catalogue
from bringup.parse.hf_config import read_config
from bringup.transport.catalogue import load_models
from bringup.values.deployment import Deployment
from bringup.values.model import ModelSpec


def running_model(deployment: Deployment) -> tuple[ModelSpec | None, str]:
    """The model, or None and why it is not known.

    Neither the hub nor any file of this machine is asked: a replay must come to the same answer.
    """
    names = _names(deployment)
    for name in names:
        entry = model_catalogue.find_model(name, load_models())
        if entry is not None:
            try:
                return read_config(entry.config, name=name, source=f"catalogue: {entry.source}"), ""
            except BringupError as error:
                return None, error.message
    shown = ", ".join(f"`{name}`" for name in names) or "it"
    return None, f"{shown} is not in the catalogue of models"


def _names(deployment: Deployment) -> tuple[str, ...]:
    """What the model is called, the most telling name first."""
    spec = deployment.spec
    names = (spec.model if spec else None, deployment.model.root, deployment.model.id)
    return tuple(dict.fromkeys(name for name in names if name))
