"""One connection that carries one streamed answer at a time: the clock is read before anything else.

While an answer runs only times and bytes are kept; they are read later, in slices (see `generator`). The end
of the usual answer, chunked, is known by its last bytes alone; every other answer is read as it comes.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Protocol, cast

from bringup.parse.event_times import EventTimes
from bringup.parse.token_events import TokenEvents
from bringup.values.bench import LoadRequest

# A chunk of size zero behind the line end of the chunk before. JSON keeps no line end raw, so that these
# bytes stand nowhere else; the reader of the whole answer checks it afterwards.
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_SLICE = 64  # reads that are handed over to be parsed: some 50 us of work, and a bound of the memory
_HEAVY = 1_000_000  # bytes of a slice: no stream of tokens, a flood, of which one slice at a time is taken
_clock = time.monotonic_ns


class Flight:
    """One request under way and what came back so far."""

    __slots__ = (
        "answer",
        "cancel_at",
        "connect",
        "detail",
        "ended",
        "error",
        "is_cancelled",
        "is_over",
        "is_retried",
        "is_settled",
        "ready",
        "request",
        "scheduled",
        "sent",
        "slices",
        "stream",
        "tokens",
        "wire",
    )

    def __init__(self, request: LoadRequest, wire: bytes, *, keep_text: bool) -> None:
        self.request = request
        self.wire = wire
        self.answer = EventTimes()
        self.tokens = TokenEvents(keep_text=keep_text)
        self.slices: list[tuple[list[int], list[bytes]]] = []
        self.stream: Stream | None = None
        self.sent = self.ended = 0
        self.ready: int | None = None
        self.scheduled: int | None = None
        self.connect: int | None = None
        self.cancel_at: int | None = None
        self.error: str | None = None
        self.detail = ""
        self.is_cancelled = self.is_over = self.is_retried = self.is_settled = False


class Owner(Protocol):
    """Who is told what happens on a connection."""

    def ended(self, stream: "Stream", flight: Flight) -> None:
        """The last byte of the answer is there."""
        ...

    def filled(self, flight: Flight) -> None:
        """A slice of reads waits to be parsed."""
        ...

    def received(self, stream: "Stream", flight: Flight) -> None:
        """An answer of an unusual frame went on: it must be parsed now to see whether it is whole."""
        ...

    def lost(self, stream: "Stream", flight: Flight | None, error: BaseException | None) -> None:
        """The connection is gone."""
        ...


class Stream(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_add_data",
        "_add_time",
        "_at",
        "_data",
        "_is_framed",
        "_is_fresh",
        "_is_paused",
        "_send",
        "_tail",
        "flight",
        "is_lost",
        "is_used",
        "owner",
        "transport",
    )

    def __init__(self, owner: Owner, plain: socket.socket | None) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.flight: Flight | None = None
        self.is_lost = False
        self.is_used = False  # carried a request before
        self._is_paused = False
        self._send: Callable[[bytes], int] | None = plain.send if plain is not None else None
        self._tail = b""
        self._is_fresh, self._is_framed = True, False
        self._clear()

    def _clear(self) -> None:
        self._at: list[int] = []
        self._data: list[bytes] = []
        self._add_time = self._at.append
        self._add_data = self._data.append

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def begin(self, flight: Flight) -> None:
        """Send the request. `flight.sent` is read just before its first byte goes to the kernel.

        The transport would hold it back until the loop's next turn; the socket takes it now.
        """
        self.flight, flight.stream = flight, self
        self._is_fresh, self._is_framed, self._tail = True, False, b""
        wire, sent = flight.wire, 0
        flight.sent = _clock()
        if self._send is not None:
            try:
                sent = self._send(wire)
            except OSError:  # full or broken: the transport knows what to do
                sent = 0
        if sent < len(wire) and self.transport is not None:
            self.transport.write(wire[sent:])

    def data_received(self, data: bytes) -> None:
        """Keep the time, keep the bytes; hardly more."""
        self._add_time(_clock())
        self._add_data(data)
        if self._is_framed:
            if data.endswith(b"\r\n\r\n") or len(data) < len(_LAST_CHUNK):
                self._perhaps_end()
            elif len(self._at) >= _SLICE:
                self._hand_over()
        elif self._is_fresh:
            self._begin_answer(data)
        else:
            self._look()

    def _begin_answer(self, data: bytes) -> None:
        """The first bytes: is it the usual answer, whose end is told by its last chunk?"""
        flight = self.flight
        if flight is None:  # nobody asked: not to be trusted with the next request
            self.abort()
            return
        self._is_fresh = False
        flight.wire = b""  # nothing is sent twice once an answer began
        head, found, _ = data.partition(b"\r\n\r\n")
        head = head.lower()
        if (
            found
            and head.startswith(b"http/1.1 200")
            and b"\r\ntransfer-encoding: chunked" in head
            and b"\r\ncontent-type: text/event-stream" in head
            and b"\r\ntrailer:" not in head
            and b"\r\nconnection: close" not in head
        ):
            self._is_framed = True
            if data.endswith(b"\r\n\r\n"):
                self._perhaps_end()
        else:
            self._look()

    def _perhaps_end(self) -> None:
        """These bytes may be the end of all: whole, cut in two, or in a form that only the parser knows."""
        tail = (self._tail + b"".join(self._data[-7:]))[-7:]
        if tail == _LAST_CHUNK:
            self._end()
        elif tail.endswith(b"\r\n\r\n"):
            self._look()
        elif len(self._at) >= _SLICE:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the reads so far away to be parsed."""
        flight = self.flight
        if flight is not None:
            self._put(flight)
            if self.transport is not None and sum(map(len, flight.slices[-1][1])) > _HEAVY:
                self._is_paused = True
                self.transport.pause_reading()
            self.owner.filled(flight)

    def go_on(self) -> None:
        """What was handed over is read: take more."""
        if self._is_paused and not self.is_lost and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()

    def _put(self, flight: Flight) -> None:
        self._tail = b"".join(self._data[-7:])[-6:]
        flight.slices.append((self._at, self._data))
        self._clear()

    def _look(self) -> None:
        flight = self.flight
        if flight is None:
            self._clear()
            self.abort()
            return
        self._put(flight)
        self.owner.received(self, flight)

    def _end(self) -> None:
        flight = self.flight
        if flight is None:
            self._clear()
            return
        flight.ended = self._at[-1]
        self._put(flight)
        self.release()
        self.owner.ended(self, flight)

    def release(self) -> None:
        """The answer is whole: free for the next one."""
        self.flight = None
        self.is_used = True
        self._is_fresh, self._is_framed = True, False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner, with what came before."""
        self.is_lost = True
        flight, self.flight = self.flight, None
        if flight is not None and self._at:
            self._put(flight)
        self.owner.lost(self, flight, exc)

    def abort(self) -> None:
        """Hang up."""
        self.is_lost = True
        if self.transport is not None:
            self.transport.abort()
