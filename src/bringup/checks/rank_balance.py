"""The tensor-parallel ranks hold the same, as far as the engine's rules make them.

Ranks of one stage have equal shares of weights and cache. Stages of a pipeline have layers of their own and
are not held against each other. What differs by rule: the first rank has contexts
of other processes of the engine and more communication buffers. The number of cache blocks is the least over
all ranks, so the fullest GPU decides for all.

Source: vLLM 0.33.0 `v1/core/kv_cache_utils.py` (`get_kv_cache_configs`, the minimum over workers); SGLang
0.5.23 `model_runner.py` (`get_available_gpu_memory(distributed=True)`). Seen: 200 MiB within a group and 850
MiB for the first rank of four (SGLang).
"""

from collections.abc import Sequence

from bringup.checks import Check, Replies
from bringup.planner.ranks import SPREAD, OddRank, odd_ranks, ranks_of, stages_of
from bringup.units import mib_text
from bringup.values.account import GpuAccount
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.gpu_words import gpus_text

_EXPECTED = "ranks of a stage within 200 MiB, the first with up to 1 GiB more"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """The spread over the ranks of each pipeline stage, and who decides the size of the pool."""
    _ = replies
    carriers = ranks_of(deployment)
    if len(carriers) < 2:
        return Judgement(findings=())
    odd = odd_ranks(deployment)
    stages = stages_of(deployment, carriers)
    if len(stages) > 1:
        return _of_stages(deployment, stages, odd)
    spread = max(_held(one) for one in carriers) - min(_held(one) for one in carriers)
    measured = (Measurement(name="spread over the ranks", value=spread, unit="bytes"),)
    return Judgement(findings=(_uneven(odd) if odd else _even(carriers, spread),), measurements=measured)


def _of_stages(
    deployment: Deployment, stages: Sequence[Sequence[GpuAccount]], odd: Sequence[OddRank]
) -> Judgement:
    """The same within each stage of a pipeline, and what each stage holds."""
    measured = tuple(
        Measurement(
            name=f"spread over the ranks, stage {number}",
            value=max(map(_held, stage)) - min(map(_held, stage)),
            unit="bytes",
        )
        for number, stage in enumerate(stages)
    )
    finding = _uneven(odd) if odd else _staged(deployment, stages)
    return Judgement(findings=(finding,), measurements=measured)


def _staged(deployment: Deployment, stages: Sequence[Sequence[GpuAccount]]) -> Finding:
    plan = deployment.account.plan if deployment.account else None
    shares = plan.stages if plan is not None and len(plan.stages) == len(stages) else ()
    parts: list[str] = []
    rows: list[Evidence] = []
    for number, stage in enumerate(stages):
        held = sorted(map(_held, stage))
        size = mib_text(held[0]) if held[-1] == held[0] else f"{mib_text(held[0])} to {mib_text(held[-1])}"
        gpus = gpus_text([one.gpu for one in stage])
        layers = f" (layers {shares[number].layers[0]}-{shares[number].layers[-1]})" if shares else ""
        parts.append(f"stage {number}{layers} on {gpus} {size}")
        rows.append(Evidence(source="driver", text=f"stage {number}, {gpus}: {size}"))
    rows += [
        Evidence(
            source="rule",
            text=f"stage {number}: {len(share.layers)} layers, {mib_text(share.weights_bytes)} of weights "
            f"and {mib_text(share.pool_bytes)} of KV cache per GPU",
        )
        for number, share in enumerate(shares)
    ]
    return Finding(
        id="rank_balance",
        severity=Severity.OK,
        summary=f"the stages of the pipeline hold their own layers: {', '.join(parts)}",
        expected=_EXPECTED,
        action="none",
        evidence=tuple(rows),
    )


def _held(one: GpuAccount) -> int:
    return one.engine_bytes or 0


def _uneven(odd: Sequence[OddRank]) -> Finding:
    """The rank that is farthest off, and how many others are."""
    first, others = odd[0], odd[1:]
    gpu, more = first.one.gpu, first.more
    also = f"; also out of line: {gpus_text([one.one.gpu for one in others])}" if others else ""
    return Finding(
        id="rank_balance",
        severity=Severity.WARNING,
        summary=f"{gpu.label} holds {mib_text(abs(more))} {'more' if more > 0 else 'less'} than the "
        f"other ranks{also}",
        expected=_EXPECTED,
        explanation="no rule of the engine gives a rank so much: somebody else's process that is not "
        "seen, one left over from an earlier start, or a leak; the fullest GPU decides for all"
        if more > 0
        else "a rank that holds less has lost a part of the model or of its cache, or never got it",
        action=f"see who holds it: `nvidia-smi -i {gpu.index} --query-compute-apps=pid,used_memory "
        "--format=csv` and `fuser -v /dev/nvidia*`",
        evidence=tuple(
            Evidence(source="driver", text=f"{each.gpu.label}: {mib_text(_held(each))}")
            for each in first.stage
        ),
    )


def _even(carriers: Sequence[GpuAccount], spread: int) -> Finding:
    first = carriers[0]
    others = max(map(_held, carriers[1:]))
    gpus = gpus_text([one.gpu for one in carriers])
    decides = max(carriers, key=lambda one: one.gpu.memory_used or 0)
    words = f"{gpus} carry it evenly, within {mib_text(spread)}"
    if _held(first) - others > SPREAD:
        words = (
            f"{gpus} carry it evenly but for rank 0 ({first.gpu.label}), which holds "
            f"{mib_text(_held(first) - others)} more: contexts of the engine's other processes"
        )
    if spread:
        words += f"; {decides.gpu.label} decides the pool of all"
    return Finding(
        id="rank_balance",
        severity=Severity.OK,
        summary=words,
        expected=_EXPECTED,
        action="none",
        evidence=tuple(
            Evidence(source="driver", text=f"{one.gpu.label}: {mib_text(_held(one))}") for one in carriers
        ),
    )


CHECK = Check(
    title="ranks hold the same",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
