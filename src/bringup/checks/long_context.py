"""Facts hidden early, in the middle and late in a long prompt are found again.

Source: wrong rope scaling, a sliding window that is too short, a quantised KV cache or a faulty chunked
prefill leave short answers intact and lose what stands far back. The prompt is sized in tokens: the
`usage.prompt_tokens` of two short ones say what the chat template takes and what a word takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.parse.text_quality import is_salad
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import WORST_FIRST, Evidence, Finding, Judgement, Measurement, Severity

_NEEDLES = {  # depth in the prompt -> thing, code
    0.1: ("blue box", "7301"),
    0.5: ("red lamp", "4826"),
    0.9: ("green door", "1957"),
    0.3: ("old clock", "6048"),
    0.7: ("iron gate", "2563"),
}
_MODEST = {Depth.QUICK: 800, Depth.DEFAULT: 1500, Depth.FULL: 8000}  # tokens
_SAMPLE_SENTENCES = 12
_BARE = "Hi."
_UNREAD = 0.7  # of the tokens sent: an engine that counts fewer has not read them all
_EXPECTED = "every fact found, wherever it stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """How long the prompt is to be, and why not longer."""

    tokens: int
    wanted: int
    room: int  # tokens for the answer


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """A short prompt to learn the size of a sentence, then one question after the other about the long one.

    The questions stand behind the same long text, so that an engine with a prefix cache reads it once: asked
    at the same time they would cost a whole prefill each.
    """
    answers = replies.answers
    if not answers:
        body = chat_body(deployment.model.id, _prompt(_SAMPLE_SENTENCES, 0.5), max_tokens=_room(deployment))
        return (
            Ask(key="bare", body=chat_body(deployment.model.id, _BARE, max_tokens=1)),
            Ask(key="short", body=body),
        )
    sentences = _sentences(deployment, replies)
    if sentences is None:
        return ()
    depth = next((depth for depth in _depths(deployment) if _key(depth) not in answers), None)
    if depth is None:
        return ()
    body = chat_body(deployment.model.id, _prompt(sentences, depth), max_tokens=_room(deployment))
    return (Ask(key=_key(depth), body=body, time_limit_s=600.0),)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """How many facts were found, at how many tokens."""
    short = reply_or_fault(replies.answers.get("short"))
    if isinstance(short, Fault):
        finding = fault_finding("long_context", short, source="answer long_context/short", expected=_EXPECTED)
        return Judgement(findings=(finding,))
    if short.prompt_tokens is None:
        return Judgement(findings=(_unsized(),))
    got = {depth: reply_or_fault(replies.answers.get(_key(depth))) for depth in _depths(deployment)}
    heard = {depth: reply for depth, reply in got.items() if isinstance(reply, ChatReply)}
    tokens = max((reply.prompt_tokens or 0 for reply in heard.values()), default=0) or None
    findings = (
        *_clipped(deployment),
        *_faults(deployment, got),
        *_unread(deployment, heard, tokens),
        *_recall(deployment, short, heard, tokens),
    )
    figure = Measurement(name="long prompt that was tried", value=tokens, unit="tokens")
    return Judgement(findings=findings, measurements=(figure,))


def _size(deployment: Deployment) -> _Size:
    served, room = deployment.model.context_tokens, _room(deployment)
    # later words may take more tokens than the sample's; a refusal for a few tokens would prove nothing
    most = None if served is None else served - room - max(64, served // 50)
    asked = deployment.wanted.long_context_tokens
    modest = _MODEST[deployment.depth]
    if served is not None:
        modest = min(modest, served * 3 // 4 if deployment.depth is Depth.FULL else served // 2)
    tokens = asked or modest
    return _Size(tokens=tokens if most is None else max(64, min(tokens, most)), wanted=tokens, room=room)


def _room(deployment: Deployment) -> int:
    """Tokens for an answer of one number, with a reasoning trace where the model may have one."""
    if deployment.ability is Ability.TINY:
        return 24
    served = deployment.model.context_tokens
    return 512 if served is None else max(24, min(512, served // 4))


def _depths(deployment: Deployment) -> tuple[float, ...]:
    depths = tuple(_NEEDLES)
    return depths if deployment.depth is Depth.FULL else depths[:3]


def _key(depth: float) -> str:
    return f"at {depth:.0%}".replace("%", " percent")


def _sentences(deployment: Deployment, replies: Replies) -> int | None:
    """Sentences of filler that make the prompt as long as wanted; None when the size cannot be known."""
    short = reply_or_fault(replies.answers.get("short"))
    if isinstance(short, Fault) or not short.prompt_tokens:
        return None
    bare = reply_or_fault(replies.answers.get("bare"))
    template = 0 if isinstance(bare, Fault) else bare.prompt_tokens or 0
    words, fixed = _words(_SAMPLE_SENTENCES), _words(0)
    per_sentence = (words - fixed) / _SAMPLE_SENTENCES
    tokens_per_word = max(0.5, (short.prompt_tokens - template) / (words - len(_BARE.split())))
    wanted = (_size(deployment).tokens - template) / tokens_per_word
    return max(_SAMPLE_SENTENCES, int((wanted - fixed) / per_sentence))


def _words(sentences: int) -> int:
    return len(_prompt(sentences, 0.5).split())


def _prompt(sentences: int, asked: float) -> str:
    """Filler with all needles in their places, and the question for one of them at the end."""
    # three digits from the start, so that later sentences take as many tokens as the first
    lines = [
        f"On day {number + 100} the keeper saw {number * 7 % 23} ships, and the wind came from the "
        f"{('north', 'east', 'south', 'west')[number * 5 % 4]}."
        for number in range(1, sentences + 1)
    ]
    for depth in sorted(_NEEDLES, reverse=True):
        thing, code = _NEEDLES[depth]
        lines.insert(int(depth * sentences), f"The code of the {thing} is {code}.")
    thing = _NEEDLES[asked][0]
    text = " ".join(lines)
    return f"{text}\n\nWhat is the code of the {thing}? Answer with the number only."


def _unsized() -> Finding:
    return Finding(
        id="long_context",
        severity=Severity.UNKNOWN,
        summary="not measured: answers carry no `usage.prompt_tokens`, so a prompt cannot be sized",
        expected=_EXPECTED,
        explanation="a prompt of unknown length proves nothing",
        action="look for a newer version of the engine or proxy",
    )


def _clipped(deployment: Deployment) -> Iterator[Finding]:
    size, served = _size(deployment), deployment.model.context_tokens
    if deployment.wanted.long_context_tokens is None or size.tokens >= size.wanted:
        return
    yield Finding(
        id="long_context.served",
        severity=Severity.WARNING,
        summary=f"{size.wanted} tokens were wanted, but the endpoint serves {served}; tried {size.tokens}",
        expected=f"a context of at least {size.wanted + size.room} tokens",
        explanation="longer prompts are refused or cut",
        action="raise the engine's context (--max-model-len, --context-length, -c) or ask for less",
        evidence=(Evidence(source="models endpoint", text=f"context {served}"),),
    )


def _faults(deployment: Deployment, got: dict[float, ChatReply | Fault]) -> Iterator[Finding]:
    faults = sorted(
        ((fault, depth) for depth, fault in got.items() if isinstance(fault, Fault)),
        key=lambda pair: WORST_FIRST.index(pair[0].severity),
    )
    if not faults:
        return
    fault, depth = faults[0]
    source, tokens = f"answer long_context/{_key(depth)}", _size(deployment).tokens
    if fault.kind is FaultKind.REFUSED and deployment.model.context_tokens is None:
        yield Finding(
            id="long_context",
            severity=Severity.UNKNOWN,
            summary=f"not measured: no context is told, and about {tokens} tokens were refused",
            expected="a prompt length that the endpoint takes",
            explanation=fault.what,
            action="say how long a prompt to try: --long-context N",
            evidence=(Evidence(source=source, text=fault.quote),),
        )
        return
    if fault.kind is FaultKind.REFUSED:
        yield Finding(
            id="long_context.refused",
            severity=Severity.WARNING,
            summary=f"a prompt of about {tokens} tokens is refused: {fault.what}",
            expected=f"taken: the endpoint says it serves {deployment.model.context_tokens}",
            explanation="the context that can be used is shorter than the one that is told",
            action="compare the engine's context with its KV cache, and look for a limit in the proxy",
            evidence=(Evidence(source=source, text=fault.quote),),
        )
        return
    yield fault_finding(
        "long_context.engine",
        fault,
        source=source,
        expected=f"an answer to a prompt of about {tokens} tokens",
    )


def _unread(deployment: Deployment, heard: dict[float, ChatReply], tokens: int | None) -> Iterator[Finding]:
    sent = _size(deployment).tokens
    if tokens is None or not heard or tokens >= _UNREAD * sent:
        return
    yield Finding(
        id="long_context.cut",
        severity=Severity.WARNING,
        summary=f"of about {sent} tokens sent the engine read {tokens}",
        expected="all of the prompt, or a refusal",
        explanation="the rest was cut off in silence: answers then miss what they were given "
        "(Ollama does this beyond its `num_ctx`)",
        action="raise the engine's context setting",
        evidence=tuple(
            Evidence(source=f"answer long_context/{_key(depth)}", text=f"prompt_tokens {reply.prompt_tokens}")
            for depth, reply in heard.items()
        ),
    )


def _recall(
    deployment: Deployment, short: ChatReply, heard: dict[float, ChatReply], tokens: int | None
) -> Iterator[Finding]:
    if not heard:
        return
    missed = {depth: reply for depth, reply in heard.items() if _NEEDLES[depth][1] not in _plain(reply)}
    garbage = {depth: reply for depth, reply in missed.items() if is_salad(reply.everything)}
    found = len(heard) - len(missed)
    size = f"{tokens or _size(deployment).tokens} tokens"
    if not missed:
        summary = f"{found} of {len(heard)} facts found in a prompt of {size}"
        yield Finding(id="long_context", severity=Severity.OK, summary=summary, expected=_EXPECTED)
        return
    severity, why = _weigh(deployment, short, found=found, garbage=len(garbage))
    places = ", ".join(f"{depth:.0%}" for depth in sorted(missed))
    yield Finding(
        id="long_context",
        severity=severity,
        summary=f"{found} of {len(heard)} facts found in a prompt of {size}; lost at {places}",
        expected=_EXPECTED,
        explanation=why,
        action="none"
        if severity is Severity.NOTE
        else "check rope scaling, sliding window and the KV cache's type",
        evidence=tuple(
            Evidence(
                source=f"answer long_context/{_key(depth)}",
                text=f"wanted {_NEEDLES[depth][1]}: {reply.everything[:120] or '(no text)'}",
            )
            for depth, reply in missed.items()
        ),
    )


def _weigh(deployment: Deployment, short: ChatReply, *, found: int, garbage: int) -> tuple[Severity, str]:
    if garbage:
        return Severity.FAILURE, "with a long prompt the answers turn to garbage: no matter of ability"
    if deployment.ability is Ability.TINY:
        return Severity.NOTE, "models of this size lose facts in long prompts"
    if _NEEDLES[0.5][1] not in _plain(short):
        return Severity.NOTE, "it does not find the fact in a short prompt either, so length is not the cause"
    if found == 0 and deployment.ability is Ability.CAPABLE:
        return Severity.FAILURE, "found in a short prompt, never in a long one: what stands far back is lost"
    if deployment.ability is Ability.SMALL and found:
        return Severity.NOTE, "models of this size lose single facts in long prompts"
    return Severity.WARNING, "found in a short prompt, lost in a long one"


def _plain(reply: ChatReply) -> str:
    """What was said, without separators of thousands."""
    return (reply.text or reply.everything).replace(",", "").replace(" ", "")


CHECK = Check(title="finds facts in a long prompt", phase="exclusive", asks=asks, judge=judge)
