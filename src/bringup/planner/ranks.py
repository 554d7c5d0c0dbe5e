"""Ranks that hold more or less than the others of their stage, beyond what an engine's rules give them.

Ranks of one stage have equal shares of weights and cache. What differs by rule: the first rank has contexts
of other processes of the engine and more communication buffers; pipeline stages have layers of their own.

Seen: 200 MiB within a group and 850 MiB for the first rank of four (SGLang).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.units import GIB, mib
from bringup.values.account import Account, GpuAccount
from bringup.values.deployment import Deployment

SPREAD = mib(200)  # within a group, the first rank aside
FIRST_RANK = GIB + mib(200)  # contexts of the engine's other processes, 0.3 to 0.7 GiB each, and its buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRank:
    """A rank that is out of line."""

    one: GpuAccount
    more: int  # bytes above the usual of its stage, negative below
    stage: tuple[GpuAccount, ...]


def ranks_of(deployment: Deployment) -> list[GpuAccount]:
    """The GPUs that hold one rank each, as far as the driver tells how much.

    None where nothing says that they belong together, and none for an engine that gives devices what they
    have room for.
    """
    account = deployment.account
    if account is None or deployment.engine.engine == "llama_cpp":
        return []
    if account.plan is None and not _belong_together(deployment, account):
        return []
    return [one for one in account.carriers if one.engine_bytes is not None]


def _belong_together(deployment: Deployment, account: Account) -> bool:
    """Whether flags, the user or the driver say that the GPUs in use are one engine's."""
    size = deployment.spec.tensor_parallel_size if deployment.spec is not None else None
    owned = [one for one in account.carriers if any(holder.is_engine for holder in one.holders)]
    return (size or 0) > 1 or len(deployment.wanted.gpus) > 1 or len(owned) > 1


def odd_ranks(deployment: Deployment) -> tuple[OddRank, ...]:
    """All ranks that are out of line, the farthest first."""
    account, ranks = deployment.account, ranks_of(deployment)
    if account is None or len(ranks) < 2:
        return ()
    found = [odd for stage in _stages(account, ranks) for odd in _odd(stage)]
    return tuple(sorted(found, key=lambda odd: -abs(odd.more)))


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
