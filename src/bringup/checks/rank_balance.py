"""The tensor-parallel ranks hold the same, as far as the engine's rules make them.

Ranks of one stage have equal shares of weights and cache. What differs by rule: the first rank has contexts
of other processes of the engine and more communication buffers; pipeline stages have layers of their own. The
number of cache blocks is the least over all ranks, so the fullest GPU decides for all.

Source: vLLM 0.33.0 `v1/core/kv_cache_utils.py` (`get_kv_cache_configs`, the minimum over workers); SGLang
0.5.23 `model_runner.py` (`get_available_gpu_memory(distributed=True)`). Seen: 200 MiB within a group and 850
MiB for the first rank of four (SGLang).
"""

from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.units import GIB, mib, mib_text
from bringup.values.account import Account, GpuAccount
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.gpu_words import gpus_text

_SPREAD = mib(200)  # within a group, the first rank aside
_FIRST_RANK = GIB + mib(200)  # contexts of the engine's other processes, 0.3 to 0.7 GiB each, and its buffers
_EXPECTED = "ranks of a stage within 200 MiB, the first with up to 1 GiB more"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """The spread over the ranks of each pipeline stage, and who decides the size of the pool."""
    _ = replies
    account = deployment.account
    carriers = [one for one in account.carriers if one.engine_bytes is not None] if account else []
    if account is None or len(carriers) < 2 or deployment.engine.engine == "llama_cpp":
        return Judgement(findings=())  # llama.cpp gives devices what they have room for
    odd = tuple(finding for stage in _stages(account, carriers) for finding in _uneven(stage))
    spread = max(_held(one) for one in carriers) - min(_held(one) for one in carriers)
    measured = (Measurement(name="spread over the ranks", value=spread, unit="bytes"),)
    return Judgement(findings=odd or (_even(carriers, spread),), measurements=measured)


def _stages(account: Account, carriers: Sequence[GpuAccount]) -> list[Sequence[GpuAccount]]:
    """The ranks of each pipeline stage: a stage's ranks follow each other."""
    stages = account.plan.layout.pipeline_parallel if account.plan else 1
    size = max(1, len(carriers) // max(1, stages))
    return [carriers[start : start + size] for start in range(0, len(carriers), size)]


def _held(one: GpuAccount) -> int:
    return one.engine_bytes or 0


def _uneven(stage: Sequence[GpuAccount]) -> Iterator[Finding]:
    ordered = sorted(map(_held, stage))
    usual = ordered[(len(ordered) - 1) // 2]
    for one in stage:
        more = _held(one) - usual
        allowed = _FIRST_RANK if one.rank == 0 and more > 0 else _SPREAD
        if abs(more) <= allowed:
            continue
        room = (
            f", {mib_text(one.gpu.memory_headroom)} are left there"
            if one.gpu.memory_headroom is not None
            else ""
        )
        yield Finding(
            id="rank_balance",
            severity=Severity.WARNING,
            summary=f"{one.gpu.label} holds {mib_text(abs(more))} {'more' if more > 0 else 'less'} than the "
            f"other ranks{room}",
            expected=_EXPECTED,
            explanation="no rule of the engine gives a rank so much: somebody else's process that is not "
            "seen, one left over from an earlier start, or a leak; the fullest GPU decides for all"
            if more > 0
            else "a rank that holds less has lost a part of the model or of its cache, or never got it",
            action=f"see who holds it: `nvidia-smi -i {one.gpu.index} --query-compute-apps=pid,used_memory "
            "--format=csv` and `fuser -v /dev/nvidia*`",
            evidence=tuple(
                Evidence(source="driver", text=f"{each.gpu.label}: {mib_text(_held(each))}") for each in stage
            ),
        )


def _even(carriers: Sequence[GpuAccount], spread: int) -> Finding:
    first = carriers[0]
    others = max(map(_held, carriers[1:]))
    gpus = gpus_text([one.gpu for one in carriers])
    decides = max(carriers, key=lambda one: one.gpu.memory_used or 0)
    words = f"{gpus} carry it evenly, within {mib_text(spread)}"
    if _held(first) - others > _SPREAD:
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
