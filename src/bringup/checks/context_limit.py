"""A prompt that is too long is refused with a reason, and the engine lives on.

Source: for a prompt of 6,031 tokens and a context of 2,048 vLLM 0.32.0, SGLang 0.5.23 and llama.cpp answer
400 and name the limit; Ollama cuts the prompt in silence and answers 200.
"""

import re
from collections.abc import Iterator

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_LARGE = 200_000  # tokens of context: beyond, the body is megabytes and is sent only with --full
_LARGEST = 2_200_000  # beyond, never
_EXPECTED = "a 4xx that says why, and an engine that lives on"
_SOURCE = "answer context_limit/over"
# no sound answer, but a sign of life: whatever it is, the long prompt did not do it
_ALIVE = (
    FaultKind.NO_ACCESS,
    FaultKind.BUSY,
    FaultKind.QUEUED,
    FaultKind.REFUSED,
    FaultKind.TOO_LARGE,
    FaultKind.SLOW,
)


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """A small question, one prompt well over the limit, the small question again."""
    answers, words = replies.answers, _words(deployment)
    if words is None or _too_large(deployment):
        return ()
    if "before" not in answers:
        return (_small(deployment, "before"),)
    if fault_of(answers["before"]) is not None:
        return ()
    if "over" not in answers:
        return (Ask(key="over", body=chat_body(deployment.model.id, "word " * words, max_tokens=8)),)
    return () if "after" in answers else (_small(deployment, "after"),)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Refusal, error, hang or silent cut, and whether the engine still answers."""
    context = deployment.model.context_tokens
    if context is None:
        return Judgement(findings=(_unknown(),))
    if _too_large(deployment):
        return Judgement(findings=(_left_out(context),))
    before = fault_of(replies.answers.get("before"))
    if before is not None:
        source = "answer context_limit/before"
        finding = fault_finding("context_limit", before, source=source, expected=_EXPECTED)
        return Judgement(findings=(finding,))
    over = reply_or_fault(replies.answers.get("over"))
    death = tuple(_death(over, reply_or_fault(replies.answers.get("after"))))
    is_cause = isinstance(over, Fault) and over.kind in (FaultKind.GONE, FaultKind.BROKEN)
    return Judgement(findings=death if death and is_cause else (*death, *_answer(deployment, over, context)))


def _small(deployment: Deployment, key: str) -> Ask:
    return Ask(key=key, body=chat_body(deployment.model.id, "Say hi.", max_tokens=4), time_limit_s=60.0)


def _words(deployment: Deployment) -> int | None:
    """Words that are more tokens than the context takes; each word is a token at least."""
    context = deployment.model.context_tokens
    return None if context is None else context + context // 8 + 64


def _too_large(deployment: Deployment) -> bool:
    context = deployment.model.context_tokens or 0
    return context > (_LARGEST if deployment.depth is Depth.FULL else _LARGE)


def _death(over: ChatReply | Fault, after: ChatReply | Fault) -> Iterator[Finding]:
    if not isinstance(after, Fault) or after.kind in _ALIVE:
        return
    if after.kind is FaultKind.NOT_ASKED and isinstance(over, Fault) and over.kind is FaultKind.NOT_ASKED:
        return
    before = over.what if isinstance(over, Fault) else "it was answered"
    yield Finding(
        id="context_limit.after",
        severity=Severity.FAILURE,
        summary=f"after a prompt that is too long the engine does not answer: {after.what}",
        expected=_EXPECTED,
        explanation="one long prompt of one user takes the service down for all",
        action="put a limit on the prompt's length in front of the engine and look for a newer version",
        evidence=(
            Evidence(source=_SOURCE, text=before),
            Evidence(source="answer context_limit/after", text=after.quote or after.what),
        ),
    )


def _answer(deployment: Deployment, over: ChatReply | Fault, context: int) -> Iterator[Finding]:
    if isinstance(over, ChatReply):
        yield _taken(deployment, over, context)
    elif over.kind is FaultKind.REFUSED:
        yield _refused(over)
    elif over.kind is FaultKind.SERVER_ERROR:
        yield Finding(
            id="context_limit",
            severity=Severity.WARNING,
            summary=f"a prompt that is too long gets a server error: {over.what}",
            expected=_EXPECTED,
            explanation="clients repeat what gets a 5xx, and health checks count it against the engine",
            action="refuse such prompts in front of the engine, or update it",
            evidence=(Evidence(source=_SOURCE, text=over.quote),),
        )
    else:
        yield fault_finding("context_limit", over, source=_SOURCE, expected=_EXPECTED)


def _refused(over: Fault) -> Finding:
    has_reason = re.search(r"token|context|length|long|large|limit|exceed", over.quote, re.IGNORECASE)
    return Finding(
        id="context_limit",
        severity=Severity.OK if has_reason else Severity.NOTE,
        summary=f"refused: {over.what}" if has_reason else f"refused without a reason: {over.what}",
        expected=_EXPECTED,
        explanation="" if has_reason else "clients cannot tell what is wrong with their request",
        action="" if has_reason else "see whether a proxy in front of the engine swallows its message",
        evidence=(Evidence(source=_SOURCE, text=over.quote),),
    )


def _taken(deployment: Deployment, over: ChatReply, context: int) -> Finding:
    words = _words(deployment) or 0
    read = over.prompt_tokens
    if read is not None and read >= words:
        return Finding(
            id="context_limit",
            severity=Severity.NOTE,
            summary=f"{read} prompt tokens were taken, more than the {context} it tells of",
            expected=_EXPECTED,
            explanation="the real limit lies higher than the one that is told",
            action="none, unless clients plan with the told limit",
            evidence=(Evidence(source=_SOURCE, text=f"prompt_tokens {read}"),),
        )
    counted = "an unknown number" if read is None else str(read)
    return Finding(
        id="context_limit",
        severity=Severity.WARNING,
        summary=f"a prompt of {words} words is answered with 200; the engine read {counted} of its tokens",
        expected=_EXPECTED,
        explanation="the prompt is cut in silence: answers miss what they were given, and nobody is told",
        action="raise the context (Ollama: `num_ctx`), or limit prompts in front of the engine",
        evidence=(Evidence(source=_SOURCE, text=f"prompt_tokens {read}, answer: {over.everything[:80]}"),),
    )


def _unknown() -> Finding:
    return Finding(
        id="context_limit",
        severity=Severity.UNKNOWN,
        summary="not measured: the endpoint does not tell its context",
        expected=_EXPECTED,
        explanation="without the limit no prompt is known to lie beyond it",
        action="give the engine's command line or --host, so that the context can be read",
    )


def _left_out(context: int) -> Finding:
    return Finding(
        id="context_limit",
        severity=Severity.NOTE,
        summary=f"left out: a prompt beyond {context} tokens is megabytes long",
        expected=_EXPECTED,
        explanation="such a request loads the network and the tokenizer of a running service",
        action=f"ask with --full (up to {_LARGEST} tokens)",
    )


CHECK = Check(
    title="refuses a prompt that is too long", phase="hostile", depth=Depth.QUICK, asks=asks, judge=judge
)
