"""What the engine holds is what its rule makes of its flags: no alarm for a pool taken on purpose.

vLLM takes its share of the card's CUDA total beside contexts and buffers, SGLang leaves a share of what was
free: so a card that is nearly full says nothing. Off the rule, it does.

Source: the engines' `memory` modules; the bounds are those of the plan.
"""

from collections.abc import Sequence
from math import ceil

from bringup.checks import Check, Replies
from bringup.planner.ranks import odd_ranks
from bringup.units import bytes_text, mib, mib_text
from bringup.values.account import Account, GpuAccount, HostAccount
from bringup.values.deployment import Deployment, Depth
from bringup.values.engine import KvCapacity
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.gpu_words import gpus_text
from bringup.values.plan import HostPlan, LayoutPlan

_TOLERANCE = mib(32)  # the driver rounds its figures apart
_HOST_PARTS = {
    "weights": "weights",
    "kv_pool": "KV cache",
    "prompt_cache": "kept prompts",
    "program": "program and work space",
}
_PARTS = {"weights": "weights", "state_pool": "recurrent states", "kv_pool": "KV cache"}


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """By design, more or less than that, or not known because the rule cannot be applied."""
    _ = replies
    account = deployment.account
    if account is not None and account.host is not None:
        return _on_host(account.host)
    if account is None or not account.carriers:
        return Judgement(findings=())
    carriers = [one for one in account.carriers if one.engine_bytes is not None]
    if account.plan is None or not carriers:
        # Of a card that MIG cuts the account says itself what was lacking.
        has_figures = bool(carriers) or any(one.gpu.mig_mode == "Enabled" for one in account.carriers)
        return Judgement(findings=(_unknown(account, has_figures=has_figures),))
    # A rank that is out of line with the others is told by the check of their balance.
    odd = [rank.one for rank in odd_ranks(deployment)]
    carriers = [one for one in carriers if not any(one is other for other in odd)]
    over = max(carriers, key=lambda one: (one.engine_bytes or 0) - _bounds(account, one)[1])
    under = min(carriers, key=lambda one: (one.engine_bytes or 0) - _bounds(account, one)[0])
    pool = _pool_finding(deployment.engine.kv, account.plan)
    if (over.engine_bytes or 0) > _bounds(account, over)[1] + _TOLERANCE:
        findings = (_more(account, account.plan, over, *_bounds(account, over)),)
    elif pool is not None:
        findings = (pool,)
    elif (under.engine_bytes or 0) < _bounds(account, under)[0] - _TOLERANCE:
        findings = (_less(account.plan, under, *_bounds(account, under)),)
    else:
        low, high = (
            pick(_bounds(account, one)[end] for one in carriers) for end, pick in ((0, min), (1, max))
        )
        findings = (_as_designed(account, account.plan, carriers, low, high),)
    measured = tuple(
        Measurement(name=f"unexplained memory, {one.gpu.label}", value=one.unexplained, unit="bytes")
        for one in carriers
        if one.unexplained
    )
    return Judgement(findings=findings, measurements=measured)


def _bounds(account: Account, one: GpuAccount) -> tuple[int, int]:
    """The least and the most that the plan allows this GPU: stages of a pipeline differ."""
    return one.bounds or account.bounds or (0, 0)


def _on_host(host: HostAccount) -> Judgement:
    """The same of the host's memory, where the processor carries the model; nothing without a rule."""
    plan = host.plan
    if plan is None or host.unexplained is None:
        return Judgement(findings=())
    by_rule = Measurement(name="host memory of the engine by its rules", value=plan.bytes, unit="bytes")
    seen = Measurement(name="host memory of the engine", value=host.resident, unit="bytes")
    return Judgement(findings=(_host_finding(host, plan, host.unexplained),), measurements=(by_rule, seen))


def _host_finding(host: HostAccount, plan: HostPlan, beyond: int) -> Finding:
    held = mib_text(host.resident)
    parts = ", ".join(
        f"{mib_text(line.bytes)} {_HOST_PARTS[line.name]}"
        for line in host.lines
        if line.name in _HOST_PARTS and line.bytes >= mib(1)
    )
    expected = f"{mib_text(plan.low)} to {mib_text(plan.high)}"
    evidence = (
        Evidence(source="kernel", text=f"{host.resident:,} B resident in the engine's processes"),
        *(Evidence(source="rule", text=f"{line.name}: {line.formula}") for line in plan.ledger if line.bytes),
    )
    if beyond == 0:
        return Finding(
            id="memory_by_design",
            severity=Severity.OK,
            summary=f"{held} of host memory are by design: {parts}",
            expected=expected,
            action="none",
            evidence=evidence,
        )
    if beyond < 0:
        return Finding(
            id="memory_by_design.less",
            severity=Severity.NOTE,
            summary=f"the engine holds {held} of host memory, {mib_text(-beyond)} less than by design",
            expected=expected,
            explanation="a part of the weights or of the cache is not in memory: it was dropped or swapped "
            "out, or nothing has touched it yet; the next request reads it from the disk",
            action="keep it in memory: more room on the host, or `--mlock` where the engine has it",
            evidence=evidence,
        )
    return Finding(
        id="memory_by_design.more",
        severity=Severity.WARNING,
        summary=f"the engine holds {held} of host memory, {mib_text(beyond)} more than by design",
        expected=expected,
        explanation="weights, cache and what such a program needs do not add up to so much: other settings, "
        "or a leak",
        action="look for a leak: verify again, and compare",
        evidence=evidence,
    )


def _unknown(account: Account, *, has_figures: bool) -> Finding:
    why, cure = account.why_no_plan, account.cure
    if not has_figures:
        why, cure = "the driver gives no figure for memory used", "look at the host's own memory: `free -m`"
    return Finding(
        id="memory_by_design",
        severity=Severity.UNKNOWN,
        summary=f"not measured: {why or 'there is no plan to hold it against'}",
        expected="memory used as the engine's rules give it",
        explanation="whether so much memory is by design, a leak or too little is not known",
        action=cure or "verify on the engine's machine or with --host",
    )


def _rule(plan: LayoutPlan) -> str:
    """The rule in words with its numbers."""
    share = plan.share
    if share is None:
        return "weights, the cache as given, work space"
    given = f"{share.flag} {share.value:.4g}"
    if share.flag == "--gpu-memory-utilization":
        return f"{given} of {mib_text(share.base)}, beside contexts, buffers and graphs"
    return (
        f"{given} of the {mib_text(share.base)} that were free is for weights and pools, "
        f"{mib_text(_left(plan))} are kept back for graphs and buffers"
    )


def _left(plan: LayoutPlan) -> int:
    share = plan.share
    return round(share.base * (1 - share.value)) if share else 0


def _as_designed(
    account: Account, plan: LayoutPlan, carriers: Sequence[GpuAccount], low: int, high: int
) -> Finding:
    held = sorted({one.engine_bytes or 0 for one in carriers})
    figures = mib_text(held[0]) if len(held) == 1 else f"{mib_text(held[0])} to {mib_text(held[-1])}"
    one, each = carriers[0], " per GPU" if len(carriers) > 1 else ""
    parts = [
        f"{bytes_text(line.bytes)} {words}"
        for name, words in _PARTS.items()
        if (line := one.line(name)) is not None
    ]
    return Finding(
        id="memory_by_design",
        severity=Severity.OK,
        summary=f"{figures}{each} are by design: {_rule(plan)}; {', '.join(parts)} of it",
        expected=f"{mib_text(low)} to {mib_text(high)}",
        action="none",
        evidence=(
            Evidence(source="driver", text=f"{gpus_text([one.gpu for one in carriers])}: {figures} used"),
            *_planned(account),
        ),
    )


def _more(account: Account, plan: LayoutPlan, fullest: GpuAccount, low: int, high: int) -> Finding:
    held = fullest.engine_bytes or 0
    share = plan.share
    hint = "look for a leak: verify again, and compare"
    if share is not None:
        least = ceil(100 * (share.value + (held - high) / share.base)) / 100
        if least < 1:
            hint = f"{share.flag} {least:.2f} would explain it: see with which flags it was really started"
    return Finding(
        id="memory_by_design.more",
        severity=Severity.WARNING,
        summary=f"{fullest.gpu.label} holds {mib_text(held)}, {mib_text(held - high)} more than by design",
        expected=f"{mib_text(low)} to {mib_text(high)}: {_rule(plan)}",
        explanation="the flags that are seen do not lead to so much memory: other flags, a leak, or another "
        "process that is not seen",
        action=hint,
        evidence=(
            Evidence(source="driver", text=f"{fullest.gpu.label}: {mib_text(held)}"),
            *_planned(account),
        ),
    )


def _less(plan: LayoutPlan, least: GpuAccount, low: int, high: int) -> Finding:
    held = least.engine_bytes or 0
    return Finding(
        id="memory_by_design.less",
        severity=Severity.WARNING,
        summary=f"{least.gpu.label} holds {mib_text(held)}, {mib_text(low - held)} less than by design",
        expected=f"{mib_text(low)} to {mib_text(high)}: {_rule(plan)}",
        explanation="a part of the model or of its cache is not there, or lies in the host's memory",
        action="compare the log's lines on weights and cache: `bringup plan --against-log FILE`",
        evidence=(Evidence(source="driver", text=f"{least.gpu.label}: {mib_text(held)}"),),
    )


def _pool_finding(kv: KvCapacity, plan: LayoutPlan) -> Finding | None:
    """The engine's own count of cache tokens outside what its flags imply."""
    if kv.tokens is None or not plan.kv.low_tokens:
        return None
    engines = plan.layout.caches
    low, high = plan.kv.low_tokens * engines, plan.kv.high_tokens * engines
    if kv.tokens >= low * 0.98:  # a block more or less, and rounding
        return None
    size = round((plan.kv.tokens * engines - kv.tokens) * plan.kv.bytes_per_token / engines)
    return Finding(
        id="memory_by_design.pool",
        severity=Severity.WARNING,
        summary=f"the KV cache has {kv.tokens:,} tokens, {kv.tokens / (plan.kv.tokens * engines):.0%} of the "
        f"{plan.kv.tokens * engines:,} that its flags lead to",
        expected=f"{low:,} to {high:,} tokens: {_rule(plan)}",
        explanation=f"about {bytes_text(size)} per GPU that should be cache are not: something else was on "
        "the GPUs when it started, or a limit that is not in the command line holds it down",
        action="restart it on empty GPUs; look at the start-up log for blocks and free memory",
        evidence=(Evidence(source=kv.source or "engine", text=f"{kv.tokens:,} tokens"),),
    )


def _planned(account: Account) -> tuple[Evidence, ...]:
    task = account.task
    if task is None:
        return ()
    version = task.version or "of an unknown version"
    return (Evidence(source="rule", text=f"{task.spec.engine} {version}, {task.model.source}"),)


CHECK = Check(
    title="memory is used as designed",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
