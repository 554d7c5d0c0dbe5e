"""The facts that come with the package: cards and models, read from its own data files."""

from importlib import resources
from importlib.resources.abc import Traversable

from bringup.parse.gpu_name import CatalogueCard, read_catalogue
from bringup.parse.json_value import read_json
from bringup.parse.model_catalogue import CatalogueModel, read_models


def load_cards() -> tuple[CatalogueCard, ...]:
    """The catalogue of GPUs."""
    return read_catalogue(read_json(_data("gpus.json").read_text(encoding="utf-8")))


def load_models() -> tuple[CatalogueModel, ...]:
    """The catalogue of models."""
    files = sorted(_data("models").iterdir(), key=lambda file: file.name)
    return read_models(read_json(file.read_text(encoding="utf-8")) for file in files)


def _data(name: str) -> Traversable:
    return resources.files("bringup").joinpath("data", name)
