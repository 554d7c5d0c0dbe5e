"""vLLM on a processor: weights, a cache that every worker takes at once, and three kinds of Python process.

Source: vLLM 0.32.0, `v1/worker/cpu_worker.py`, `platforms/cpu.py`: `VLLM_CPU_KVCACHE_SPACE` in GiB for each
worker; without it a share of the node's memory (`--gpu-memory-utilization`) less what the worker holds.
"""

from collections.abc import Mapping

from bringup.parse.command_line import whole_number
from bringup.planner.host_weights import file_weights
from bringup.planner.kv_cache import kv_layout
from bringup.planner.kv_records import KvRules
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.planner.ledger import line
from bringup.planner.workspace import Estimate, StepSize, exact, forward_peak
from bringup.units import GIB, MIB
from bringup.values.engine import KvCapacity
from bringup.values.model import ModelSpec
from bringup.values.plan import HostPlan, HostTask, Layout, LedgerLine, Origin

_BLOCK_TOKENS = 128  # the processor's default
_SPACE = "VLLM_CPU_KVCACHE_SPACE"
# Measured, 0.32.0 with PyTorch 2.13: the API server 599 MiB, the core and a tracker 506; a worker, beside
# weights and cache, 501, 701 and 807 with weights of 14, 257 and 459 MiB: packing them leaves holes.
_FRONT_MIB, _WORKER_MIB = 1105, 505
_HOLES = 0.7  # of the weights, where matrices are small
_SMALL = 32 * MIB  # larger pieces go back to the system at once (glibc, M_MMAP_THRESHOLD_MAX)
_LOW, _HIGH = 0.8, 1.5  # compiled graphs, more libraries
_STEP_TOKENS, _SEQUENCES = 8192, 256


def on_host(task: HostTask) -> HostPlan | None:
    """The lines of a vLLM on a processor; None where the model or its cache is not known."""
    flags = task.spec.flags if task.spec else {}
    workers = _workers(task, flags)
    weights = file_weights(task, dtype=flags.get("--dtype"))
    if weights is None or task.model is None:
        return None
    kv = task.engine.kv
    layout = kv_layout(
        task.model,
        Layout(tensor_parallel=workers),
        KvRules(
            version=read_version(task.engine.version) or NEWEST,
            cache_dtype=kv.dtype or "auto",
            block_tokens=kv.block_tokens or _BLOCK_TOKENS,
            has_graphs=False,
        ),
    )
    pool = _pool(task, kv, layout.bytes_per_block, workers)
    if pool is None:
        return None
    return HostPlan(
        ledger=(
            line("weights", weights, Origin.HEADERS),
            pool,
            line("program", _program(task.model, flags, workers, weights.bytes)),
        ),
        tokens=kv.tokens,
        bytes_per_token=layout.bytes_per_block * workers / (kv.block_tokens or _BLOCK_TOKENS),
        flag=_SPACE,
        value=task.process.environment.get(_SPACE, ""),
    )


def _workers(task: HostTask, flags: Mapping[str, str]) -> int:
    parallel = task.spec.tensor_parallel_size if task.spec else None
    return (parallel or 1) * (whole_number(flags.get("--pipeline-parallel-size")) or 1)


def _pool(task: HostTask, kv: KvCapacity, block: int, workers: int) -> LedgerLine | None:
    """Whole blocks of what every worker was given."""
    times = f" x {workers} workers" if workers > 1 else ""
    if kv.blocks and block:
        words = f"{kv.blocks:,} blocks x {block:,} B{times}"
        return line("kv_pool", exact(kv.blocks * block * workers, words), Origin.RULE)
    space = whole_number(task.process.environment.get(_SPACE))
    if space is None or not block:
        return None
    blocks = space * GIB // block
    words = f"{_SPACE}={space}: {blocks:,} blocks x {block:,} B{times}"
    return line("kv_pool", exact(blocks * block * workers, words), Origin.RULE)


def _program(model: ModelSpec, flags: Mapping[str, str], workers: int, weights: int) -> Estimate:
    holes = round(_HOLES * weights) if _has_small_matrices(model, workers) else 0
    size = (_FRONT_MIB + workers * _WORKER_MIB) * MIB
    step = StepSize(
        tokens=whole_number(flags.get("--max-num-batched-tokens")) or _STEP_TOKENS,
        sequences=whole_number(flags.get("--max-num-seqs")) or _SEQUENCES,
    )
    largest = forward_peak(model, Layout(tensor_parallel=workers), step).high * workers
    return Estimate(
        bytes=size + holes,
        low=round(_LOW * size),
        high=round(_HIGH * size) + largest + weights,
        formula=f"{_FRONT_MIB:,} MiB of server and core + {workers} x {_WORKER_MIB} MiB of worker, "
        f"{holes / MIB:,.0f} MiB of holes where weights were packed",
    )


def _has_small_matrices(model: ModelSpec, workers: int) -> bool:
    widest = max((layer.mlp.intermediate_size for layer in model.layers if layer.mlp), default=0)
    return 2 * widest * model.hidden_size * 2 // workers < _SMALL
