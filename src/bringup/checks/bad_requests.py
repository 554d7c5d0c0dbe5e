"""Requests that are wrong are refused as the client's fault, and the engine lives on.

Source: answers of vLLM 0.32.0, SGLang 0.5.23 and two builds of llama.cpp to these requests. llama.cpp takes
any model name and any temperature and caps max_tokens; its older builds answer 500 to malformed JSON. SGLang
takes any model name.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.values.deployment import Deployment
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_HUGE = 10_000_000  # tokens: more than any context
# no sound answer, but a sign of life: whatever it is, these requests did not do it
_ALIVE = (
    FaultKind.NO_ACCESS,
    FaultKind.BUSY,
    FaultKind.QUEUED,
    FaultKind.REFUSED,
    FaultKind.TOO_LARGE,
    FaultKind.SLOW,
)
_EXPECTED = "4xx, engine lives on"
_ANY_NAME = frozenset({"llama_cpp", "sglang", "tgi", "lmdeploy"})  # engines known to take any model name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One wrong request."""

    key: str
    what: str
    when_taken: Severity  # how bad it is that it gets an answer
    why: str  # what taking it does to clients
    known: frozenset[str] = frozenset()  # engines known to take it


_CASES = (
    _Case(
        key="malformed JSON",
        what="a body that is not JSON",
        when_taken=Severity.WARNING,
        why="something answers without having read the request",
    ),
    _Case(
        key="unknown model",
        what="a model that is not served",
        when_taken=Severity.WARNING,
        why="a client with a wrong name gets another model's answers and is not told",
        known=_ANY_NAME,
    ),
    _Case(
        key="wrong type",
        what='`max_tokens: "many"`',
        when_taken=Severity.WARNING,
        why="the field is dropped in silence, and with it the limit",
        known=frozenset({"llama_cpp"}),  # builds of early 2026 and older; present ones refuse
    ),
    _Case(
        key="huge max_tokens",
        what=f"`max_tokens: {_HUGE}`",
        when_taken=Severity.NOTE,
        why="the limit is capped in silence; a client that asks for too much is not told",
    ),
    _Case(
        key="negative temperature",
        what="`temperature: -5`",
        when_taken=Severity.NOTE,
        why="the value is dropped or turned into another one in silence",
    ),
    _Case(
        key="NUL in text",
        what="a NUL character in the text",
        when_taken=Severity.OK,  # valid JSON: an answer is as good as a refusal
        why="",
    ),
    _Case(
        key="NUL in JSON",
        what="a NUL byte in the JSON itself",
        when_taken=Severity.NOTE,
        why="the parser is lax: what passes here may be read otherwise elsewhere",
    ),
)


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """A sound request, one case after the other, so that a death has a cause, and the sound request again."""
    answers = replies.answers
    if "before" not in answers:
        return (_sound(deployment, "before"),)
    if fault_of(answers["before"]) is not None:
        return ()
    is_dead = any(_is_dead(reply_or_fault(answer)) for answer in answers.values())
    case = next((case for case in _CASES if case.key not in answers), None)
    if case is not None and not is_dead:
        body = _body(deployment.model.id, case.key)
        limits = Ask(key=case.key, body=body, time_limit_s=60.0, max_bytes=1_000_000, abort_after_events=24)
        return (limits,)
    return () if "after" in answers else (_sound(deployment, "after"),)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Death first, then what was not refused as it should be."""
    got = {key: reply_or_fault(answer) for key, answer in replies.answers.items()}
    before = fault_of(replies.answers.get("before"))
    if before is not None:
        source = "answer bad_requests/before"
        finding = fault_finding("bad_requests", before, source=source, expected=_EXPECTED)
        return Judgement(findings=(finding,))
    findings = (*_death(got), *_verdicts(deployment, got))
    if not findings:
        summary = f"{len(_CASES)} wrong requests refused or taken without harm"
        ok = Finding(id="bad_requests", severity=Severity.OK, summary=summary, expected=_EXPECTED)
        findings = (ok,)
    return Judgement(findings=findings)


def _sound(deployment: Deployment, key: str) -> Ask:
    return Ask(key=key, body=chat_body(deployment.model.id, "Say hi.", max_tokens=4), time_limit_s=60.0)


def _body(model: str, key: str) -> str:
    """The wrong body of one case; streamed where it may be answered at length, so that we can hang up."""
    hi = "Reply with one word."
    good = chat_body(model, hi, max_tokens=4)
    bodies = {
        "malformed JSON": '{"messages": [',
        "unknown model": chat_body("no-such-model", hi, max_tokens=4),
        "wrong type": chat_body(model, hi, max_tokens=4, stream=True).replace(": 4,", ': "many",'),
        "huge max_tokens": chat_body(model, hi, max_tokens=_HUGE, stream=True),
        "negative temperature": chat_body(model, hi, max_tokens=4, temperature=-5),
        "NUL in text": chat_body(model, f"{hi}\0", max_tokens=4),
        "NUL in JSON": f"{good[:-1]}\0}}",
    }
    return bodies[key]


def _is_dead(reply: ChatReply | Fault) -> bool:
    return isinstance(reply, Fault) and reply.kind in (FaultKind.GONE, FaultKind.SILENT, FaultKind.NOT_ASKED)


def _death(got: dict[str, ChatReply | Fault]) -> Iterator[Finding]:
    """The finding when a sound request is not answered afterwards, and which case it was."""
    after = got.get("after", Fault(kind=FaultKind.NOT_ASKED, what="it was not asked"))
    if not isinstance(after, Fault) or after.kind in _ALIVE:
        return
    case = _culprit(got)
    if case is None:
        yield fault_finding("bad_requests", after, source="answer bad_requests/after", expected=_EXPECTED)
        return
    yield Finding(
        id="bad_requests.after",
        severity=Severity.FAILURE,
        summary=f"after {case.what} the engine does not answer: {after.what}",
        expected=_EXPECTED,
        explanation="one wrong request of one user takes the service down for all",
        action="update the engine; until then refuse such requests in front of it",
        evidence=(Evidence(source="answer bad_requests/after", text=after.quote or after.what),),
    )


def _culprit(got: dict[str, ChatReply | Fault]) -> _Case | None:
    """The case from which on nothing was answered as it should be; None when no case was asked."""
    asked = [case for case in _CASES if case.key in got and not _was_not_asked(got, case)]
    bad: list[_Case] = []
    for case in reversed(asked):
        reply = got[case.key]
        if isinstance(reply, ChatReply) or reply.kind is FaultKind.REFUSED:
            break
        bad.append(case)
    # where the last case's answer still came out, that case is the one
    return bad[-1] if bad else next(reversed(asked), None)


def _was_not_asked(got: dict[str, ChatReply | Fault], case: _Case) -> bool:
    reply = got[case.key]
    return isinstance(reply, Fault) and reply.kind in (FaultKind.NOT_ASKED, FaultKind.GONE)


def _verdicts(deployment: Deployment, got: dict[str, ChatReply | Fault]) -> Iterator[Finding]:
    for case in _CASES:
        reply = got.get(case.key)
        if isinstance(reply, Fault):
            yield from _fault(deployment, case, reply)
        elif reply is not None and case.when_taken is not Severity.OK:
            is_known = deployment.engine.engine in case.known
            yield Finding(
                id=f"bad_requests.{_slug(case.key)}",
                severity=Severity.NOTE if is_known else case.when_taken,
                summary=f"{case.what} gets an answer instead of a refusal"
                + (f", as {deployment.engine.display_name} does" if is_known else ""),
                expected="a 4xx that says what is wrong",
                explanation=case.why,
                action="none; check such values on the client's side or in the proxy",
                evidence=(
                    Evidence(
                        source=f"answer bad_requests/{case.key}", text=reply.everything[:80] or "(no text)"
                    ),
                ),
            )


def _fault(deployment: Deployment, case: _Case, fault: Fault) -> Iterator[Finding]:
    if fault.kind in (FaultKind.REFUSED, FaultKind.NOT_ASKED):
        return
    source, expected = f"answer bad_requests/{case.key}", "a 4xx that says what is wrong"
    finding_id = f"bad_requests.{_slug(case.key)}"
    if fault.kind is not FaultKind.SERVER_ERROR:
        yield fault_finding(finding_id, fault, source=source, expected=expected)
        return
    is_known = deployment.engine.engine == "llama_cpp" and "JSON" in case.key
    yield Finding(
        id=finding_id,
        severity=Severity.NOTE if is_known else Severity.WARNING,
        summary=f"{case.what} gets a server error: {fault.what}"
        + (", as older builds of llama.cpp do" if is_known else ""),
        expected=expected,
        explanation="clients repeat what gets a 5xx, and health checks count it against the engine",
        action="update the engine"
        if is_known
        else "update the engine, or refuse such requests in front of it",
        evidence=(Evidence(source=source, text=fault.quote),),
    )


def _slug(key: str) -> str:
    return key.lower().replace(" ", "_")


CHECK = Check(title="refuses wrong requests", phase="hostile", asks=asks, judge=judge)
