"""How fast one stream comes on a quiet engine, measured in passing.

Source: tokens per second = (tokens - 1) / (last arrival - first arrival), the inverse of the mean
inter-token latency, so that prefill and network set-up stay out of it. A figure, never a verdict.
"""

from dataclasses import dataclass

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import float_at
from bringup.units import seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity

_PROMPT = "Write a long story about a lighthouse keeper and the sea. Describe every day of the year."
_TOKENS = {Depth.QUICK: 40, Depth.DEFAULT: 128, Depth.FULL: 256}
_TRIES = ("stream", "stream 2", "stream 3")
_FEWEST = 8  # tokens: below this one late packet decides the figure
_ENGINE_SAYS_MORE = 1.3  # the engine's own figure over ours, from which something in between slows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """One stream in figures."""

    tokens_per_s: float
    first_token_s: float
    tokens: int
    is_estimated: bool


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """One stream; again where it came whole but in too few pieces: a busy machine reads many at once."""
    tried = [key for key in _TRIES if key in replies.answers]
    if len(tried) == len(_TRIES) or (tried and not _is_lumped(replies, tried[-1])):
        return ()
    tokens = _TOKENS[deployment.depth]
    body = chat_body(deployment.model.id, _PROMPT, max_tokens=tokens, stream=True)
    return (Ask(key=_TRIES[len(tried)], body=body, abort_after_events=4 * tokens + 64),)


def _is_lumped(replies: Replies, key: str) -> bool:
    """Whether a try brought a whole answer whose arrivals say nothing about speed."""
    reply = reply_or_fault(replies.answers.get(key))
    return not isinstance(reply, Fault) and _pace(reply) is None


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Tokens per second and time to first token, or why they were not to be had."""
    _ = deployment
    # the last try is the only one that may be good: no further one is made after it
    answer = next((replies.answers[key] for key in reversed(_TRIES) if key in replies.answers), None)
    expected = "one streamed answer with nothing else running"
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault):
        unmeasured = _unmeasured(f"not measured: {reply.what}", expected)
        return Judgement(findings=(unmeasured,), measurements=_figures(None))
    pace = _pace(reply)
    if pace is None:
        why = f"{reply.content_events} events with text in {_spread(reply)}"
        return Judgement(
            findings=(_unmeasured(f"not measured: {why} say nothing about speed", expected),),
            measurements=_figures(None),
        )
    finding = Finding(
        id="speed",
        severity=Severity.OK,
        summary=f"{_said(pace)}, first token after {seconds_text(pace.first_token_s)}",
        expected=expected,
        explanation="one short stream in passing: it says nothing about many at once",
        evidence=(
            Evidence(
                source="answer speed/stream", text=f"{pace.tokens} tokens, {reply.content_events} events"
            ),
            *_engine_figure(reply, pace),
        ),
    )
    return Judgement(findings=(finding,), measurements=_figures(pace))


def _pace(reply: ChatReply) -> _Pace | None:
    times = reply.event_times
    events = reply.content_events
    tokens = reply.completion_tokens or events
    if events < 2 or tokens < _FEWEST or times[-1] <= times[0]:
        return None
    # tokens in the first event came before the clock started: one of one, k of k where events carry k
    in_first = max(1.0, tokens / events)
    span = times[-1] - times[0]
    is_plain = reply.completion_tokens is not None and abs(reply.completion_tokens - events) <= 1
    if len(set(times)) < min(4, events):
        return None
    return _Pace(
        tokens_per_s=(tokens - in_first) / span,
        first_token_s=times[0],
        tokens=tokens,
        is_estimated=not is_plain,
    )


def _spread(reply: ChatReply) -> str:
    if not reply.event_times:
        return "no time at all"
    reads = len(set(reply.event_times))
    return f"{reads} {'arrival' if reads == 1 else 'arrivals'}"


def _said(pace: _Pace) -> str:
    about = "about " if pace.is_estimated else ""
    why = " (estimated: events and tokens do not come one by one)" if pace.is_estimated else ""
    figure = f"{pace.tokens_per_s:.3g}" if pace.tokens_per_s < 1000 else f"{pace.tokens_per_s:,.0f}"
    return f"{about}{figure} tokens/s{why}"


def _engine_figure(reply: ChatReply, pace: _Pace) -> tuple[Evidence, ...]:
    """The engine's own figure, where it gives one (llama.cpp `timings`)."""
    own = float_at(reply.extra.get("timings"), "predicted_per_second")
    if own is None:
        return ()
    slows = own > _ENGINE_SAYS_MORE * pace.tokens_per_s
    remark = ": something between engine and client slows the stream" if slows else ""
    return (Evidence(source="engine timings", text=f"{own:.3g} tokens/s by the engine's own count{remark}"),)


def _unmeasured(summary: str, expected: str) -> Finding:
    return Finding(
        id="speed",
        severity=Severity.UNKNOWN,
        summary=summary,
        expected=expected,
        explanation="speed needs an answer that arrives in pieces and ends in time",
        action="see what `streaming` says, then verify again on a quiet engine",
    )


def _figures(pace: _Pace | None) -> tuple[Measurement, ...]:
    name = "single-stream speed" + (" (estimated)" if pace is not None and pace.is_estimated else "")
    return (
        Measurement(name=name, value=None if pace is None else pace.tokens_per_s, unit="tokens/s"),
        Measurement(name="time to first token", value=None if pace is None else pace.first_token_s, unit="s"),
    )


CHECK = Check(
    title="speed of one stream",
    section="capacity",
    phase="exclusive",
    asks=asks,
    judge=judge,
    depth=Depth.QUICK,
)
