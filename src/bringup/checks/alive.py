"""The engine is still there after everything that was asked: same process, still listening, still healthy.

An engine that is ready, healthy and dead after its first request is the case that readiness probes miss.

Seen in: vLLM 0.32.0 on CPU, mixture of experts with tensor and expert parallelism: ready and healthy, the
first request killed a worker, a few requests got status 500, then the server ended.
"""

from collections.abc import Iterator

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import FaultKind, fault_of
from bringup.parse.engine_end import is_replaced, is_sick, refusals
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_EXPECTED = "the same engine answers after all requests as before them"
_ASKS = (("health", "/health"), ("models", "/v1/models"))
_LIMIT_S = 10.0  # a look at a quiet engine takes milliseconds
_FATAL = frozenset({FaultKind.SERVER_ERROR, FaultKind.ENGINE_ERROR, FaultKind.BROKEN})
_ACTION = "read the end of the engine's log (`bringup diagnose` does); `ready` alone says nothing here"


def asks(_deployment: Deployment, replies: Replies) -> Batch:
    """One look at the endpoint when everybody else is done."""
    if replies.answers:
        return ()
    return tuple(Ask(key=key, path=path, method="GET", time_limit_s=_LIMIT_S) for key, path in _ASKS)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """One finding: gone, replaced, sick, silent, not known, or as before."""
    found = (
        _gone(deployment, replies)
        or _replaced(deployment, replies)
        or _sick(replies)
        or _last_look(deployment, replies)
    )
    return Judgement(findings=(found,))


def _gone(deployment: Deployment, replies: Replies) -> Finding | None:
    """Nothing listens any more; the probes of the identification had been answered."""
    refused = refusals(_by_time(replies))
    if not refused:
        return None
    evidence = [Evidence(source="connection", text=refused[0].detail or refused[0].problem or "refused")]
    process = deployment.process
    if process is not None and deployment.host_after is not None:
        has_ended = deployment.process_after is None
        evidence += [Evidence(source="process", text=f"{process.pid} listens no more")] if has_ended else []
    return _failure(
        f"the engine stopped listening {_when(replies)}",
        "it was up and answered when the verification began; requests like these end it",
        (*_last_words(replies), *evidence),
    )


def _replaced(deployment: Deployment, replies: Replies) -> Finding | None:
    """Another process serves the port than before: something started the engine again."""
    before, after = deployment.process, deployment.process_after
    if before is None or after is None or not is_replaced(deployment):
        return None
    words = f"process {before.pid} before, {after.pid} after"
    return _failure(
        f"the engine ended and was started again {_when(replies)}",
        "what restarts it hides that it dies; every request that was running is lost",
        (Evidence(source="process", text=words),),
    )


def _sick(replies: Replies) -> Finding | None:
    """The engine itself says that it cannot go on."""
    health = replies.answers.get("health")
    if health is None or not is_sick(health):
        return None
    return _failure(
        f"the engine says that it is not healthy: HTTP {health.status} at /health, since it was asked"
        f"{_at_load(replies)}",
        "a load balancer takes it out, and requests sent to it fail",
        (*_last_words(replies), Evidence(source="answer alive/health", text=health.body[:200] or "(empty)")),
    )


def _last_look(deployment: Deployment, replies: Replies) -> Finding:
    looks = tuple(replies.answers.values())
    if any(look.status is not None for look in looks):
        count = sum(1 for answer in _by_time(replies) if answer.status is not None)
        if deployment.engine.is_healthy is False:
            return _unhealthy_before(count)
        summary = f"still there after {count} answers"
        return Finding(id="alive", severity=Severity.OK, summary=summary, expected=_EXPECTED)
    silent = next((look for look in looks if look.problem is Problem.TIME_LIMIT), None)
    if silent is not None:
        return _failure(
            f"the engine no longer answers so much as GET /health: {silent.detail or 'no byte in time'}",
            "it listens and hangs, so nothing restarts it and clients wait",
            (Evidence(source="answer alive/health", text=silent.detail or "no byte in time"),),
        )
    detail = next((look.detail for look in looks if look.detail), "it was not asked")
    return Finding(
        id="alive",
        severity=Severity.UNKNOWN,
        summary=f"not measured: {detail}",
        expected=_EXPECTED,
        explanation="whether the engine lives on is not known",
        action="ask it once more: `bringup verify --quick`",
        evidence=(Evidence(source="answer alive/models", text=detail),),
    )


def _unhealthy_before(count: int) -> Finding:
    return Finding(
        id="alive",
        severity=Severity.NOTE,
        summary=f"still there after {count} answers, and healthy only since",
        expected=_EXPECTED,
        explanation="it was not healthy when the verification began: it may have been warming up",
        action="verify again, now that it is up",
    )


def _failure(summary: str, explanation: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        id="alive",
        severity=Severity.FAILURE,
        summary=summary,
        expected=_EXPECTED,
        explanation=explanation,
        action=_ACTION,
        evidence=evidence,
    )


def _last_words(replies: Replies) -> tuple[Evidence, ...]:
    """The first error of the engine itself: what came after it is its consequence."""
    for check, key, answer in _all(replies):
        fault = None if check == "alive" else fault_of(answer)
        if fault is not None and fault.kind in _FATAL:
            return (Evidence(source=f"answer {check}/{key}", text=fault.quote or fault.what),)
    return ()


def _when(replies: Replies) -> str:
    """When it happened, as far as the first error tells."""
    return f"while it was being asked{_at_load(replies)}"


def _at_load(replies: Replies) -> str:
    """That the burst brought it down, and at which of its steps; empty where something else did."""
    for check, key, answer in _all(replies):
        fault = None if check == "alive" else fault_of(answer)
        if fault is not None and (fault.kind in _FATAL or answer.problem is Problem.REFUSED):
            step = key.partition(",")[0]
            return f" {step} in the burst" if check == "under_load" and "at once" in step else ""
    return ""


def _by_time(replies: Replies) -> Iterator[Answer]:
    return (answer for _, _, answer in _all(replies))


def _all(replies: Replies) -> list[tuple[str, str, Answer]]:
    """Everybody's answers, in the order in which they were asked."""
    rows = [
        (check, key, answer)
        for check, answers in replies.everyone.items()
        for key, answer in answers.items()
        if answer.problem is not Problem.NOT_ASKED
    ]
    return sorted(rows, key=lambda row: row[2].sent_at)


CHECK = Check(
    title="is still there afterwards",
    phase="last",
    depth=Depth.QUICK,
    asks=asks,
    judge=judge,
    reads_all=True,
    shows_model=False,
)
