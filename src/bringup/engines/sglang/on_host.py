"""SGLang on a processor: weights, the token pool, and its Python processes.

Source: SGLang 0.5.23, `--device cpu`, `mem_cache/memory_pool.py`: the pool has one token (or page) more than
it says, for padding, and its pages are all written when it is made.
"""

from bringup.parse.command_line import whole_number
from bringup.planner.host_weights import file_weights
from bringup.planner.kv_sglang import SglangRules, sglang_token_bytes
from bringup.planner.ledger import line
from bringup.planner.workspace import Estimate, exact
from bringup.units import MIB
from bringup.values.plan import HostPlan, HostTask, Layout, Origin

# Measured, 0.5.23 with PyTorch 2.13, beside another engine and alone: the server 600 and 631 MiB, a tracker
# 154 and 163, the detokenizer 549 and 578, a scheduler beside weights and cache 667 and 723.
_FRONT_MIB, _WORKER_MIB = 1345, 685
_LOW, _HIGH = 0.8, 1.5  # more libraries, larger steps


def on_host(task: HostTask) -> HostPlan | None:
    """The lines of an SGLang on a processor; None where the model or its cache is not known."""
    flags = task.spec.flags if task.spec else {}
    weights = file_weights(task, dtype=flags.get("--dtype"))
    tokens = task.engine.kv.tokens
    if weights is None or task.model is None or tokens is None:
        return None
    workers = task.spec.tensor_parallel_size or 1 if task.spec else 1
    page = task.engine.kv.block_tokens or 1
    rate = sglang_token_bytes(
        task.model,
        Layout(tensor_parallel=workers),
        SglangRules(cache_dtype=_cache_dtype(task.engine.kv.dtype), page_tokens=page),
    )
    times = f" x {workers} workers" if workers > 1 else ""
    pool = exact(
        round((tokens + page) * rate * workers), f"({tokens:,} + {page:,}) tokens x {rate:,.0f} B{times}"
    )
    return HostPlan(
        ledger=(
            line("weights", weights, Origin.HEADERS),
            line("kv_pool", pool, Origin.RULE),
            line("program", _program(workers)),
        ),
        tokens=tokens,
        bytes_per_token=rate * workers,
        flag="--max-total-tokens",
        value=str(whole_number(flags.get("--max-total-tokens")) or ""),
    )


def _cache_dtype(told: str | None) -> str:
    return told if told and told != "auto" else "auto"


def _program(workers: int) -> Estimate:
    size = (_FRONT_MIB + workers * _WORKER_MIB) * MIB
    return Estimate(
        bytes=size,
        low=round(_LOW * size),
        high=round(_HIGH * size),
        formula=f"{_FRONT_MIB:,} MiB of server and detokenizer + {workers} x {_WORKER_MIB} MiB of scheduler",
    )
