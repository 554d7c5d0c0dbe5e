"""What an earlier start of SGLang measured, in the place of estimates: as far as the same settings govern it.

What was free before the weights decides the pools; recorded graphs depend on their sizes alone.
"""

from bringup.engines.sglang.settings import Settings, graph_count, settings_of
from bringup.planner.kv_versions import read_version
from bringup.planner.measured import AS_LOGGED, Measured, around, as_told, is_same_model, largest, rounding
from bringup.planner.workspace import Estimate
from bringup.units import bytes_text
from bringup.values.plan import PlanTask
from bringup.values.start_log import StartLog

_WORDS = {"pre": "free before the weights", "graphs": "graphs"}
_FACTS = {"pre": "free_at_start", "graphs": "graphs"}
_NOT_TOLD = "the log does not say"


def measured_parts(task: PlanTask, settings: Settings, running: int) -> Measured:
    """What the earlier start says that holds for this one too."""
    start = task.measured
    if start is None:
        return Measured()
    reason = _unusable(start, task)
    if reason:
        return Measured(left_out=(reason,))
    found = {"pre": _free(start, task, settings), "graphs": _graphs(start, task, settings, running)}
    parts = {name: part for name, part in found.items() if isinstance(part, Estimate)}
    return Measured(
        parts=parts,
        used=tuple(f"{_WORDS[name]} {bytes_text(part.bytes)}" for name, part in parts.items()),
        facts=tuple(_FACTS[name] for name in parts),
        left_out=tuple(f"{_WORDS[name]} ({part})" for name, part in found.items() if isinstance(part, str)),
    )


def _unusable(start: StartLog, task: PlanTask) -> str:
    if start.engine != "sglang":
        return f"the log is one of {start.engine}"
    if start.spec is None:
        return "the log does not show what the engine was started with"
    if not any(is_same_model(start.model, name) for name in (task.model.name, task.spec.model)):
        return f"it was another model, `{start.model}`"
    return ""


def measured_free(task: PlanTask, settings: Settings) -> Estimate | None:
    """What was free before the weights, as far as the earlier start says it for this layout."""
    if task.measured is None or _unusable(task.measured, task):
        return None
    found = _free(task.measured, task, settings)
    return found if isinstance(found, Estimate) else None


def _free(start: StartLog, task: PlanTask, settings: Settings) -> Estimate | str:
    """The least that any rank had free. Buffers between ranks are made before, so their number decides."""
    ranks = [rank for rank in start.ranks if rank.free_at_start is not None]
    if not ranks:
        return _NOT_TOLD
    if _then(start, task, settings).layout != settings.layout:
        return "it was another layout"
    rank = min(ranks, key=lambda one: one.free_at_start or 0)
    free = (rank.free_at_start or 0) - task.gpus.used_by_others
    if free > task.gpus.card.cuda_total:
        return "it was a larger card"
    return around(free, rounding(start, ("free_at_start",), rank), AS_LOGGED)


def _graphs(start: StartLog, task: PlanTask, settings: Settings, running: int) -> Estimate | str:
    then, told = _then(start, task, settings), largest(start, "graphs")
    before = start.running or running
    if then.layout != settings.layout:
        return "it was another layout"
    if graph_count(then, before) != graph_count(settings, running):
        return "other sizes were recorded"
    if told is None:
        return _NOT_TOLD
    return as_told(start, "graphs", told)


def _then(start: StartLog, task: PlanTask, settings: Settings) -> Settings:
    version = read_version(start.version) or settings.version
    return settings_of(start.spec or task.spec, version, task.model, task.gpus.card)
