"""What kept an answer from being a chat reply: one reading of transport, status and body for every check."""

from dataclasses import dataclass
from enum import StrEnum

from bringup.parse.chat import ChatReply, read_reply
from bringup.values.exchange import Answer, Problem
from bringup.values.finding import Evidence, Finding, Severity

_QUOTED = 240  # characters of a body that a finding quotes


class FaultKind(StrEnum):
    """Who is at fault, as far as one answer can tell."""

    NOT_ASKED = "not asked"
    NO_ACCESS = "no access"  # 401, 403: the key, not the engine
    QUEUED = "queued"  # others were served meanwhile
    BUSY = "busy"  # 429: a limit in front of the engine
    REFUSED = "refused"  # another 4xx: the engine understood and says no
    SERVER_ERROR = "server error"  # 5xx
    ENGINE_ERROR = "engine error"  # an error inside a 200
    NOT_A_REPLY = "not a reply"  # 200 with a page, nothing, or another form
    GONE = "gone"  # nothing listens any more
    BROKEN = "broken connection"  # reset, truncated, not HTTP
    SILENT = "silent"  # nothing within the time limit
    SLOW = "slow"  # still coming at the time limit
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no whole reply."""

    kind: FaultKind
    what: str  # in words, for a summary
    quote: str = ""  # what the server said

    @property
    def severity(self) -> Severity:
        """How bad it is where a reply was due."""
        return _VERDICTS[self.kind][0]

    @property
    def why(self) -> str:
        """What it means for those who ask."""
        return _VERDICTS[self.kind][1]


_VERDICTS = {
    FaultKind.NOT_ASKED: (
        Severity.UNKNOWN,
        "nothing is known about this point",
        "run the check again once the endpoint answers",
    ),
    FaultKind.NO_ACCESS: (
        Severity.UNKNOWN,
        "the endpoint wants a key that it did not get",
        "give the key with --api-key or BRINGUP_API_KEY",
    ),
    FaultKind.QUEUED: (
        Severity.UNKNOWN,
        "the engine is at work for others and this request did not get its turn",
        "verify when it is quieter, or let it run more requests at once",
    ),
    FaultKind.BUSY: (
        Severity.UNKNOWN,
        "a rate limit in front of the engine turned the request away, so the engine was not tested",
        "ask the engine directly or raise the limit",
    ),
    FaultKind.REFUSED: (
        Severity.UNKNOWN,
        "the engine refused a request that most engines take, so this point was not tested",
        "read its message and look for the flag that switches the feature on",
    ),
    FaultKind.SERVER_ERROR: (
        Severity.FAILURE,
        "clients get an error instead of an answer",
        "read the engine's log around this time",
    ),
    FaultKind.ENGINE_ERROR: (
        Severity.FAILURE,
        "the engine began to answer and gave up; clients that look at the status alone take it for a success",
        "read the engine's log around this time",
    ),
    FaultKind.NOT_A_REPLY: (
        Severity.FAILURE,
        "clients that look at the status alone take it for a success",
        "check that the URL leads to the engine and not to a web page, login or proxy",
    ),
    FaultKind.GONE: (
        Severity.FAILURE,
        "the engine or what stands in front of it has stopped listening",
        "read the engine's log: it may have crashed during these requests",
    ),
    FaultKind.BROKEN: (
        Severity.FAILURE,
        "clients lose answers that were already paid for",
        "look for an engine that crashed or restarted, and for time limits of proxies",
    ),
    FaultKind.SILENT: (
        Severity.FAILURE,
        "the engine took the request and never answered: clients hang",
        "look whether the GPUs are busy and the log moves; a hung collective operation looks like this",
    ),
    FaultKind.SLOW: (
        Severity.WARNING,
        "answers come slower than clients wait",
        "look for other load on the machine, a CPU fallback or a throttled GPU",
    ),
    FaultKind.TOO_LARGE: (
        Severity.FAILURE,
        "the answer does not end within any sensible size, so clients run out of memory or time",
        "check what serves this URL and whether max_tokens reaches the engine",
    ),
}


def reply_or_fault(answer: Answer | None) -> ChatReply | Fault:
    """The reply in `answer`, or why it is no whole one. One that we cut off as wanted counts as whole.

    >>> reply_or_fault(Answer(key="a", status=500, body='{"error": {"message": "CUDA error"}}')).what
    'HTTP 500: CUDA error'
    """
    if answer is None:
        return Fault(kind=FaultKind.NOT_ASKED, what="it was not asked")
    if answer.problem is Problem.TOO_LARGE:  # megabytes: not worth reading
        return _transport_fault(answer, ChatReply()) or ChatReply()
    reply = read_reply(answer)
    said = reply.error or _start(answer.body)
    return _transport_fault(answer, reply) or _status_fault(answer, said) or _body_fault(reply, said) or reply


def fault_of(answer: Answer | None) -> Fault | None:
    """Why `answer` is no whole chat reply; None when it is one."""
    found = reply_or_fault(answer)
    return found if isinstance(found, Fault) else None


def fault_finding(finding_id: str, fault: Fault, *, source: str, expected: str) -> Finding:
    """The finding for a reply that was due and did not come."""
    severity, explanation, action = _VERDICTS[fault.kind]
    return Finding(
        id=finding_id,
        severity=severity,
        summary=f"not measured: {fault.what}" if severity is Severity.UNKNOWN else fault.what,
        expected=expected,
        explanation=explanation,
        action=action,
        evidence=(Evidence(source=source, text=fault.quote or fault.what),),
    )


def _transport_fault(answer: Answer, reply: ChatReply) -> Fault | None:
    if answer.problem is None or answer.problem is Problem.ABORTED:
        return None
    so_far = f" after {reply.content_events} events" if reply.content_events else ""
    detail = answer.detail or answer.problem.value
    match answer.problem:
        case Problem.NOT_ASKED:
            kind, what = FaultKind.NOT_ASKED, answer.detail or "it was not asked"
        case Problem.REFUSED | Problem.UNREACHABLE:
            kind, what = FaultKind.GONE, f"nothing answers at this address: {detail}"
        case Problem.SLOW:
            kind, what = FaultKind.SLOW, f"no answer yet: {detail}"
        case Problem.QUEUED:
            kind, what = FaultKind.QUEUED, f"the engine is full: {detail}"
        case Problem.TIME_LIMIT if reply.content_events:
            kind, what = FaultKind.SLOW, f"still answering at the time limit{so_far}"
        case Problem.TIME_LIMIT:
            kind, what = FaultKind.SILENT, f"no answer: {detail}"
        case Problem.TOO_LARGE:
            kind, what = FaultKind.TOO_LARGE, f"an answer without end: {detail}"
        case _:
            kind, what = FaultKind.BROKEN, f"the connection broke{so_far}: {detail}"
    return Fault(kind=kind, what=what, quote=answer.detail or _start(answer.body))


def _status_fault(answer: Answer, said: str) -> Fault | None:
    status = answer.status or 0
    if status in (401, 403):
        kind = FaultKind.NO_ACCESS
    elif status == 429:
        kind = FaultKind.BUSY
    elif status >= 500:
        kind = FaultKind.SERVER_ERROR
    elif status >= 400:
        kind = FaultKind.REFUSED
    elif status != 200:
        return Fault(kind=FaultKind.NOT_A_REPLY, what=f"HTTP {status} instead of 200", quote=said)
    else:
        return None
    return Fault(kind=kind, what=f"HTTP {status}: {_start(said, 120)}", quote=said)


def _body_fault(reply: ChatReply, said: str) -> Fault | None:
    if reply.error is not None:
        return Fault(kind=FaultKind.ENGINE_ERROR, what=f"an error inside a 200: {said}", quote=said)
    if not reply.is_stream and reply.flaws:
        return Fault(kind=FaultKind.NOT_A_REPLY, what=f"HTTP 200, but {reply.flaws[0]}", quote=said)
    return None


def _start(text: str, length: int = _QUOTED) -> str:
    """The beginning of `text` on one line."""
    line = " ".join(text[: 4 * length + 4].split())  # bodies may be megabytes long
    return line if len(line) <= length else f"{line[:length]}..."
