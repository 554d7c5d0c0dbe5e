"""Ranks that hold more or less than the others of their stage, beyond what an engine's rules give them.

Ranks of one stage have equal shares of weights and cache. What differs by rule: the first rank has contexts
of other processes of the engine and more communication buffers; pipeline stages have layers of their own.

Seen: 200 MiB within a group and 850 MiB for the first rank of four (SGLang).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.units import GIB, mib
from bringup.values.account import Account, GpuAccount

SPREAD = mib(200)  # within a group, the first rank aside
FIRST_RANK = GIB + mib(200)  # contexts of the engine's other processes, 0.3 to 0.7 GiB each, and its buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRank:
    """A rank that is out of line."""

    one: GpuAccount
    more: int  # bytes above the usual of its stage, negative below
    stage: tuple[GpuAccount, ...]


def ranks_of(account: Account) -> list[GpuAccount]:
    """The GPUs that carry the model and tell what the engine holds there."""
    return [one for one in account.carriers if one.engine_bytes is not None]


def odd_ranks(account: Account, *, engine: str) -> tuple[OddRank, ...]:
    """All ranks that are out of line; none for an engine that gives devices what they have room for."""
    ranks = ranks_of(account)
    if len(ranks) < 2 or engine == "llama_cpp":
        return ()
    return tuple(odd for stage in _stages(account, ranks) for odd in _odd(stage))


def _stages(account: Account, ranks: Sequence[GpuAccount]) -> list[Sequence[GpuAccount]]:
    """The ranks of each pipeline stage: a stage's ranks follow each other."""
    stages = account.plan.layout.pipeline_parallel if account.plan else 1
    size = max(1, len(ranks) // max(1, stages))
    return [ranks[start : start + size] for start in range(0, len(ranks), size)]


def _odd(stage: Sequence[GpuAccount]) -> list[OddRank]:
    ordered = sorted(one.engine_bytes or 0 for one in stage)
    usual = ordered[(len(ordered) - 1) // 2]
    found: list[OddRank] = []
    for one in stage:
        more = (one.engine_bytes or 0) - usual
        if abs(more) > (FIRST_RANK if one.rank == 0 and more > 0 else SPREAD):
            found.append(OddRank(one=one, more=more, stage=tuple(stage)))
    return found
