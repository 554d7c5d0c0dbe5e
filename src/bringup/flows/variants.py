"""Published forms of one model, found where they can be had without fetching weights, each one planned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import BringupError
from bringup.flows.model_source import HubPlace, find_model
from bringup.parse.model_catalogue import base_name, variants_of
from bringup.planner.native import how_run, is_gguf, weights_format
from bringup.transport import hub
from bringup.transport.catalogue import load_models
from bringup.values.finding import Severity
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, LayoutPlan, Plan, Variant, Variants

_MOST_OF_HUB = 12
PlanModel = Callable[[ModelSpec, str], Plan]  # the model, and the name to start it by


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be compared."""

    model: ModelSpec
    name: str  # that it is started by
    given: tuple[str, ...] = ()  # folders, files and hub ids to put beside


def compare(asked: Asked, first: Plan, plan_model: PlanModel, *, place: HubPlace | None = None) -> Variants:
    """The model itself, what the user named, and what cache, catalogue and hub know of it.

    `first` is the plan of the model itself.
    """
    place = place or HubPlace()
    found = [_variant(asked.model, "asked for", first, first.gpus)]
    seen = {asked.name.lower(), asked.model.source.lower()}
    not_asked: list[str] = []
    for where, other in _places(asked, place, not_asked):
        if other.lower() in seen:
            continue
        seen.add(other.lower())
        found.append(_planned(other, where, first, plan_model, place))
    return Variants(found=tuple(found), not_asked=tuple(not_asked))


def _places(asked: Asked, place: HubPlace, not_asked: list[str]) -> Iterator[tuple[str, str]]:
    """Where each variant was found and its name there; who could not be asked goes to `not_asked`."""
    name = asked.name
    for other in asked.given:
        for path in _in_folder(Path(other)):
            yield "named", path
    base = base_name(name)
    for repo, folder in hub.cached_models(cache=place.cache):
        if base and base_name(repo) == base:
            files = () if (folder / "config.json").is_file() else _in_folder(folder)
            yield from (("hub cache", other) for other in files or (repo,))
    yield from (("catalogue", other) for other in variants_of(name, load_models()))
    repo = name if name.count("/") == 1 and not Path(name).exists() else None
    if repo is None:
        return
    try:
        yield from (
            ("hub", other) for other in hub.list_quantized(repo, limit=_MOST_OF_HUB, endpoint=place.endpoint)
        )
    except BringupError as error:
        not_asked.append(f"the hub: {error.message}")


def _in_folder(path: Path) -> tuple[str, ...]:
    """The path itself, or the first file of every GGUF model in it."""
    if not path.is_dir() or (path / "config.json").is_file():
        return (str(path),)
    files = sorted(path.glob("*.gguf"))
    later = [file for file in files if "-of-" in file.name and "-00001-of-" not in file.name]
    return tuple(str(file) for file in files if file not in later) or (str(path),)


def _planned(name: str, where: str, first: Plan, plan_model: PlanModel, place: HubPlace) -> Variant:
    try:
        model = find_model(name, place=place)
        return _variant(model, where, plan_model(model, name), first.gpus)
    except BringupError as error:
        return Variant(name=name, found_in=where, weights_format="unknown", reason=error.message)


def _variant(model: ModelSpec, where: str, plan: Plan, gpus: Gpus) -> Variant:
    best = plan.layouts[0]
    return Variant(
        name=model.name,
        found_in=where,
        weights_format=weights_format(model),
        runs=how_run(model, gpus.card),
        engine=plan.engine,
        origin=model.origin,
        best=best,
        reason="" if plan.fits else _why(best),
    )


def _why(best: LayoutPlan) -> str:
    failures = [finding.summary for finding in best.findings if finding.severity is Severity.FAILURE]
    return failures[0] if failures else "it does not fit"


def engine_for(model: ModelSpec, engine: str) -> str:
    """The engine that a variant is planned for: a GGUF file is llama.cpp's."""
    return "llama_cpp" if is_gguf(model) else ("vllm" if engine == "llama_cpp" else engine)
