"""A streamed answer is well formed, counted rightly, comes in pieces, and says what the whole one says.

Source: OpenAI's streaming format as vLLM 0.32.0, SGLang 0.5.23 and llama.cpp serve it: `data:` frames of
JSON, a `finish_reason`, a last frame with `usage` where `stream_options.include_usage` asks for it, `[DONE]`.
"""

from collections.abc import Iterator

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply, read_reply
from bringup.parse.chat_request import chat_body
from bringup.parse.text_difference import first_difference
from bringup.units import seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_PROMPT = "Count from 1 to 20."
_TOKENS = {Depth.QUICK: 20, Depth.DEFAULT: 40, Depth.FULL: 64}
_LUMP_EVENTS = 8  # fewer events say nothing about how they were delivered
_LUMP_S = 0.02  # an answer that is whole sooner than this may fit one packet
_LUMP_BEGINS = (
    0.25  # guess: of the answer's time; a buffer of 4 kB holds some 25 events, most of such an answer
)
_SOURCE = "answer streaming/streamed"


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """The same question whole and streamed; both once more when the texts differ or the text came in a lump.

    A busy machine may hand over several events at once by chance; not twice.
    """
    if "again" in replies.answers:
        return ()
    if not replies.answers:
        return _pair(deployment, "whole", "streamed")
    whole, streamed = replies.answers["whole"], replies.answers["streamed"]
    if fault_of(whole) or fault_of(streamed):
        return ()
    if _text(whole) == _text(streamed) and not _is_lump(streamed):
        return ()
    return _pair(deployment, "again", "streamed again")


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What is wrong with the stream; one OK when nothing is."""
    _ = deployment
    answer = replies.answers.get("streamed")
    expected = "a stream of JSON frames with text, finish reason, usage and `[DONE]`"
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault):
        return Judgement(findings=(fault_finding("streaming", reply, source=_SOURCE, expected=expected),))
    if replies.answers["streamed"].problem is Problem.ABORTED:
        return Judgement(findings=(_endless(reply),))
    whole = reply_or_fault(replies.answers.get("whole"))
    findings = (
        *_form(reply, replies.answers["streamed"]),
        *_ending(reply),
        *_usage(reply, whole),
        *_delivery(reply, replies),
        *_text_difference(reply, whole, replies),
    )
    if findings:
        return Judgement(findings=findings)
    summary = f"{reply.content_events} well-formed events, same text as the whole answer"
    return Judgement(
        findings=(Finding(id="streaming", severity=Severity.OK, summary=summary, expected=expected),)
    )


def _endless(reply: ChatReply) -> Finding:
    return Finding(
        id="streaming.endless",
        severity=Severity.FAILURE,
        summary=f"the stream did not end: we hung up after {reply.content_events} events",
        expected="an end at `max_tokens` at the latest",
        explanation="clients wait for ever and the engine works for nobody",
        action="see `stopping`",
        evidence=(Evidence(source=_SOURCE, text=reply.everything[:200]),),
    )


def _pair(deployment: Deployment, whole: str, streamed: str) -> Batch:
    model, tokens = deployment.model.id, _TOKENS[deployment.depth]
    return (
        Ask(key=whole, body=chat_body(model, _PROMPT, max_tokens=tokens)),
        Ask(
            key=streamed,
            body=chat_body(model, _PROMPT, max_tokens=tokens, stream=True),
            abort_after_events=8 * tokens + 64,  # a server that never stops is `stopping`'s finding
        ),
    )


def _form(reply: ChatReply, answer: Answer) -> Iterator[Finding]:
    kind = next((value for name, value in answer.headers if name == "content-type"), "none")
    if reply.is_stream and "event-stream" not in kind:
        yield Finding(
            id="streaming.content_type",
            severity=Severity.WARNING,
            summary=f"the stream comes as content type `{kind}`",
            expected="`text/event-stream`",
            explanation="browsers and some clients then read no events, and proxies buffer the answer",
            action="see what sets this header: a proxy, most likely",
            evidence=(Evidence(source=_SOURCE, text=f"content-type: {kind}"),),
        )
    if not reply.is_stream:
        yield Finding(
            id="streaming.ignored",
            severity=Severity.WARNING,
            summary="`stream: true` was ignored: the answer came as one JSON body",
            expected="an event stream",
            explanation="clients that stream cannot read this answer",
            action="check the engine's version and the proxy in front of it",
            evidence=(Evidence(source=_SOURCE, text=reply.everything[:200]),),
        )
    if reply.is_stream and reply.flaws:
        yield Finding(
            id="streaming.frames",
            severity=Severity.FAILURE,
            summary=f"malformed stream: {reply.flaws[0]}",
            expected="every frame is `data:` with JSON, and `[DONE]` comes last",
            explanation="clients stop at the first frame that they cannot read, or lose its text",
            action="ask the engine without the proxy in between; if it is the engine, update it",
            evidence=tuple(Evidence(source=_SOURCE, text=flaw) for flaw in reply.flaws[:5]),
        )


def _ending(reply: ChatReply) -> Iterator[Finding]:
    if not reply.is_stream:
        return
    if reply.finish_reason is None:
        yield Finding(
            id="streaming.finish",
            severity=Severity.FAILURE if not reply.has_done else Severity.WARNING,
            summary="the stream ends without a finish reason"
            + ("" if reply.has_done else " and without `[DONE]`"),
            expected="`finish_reason` in the last frame of the choice",
            explanation="a client cannot tell a whole answer from one that was cut off",
            action="look for a proxy that cuts streams, or an engine that dropped the request",
            evidence=(Evidence(source=_SOURCE, text=f"...{reply.everything[-80:]}"),),
        )
    elif not reply.has_done:
        yield Finding(
            id="streaming.done",
            severity=Severity.WARNING,
            summary="the stream ends without `[DONE]`",
            expected="`data: [DONE]` as the last frame",
            explanation="clients that wait for it hang until the connection closes",
            action="check what stands between engine and client",
            evidence=(Evidence(source=_SOURCE, text=f"finish_reason `{reply.finish_reason}`, no `[DONE]`"),),
        )
    if not reply.everything and not reply.tool_calls and reply.has_done:
        yield Finding(
            id="streaming.empty",
            severity=Severity.WARNING,
            summary="the stream carries no text at all",
            expected="text deltas",
            explanation="the answer is lost on the way, or the model ended its turn at once",
            action="compare with the answer that is not streamed",
        )


def _usage(reply: ChatReply, whole: ChatReply | Fault) -> Iterator[Finding]:
    tokens = reply.completion_tokens
    if tokens is None:
        if reply.is_stream:
            yield Finding(
                id="streaming.usage",
                severity=Severity.NOTE,
                summary="the stream carries no usage",
                expected="a frame with `usage`, as `stream_options.include_usage` asks for",
                explanation="tokens of streamed answers can then only be estimated",
                action="look for a newer version of the engine or proxy",
            )
        return
    if (wrong := _wrong_count(reply, tokens, whole)) is None:
        return
    yield Finding(
        id="streaming.usage",
        severity=Severity.WARNING,
        summary=f"usage is wrong: {wrong}",
        expected="`completion_tokens` is the number of tokens that were generated",
        explanation="billing, quotas and every tokens-per-second figure rest on it",
        action="check what rewrites usage between engine and client, or the engine's version",
        evidence=(
            Evidence(source=_SOURCE, text=f"completion_tokens {tokens}, {reply.content_events} events"),
        ),
    )


def _wrong_count(reply: ChatReply, tokens: int, whole: ChatReply | Fault) -> str | None:
    """Why a count of tokens cannot be right, in words; None when it may be."""
    text = reply.everything
    # at most 40 characters to a token, and at least a byte, apart from a few template marks
    if len(text) > 40 * tokens or tokens > len(text.encode()) + 16:
        return f"{tokens} tokens for {len(text)} characters"
    if reply.content_events > 1.25 * tokens + 2:
        return f"{tokens} tokens, but {reply.content_events} events carried text"
    if isinstance(whole, Fault) or whole.completion_tokens is None or whole.everything != text:
        return None
    if abs(whole.completion_tokens - tokens) > max(2, 0.1 * tokens):
        return f"{tokens} tokens streamed against {whole.completion_tokens} for the same text whole"
    return None


def _is_lump(answer: Answer) -> bool:
    """Whether the text of a long answer came in one or two reads, though it took its time.

    What buffers holds the beginning back too; text that began early and then stood still met a busy machine.
    """
    times = read_reply(answer).event_times
    if len(times) < _LUMP_EVENTS or times[-1] < _LUMP_S or times[0] < _LUMP_BEGINS * times[-1]:
        return False
    return len(set(times)) <= max(2, len(times) // 8)


def _is_spread(answer: Answer) -> bool:
    """Whether the text of a long streamed answer came in many reads."""
    reply = read_reply(answer)
    return reply.is_stream and len(set(reply.event_times)) > max(2, _LUMP_EVENTS // 2)


def _delivery(reply: ChatReply, replies: Replies) -> Iterator[Finding]:
    """A finding when the text came in one lump, and again so when asked again, and so did every other stream.

    What buffers does so every time; a machine too busy to read gets a lump here and pieces there.
    """
    again = replies.answers.get("streamed again")
    if not _is_lump(replies.answers["streamed"]) or (again is not None and not _is_lump(again)):
        return
    if any(_is_spread(answer) for answers in replies.everyone.values() for answer in answers.values()):
        return
    times = reply.event_times
    reads = len(set(times))
    yield Finding(
        id="streaming.lump",
        severity=Severity.WARNING,
        summary=f"{len(times)} events came in {reads} {'read' if reads == 1 else 'reads'}, the first after "
        f"{seconds_text(times[0])} of {seconds_text(times[-1])}",
        expected="events arrive as the tokens are made",
        explanation="something buffers the stream: users wait as if it were not streamed",
        action="switch buffering off in the proxy (nginx: `proxy_buffering off`)",
        evidence=(Evidence(source=_SOURCE, text=f"arrivals of text: {_times(times)}"),),
    )


def _times(times: tuple[float, ...]) -> str:
    return ", ".join(seconds_text(moment) for moment in sorted(set(times))[:4])


def _text_difference(streamed: ChatReply, whole: ChatReply | Fault, replies: Replies) -> Iterator[Finding]:
    if isinstance(whole, Fault):
        expected = "the same question answered without streaming"
        yield fault_finding("streaming.whole", whole, source="answer streaming/whole", expected=expected)
        return
    place = first_difference(whole.everything, streamed.everything)
    if place is None or streamed.flaws:
        return
    severity, explanation = _weigh(replies, whole.everything, streamed.everything)
    yield Finding(
        id="streaming.text",
        severity=severity,
        summary=f"streamed and whole answer differ {place}",
        expected="the same text at temperature 0",
        explanation=explanation,
        action="see `determinism`; if that is clean, suspect the engine's streaming detokeniser or parser",
        evidence=(
            Evidence(source="answer streaming/whole", text=whole.everything[:200]),
            Evidence(source=_SOURCE, text=streamed.everything[:200]),
        ),
    )


def _weigh(replies: Replies, whole: str, streamed: str) -> tuple[Severity, str]:
    """How bad a difference is, by what the repetition showed."""
    if "\ufffd" in streamed and "\ufffd" not in whole:
        return Severity.FAILURE, "the stream cuts characters of several bytes in two: text is lost for good"
    if whole.split() == streamed.split():
        return Severity.NOTE, "only white space differs"
    again, streamed_again = replies.answers.get("again"), replies.answers.get("streamed again")
    if again is None or streamed_again is None or fault_of(again) or fault_of(streamed_again):
        return Severity.WARNING, "the streamed path may alter text; the repetition brought no answer"
    if _text(again) == whole and _text(streamed_again) == streamed:
        return Severity.WARNING, "it came again on repetition: the streamed path alters the text"
    if {whole, streamed} & {_text(again), _text(streamed_again)}:
        return (
            Severity.NOTE,
            "on repetition it was otherwise: answers vary with what else is in the batch, streamed or not",
        )
    return (
        Severity.WARNING,
        "four answers to one question at temperature 0, and no two that tell which is right",
    )


def _text(answer: Answer) -> str:
    return read_reply(answer).everything


CHECK = Check(title="streams an answer", depth=Depth.QUICK, asks=asks, judge=judge, reads_all=True)
