"""Pipeline stages: what a GPU of each holds, and the plan as it stands for one of them."""

from collections.abc import Sequence
from dataclasses import replace

from bringup.planner.weights import Weights
from bringup.values.plan import Layout, LayoutPlan, LedgerLine, StageShare


def stage_shares(weights: Weights, pool: int, pools: Sequence[int] = ()) -> tuple[StageShare, ...]:
    """The stages with their pools; without `pools`, `pool` is the heaviest stage's and goes by layers."""
    if len(weights.stages) < 2:
        return ()
    if not pools:
        layers = max(1, len(weights.heaviest.layers))
        pools = [pool * len(stage.layers) // layers for stage in weights.stages]
    return tuple(
        StageShare(layers=stage.layers, weights_bytes=stage.total, pool_bytes=size)
        for stage, size in zip(weights.stages, pools, strict=False)
    )


def stage_of(layout: Layout, rank: int) -> int:
    """The stage of a rank: the ranks of one stage follow each other, and replicas repeat all stages.

    >>> [stage_of(Layout(tensor_parallel=2, pipeline_parallel=2), rank) for rank in range(4)]
    [0, 0, 1, 1]
    """
    return rank // max(1, layout.tensor_parallel) % max(1, layout.pipeline_parallel)


def plan_of_rank(plan: LayoutPlan, rank: int | None) -> LayoutPlan:
    """The plan as it stands for the GPU of this rank: with the layers of its stage."""
    if rank is None or not plan.stages:
        return plan
    share = plan.stages[stage_of(plan.layout, rank)]
    wanted = {"weights": share.weights_bytes, "kv_pool": share.pool_bytes}
    lines = tuple(_scaled(line, wanted[line.name]) if line.name in wanted else line for line in plan.ledger)
    shift = sum(line.bytes for line in lines) - sum(line.bytes for line in plan.ledger)
    return replace(
        plan,
        ledger=lines,
        weights_bytes=share.weights_bytes,
        smi_used_low=plan.smi_used_low + shift,
        smi_used_high=plan.smi_used_high + shift,
    )


def _scaled(line: LedgerLine, size: int) -> LedgerLine:
    if not line.bytes or line.bytes == size:
        return line
    part = size / line.bytes
    return replace(
        line,
        bytes=size,
        low=round(line.low * part),
        high=round(line.high * part),
        formula=f"{line.formula}, x {part:.3f} for the layers of its stage",
    )
