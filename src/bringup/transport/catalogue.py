"""The facts that come with the package: cards, models and bugs, read from its own data files."""

from functools import cache
from pathlib import Path

from bringup.parse.gpu_name import CatalogueCard, read_catalogue
from bringup.parse.json_value import read_json
from bringup.parse.known_bugs import read_known_bugs
from bringup.parse.known_lines import KnownLines, read_known_lines
from bringup.parse.model_catalogue import CatalogueModel, read_models
from bringup.values.known_bug import KnownBug

_DATA = Path(__file__).parents[1] / "data"  # `importlib.resources` would cost 9 ms of start-up


@cache
def load_cards() -> tuple[CatalogueCard, ...]:
    """The catalogue of GPUs."""
    return read_catalogue(read_json((_DATA / "gpus.json").read_text(encoding="utf-8")))


@cache
def load_models() -> tuple[CatalogueModel, ...]:
    """The catalogue of models."""
    files = sorted((_DATA / "models").iterdir())
    return read_models(read_json(file.read_text(encoding="utf-8")) for file in files)


@cache
def load_known_bugs() -> tuple[KnownBug, ...]:
    """The bugs of engines that are known."""
    return read_known_bugs(read_json((_DATA / "known_bugs.json").read_text(encoding="utf-8")))


@cache
def load_known_lines() -> KnownLines:
    """Wrapper messages, lines of healthy starts, kinds that follow others."""
    return read_known_lines(read_json((_DATA / "log_lines.json").read_text(encoding="utf-8")))
