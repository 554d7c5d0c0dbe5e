"""The model behind a running endpoint: what its files on the host or the catalogue say it is made of."""

from collections.abc import Mapping, Sequence

from bringup.errors import BringupError
from bringup.parse import model_catalogue
from bringup.parse.hf_config import read_config
from bringup.parse.json_value import Json, read_json
from bringup.planner.encoder_tensors import tower_of
from bringup.transport.catalogue import load_models
from bringup.values.deployment import Deployment
from bringup.values.host import ModelFiles
from bringup.values.model import ModelSpec


def running_model(deployment: Deployment) -> tuple[ModelSpec | None, str]:
    """The model, or None and why it is not known.

    Neither the hub nor any file of this machine is asked: a replay must come to the same answer.
    """
    names = _names(deployment)
    host = deployment.host_after or deployment.host
    found = model_in_files(host.model_files if host is not None else None, names)
    if found is not None:
        return found, ""
    for name in names:
        entry = model_catalogue.find_model(name, load_models())
        if entry is not None:
            try:
                return read_config(entry.config, name=name, source=f"catalogue: {entry.source}"), ""
            except BringupError as error:
                return None, error.message
    shown = ", ".join(f"`{name}`" for name in names) or "it"
    return None, f"{shown} is not in the catalogue of models"


def sees_pictures(model: ModelSpec) -> bool:
    """Whether its config names a part for pictures, by the part itself or by what its family is known for."""
    return any(part != "audio_config" for part in model.multimodal) or tower_of(model) is not None


def model_in_files(files: ModelFiles | None, names: Sequence[str]) -> ModelSpec | None:
    """What the config on the host says; None where there is none that can be read."""
    texts = dict(files.texts) if files else {}
    text = texts.get("config.json") or texts.get("params.json")
    gguf = next((name for name in texts if name.endswith(".gguf")), "")
    config = _object(text or texts.get(gguf))
    if config is None or files is None:
        return None
    name = names[0] if names else files.folder
    known = model_catalogue.find_model(name, load_models())
    try:
        return read_config(
            config,
            name=name,
            source=f"{files.folder}/{'config.json' if text or not gguf else gguf}",
            known=known.config if known else None,
            quant_file=_object(texts.get("hf_quant_config.json")),
        )
    except BringupError:
        return None


def _object(text: str | None) -> Mapping[str, Json] | None:
    try:
        value = read_json(text) if text else None
    except BringupError:
        return None
    return value if isinstance(value, dict) else None


def _names(deployment: Deployment) -> tuple[str, ...]:
    """What the model is called, the most telling name first."""
    spec = deployment.spec
    names = (spec.model if spec else None, deployment.model.root, deployment.model.id)
    return tuple(dict.fromkeys(name for name in names if name))
