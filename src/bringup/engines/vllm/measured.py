"""What an earlier start of vLLM measured, in the place of estimates: as far as the same settings govern it.

A peak of activations grows with `--max-num-batched-tokens`, that of the sampler with `--max-num-seqs`: both
are scaled where the same of the two decided then and decides now. Everything else is used unchanged or not at
all. Logs that name no parts still name the pool: what the share of the card did not leave for it was taken.
"""

from dataclasses import dataclass, replace
from math import ceil

from bringup.engines.vllm.settings import Settings, layout_of, settings_of
from bringup.engines.vllm.steps import StageNeed, stage_needs, weights_of
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.planner.measured import Measured, around, as_told, is_same_model, largest, rounding
from bringup.planner.workspace import Estimate, exact
from bringup.units import bytes_text
from bringup.values.plan import Layout, Origin, PlanTask
from bringup.values.start_log import StartLog

_SCALE_DOUBT = 0.15  # of what scaling adds or takes. guess
_SAME_CARD = 0.005
_NOT_TOLD = "the log does not say"
_WORDS = {
    "weights": "weights",
    "late": "memory outside the allocator",
    "graphs": "graphs",
    "context": "context and communication buffers",
    "activations": "activations",
}
_FACTS = {
    "weights": ("weights",),
    "late": ("outside", "consumed"),
    "graphs": ("graphs",),
    "context": ("free_at_start",),
    "activations": ("activations", "kv_pool"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The earlier start with the plan's own idea of it."""

    start: StartLog
    settings: Settings
    layout: Layout
    need: StageNeed
    requested: int


def measured_parts(task: PlanTask, layout: Layout, settings: Settings, need: StageNeed) -> Measured:
    """What the earlier start says that holds for this one too."""
    start = task.measured
    if start is None:
        return Measured()
    reason = _unusable(start, task, layout, settings)
    if reason:
        return Measured(left_out=(reason,))
    earlier = _earlier(start, task)
    activations = _activations(earlier, settings, need)
    found = {
        "weights": _weights(earlier, need),
        "late": _outside(earlier),
        "graphs": _graphs(earlier, settings),
        "context": _context(earlier, task),
        "activations": activations,
    }
    parts = {name: part for name, part in found.items() if isinstance(part, Estimate)}
    used = tuple(f"{_WORDS[name]} {bytes_text(part.bytes)}" for name, part in parts.items())
    left_out = tuple(f"{_WORDS[name]} ({part})" for name, part in found.items() if isinstance(part, str))
    held: frozenset[str] = frozenset()
    if largest(start, "activations") is None and "activations" in parts and "late" not in parts:
        late = earlier.need.late
        parts["late"] = exact(late.bytes, f"{late.formula}; measured together with the activations")
        held = frozenset(("late",))
    facts = tuple(fact for name in parts for fact in _FACTS.get(name, ()))
    if "context" in parts:
        parts["communication"] = exact(0, "measured together with the context")
    return Measured(parts=parts, held=held, used=used, left_out=left_out, facts=facts)


def with_measured(need: StageNeed, measured: Measured) -> StageNeed:
    """The need with what was measured."""
    parts = measured.parts
    return replace(
        need,
        weights=parts.get("weights", need.weights),
        weights_origin=Origin.MEASURED if "weights" in parts else need.weights_origin,
        late=parts.get("late", need.late),
        graphs=parts.get("graphs", need.graphs),
        context=parts.get("context", need.context),
        communication=parts.get("communication", need.communication),
        activations=parts.get("activations", need.activations),
        measured=measured.names,
    )


def _unusable(start: StartLog, task: PlanTask, layout: Layout, settings: Settings) -> str:
    """Why nothing of the earlier start holds here; empty where it does."""
    if start.engine != "vllm":
        return f"the log is one of {start.engine}"
    if start.spec is None:
        return "the log does not show what the engine was started with"
    version = read_version(start.version) or NEWEST
    if version[:2] != settings.version[:2]:
        return f"it was vLLM {start.version}, another version's rules"
    if not any(is_same_model(start.model, name) for name in (task.model.name, task.spec.model)):
        return f"it was another model, `{start.model}`"
    if layout_of(start.spec) != layout:
        return "it was another layout, a GPU held something else"
    return ""


def _earlier(start: StartLog, task: PlanTask) -> Earlier:
    spec, total = start.spec or task.spec, largest(start, "total") or task.gpus.card.cuda_total
    then = replace(task, spec=spec, version=start.version, measured=None)
    settings = settings_of(spec, read_version(start.version) or NEWEST, task.model, task.gpus.card)
    layout = layout_of(spec)
    needs = stage_needs(then, layout, settings, weights_of(then, layout, settings))
    need = max(needs, key=lambda one: one.weights.bytes)
    requested = largest(start, "requested") or ceil(total * settings.utilization)
    return Earlier(start=start, settings=settings, layout=layout, need=need, requested=requested)


def _weights(earlier: Earlier, need: StageNeed) -> Estimate | str:
    told = largest(earlier.start, "weights")
    if told is None:
        return _NOT_TOLD
    if earlier.layout.pipeline_parallel > 1 or earlier.need.weights != need.weights:
        return "a GPU held others"
    return as_told(earlier.start, "weights", told)


def _outside(earlier: Earlier) -> Estimate | str:
    start = earlier.start
    told = largest(start, "outside")
    if told is not None:
        return as_told(start, "outside", told)
    rank = start.most_loaded
    if rank is None or rank.weights is None or rank.consumed is None:
        return _NOT_TOLD
    within = rounding(start, ("weights", "consumed"), rank)
    return around(rank.consumed - rank.weights, within, "consumed - weights, as logged")


def _graphs(earlier: Earlier, settings: Settings) -> Estimate | str:
    told = largest(earlier.start, "graphs")
    if settings.is_eager:
        return "none are recorded now"
    if earlier.settings.is_eager or earlier.settings.batch.sequences != settings.batch.sequences:
        return "--max-num-seqs decides which sizes are recorded, and it was another"
    return _NOT_TOLD if told is None else as_told(earlier.start, "graphs", told)


def _context(earlier: Earlier, task: PlanTask) -> Estimate | str:
    """What was taken before the weights: the card's own total less what was free."""
    start, card = earlier.start, task.gpus.card
    ranks = [rank for rank in start.ranks if rank.free_at_start is not None and rank.total is not None]
    if not ranks:
        return _NOT_TOLD
    rank = min(ranks, key=lambda one: one.free_at_start or 0)
    total, free = rank.total or 0, rank.free_at_start or 0
    if abs(total - card.cuda_total) > _SAME_CARD * card.cuda_total:
        return "it was another card"
    taken = total - free - task.gpus.used_by_others
    within = rounding(start, ("total", "free_at_start"), rank)
    return around(taken, within, f"{total:,} - {free:,} B, as logged")


def _activations(earlier: Earlier, settings: Settings, need: StageNeed) -> Estimate | str:
    told = largest(earlier.start, "activations")
    then = _taken(earlier) if told is None else as_told(earlier.start, "activations", told)
    if isinstance(then, str) or earlier.need.activations == need.activations:
        return then
    before, now = _decides(earlier.need), _decides(need)
    if before != now:
        return f"the {before} had the peak then, the {now} has it now"
    ratio = need.activations.bytes / max(1, earlier.need.activations.bytes)
    size = round(then.bytes * ratio)
    doubt = round((then.high - then.bytes) * ratio + _SCALE_DOUBT * abs(size - then.bytes))
    words = f"{then.formula}: {then.bytes:,} B with {_governing(earlier.settings, now)}"
    return around(size, doubt, f"{words}, scaled to {_governing(settings, now)}")


def _governing(settings: Settings, decides: str) -> str:
    """The setting that the peak grows with."""
    if decides == "sampler":
        return f"--max-num-seqs {settings.batch.sequences:,}"
    return f"--max-num-batched-tokens {settings.batch.tokens:,}"


def _taken(earlier: Earlier) -> Estimate | str:
    """Activations as what the budget did not leave for the pool, when the log names no parts."""
    start, settings = earlier.start, earlier.settings
    rank = start.most_loaded
    pool = largest(start, "kv_pool")
    if rank is None or rank.weights is None or pool is None or settings.kv_cache_memory_bytes is not None:
        return f"{_NOT_TOLD}, nor what was left for the cache"
    outside = _outside(earlier)
    others = [outside if isinstance(outside, Estimate) else earlier.need.late]
    if settings.charges_graphs:
        others.append(earlier.need.graphs_charged)
    size = earlier.requested - rank.weights - pool - sum(part.bytes for part in others)
    if size <= 0:
        return "the budget, the weights and the cache of the log leave none"
    within = rounding(start, ("weights", "kv_pool"), rank)
    return around(size, within, f"{earlier.requested:,} B of the card - weights - cache as logged - the rest")


def _decides(need: StageNeed) -> str:
    parts = {"forward pass": need.forward, "sampler": need.sampler, "encoder": need.encoder}
    return max(parts, key=lambda name: parts[name].bytes)
