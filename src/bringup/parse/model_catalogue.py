"""The catalogue of models: facts of their configs, each with its source, found by the names people use.

The files are `data/models/*.json`; `config` in them is a config.json reduced to what a plan needs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bringup.parse.json_value import Json, at, int_at, list_at, text_at

# What published variants of one model add to its name: a number format or a packaging, never another size.
_VARIANT = re.compile(
    r"[-_.](?:nvfp4|mxfp4|fp8|fp4|int4|int8|w4a16|w8a8|awq|gptq|gguf|bf16|fp16|bnb|4bit|8bit|q\d\w*"
    r"|iq\d\w*|ud|f16|f32|mxfp8|dynamic|static|pertensor|block|quantized|marlin|autoround|hf)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model of the catalogue."""

    name: str
    source: str
    parameters: int | None = None  # of the published files, weight scales included where they have some
    note: str | None = None  # what of the entry is not a read fact
    config: Mapping[str, Json] = field(default_factory=dict[str, Json])


def read_models(files: Iterable[Json]) -> tuple[CatalogueModel, ...]:
    """The models of all files of the catalogue."""
    return tuple(
        _entry(row) for content in files for row in list_at(content, "models") if text_at(row, "name")
    )


def _entry(row: Json) -> CatalogueModel:
    config = at(row, "config")
    return CatalogueModel(
        name=text_at(row, "name") or "",
        source=text_at(row, "source") or "",
        parameters=int_at(row, "parameters"),
        note=text_at(row, "note"),
        config=config if isinstance(config, dict) else {},
    )


def find_model(name: str, catalogue: Sequence[CatalogueModel]) -> CatalogueModel | None:
    """The entry of a hub id, or of a path or served name that ends in one; None when it is not one for sure.

    >>> entries = (CatalogueModel(name="Qwen/Qwen3-8B", source="s"),)
    >>> found = find_model("/models/qwen3-8b/", entries)
    >>> found is not None and found.name
    'Qwen/Qwen3-8B'
    """
    wanted = _parts(name)
    if not wanted:
        return None
    whole = [row for row in catalogue if _parts(row.name) == wanted[-2:]]
    last = [row for row in catalogue if _parts(row.name)[-1] == wanted[-1]]
    for rows in (whole, last):
        if len(rows) == 1:
            return rows[0]
    return None


def base_name(name: str) -> str:
    """The model that a variant is one of: its own name without owner and number format, in lower case.

    >>> base_name("nvidia/Qwen3-32B-NVFP4"), base_name("/models/Qwen3-32B-UD-Q4_K_XL.gguf")
    ('qwen3-32b', 'qwen3-32b')
    """
    parts = _parts(name)
    last = re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", parts[-1]) if parts else ""
    while (shorter := _VARIANT.sub("", last)) != last:
        last = shorter
    return last


def variants_of(name: str, catalogue: Sequence[CatalogueModel]) -> tuple[str, ...]:
    """Names of the catalogue's rows that are the same model in some number format."""
    base = base_name(name)
    return tuple(row.name for row in catalogue if base and base_name(row.name) == base)


def parameters_of(name: str, catalogue: Sequence[CatalogueModel]) -> int | None:
    """Parameters of a model by its name, those of the model it is a variant of where its own are not known.

    >>> entries = (CatalogueModel(name="Qwen/Qwen3-8B", source="s", parameters=8190735360),)
    >>> parameters_of("someone/Qwen3-8B-AWQ", entries), parameters_of("Qwen3-9B", entries)
    (8190735360, None)
    """
    parts = _parts(name)
    if not parts:
        return None
    last = parts[-1]
    while True:
        found = find_model(name, catalogue) or find_model(last, catalogue)
        if found is not None and found.parameters is not None:
            return found.parameters
        shorter = _VARIANT.sub("", last)
        if shorter == last:
            return None
        name = last = shorter


def _parts(name: str) -> list[str]:
    """Owner and model of a name, in lower case; a folder of the hub cache counts as what it holds."""
    text = re.sub(r"/snapshots/[0-9a-f]+/?$", "", name.strip().lower().replace("\\", "/"))
    pieces = [piece for piece in text.split("/") if piece]
    if pieces and pieces[-1].startswith("models--"):
        return pieces[-1].removeprefix("models--").split("--")
    return pieces
