"""Generation ends where it should: at `max_tokens`, at a stop sequence, and by itself.

Source: an answer that never ends means a wrong chat template or an end-of-turn token that the engine does not
know (`eos_token_id` of generation_config.json against the tokenizer's); seen with re-uploaded and converted
weights on every engine.
"""

from collections.abc import Iterator

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply, read_reply
from bringup.parse.chat_request import chat_body
from bringup.parse.text_quality import garble_signs
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_LIMIT = 8  # tokens
_STORY = "Write a long story about the sea."
_COUNT = "Count from 1 to 9: 1, 2, 3,"  # begun, so that a tiny model goes on with it
_STOP = "5"
_SMALL_TASK = "What is the capital of France? Answer with one word."
_COUNT_TOKENS = 48
_ENDLESS = (FaultKind.TOO_LARGE, FaultKind.SLOW)


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """Three streams, each hung up on when it goes far beyond what it may."""
    if replies.answers:
        return ()
    model, room = deployment.model.id, _room(deployment)
    count_tokens = _COUNT_TOKENS if deployment.ability is Ability.TINY else room
    return (
        _ask("limit", chat_body(model, _STORY, max_tokens=_LIMIT, stream=True), _LIMIT),
        _ask(
            "stop", chat_body(model, _COUNT, max_tokens=count_tokens, stream=True, stop=[_STOP]), count_tokens
        ),
        _ask("ends", chat_body(model, _SMALL_TASK, max_tokens=room, stream=True), room),
    )


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What does not end; one OK when all does."""
    findings = (
        *_limit(replies.answers.get("limit")),
        *_stop(replies.answers.get("stop")),
        *_ends(deployment, replies.answers.get("ends")),
    )
    if findings:
        return Judgement(findings=findings)
    summary = f"stopped at {_LIMIT} tokens, before the stop sequence, and by itself"
    ok = Finding(
        id="stopping", severity=Severity.OK, summary=summary, expected="generation ends where it should"
    )
    return Judgement(findings=(ok,))


def _room(deployment: Deployment) -> int:
    """Tokens for a small task: a reasoning trace fits in, an endless answer does not go far."""
    if deployment.ability is Ability.TINY:
        return 64 if deployment.depth is Depth.QUICK else 128
    wanted = 512 if deployment.depth is Depth.QUICK else 2048
    context = deployment.model.context_tokens
    return wanted if context is None else max(64, min(wanted, context // 2))


def _ask(key: str, body: str, tokens: int) -> Ask:
    return Ask(key=key, body=body, max_bytes=4_000_000, abort_after_events=2 * tokens + 40)


def _limit(answer: Answer | None) -> Iterator[Finding]:
    expected = f"at most {_LIMIT} tokens, finish reason `length`"
    source = "answer stopping/limit"
    fault, reply = fault_of(answer), _reply(answer)
    tokens = _tokens(reply)
    is_over = tokens > _LIMIT + 1 or len(reply.everything.split()) > 4 * _LIMIT
    if fault is not None and not (is_over and fault.kind in _ENDLESS):
        yield fault_finding("stopping.max_tokens", fault, source=source, expected=expected)
        return
    is_endless = fault is not None or _hung_up(answer)
    if is_endless or is_over:
        yield Finding(
            id="stopping.max_tokens",
            severity=Severity.FAILURE,
            summary=f"`max_tokens` {_LIMIT} is not honoured: {tokens} tokens and "
            + ("no end in sight" if is_endless else f"finish reason `{reply.finish_reason}`"),
            expected=expected,
            explanation="one client can hold a slot for ever, and costs have no bound",
            action="check whether a proxy drops `max_tokens`, and the engine's version",
            evidence=_quote(source, reply),
        )
    elif tokens >= _LIMIT and reply.finish_reason not in ("length", None):
        yield Finding(
            id="stopping.max_tokens",
            severity=Severity.NOTE,
            summary=f"an answer cut at {tokens} tokens says finish reason `{reply.finish_reason}`",
            expected=expected,
            explanation="clients cannot see that the answer was cut",
            action="read the quoted answer: it may have ended there by itself",
            evidence=_quote(source, reply),
        )


def _stop(answer: Answer | None) -> Iterator[Finding]:
    expected = f"the answer ends before `{_STOP}`, finish reason `stop`"
    source = "answer stopping/stop"
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault):
        yield fault_finding("stopping.stop_sequence", reply, source=source, expected=expected)
        return
    # some engines look for stop sequences in the answer only, not in the reasoning trace
    before, found, after = (reply.text or reply.reasoning).partition(_STOP)
    if found and after.strip():
        yield Finding(
            id="stopping.stop_sequence",
            severity=Severity.FAILURE,
            summary=f"the stop sequence `{_STOP}` is not honoured: the answer goes on after it",
            expected=expected,
            explanation="agents and few-shot prompts rely on it; they get text that was never meant for them",
            action="check whether a proxy drops `stop`, and the engine's version",
            evidence=_quote(source, reply),
        )
    elif found:
        yield Finding(
            id="stopping.stop_sequence",
            severity=Severity.WARNING,
            summary=f"the stop sequence `{_STOP}` is left in the answer",
            expected=expected,
            explanation="clients expect it to be cut off",
            action="look for a setting such as `include_stop_str_in_output`",
            evidence=_quote(source, reply),
        )
    elif "4" not in before or reply.finish_reason == "length":
        yield Finding(
            id="stopping.stop_sequence",
            severity=Severity.NOTE,
            summary="not put to the test: the model did not count as far as the stop sequence",
            expected=expected,
            explanation="a weak model wanders off before it gets there",
            action="none, unless the model should manage to count to nine",
            evidence=_quote(source, reply),
        )


def _ends(deployment: Deployment, answer: Answer | None) -> Iterator[Finding]:
    room = _room(deployment)
    expected = f"one word, then an end of its own, within {room} tokens"
    source = "answer stopping/ends"
    fault, reply = fault_of(answer), _reply(answer)
    if fault is not None and not (_tokens(reply) >= room and fault.kind in _ENDLESS):
        yield fault_finding("stopping.ends", fault, source=source, expected=expected)
        return
    if fault is None and not _hung_up(answer) and reply.finish_reason != "length":
        return
    severity, explanation = _weigh(deployment, reply)
    yield Finding(
        id="stopping.ends",
        severity=severity,
        summary=f"a one-word answer did not end within {_tokens(reply)} tokens",
        expected=expected,
        explanation=explanation,
        action="check the chat template and `eos_token_id` of generation_config.json",
        evidence=_quote(source, reply),
    )


def _weigh(deployment: Deployment, reply: ChatReply) -> tuple[Severity, str]:
    """How bad it is that a small task did not end, and why it may be so."""
    signs = garble_signs(reply.everything)
    if any(sign.name == "template tokens" for sign in signs):
        words = next(sign.words for sign in signs if sign.name == "template tokens")
        return Severity.FAILURE, f"{words}: the engine does not know the end-of-turn token and runs on"
    if deployment.ability is Ability.TINY:
        return Severity.NOTE, "a model of this size may ramble; a larger one that does has a wrong template"
    is_unclosed = "<think>" in reply.text and "</think>" not in reply.text
    is_thinking = is_unclosed or (reply.reasoning and not reply.text)
    if is_thinking and not signs:
        return Severity.NOTE, "it was still reasoning: a budget for reasoning tokens keeps such answers short"
    if deployment.ability is Ability.CAPABLE:
        return Severity.FAILURE, "a model of this size ends a one-word answer: template or end token is wrong"
    return Severity.WARNING, "either the chat template or end token is wrong, or the model is weak"


def _reply(answer: Answer | None) -> ChatReply:
    return ChatReply() if answer is None else read_reply(answer)


def _hung_up(answer: Answer | None) -> bool:
    return answer is not None and answer.problem is Problem.ABORTED


def _tokens(reply: ChatReply) -> int:
    """Tokens of the answer: as counted by usage or, where a liar or none counts, by its events."""
    return max(reply.completion_tokens or 0, reply.content_events if reply.completion_tokens is None else 0)


def _quote(source: str, reply: ChatReply) -> tuple[Evidence, ...]:
    return (Evidence(source=source, text=reply.everything[:200] or "(no text)"),)


CHECK = Check(title="stops where it should", depth=Depth.QUICK, asks=asks, judge=judge)
