"""Tokens out of the events of a chat or completion stream: when they came and what lies between.

An event carries tokens when it holds text, reasoning or a piece of a tool call. The first chunk that only
names the role, the empty one that says why it finished and the one with usage alone carry none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

_DONE = b"[DONE]"
_MOST_COUNT = 1_000_000_000  # tokens of one answer; what says more counts something else


class Details(msgspec.Struct, gc=False):
    """Parts of a count."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The server's own counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Delta(msgspec.Struct, gc=False):
    """What one event adds to a chat answer; `message` of an answer that is no stream has the same shape."""

    content: str | None = None
    reasoning_content: str | None = None  # SGLang, llama.cpp, DeepSeek, vLLM before 0.12
    reasoning: str | None = None  # vLLM
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers of one request."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None  # completions
    finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event."""

    choices: list[Choice] = []  # msgspec copies it
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw()  # empty: there is none
    object: str | None = None
    message: str | None = None  # SGLang puts an error at the top, with object "error"


_decoder = msgspec.json.Decoder(Chunk)
_lax_decoder = msgspec.json.Decoder(Chunk, strict=False)  # takes a count that is written `7.0` or `"7"`


@dataclass(slots=True)
class TokenEvents:
    """What the events of one answer amount to so far.

    Attributes:
        events: how many carried tokens.
        gaps: nanoseconds between one such event and the next of the same choice.
        gap_tokens: tokens of the event that ends each gap, where the server counts per event; else empty.
        malformed: payloads that are no JSON object.
        error: the `error` object of a stream that went wrong, as text.
        texts: the answer in pieces, if kept.
        arrived: arrivals of the token events since the caller took them out last.
    """

    keep_text: bool = False
    events: int = 0
    first: int | None = None
    last: int | None = None
    first_event_tokens: int | None = None
    gaps: list[int] = field(default_factory=list[int])
    gap_tokens: list[int] = field(default_factory=list[int])
    usage: Usage | None = None
    finish_reason: str | None = None
    malformed: int = 0
    error: str = ""
    is_done: bool = False
    texts: list[str] = field(default_factory=list[str])
    arrived: list[int] = field(default_factory=list[int])
    _last_of: dict[int, int] = field(default_factory=dict[int, int])
    _counted: int = 0

    def take(self, times: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Take events with their arrivals, nanoseconds."""
        is_done = bool(payloads) and payloads[-1] == _DONE
        try:
            chunks = _decoder.decode_lines(b"\n".join(payloads[:-1] if is_done else payloads))
        except (msgspec.DecodeError, UnicodeDecodeError):
            chunks = []
        if len(chunks) != len(payloads) - is_done:  # a fault somewhere, or JSON over several lines
            self._take_one_by_one(times, payloads)
            return
        self.is_done = self.is_done or is_done
        if self.keep_text:
            for time, chunk in zip(times, chunks, strict=False):
                self._add(time, chunk)
        else:
            self._take_usual(times, chunks)

    def _take_usual(self, times: Sequence[int], chunks: Sequence[Chunk]) -> None:
        """The same for the many chunks that hold one piece of one answer and nothing else, with less work."""
        arrived: list[int] = []
        arrive = arrived.append
        for time, chunk in zip(times, chunks, strict=False):
            choices = chunk.choices
            if len(choices) == 1 and chunk.usage is None:
                choice = choices[0]
                delta = choice.delta
                if (
                    delta is not None
                    and (delta.content or delta.reasoning_content)
                    and choice.finish_reason is None
                    and not choice.index
                ):
                    arrive(time)
                    continue
            self._add_arrived(arrived)
            self._add(time, chunk)
        self._add_arrived(arrived)

    def _add_arrived(self, arrived: list[int]) -> None:
        """Token events of the first choice, in the order of their arrival."""
        if not arrived:
            return
        self.events += len(arrived)
        self.arrived += arrived
        before = self._last_of.get(0)
        if before is not None:
            self.gaps.append(arrived[0] - before)
        elif self.first is None:
            self.first = arrived[0]
        self.gaps += [later - earlier for earlier, later in pairwise(arrived)]
        self._last_of[0] = self.last = arrived[-1]
        arrived.clear()

    def _take_one_by_one(self, times: Sequence[int], payloads: Sequence[bytes]) -> None:
        for time, payload in zip(times, payloads, strict=True):
            if payload.strip() == _DONE:
                self.is_done = True
                continue
            try:
                self._add(time, _lax_decoder.decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.malformed += 1

    def _add(self, time: int, chunk: Chunk) -> None:
        usage = chunk.usage
        if usage is not None:
            _drop_nonsense(usage)
        for choice in chunk.choices:
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            delta = choice.delta
            if delta is None:
                text = choice.text
                is_token = bool(text)
            else:
                text = delta.content
                is_token = bool(
                    text or delta.reasoning_content or delta.reasoning or delta.tool_calls or delta.refusal
                )
            if is_token:
                self._add_token(time, choice.index, usage)
                if self.keep_text and text:
                    self.texts.append(text)
        if usage is not None:
            self.usage = usage
        error = bytes(chunk.error)
        if error and error != b"null":
            self.error = error.decode("utf-8", "replace")
        elif chunk.object == "error":
            self.error = chunk.message or "error"

    def _add_token(self, time: int, index: int, usage: Usage | None) -> None:
        self.events += 1
        self.arrived.append(time)
        counted = usage.completion_tokens if usage is not None else None
        before = self._last_of.get(index)
        if before is not None:
            self.gaps.append(time - before)
            if counted is not None:
                self.gap_tokens.append(counted - self._counted)
        elif self.first is None:
            self.first, self.first_event_tokens = time, counted
        if counted is not None:
            self._counted = counted
        self._last_of[index] = time
        self.last = time

    def forget(self) -> None:
        """Let go what grows with the answer; the figures stay."""
        self.gaps.clear()
        self.gap_tokens.clear()
        self.texts.clear()

    def take_whole(self, time: int, body: bytes) -> None:
        """An answer that came in one piece, as JSON: everything came at once."""
        try:
            chunk = _lax_decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.malformed += 1
            return
        for choice in chunk.choices:
            if choice.delta is None:
                choice.delta = choice.message
        self._add(time, chunk)
        self.is_done = True


def _drop_nonsense(usage: Usage) -> None:
    """Take out what can be no count: it would be in every rate."""
    usage.prompt_tokens = _count(usage.prompt_tokens)
    usage.completion_tokens = _count(usage.completion_tokens)
    if usage.prompt_tokens_details is not None:
        usage.prompt_tokens_details.cached_tokens = _count(usage.prompt_tokens_details.cached_tokens)
    if usage.completion_tokens_details is not None:
        details = usage.completion_tokens_details
        details.reasoning_tokens = _count(details.reasoning_tokens)


def _count(told: int | None) -> int | None:
    return told if told is not None and 0 <= told <= _MOST_COUNT else None
