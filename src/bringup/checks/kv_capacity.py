"""How many requests the KV cache holds at once, of the served and of the wanted length, and what it lacks.

The engine's own numbers come first. Of models with windows or recurrent states tokens are no measure: there
the plan's figure of requests is scaled with the pool, and slots for states are a limit of their own.

Source: vLLM `v1/core/kv_cache_utils.py` (`get_max_concurrency_for_kv_cache_config`), SGLang
`kv_cache_configurator.py` (`resolve_max_num_reqs`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.units import bytes_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Measurement, Severity
from bringup.values.plan import HostPlan, LayoutPlan
from bringup.values.setting_names import flag_of

_PRESSED = 0.9  # share of the cache in use from which requests soon wait


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capacity:
    """What the engine holds."""

    tokens: int | None
    source: str
    is_planned: bool  # by the rules, not as the engine counts
    context: int | None  # longest request that it takes
    running: int | None  # requests that may run at once, whatever they need
    running_flag: str  # what the engine calls that; empty where it has no flag for it
    plan: LayoutPlan | None
    on_host: HostPlan | None = None  # where the processor carries the model

    def requests(self, length: int) -> float | None:
        """Requests of `length` tokens at once; None where nothing tells."""
        plan, tokens = self.plan, self.tokens
        if plan is not None and plan.kv.tokens and plan.context:
            part = tokens / (plan.kv.tokens * plan.layout.caches) if tokens else 1.0
            fixed, each = plan.kv.fixed_bytes_per_request, plan.kv.bytes_per_token
            scale = (plan.context * each + fixed) / max(1.0, length * each + fixed)
            count = plan.kv.max_concurrency * plan.layout.caches * part * scale
        elif tokens:
            count = tokens / length
        else:
            return None
        return min(count, float(self.running)) if self.running else count

    @property
    def is_bound_by_slots(self) -> bool:
        """Whether the number of running requests, not tokens, is the limit at the served length."""
        if self.running is None or not self.context or not self.tokens:
            return False
        return self.running < self.tokens / self.context


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What it holds, whether that is enough for what is wanted, and whether it is under pressure."""
    _ = replies
    capacity = _capacity(deployment)
    wanted = deployment.wanted
    found = [*_needs(deployment, capacity), *_pressure(deployment)]
    if not found and capacity.tokens is None and capacity.plan is None:
        if not (wanted.need_context or wanted.need_concurrency):
            return Judgement(findings=())
        found = [_unknown()]
    if not any(finding.severity in (Severity.WARNING, Severity.UNKNOWN) for finding in found):
        found += _holds(capacity)
    length = wanted.need_context or capacity.context
    requests = capacity.requests(length) if length else None
    measured = (
        (
            Measurement(
                name=f"requests of {length:,} tokens at once", value=round(requests, 2), unit="requests"
            ),
        )
        if length and requests is not None
        else ()
    )
    return Judgement(findings=tuple(found), measurements=measured)


def _capacity(deployment: Deployment) -> _Capacity:
    engine, spec, account = deployment.engine, deployment.spec, deployment.account
    plan = account.plan if account else None
    on_host = account.host.plan if account and account.host else None
    tokens, source = engine.kv.tokens, engine.kv.source
    is_planned = tokens is None
    if tokens is None and on_host is not None:
        tokens, source = on_host.tokens, "the rules, with what the engine's processes hold"
    if tokens is None and plan is not None:
        tokens, source = plan.kv.tokens * plan.layout.caches, "the plan"
    return _Capacity(
        tokens=tokens or None,
        source=source or "engine",
        is_planned=is_planned,
        context=deployment.model.context_tokens or (plan.context if plan else None),
        running=engine.max_running or engine.kv.slots or (spec.max_running if spec else None),
        running_flag=(flag_of(engine.engine, "running") or "") if engine.engine else "",
        plan=plan,
        on_host=on_host,
    )


def _limit(capacity: _Capacity) -> str:
    """The limit of running requests as the engine's own flag has it."""
    if capacity.running_flag:
        return f"{capacity.running_flag} {capacity.running}"
    return f"the {capacity.running} requests that may run at once"


def _holds(capacity: _Capacity) -> list[Finding]:
    """The good case, in figures."""
    length = capacity.context
    requests = capacity.requests(length) if length else None
    if length is None or requests is None:
        return []
    held = f"{capacity.tokens:,} tokens of KV cache" if capacity.tokens else "the cache"
    if capacity.is_planned and capacity.plan is not None:
        held = f"about {held}, by the rules as the engine tells none,"
    words = f"{held} hold {requests:.1f} requests of {length:,} tokens at once"
    if capacity.is_bound_by_slots:
        words += f", limited by {_limit(capacity)}, not by tokens"
    plan = capacity.plan
    states = plan.kv.fixed_bytes_per_request if plan else 0
    if states:
        words += f"; each takes {bytes_text(states)} of states or windows per GPU beside its tokens"
    return [
        Finding(
            id="kv_capacity",
            severity=Severity.OK,
            summary=words,
            expected="at least one request of the longest length",
            action="none",
            evidence=(Evidence(source=capacity.source, text=held),),
        )
    ]


def _needs(deployment: Deployment, capacity: _Capacity) -> Iterator[Finding]:
    """The length and the number of requests that the user needs, against what there is."""
    length, count = deployment.wanted.need_context, deployment.wanted.need_concurrency
    context = capacity.context
    if length is not None and context is not None and length > context:
        yield Finding(
            id="kv_capacity.context",
            severity=Severity.WARNING,
            summary=f"requests of {length:,} tokens are needed, the server takes {context:,}",
            expected=f"{length:,} tokens per request",
            explanation="longer requests are refused",
            action=f"start it with a context of {length:,} tokens, if its model and cache allow it",
            evidence=(Evidence(source="models endpoint", text=f"{context:,} tokens"),),
        )
    size = length or context
    requests = capacity.requests(size) if size else None
    if count is None or size is None or requests is None or requests >= count:
        return
    plan = capacity.plan
    lacking = round((count - requests) * size)
    room = f", about {bytes_text(round(lacking * plan.kv.bytes_per_token))} more per GPU" if plan else ""
    if capacity.on_host is not None and capacity.on_host.bytes_per_token:
        room = f", about {bytes_text(round(lacking * capacity.on_host.bytes_per_token))} more of host memory"
    if count * size <= (capacity.tokens or 0):
        room = ", for which the cache has room"
    yield Finding(
        id="kv_capacity.concurrency",
        severity=Severity.WARNING,
        summary=f"{count} requests of {size:,} tokens at once are needed, {requests:.1f} are held",
        expected=f"{count} x {size:,} tokens{room}",
        explanation="the others wait, or are put aside and computed again"
        if not capacity.is_bound_by_slots
        else f"{capacity.running} requests run at once ({_limit(capacity)}), whatever the cache holds"
        if capacity.running_flag
        else f"{capacity.running} requests run at once, whatever the cache holds",
        action=_relief(capacity, count, requests),
        evidence=(Evidence(source=capacity.source, text=f"{capacity.tokens or 0:,} tokens"),),
        fixes=_fixes(capacity, count),
    )


def _relief(capacity: _Capacity, count: int, requests: float) -> str:
    if capacity.is_bound_by_slots:
        how = f"{capacity.running_flag} {count}" if capacity.running_flag else f"let {count} run at once"
        return f"{how}, where memory allows it: see `bringup plan`"
    if capacity.on_host is not None:
        return f"fewer or shorter requests, or a larger cache: {capacity.on_host.flag}"
    ways = ["fewer or shorter requests", "more GPUs"]
    if capacity.plan and "fp8" not in (capacity.plan.kv.cache_dtype or "") and requests * 2 >= count:
        ways.insert(0, "an fp8 KV cache holds about twice as many (--kv-cache-dtype fp8)")
    return f"{'; '.join(ways)}: `bringup plan --context N --concurrency N` says what does it"


def _fixes(capacity: _Capacity, count: int) -> tuple[Fix, ...]:
    if not capacity.is_bound_by_slots:
        return ()
    name = capacity.running_flag or "running requests"
    return (Fix(type="flag", name=name, old=str(capacity.running), new=str(count)),)


def _pressure(deployment: Deployment) -> Iterator[Finding]:
    """Requests that were put aside, and a cache that is full now."""
    metrics, kv = deployment.engine.metrics, deployment.engine.kv
    preempted = metrics.get("preemptions_total", 0.0)
    waiting = deployment.engine.waiting or 0
    if kv.used_share is not None and kv.used_share >= _PRESSED and waiting:
        yield Finding(
            id="kv_capacity.full",
            severity=Severity.WARNING,
            summary=f"{kv.used_share:.0%} of the KV cache are in use and {waiting} requests wait",
            expected="room for the requests that come",
            explanation="new requests wait until others end",
            action="send less, allow shorter requests, or give the cache more: `bringup plan` says how much",
            evidence=(Evidence(source=kv.source or "metrics", text=f"{kv.used_share:.3f} in use"),),
        )
    if preempted >= 1:
        yield Finding(
            id="kv_capacity.preemptions",
            severity=Severity.NOTE,
            summary=f"{preempted:,.0f} requests were put aside for want of cache since the engine started",
            expected="0: every one is computed again",
            explanation="it shows as sudden waits within an answer",
            action="limit the requests that run at once to what the cache holds, or give it more",
            evidence=(Evidence(source="metrics", text=f"preemptions {preempted:,.0f}"),),
        )


def _unknown() -> Finding:
    return Finding(
        id="kv_capacity",
        severity=Severity.UNKNOWN,
        summary="not measured: the engine tells no size of its cache and there is no plan of it",
        expected="room for what is needed",
        explanation="whether the cache holds the needed requests is not known",
        action="give --host or the engine's command after `--`",
    )


CHECK = Check(
    title="the cache holds what is needed",
    section="capacity",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
