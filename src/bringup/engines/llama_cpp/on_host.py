"""llama.cpp on a processor: the file's pages, the cache, and what of the compute buffer has been written.

The compute buffer is asked for whole and filled by the largest step that came; a page that nobody wrote takes
no memory. Cells are written at the start. Prompts that lost their slot are kept in memory of their own.

Source: llama.cpp b11434, `src/llama-kv-cache.cpp` (the buffers are cleared), `src/llama-mmap.cpp`,
`tools/server/server-task.cpp` (`server_prompt_cache`).
"""

from dataclasses import replace

from bringup.engines.llama_cpp.devices import compute_buffer
from bringup.engines.llama_cpp.settings import Settings, settings_of
from bringup.errors import UsageError
from bringup.planner.host_weights import gguf_weights
from bringup.planner.kv_llama_cpp import LlamaCache, llama_cache
from bringup.planner.ledger import line
from bringup.planner.workspace import Estimate, exact
from bringup.units import MIB, mib
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Gpus, HostPlan, HostTask, LedgerLine, Origin

_NO_GPU = Gpus(card=Card(name="none", memory_total=0, cuda_total=0, reserved=0), count=1)
# Measured, b11549 in a Python process: 46 MiB when ready, of them 10 of code. A build for GPUs has more.
_PROGRAM_MIB, _PROGRAM_LOW, _PROGRAM_HIGH = 48, 20, 220
_PROMPTS_MIB = 8192  # --cache-ram


def on_host(task: HostTask) -> HostPlan | None:
    """The lines of a llama.cpp on a processor; None where the model or its cache is not known.

    Without a command line the endpoint's context may be each slot's own or all slots' together: the one
    that comes nearer to what the processes hold is taken.
    """
    weights, model = _weights(task), task.model
    if weights is None or model is None:
        return None
    try:
        plans = [_plan(task, model, weights, settings) for settings in _settings(task, model)]
    except (UsageError, ValueError):
        return None
    return min(plans, key=lambda plan: abs(plan.bytes - (task.resident or 0)))


def _plan(task: HostTask, model: ModelSpec, weights: LedgerLine, settings: Settings) -> HostPlan:
    cache = llama_cache(model, settings.rules())
    tokens = cache.cells * cache.streams
    each = cache.total / (tokens or 1)
    prompts = _prompts(task, tokens, each)
    return HostPlan(
        ledger=(
            weights,
            line("kv_pool", exact(cache.total, f"{tokens:,} cells x {each:,.0f} B"), Origin.RULE),
            line("prompt_cache", prompts),
            line("program", _program(model, settings, cache, task)),
        ),
        tokens=tokens,
        bytes_per_token=each,
        flag="--ctx-size",
        value=str(tokens),
        growth_bytes=max(0, mib(_limit_mib(task)) - prompts.high),
        growth_words="kept prompts",
        growth_flag="--cache-ram",
    )


def _weights(task: HostTask) -> LedgerLine | None:
    """The file's own size where it is seen, since its pages are mapped; else what the endpoint tells."""
    path = task.engine.flags.get("model_path") or (task.spec.model if task.spec else None) or ""
    size = gguf_weights(task, path)
    if size is not None:
        return line("weights", exact(size, f"the file, {size:,} B"), Origin.HEADERS)
    told = task.weights_bytes
    return line("weights", exact(told, f"the endpoint's `size`, {told:,} B"), Origin.CONFIG) if told else None


def _settings(task: HostTask, model: ModelSpec) -> list[Settings]:
    """The settings that may be: one where the command line is known."""
    if task.spec is not None:
        return [_as_told(settings_of(task.spec, model, _NO_GPU), task)]
    slots, each = task.engine.kv.slots or 1, _context(task)
    plain = settings_of(EngineSpec(engine="llama_cpp"), model, _NO_GPU)
    apart = replace(plain, context=each * slots, slots=slots, is_unified=False)
    return [apart, replace(plain, context=each, slots=slots, is_unified=True)] if each else [plain]


def _as_told(settings: Settings, task: HostTask) -> Settings:
    """The context as the endpoint tells it: what was made to fit is shorter than the flags say."""
    each = _context(task)
    if not each:
        return settings
    return replace(settings, context=each if settings.is_unified else each * settings.slots)


def _context(task: HostTask) -> int:
    return next((model.context_tokens for model in task.engine.models if model.context_tokens), 0)


def _program(model: ModelSpec, settings: Settings, cache: LlamaCache, task: HostTask) -> Estimate:
    """Code, threads and tables, with the rows of the compute buffer that a step has written.

    Of a step of 512 rows of a model with 576 values in a row and 1,536 within, 14 MiB were written.
    """
    whole = compute_buffer(model, settings, cache.cells).bytes
    widest = max((layer.mlp.intermediate_size or 0 for layer in model.layers if layer.mlp), default=0)
    rows = min(settings.micro_batch, round(task.engine.metrics.get("prompt_tokens_total", 0)))
    written = rows * (2 * widest + 7 * model.hidden_size) * 4
    return Estimate(
        bytes=mib(_PROGRAM_MIB) + written,
        low=mib(_PROGRAM_LOW),
        high=mib(_PROGRAM_HIGH) + whole,
        formula=f"{_PROGRAM_MIB} MiB of code, threads and tables, {written / MIB:,.0f} of "
        f"{whole / MIB:,.0f} MiB of the compute buffer",
    )


def _prompts(task: HostTask, cells: int, each: float) -> Estimate:
    """What was in a slot that another prompt took is kept beside the cache, up to a limit.

    Seen: every prompt of 1,030 tokens took 22.6 MiB more, at 23,040 B a token.
    """
    limit = mib(_limit_mib(task))
    counters = task.engine.metrics
    if "prompt_tokens_total" not in counters:
        return Estimate(bytes=0, low=0, high=limit, formula="what was computed is not told")
    tokens = round(counters["prompt_tokens_total"] + counters.get("output_tokens_total", 0))
    kept = max(0, tokens - round(counters.get("slot_tokens", cells)))
    low, high = (min(limit, round(count * each)) for count in (kept, tokens))
    words = f"{kept:,} to {tokens:,} tokens x {each:,.0f} B: computed, and no longer in a slot"
    return Estimate(bytes=(low + high) // 2, low=low, high=high, formula=words)


def _limit_mib(task: HostTask) -> int:
    given = task.spec.flags.get("--cache-ram", "") if task.spec else ""
    return _PROMPTS_MIB if not given.isdigit() else int(given)
