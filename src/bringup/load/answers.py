"""Turns finished flights into records and keeps the complete distributions of one generator."""

from collections import Counter

import httptools

from bringup.load.wire import Flight
from bringup.parse.event_times import AnswerTooLarge
from bringup.parse.token_events import TokenEvents
from bringup.values.bench import Failed, RequestRecord, Tally

_BIN_NS = 100_000_000
_MOST_DETAIL = 200  # characters of a server's words
_MOST_EVENTS = (16, 10_000)  # for each token that was asked for, and beyond: a server that does not stop
_MOST_UNASKED = 1_000_000  # events where no length was asked for


class Gaps:
    """A tally that grows."""

    __slots__ = ("counts", "least", "most", "total")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.total = 0
        self.least: int | None = None
        self.most: int | None = None

    def add(self, gaps: list[int]) -> None:
        """Add durations, nanoseconds."""
        if gaps:
            self.counts.update([gap // 1000 for gap in gaps])
            self.total += sum(gaps)
            least, most = min(gaps), max(gaps)
            self.least = least if self.least is None else min(self.least, least)
            self.most = most if self.most is None else max(self.most, most)

    def tally(self) -> Tally:
        """What was added."""
        return Tally(counts=dict(self.counts), total_ns=self.total, least_ns=self.least, most_ns=self.most)


class Answers:
    """Everything that one generator got over one rung."""

    def __init__(self, *, start_ns: int, keep_gaps: bool) -> None:
        self.records: list[RequestRecord] = []
        self.gaps = Gaps()
        self.event_gaps = Gaps()
        self.event_gap_tokens = 0
        self.bins: Counter[int] = Counter()
        self.send_late = Gaps()
        self.reads = 0
        self.bytes_read = 0
        self.events = 0
        self.first_tokens = 0
        self.failed = 0
        self._start = start_ns
        self._keep_gaps = keep_gaps

    def read(self, flight: Flight, slices: int = 1) -> None:
        """Parse the next slices of a flight; a fault is kept in it."""
        tokens, answer = flight.tokens, flight.answer
        for times, reads in flight.slices[:slices]:
            self.reads += len(reads)
            self.bytes_read += sum(map(len, reads))
            if flight.error is not None and not flight.is_over:
                continue  # what follows a fault says nothing
            before = tokens.events
            try:
                answer.feed(times, reads)
            except httptools.HttpParserError as error:
                flight.error, flight.detail = Failed.MALFORMED, str(error) or type(error).__name__
            except AnswerTooLarge as error:
                flight.error, flight.detail = Failed.TOO_LARGE, str(error)
            if answer.payloads:
                tokens.take(answer.times, answer.payloads)
                answer.payloads.clear()
                answer.times.clear()
                self._bound(flight)
            arrived = tokens.arrived
            if arrived:
                self._bin(arrived)
                self.events += len(arrived)
                self.first_tokens += not before
                arrived.clear()
        del flight.slices[:slices]

    def _bound(self, flight: Flight) -> None:
        """An answer without end is a fault: its times would fill the memory."""
        asked, events = flight.request.output_tokens, flight.tokens.events
        most = _MOST_UNASKED if asked is None else asked * _MOST_EVENTS[0] + _MOST_EVENTS[1]
        if events > most and flight.error is None:
            wanted = "" if asked is None else f" where {asked:,} tokens were asked for"
            flight.error, flight.detail = Failed.TOO_LARGE, f"{events:,} events{wanted}"

    def _bin(self, times: list[int]) -> None:
        """Count token events in tenths of a second."""
        start = self._start
        first = (times[0] - start) // _BIN_NS
        if first == (times[-1] - start) // _BIN_NS:
            self.bins[first] += len(times)
        else:
            self.bins.update([(time - start) // _BIN_NS for time in times])

    def finish(self, flight: Flight) -> RequestRecord:
        """The record of a flight that is over and read to its end."""
        tokens, answer, request = flight.tokens, flight.answer, flight.request
        if answer.body and not flight.error and answer.is_complete and answer.status == 200:
            tokens.take_whole(flight.ended, answer.body)
            self._bin([flight.ended])
            self.events += tokens.events
        error, detail = _fault(flight)
        is_good = error is None and not flight.is_cancelled
        usage = tokens.usage
        counted = usage.completion_tokens if usage is not None else None
        if not counted and tokens.events:
            counted = None  # no tokens, and yet there is text: not counted
        if is_good:
            self._add_gaps(tokens, counted)
        self.failed += error is not None
        start = self._start
        if flight.scheduled is not None:
            self.send_late.add([max(0, flight.sent - flight.scheduled)])
        first_tokens = tokens.first_event_tokens
        if first_tokens is None and _has_token_events(tokens, counted):
            first_tokens = 1
        record = RequestRecord(
            index=request.index,
            sent=flight.sent - start,
            scheduled=None if flight.scheduled is None else flight.scheduled - start,
            ready=None if flight.ready is None else flight.ready - start,
            connect=flight.connect,
            headers=None if answer.headers_at is None else answer.headers_at - start,
            first=None if tokens.first is None else tokens.first - start,
            last=None if tokens.last is None else tokens.last - start,
            ended=flight.ended - start,
            status=answer.status,
            error=error,
            detail=detail,
            is_cancelled=flight.is_cancelled,
            asked_tokens=request.output_tokens,
            meant_input_tokens=request.input_tokens,
            input_tokens=usage.prompt_tokens if usage is not None else None,
            cached_tokens=usage.prompt_tokens_details.cached_tokens
            if usage is not None and usage.prompt_tokens_details is not None
            else None,
            output_tokens=counted,
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens
            if usage is not None and usage.completion_tokens_details is not None
            else None,
            events=tokens.events,
            first_event_tokens=first_tokens,
            finish_reason=tokens.finish_reason,
            question=request.question,
            conversation=request.conversation,
            turn=request.turn,
            text="".join(tokens.texts) if tokens.keep_text else None,
            gaps=tuple(tokens.gaps) if self._keep_gaps else None,
            event_tokens=tuple(tokens.gap_tokens) if self._keep_gaps and tokens.gap_tokens else None,
        )
        self.records.append(record)
        tokens.forget()
        answer.body = b""
        return record

    def _add_gaps(self, tokens: TokenEvents, counted: int | None) -> None:
        if _has_token_events(tokens, counted):
            self.gaps.add(tokens.gaps)
            return
        self.event_gaps.add(tokens.gaps)
        if tokens.gap_tokens:
            self.event_gap_tokens += sum(tokens.gap_tokens)
        elif counted is not None and tokens.events:
            self.event_gap_tokens += max(0, counted - 1)  # the first event holds what the prefill gave: one


def _has_token_events(tokens: TokenEvents, counted: int | None) -> bool:
    """Whether each event carried one token. The end-of-text token is counted and has no text."""
    if counted is None or counted == tokens.events:
        return True
    return counted == tokens.events + 1 and tokens.finish_reason == "stop"


def _fault(flight: Flight) -> tuple[str | None, str]:
    """Why the answer of a flight is none, and the server's words."""
    tokens, answer = flight.tokens, flight.answer
    if flight.is_cancelled:
        return None, ""
    fault: tuple[str | None, str] = (None, "")
    if flight.error is not None:
        fault = (flight.error, flight.detail)
    elif answer.status is None or not answer.is_complete:
        fault = (Failed.CLOSED_EARLY, "the answer was not whole")
    elif not 200 <= answer.status < 300:
        fault = (f"http {answer.status}", _cut_text(answer.body))
    elif tokens.error:
        fault = (Failed.ERROR_EVENT, tokens.error[:_MOST_DETAIL])
    elif tokens.malformed:
        fault = (Failed.MALFORMED, f"{tokens.malformed} events are no JSON as chat or completions have it")
    elif not (tokens.is_done or tokens.finish_reason):
        fault = (Failed.CLOSED_EARLY, "the stream ended without a finish reason and without [DONE]")
    elif not tokens.events:
        fault = (Failed.EMPTY, "a whole answer without one token")
    return fault


def _cut_text(body: bytes) -> str:
    return body[: 4 * _MOST_DETAIL].decode("utf-8", "replace")[:_MOST_DETAIL]
