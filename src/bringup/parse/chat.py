"""An answer of the chat or completions endpoint, streamed or whole, to one `ChatReply`.

Nothing is repaired: what is wrong with the form is listed in `flaws`, in words that a finding can quote.

Source: OpenAI's chat and completions bodies as vLLM 0.32.0, SGLang 0.5.23 and llama.cpp send them.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from bringup.parse.json_value import Json, at, float_at, int_at, json_or_none, list_at, text_at
from bringup.parse.sse import read_events
from bringup.values.exchange import Answer

_MOST_FLAWS = 50  # told per stream: one broken frame looks like the next


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call, its argument text put together from all deltas."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One output token with its log-probability and the best alternatives."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What the model said and how it was delivered."""

    text: str = ""  # the answer proper
    reasoning: str = ""  # from `reasoning_content` or `reasoning`
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None  # the server's error message, inside a 200 or with an error status
    is_stream: bool = False
    has_done: bool = False  # the `[DONE]` line came
    content_events: int = 0  # stream events that carried text, reasoning or tool deltas
    event_times: tuple[float, ...] = ()  # seconds since sent, one per content event
    flaws: tuple[str, ...] = ()
    extra: dict[str, Json] = field(default_factory=dict[str, Json])  # llama.cpp `timings` and the like

    @property
    def everything(self) -> str:
        """Reasoning and answer, as the model produced them."""
        return f"{self.reasoning}{self.text}"


def read_reply(answer: Answer) -> ChatReply:
    """The reply in `answer`, whatever its form. Never raises: unreadable forms are flaws."""
    kind = next((value for name, value in answer.headers if name == "content-type"), "")
    body = answer.body.lstrip()
    if "event-stream" in kind or body.startswith(("data:", ":", "event:")):
        return _read_stream(answer)
    value = json_or_none(answer.body)
    if not isinstance(value, dict):
        start = body[:80].replace("\n", " ")
        what = "an HTML page" if body[:15].lower().startswith(("<!doctype", "<html")) else "not JSON"
        flaw = f"the body is {what}: `{start}`" if body else "the body is empty"
        return ChatReply(flaws=(flaw,))
    error = error_message(value)
    choice = at(value, "choices", 0)
    message = at(choice, "message")
    flaws: list[str] = []
    if error is None and not isinstance(choice, dict):
        flaws.append("no `choices[0]` in the body")
    text = text_at(message, "content") if message is not None else text_at(choice, "text")
    return ChatReply(
        text=text or "",
        reasoning=text_at(message, "reasoning_content") or text_at(message, "reasoning") or "",
        tool_calls=tuple(
            ToolCall(
                name=text_at(call, "function", "name") or "",
                arguments=text_at(call, "function", "arguments") or "",
                id=text_at(call, "id"),
            )
            for call in list_at(message, "tool_calls")
        ),
        finish_reason=text_at(choice, "finish_reason"),
        model=text_at(value, "model"),
        prompt_tokens=int_at(value, "usage", "prompt_tokens"),
        completion_tokens=int_at(value, "usage", "completion_tokens"),
        logprobs=_logprobs(choice),
        error=error,
        flaws=tuple(flaws),
        extra={key: value[key] for key in ("timings", "system_fingerprint") if key in value},
    )


def error_message(value: Json) -> str | None:
    """The message of an error body in any engine's form, or None.

    >>> error_message({"error": {"message": "too long"}})
    'too long'
    >>> error_message({"object": "error", "message": "too long"})
    'too long'
    """
    nested = at(value, "error")
    if isinstance(nested, str):
        return nested
    if isinstance(nested, dict):
        return text_at(nested, "message") or str(nested)
    if text_at(value, "object") == "error":
        return text_at(value, "message") or "error without a message"
    detail = at(value, "detail")
    if detail is not None and at(value, "choices") is None:
        return detail if isinstance(detail, str) else str(detail)
    return None


def _logprobs(choice: Json) -> tuple[TokenLogprob, ...]:
    rows: list[TokenLogprob] = []
    for row in list_at(choice, "logprobs", "content"):
        logprob = float_at(row, "logprob")
        if logprob is None:
            continue
        top = tuple(
            (text_at(other, "token") or "", value)
            for other in list_at(row, "top_logprobs")
            if (value := float_at(other, "logprob")) is not None
        )
        rows.append(TokenLogprob(token=text_at(row, "token") or "", logprob=logprob, top=top))
    return tuple(rows)


@dataclass(slots=True)
class _Pieces:
    """What the events of one stream have brought so far."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, list[str]] = field(
        default_factory=dict[int, list[str]]
    )  # index -> [id, name, arguments]
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    finish_reason: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None
    extra: dict[str, Json] = field(default_factory=dict[str, Json])

    def add(self, value: Json) -> bool:
        """Take one event in; True when it carried text, reasoning or a tool delta."""
        self.error = self.error or error_message(value)
        self.model = self.model or text_at(value, "model")
        self.prompt_tokens = _latest(int_at(value, "usage", "prompt_tokens"), self.prompt_tokens)
        self.completion_tokens = _latest(int_at(value, "usage", "completion_tokens"), self.completion_tokens)
        if isinstance(value, dict) and "timings" in value:
            self.extra["timings"] = value["timings"]
        choice = at(value, "choices", 0)
        self.finish_reason = text_at(choice, "finish_reason") or self.finish_reason
        self.logprobs += _logprobs(choice)
        delta = at(choice, "delta")
        text = (text_at(delta, "content") if delta is not None else text_at(choice, "text")) or ""
        reasoning = text_at(delta, "reasoning_content") or text_at(delta, "reasoning") or ""
        calls = list_at(delta, "tool_calls")
        self.text.append(text)
        self.reasoning.append(reasoning)
        for call in calls:
            parts = self.calls.setdefault(self._place(call), ["", "", ""])
            parts[0] = text_at(call, "id") or parts[0]
            parts[1] += text_at(call, "function", "name") or ""
            parts[2] += text_at(call, "function", "arguments") or ""
        return bool(text or reasoning or calls)

    def _place(self, call: Json) -> int:
        """Which call a delta continues. Without an index a new id begins a new one."""
        index = int_at(call, "index")
        if index is not None:
            return index
        last = max(self.calls, default=0)
        name = text_at(call, "id")
        is_new = name is not None and last in self.calls and self.calls[last][0] != name
        return last + 1 if is_new else last


def _latest(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _read_stream(answer: Answer) -> ChatReply:
    stream = read_events(answer.body)
    pieces = _Pieces()
    flaws: list[str] = []
    times: list[float] = []
    has_done = False
    for number, event in enumerate(stream.events, start=1):
        if event.data.strip() == "[DONE]":
            has_done = True
            continue
        value = json_or_none(event.data)
        if not isinstance(value, dict):
            if len(flaws) < _MOST_FLAWS:
                flaws.append(f"event {number} is not JSON: `{event.data[:60]}`")
            continue
        if has_done and len(flaws) < _MOST_FLAWS:
            flaws.append(f"event {number} came after `[DONE]`")
        if pieces.add(value):
            times.append(_arrival(answer, event.end))
    if stream.rest.strip():
        flaws.append(f"the stream ends inside a frame: `{stream.rest.strip()[:60]}`")
    flaws += [f"a line is no field of an event stream: `{line[:60]}`" for line in stream.strangers[:3]]
    return ChatReply(
        text="".join(pieces.text),
        reasoning="".join(pieces.reasoning),
        tool_calls=tuple(
            ToolCall(id=parts[0] or None, name=parts[1], arguments=parts[2])
            for _, parts in sorted(pieces.calls.items())
        ),
        finish_reason=pieces.finish_reason,
        model=pieces.model,
        prompt_tokens=pieces.prompt_tokens,
        completion_tokens=pieces.completion_tokens,
        logprobs=tuple(pieces.logprobs),
        error=pieces.error,
        is_stream=True,
        has_done=has_done,
        content_events=len(times),
        event_times=tuple(times),
        flaws=tuple(flaws),
        extra=pieces.extra,
    )


def _arrival(answer: Answer, end: int) -> float:
    """Seconds after sending at which byte `end` of the body had arrived."""
    place = bisect_left(answer.arrivals, end, key=lambda arrival: arrival[1])
    return answer.arrivals[place][0] if place < len(answer.arrivals) else answer.total_s or 0.0
