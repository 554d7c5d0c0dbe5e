"""MODEL on the command line -> what the model is made of. Configs and headers are read, never weights.

A path is read where it lies. A hub id is looked for in the hub's cache, then in the catalogue that comes with
the program, then on the hub.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bringup.errors import BringupError, UnreadableAnswer, UsageError
from bringup.parse import model_catalogue
from bringup.parse.config_changes import changed
from bringup.parse.gguf_model import gguf_config
from bringup.parse.hf_config import read_config
from bringup.parse.json_value import Json, read_json
from bringup.parse.model_catalogue import CatalogueModel
from bringup.parse.safetensors import Shard, ShardIndex, read_index
from bringup.parse.shard_check import shard_findings
from bringup.planner.parameters import missing_parameters
from bringup.transport import hub
from bringup.transport.catalogue import load_models
from bringup.transport.model_files import (
    read_gguf_file,
    read_shard,
    read_text,
    text_or_none,
    weight_files,
)
from bringup.values.finding import Evidence, Finding, Severity
from bringup.values.model import ModelSpec, Tensor

_HUB_ID = re.compile(r"^[\w.-]+(?:/[\w.-]+)?$")
_FILES = (".gguf", ".json", ".safetensors")  # what no hub id ends with, and a missing file does
_INDEX = "model.safetensors.index.json"
_QUANTIZATION = "hf_quant_config.json"
_SPLIT = re.compile(r"^(?P<series>.*)-\d{5}-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPlace:
    """Which hub and which cache of it; None: the user's own."""

    cache: Path | None = None
    endpoint: str | None = None
    revision: str | None = None


def find_model(
    name: str | None,
    *,
    config_file: Path | None = None,
    place: HubPlace | None = None,
    changes: Mapping[str, Json] | None = None,
) -> ModelSpec:
    """The model that a name, a path or a config file stands for, with the command's `changes` of its config.

    Raises:
        UsageError: nothing of that name, or a file that is not what it should be.
        UnreadableAnswer: a weight file whose header cannot be read.
        HostError: the hub had to be asked and did not answer.
    """
    place, changes = place or HubPlace(), changes or {}
    if config_file is not None:
        return _from_config(config_file, changes, name=name or config_file.stem)
    if not name:
        raise UsageError("which model?", hint="give MODEL, or the engine's command line after `--`")
    path = Path(name).expanduser()
    if path.exists():
        return _from_path(path, changes)
    return _from_hub(name, place, changes)


def find_here(name: str, *, is_this_machine: bool = True) -> ModelSpec | None:
    """The model of that name as far as it is known without asking anybody; None where it is not.

    `is_this_machine`: whether a path in the name, and the hub's cache, are this machine's.
    """
    path = Path(name).expanduser()
    place = HubPlace()
    try:
        if is_this_machine and path.exists():
            return _from_path(path, {})
        if is_this_machine and _HUB_ID.match(name) and hub.cached_folder(name) is not None:
            return _from_hub(name, place, {})
        entry = model_catalogue.find_model(name, load_models())
        return _from_catalogue(name, entry, {}) if entry is not None else None
    except (BringupError, OSError):  # a path that may not be read
        return None


def _from_path(path: Path, changes: Mapping[str, Json]) -> ModelSpec:
    if path.is_dir():
        return _from_folder(path, changes, name=str(path))
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if path.suffix == ".json":
        return _from_config(path, changes, name=path.parent.name or path.stem)
    raise UsageError(
        f"`{path}` is no model folder, no config.json and no GGUF file",
        hint="give the folder that the config.json is in",
    )


def _from_config(path: Path, changes: Mapping[str, Json], *, name: str) -> ModelSpec:
    config = changed(_object(read_text(path), str(path)), changes)
    quant_file = _quant_file(path.parent) if path.name == "config.json" else None
    return _completed(config, name=name, source=str(path), quant_file=quant_file)


def _completed(
    config: Mapping[str, Json], *, name: str, source: str, quant_file: Mapping[str, Json] | None = None
) -> ModelSpec:
    """A config read, with what the catalogue knows of a model of that name beside it."""
    known = model_catalogue.find_model(name, load_models())
    model = read_config(
        config, name=name, source=source, known=known.config if known else None, quant_file=quant_file
    )
    return _judged(replace(model, parameters=known.parameters if known else None))


def _judged(model: ModelSpec) -> ModelSpec:
    """The model with how many of its published parameters its config does not describe."""
    return replace(model, missing_parameters=missing_parameters(model))


def _from_folder(
    folder: Path, changes: Mapping[str, Json], *, name: str, are_weights_due: bool = True
) -> ModelSpec:
    """A folder as a hub repository has it. In a cache the weights need not be there."""
    text = text_or_none(folder / "config.json")
    source = str(folder / "config.json")
    if text is None:
        text, source = text_or_none(folder / "params.json"), str(folder / "params.json")
    if text is None:
        return _from_bare_folder(folder)
    config = changed(_object(text, source), changes)
    model = _completed(config, name=name, source=source, quant_file=_quant_file(folder))
    return _with_headers(model, folder, are_weights_due=are_weights_due)


def _from_bare_folder(folder: Path) -> ModelSpec:
    """A folder without a config: GGUF files, or nothing to plan with."""
    files = sorted(folder.glob("*.gguf"))
    first = {_series(path.name): path for path in reversed(files)}
    if len(first) == 1:
        return _from_gguf(next(iter(first.values())))
    if files:
        names = ", ".join(path.name for path in files[:6])
        raise UsageError(f"`{folder}` holds several GGUF models: {names}", hint="name one of the files")
    raise UsageError(
        f"`{folder}` holds no config.json and no GGUF file", hint="give the model's own folder, or a hub id"
    )


def _quant_file(folder: Path) -> Mapping[str, Json] | None:
    text = text_or_none(folder / _QUANTIZATION)
    return _object(text, str(folder / _QUANTIZATION)) if text else None


def _object(text: str, source: str) -> Mapping[str, Json]:
    try:
        value = read_json(text)
    except UnreadableAnswer as error:
        raise UsageError(f"`{source}` is {error.message}", hint="give the model's own config.json") from None
    if not isinstance(value, dict):
        raise UsageError(f"`{source}` holds no JSON object", hint="give the model's own config.json")
    # A stored config may lie in a wrapper that says where it is from.
    inner = value.get("config")
    return inner if isinstance(inner, dict) and "architectures" not in value else value


def _with_headers(model: ModelSpec, folder: Path, *, are_weights_due: bool) -> ModelSpec:
    """The model with its tensors as the weight files say, and what is wrong with these."""
    sizes = weight_files(folder)
    index_text = text_or_none(folder / _INDEX)
    index = read_index(index_text, file=_INDEX) if index_text else None
    if not are_weights_due and (not sizes or (index and not set(index.files) <= set(sizes))):
        return model  # only the config was ever fetched: nothing is missing
    shards, findings = _shards(folder, sizes, index)
    if not sizes and not list(folder.glob("*.bin")):
        findings.append(_no_weights(folder))
    findings += shard_findings(shards, sizes, index)
    is_whole = bool(shards) and not any(finding.severity is Severity.FAILURE for finding in findings)
    tensors = tuple(tensor for shard in shards for tensor in shard.tensors) if is_whole else ()
    return replace(
        model,
        tensors=tensors,
        origin="headers" if tensors else "config",
        findings=(*model.findings, *findings),
    )


def _shards(
    folder: Path, sizes: Mapping[str, int], index: ShardIndex | None
) -> tuple[list[Shard], list[Finding]]:
    """The headers that can be read, of the files the index names, and why others cannot."""
    wanted = set(index.files) if index else set(sizes)
    shards: list[Shard] = []
    findings: list[Finding] = []
    for file in sorted(wanted & set(sizes)):
        try:
            shards.append(read_shard(folder / file))
        except UnreadableAnswer as error:
            findings.append(_unreadable(file, error))
    return shards, findings


def _unreadable(file: str, error: BringupError) -> Finding:
    return Finding(
        id="weights.unreadable",
        severity=Severity.FAILURE,
        summary=error.message,
        action=error.hint or "download the file again",
        evidence=(Evidence(source="model folder", text=file),),
    )


def _no_weights(folder: Path) -> Finding:
    return Finding(
        id="weights.none",
        severity=Severity.WARNING,
        summary=f"`{folder}` holds no weight files: planned from the config alone",
        action="download the weights before starting the engine",
    )


def _series(file: str) -> str:
    match = _SPLIT.match(file)
    return match["series"] if match else file


def _from_gguf(path: Path) -> ModelSpec:
    """A GGUF file, or all files of a model that was split, of which any one may be named."""
    files = [path]
    if match := _SPLIT.match(path.name):
        count = int(match["count"])
        files = [path.with_name(f"{match['series']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise UsageError(
                f"{len(missing)} of {count} files of the model are missing: {missing[0]}",
                hint="download them into the same folder",
            )
    headers = [read_gguf_file(file) for file in files]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    first = replace(headers[0], tensors=tensors)
    config = gguf_config(first, file=path.name)
    model = read_config(config, name=_gguf_name(path), source=str(path))
    return replace(model, tensors=tensors, origin="headers")


def _gguf_name(path: Path) -> str:
    return _series(path.name).removesuffix(".gguf")


def _from_hub(name: str, place: HubPlace, changes: Mapping[str, Json]) -> ModelSpec:
    is_id = bool(_HUB_ID.match(name)) and not name.startswith(".")
    if is_id:
        folder = hub.cached_folder(name, revision=place.revision, cache=place.cache)
        if folder is not None:
            model = _from_folder(folder, changes, name=name, are_weights_due=False)
            return replace(model, source=f"hub cache, {model.source}")
    entry = model_catalogue.find_model(name, load_models())
    if entry is not None and (is_id or entry.parameters is not None):
        return _from_catalogue(name, entry, changes)
    if not is_id or Path(name).suffix in _FILES or Path(name).is_symlink():
        raise UsageError(f"`{name}` is no file or folder here, and no hub id", hint="check the path")
    return _fetched(name, place, changes)


def _from_catalogue(name: str, entry: CatalogueModel, changes: Mapping[str, Json]) -> ModelSpec:
    config = changed(entry.config, changes)
    model = read_config(config, name=name, source=f"catalogue: {entry.source}")
    notes = list(model.notes)
    if name.lower() != entry.name.lower():
        notes.append(f"`{name}` is not on this machine: taken for {entry.name} of the catalogue")
    if entry.note:
        notes.append(entry.note)
    found = replace(
        model, origin="catalogue", parameters=None if changes else entry.parameters, notes=tuple(notes)
    )
    return _judged(found)


def _fetched(name: str, place: HubPlace, changes: Mapping[str, Json]) -> ModelSpec:
    """A model of the hub: its config, and the headers of its weight files where they can be had."""
    files = hub.list_files(name, revision=place.revision, endpoint=place.endpoint)
    config = next((file for file in ("config.json", "params.json") if file in files), None)
    if config is None:
        raise UsageError(
            f"`{name}` has no config.json on the hub",
            hint="for a repository of GGUF files download one and give its path",
        )
    model = read_config(
        changed(_fetch(name, config, place), changes),
        name=name,
        source=f"hub: {name}",
        quant_file=_fetch(name, _QUANTIZATION, place) if _QUANTIZATION in files else None,
    )
    try:
        tensors: tuple[Tensor, ...] = hub.fetch_headers(
            name, revision=place.revision, endpoint=place.endpoint
        )
    except BringupError as error:
        note = f"the headers of the weight files could not be read ({error.message}): sizes from the config"
        return replace(model, notes=(*model.notes, note))
    return replace(model, tensors=tensors, origin="headers" if tensors else "config")


def _fetch(name: str, file: str, place: HubPlace) -> Mapping[str, Json]:
    path = hub.fetch_file(name, file, revision=place.revision, cache=place.cache, endpoint=place.endpoint)
    return _object(read_text(path), f"{name}/{file}")
