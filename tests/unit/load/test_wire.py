"""The connection: in any cutting the end is seen at the last byte, never before, and no read is lost."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.load import wire
from bringup.load.wire import Flight, Stream
from bringup.values.bench import LoadRequest


@dataclass
class Seen:
    """An owner that only keeps what it is told, and reads unusual answers as the generator does."""

    ends: list[int] = field(default_factory=list)
    handed: list[tuple[list[int], list[bytes]]] = field(default_factory=list)
    read: int = 0

    def ended(self, stream: Stream, flight: Flight) -> None:
        self.ends.append(self.read)
        self.take(flight)

    def filled(self, flight: Flight) -> None:
        self.take(flight)

    def received(self, stream: Stream, flight: Flight) -> None:
        self.take(flight)
        if flight.answer.is_complete:
            stream.release()
            self.ended(stream, flight)

    def lost(self, stream: Stream, flight: Flight | None, error: BaseException | None) -> None:
        self.ends.append(-1)

    def take(self, flight: Flight) -> None:
        for times, reads in flight.slices:
            self.handed.append((times, reads))
            flight.answer.feed(times, reads)
        flight.slices.clear()


class Transport:
    """Takes what is written; a socket would."""

    def __init__(self) -> None:
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True


def stream_of(seen: Seen) -> tuple[Stream, Transport, Flight]:
    stream, transport = Stream(seen, None), Transport()
    stream.connection_made(transport)
    flight = Flight(LoadRequest(index=0, body=b"{}"), b"POST", keep_text=False)
    stream.begin(flight)
    return stream, transport, flight


def answer_of(events: list[bytes], end: bytes, head: bytes = b"") -> bytes:
    usual = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return (head or usual) + chunks + end


events = st.lists(
    st.sampled_from(
        [
            b"data: {}\n\n",
            b"data: 0\r\n\r\n",
            b"data: [DONE]\n\n",
            b": ping\n\n",
            b"data: " + b"0" * 80 + b"\n\n",
        ]
    ),
    max_size=90,
)


@given(events, st.sampled_from([b"0\r\n\r\n", b"0\r\nx-took: 1\r\n\r\n", b"00;a=b\r\n\r\n"]), st.data())
@settings(max_examples=300)
def test_the_end_is_seen_at_the_last_byte(sent: list[bytes], end: bytes, data: st.DataObject) -> None:
    whole = answer_of(sent, end)
    places = data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=200))
    edges = [0, *sorted(places), len(whole)]
    reads = [whole[start:stop] for start, stop in itertools.pairwise(edges)]
    seen = Seen()
    stream, _, flight = stream_of(seen)
    ticks = iter(range(10, 10_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_clock", lambda: next(ticks))
        for read in reads:
            assert seen.ends == []
            seen.read += 1
            stream.data_received(read)
    assert seen.ends == [len(reads)]
    assert flight.answer.is_complete
    assert [read for _, part in seen.handed for read in part] == reads
    assert [time for times, _ in seen.handed for time in times] == list(range(10, 10 + len(reads)))
    assert stream.flight is None


def test_a_second_answer_on_the_same_connection_begins_anew() -> None:
    seen = Seen()
    stream, _, _ = stream_of(seen)
    whole = answer_of([b"data: {}\n\n"], b"0\r\n\r\n")
    stream.data_received(whole)
    second = Flight(LoadRequest(index=1, body=b"{}"), b"POST", keep_text=False)
    stream.begin(second)
    stream.data_received(whole[:60])
    stream.data_received(whole[60:])
    assert second.answer.is_complete
    assert second.answer.payloads == [b"{}"]


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    seen = Seen()
    stream, transport, _ = stream_of(seen)
    stream.data_received(answer_of([], b"0\r\n\r\n"))
    stream.data_received(b"HTTP/1.1 200 OK\r\n")
    assert transport.is_aborted


def test_a_lost_connection_gives_up_what_it_had() -> None:
    seen = Seen()
    stream, _, flight = stream_of(seen)
    stream.data_received(answer_of([b"data: {}\n\n"], b""))
    stream.connection_lost(None)
    assert seen.ends == [-1]
    assert len(flight.slices) == 1
