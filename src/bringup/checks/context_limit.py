"""A prompt that is too long is refused with a reason, and the engine lives on.

Source, for a prompt of 6,031 tokens and a context of 2,048: vLLM 0.32.0, SGLang 0.5.23 and llama.cpp answer
400 and name the limit; Ollama cuts the prompt in silence and answers 200.
"""

import re
from collections.abc import Iterator

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_LARGE = 200_000  # tokens of context: beyond, the body is megabytes and is sent only with --full
_LARGEST = 2_200_000  # beyond, never
_EXPECTED = "a 4xx that says why, and an engine that lives on"
_SOURCE = "answer context_limit/over"
_NO_ENGINE = (FaultKind.TOO_LARGE, FaultKind.NOT_A_REPLY, FaultKind.ENGINE_ERROR)  # sick whatever it is asked
_ALIVE = (FaultKind.NO_ACCESS, FaultKind.BUSY, FaultKind.REFUSED)  # no answer, but someone says so


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """One prompt well over the limit, then a small question."""
    if not replies.answers:
        words = _words(deployment)
        if words is None or _too_large(deployment):
            return ()
        prompt = "word " * words
        return (Ask(key="over", body=chat_body(deployment.model.id, prompt, max_tokens=8)),)
    if "after" in replies.answers:
        return ()
    return (
        Ask(key="after", body=chat_body(deployment.model.id, "Say hi.", max_tokens=4), time_limit_s=60.0),
    )


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Refusal, error, hang or silent cut, and whether the engine still answers."""
    context = deployment.model.context_tokens
    if context is None:
        return Judgement(findings=(_unknown("the endpoint does not tell its context"),))
    if _too_large(deployment):
        return Judgement(findings=(_left_out(context),))
    over = reply_or_fault(replies.answers.get("over"))
    after = reply_or_fault(replies.answers.get("after"))
    if isinstance(after, Fault) and after.kind is FaultKind.REFUSED:
        return Judgement(findings=(_unknown(f"a short prompt is refused, too: {after.what}"),))
    if isinstance(after, Fault) and isinstance(over, Fault) and over.kind is after.kind in _NO_ENGINE:
        finding = fault_finding("context_limit", after, source=_SOURCE, expected=_EXPECTED)
        return Judgement(findings=(finding,))
    death = tuple(_death(over, after))
    is_cause = isinstance(over, Fault) and over.kind in (FaultKind.GONE, FaultKind.BROKEN)
    return Judgement(findings=death if death and is_cause else (*death, *_answer(deployment, over, context)))


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


def _unknown(why: str) -> Finding:
    return Finding(
        id="context_limit",
        severity=Severity.UNKNOWN,
        summary=f"not measured: {why}",
        expected=_EXPECTED,
        explanation="whether a prompt of one user can do harm to all is not known",
        action="see the other findings; the engine's command line or --host tell of its context",
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
