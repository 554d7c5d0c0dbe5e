"""Commands of llama-server when none was given: GPUs, split, cache type, slots, and layers on the host.

A cache of eight bits is taken where one of sixteen does not do, layers are left on the host where nothing
else does.
"""

from collections.abc import Sequence
from dataclasses import replace

from bringup.engines.llama_cpp.flags import render_command
from bringup.engines.llama_cpp.ledgers import holds, most, plan_layout
from bringup.engines.llama_cpp.settings import Settings, settings_of
from bringup.planner.choice import Choice
from bringup.planner.choice import choose as choose_among
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Layout, LayoutPlan, PlanTask

_CACHE_TYPES = ("f16", "q8_0")
_MOST_SLOTS = 256  # LLAMA_MAX_SEQ; Source: llama.cpp b11434, `src/llama-cparams.h`
_PAD = 256
_ON_HOST = "on the host"


def choose(task: PlanTask) -> Choice:
    """Commands that fit, best first, and those that do not with the reason."""
    return choose_among(task, _layouts(task), plan_one, lambda plans: _ranked(plans, task.concurrency))


def _layouts(task: PlanTask) -> list[Layout]:
    """Every number of GPUs with every way of splitting over them and every type of cache."""
    found: list[Layout] = []
    for count in range(1, task.gpus.count + 1):
        modes = ("none",) if count == 1 else ("layer", "row")
        found += [_layout(count, mode, cache) for mode in modes for cache in _CACHE_TYPES]
    return found


def _layout(count: int, mode: str, cache: str) -> Layout:
    detail = f"cache {cache}" if mode == "none" else f"{mode} split, cache {cache}"
    if mode == "row":
        return Layout(tensor_parallel=count, detail=detail)
    return Layout(pipeline_parallel=count, detail=detail)


def plan_one(task: PlanTask, layout: Layout) -> LayoutPlan | str:
    """The command for a layout with as many slots as fit, or as many layers as fit with one slot."""
    if layout.data_parallel > 1:
        return "one server has no replicas"
    count = layout.gpus
    mode = "none" if count == 1 else ("row" if layout.tensor_parallel > 1 else "layer")
    cache = "q8_0" if layout.detail.endswith("q8_0") else "f16"
    layers = len(task.model.layers) + 1
    base = spec_for(task, count, mode, cache)
    settings = settings_of(base, task.model, task.gpus)
    context = -(-(task.context or task.model.max_position or settings.shortest) // _PAD) * _PAD
    wanted = min(task.concurrency or _MOST_SLOTS, _MOST_SLOTS)

    def with_slots(slots: int) -> Settings:
        return replace(settings, context=slots * context, slots=slots, is_unified=False, gpu_layers=layers)

    slots = most(lambda slots: holds(task.model, with_slots(slots), task.gpus), wanted)
    spilled, words = ({"--n-gpu-layers": str(layers)}, "") if slots else _spilled(task, with_slots(1))
    sizes = {"--ctx-size": str(max(1, slots) * context), "--parallel": str(max(1, slots))}
    spec = _with(base, {**sizes, **spilled})
    plan = plan_layout(replace(task, spec=spec))
    shown = _layout(count, mode, cache)
    return replace(
        plan,
        layout=replace(shown, detail=f"{shown.detail}, {words}") if words else shown,
        command=render_command(spec),
        findings=(*plan.findings, *([_slow(words)] if words else [])),
    )


def _spilled(task: PlanTask, settings: Settings) -> tuple[dict[str, str], str]:
    """Flags that leave as little as possible on the host, experts before layers, and the same in words."""
    layers = settings.gpu_layers
    if any(layer.mlp is not None and layer.mlp.experts for layer in task.model.layers):
        kept = most(
            lambda kept: holds(task.model, replace(settings, host_experts=layers - kept), task.gpus),
            layers - 1,
        )
        if kept:
            left = {"--n-gpu-layers": str(layers), "--n-cpu-moe": str(layers - kept)}
            return left, f"experts of {layers - kept} of {layers - 1} layers {_ON_HOST}"
    kept = most(lambda kept: holds(task.model, replace(settings, gpu_layers=kept), task.gpus), layers - 1)
    return {"--n-gpu-layers": str(kept)}, f"{layers - kept} of {layers} layers {_ON_HOST}"


def _slow(words: str) -> Finding:
    return Finding(
        id="memory.on_host",
        severity=Severity.WARNING,
        summary=f"it fits only with {words}",
        explanation="they are read from host memory for every token, which is many times slower",
        action="more or larger GPUs, a smaller file, or a shorter context",
    )


def spec_for(task: PlanTask, count: int, mode: str, cache: str) -> EngineSpec:
    """The command line for some GPUs and a type of cache: the flags that the user gave, and those."""
    source = task.model.source
    model = (
        {"--model": source} if source.endswith(".gguf") else {"--hf-repo": task.spec.model or task.model.name}
    )
    flags = {**model, "--split-mode": mode}
    if count < task.gpus.count:
        name = "ROCm" if (task.gpus.card.compute_capability or "").startswith("gfx") else "CUDA"
        flags["--device"] = ",".join(f"{name}{number}" for number in range(count))
    if cache != "f16":
        flags |= {"--cache-type-k": cache, "--cache-type-v": cache}
    return _with(task.spec, flags)


def _with(spec: EngineSpec, flags: dict[str, str]) -> EngineSpec:
    return replace(spec, flags={**spec.flags, **flags})


def _ranked(plans: Sequence[LayoutPlan], concurrency: int | None) -> tuple[LayoutPlan, ...]:
    """All on the GPUs before layers on the host, then the fewest GPUs, the finer cache, the most requests."""

    def key(plan: LayoutPlan) -> tuple[bool, bool, bool, int, bool, bool, float]:
        detail = plan.layout.detail
        return (
            not plan.fits,
            _ON_HOST in detail,
            concurrency is not None and plan.requests < concurrency,
            plan.layout.gpus if plan.fits else 0,
            "f16" not in detail,
            detail.startswith("row"),
            -plan.requests if plan.fits else -plan.kv.available_bytes,
        )

    return tuple(sorted(plans, key=key))
