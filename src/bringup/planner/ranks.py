"""Ranks that hold more or less than the others of their stage, beyond what an engine's rules give them.

Ranks of one stage have equal shares of weights and cache. What differs by rule: the first rank has contexts
of other processes of the engine and more communication buffers; pipeline stages have layers of their own.

Seen: 200 MiB within a group and 850 MiB for the first rank of four (SGLang).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.planner.stages import stage_of
from bringup.units import GIB, mib
from bringup.values.account import Account, GpuAccount
from bringup.values.deployment import Deployment
from bringup.values.plan import Layout

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
    ranks = ranks_of(deployment)
    if len(ranks) < 2:
        return ()
    found = [odd for stage in stages_of(deployment, ranks) for odd in _odd(stage)]
    return tuple(sorted(found, key=lambda odd: -abs(odd.more)))


def stages_of(deployment: Deployment, ranks: Sequence[GpuAccount]) -> list[list[GpuAccount]]:
    """The ranks of each pipeline stage, over all replicas."""
    layout = _layout(deployment, len(ranks))
    stages: list[list[GpuAccount]] = [[] for _ in range(layout.pipeline_parallel)]
    for number, one in enumerate(ranks):
        stages[stage_of(layout, number if one.rank is None else one.rank)].append(one)
    return [stage for stage in stages if stage]


def _layout(deployment: Deployment, count: int) -> Layout:
    """The layout of the plan, else as the command line says it."""
    account, spec = deployment.account, deployment.spec
    if account is not None and account.plan is not None:
        return account.plan.layout
    flags = spec.flags if spec is not None else {}
    given = (flags.get(name, "") for name in ("--pipeline-parallel-size", "--pp-size", "--pp_size"))
    stages = next((int(text) for text in given if text.isdigit() and int(text)), 1)
    tensor = (spec.tensor_parallel_size if spec is not None else None) or max(1, count // stages)
    return Layout(tensor_parallel=tensor, pipeline_parallel=stages)


def _odd(stage: Sequence[GpuAccount]) -> list[OddRank]:
    ordered = sorted(one.engine_bytes or 0 for one in stage)
    usual = ordered[(len(ordered) - 1) // 2]
    found: list[OddRank] = []
    for one in stage:
        more = (one.engine_bytes or 0) - usual
        if abs(more) > (FIRST_RANK if one.rank == 0 and more > 0 else SPREAD):
            found.append(OddRank(one=one, more=more, stage=tuple(stage)))
    return found
