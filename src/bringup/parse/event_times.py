"""The events of one HTTP answer, each with the time at which its last byte was there.

Fed with what a socket gave, read by read, in any cutting. Server-sent events by WHATWG HTML, section 9.2.6:
lines end in LF, CRLF or CR, a blank line dispatches, comments are lines that begin with a colon, the blank
after `data:` may be missing. An event is there as soon as the first byte of its blank line's end is.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

import httptools

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_FINAL_STATUS = 200
_MOST_HEAD = 262_144  # bytes before the headers are over; servers allow 8 to 64 kB
_MOST_UNDISPATCHED = 4_000_000  # bytes of one event, or of an answer that is no stream of events


class AnswerTooLarge(ValueError):  # noqa: N818 - it is about the answer
    """The headers, one event, or an answer that is no stream is larger than any server means to send."""


class _Head:
    """What the parser of HTTP calls. It knows nobody, so that an answer leaves no cycle behind."""

    __slots__ = ("closes", "is_complete", "is_over", "media_type", "on_body", "status", "tells_end")

    def __init__(self, pieces: list[bytes]) -> None:
        self.on_body = pieces.append  # called by the parser, without a frame of ours
        self.status: int | None = None
        self.media_type = ""
        self.closes = False
        self.tells_end = False
        self.is_over = False
        self.is_complete = False

    def on_message_begin(self) -> None:
        self.tells_end = self.is_over = self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self.media_type = value.partition(b";")[0].strip().lower().decode("latin-1")
        elif name == b"connection":
            self.closes = value.strip().lower() == b"close"
        elif name in {b"content-length", b"transfer-encoding"}:
            self.tells_end = True

    def on_headers_complete(self) -> None:
        self.is_over = True

    def on_message_complete(self) -> None:
        self.is_complete = True


class EventTimes:
    """Reads one answer. `payloads` and `times` grow together; `body` holds an answer that is no stream.

    Attributes:
        status: of the final answer (after any 1xx); `None` before its headers are over.
        is_complete: the whole answer was there, by its own framing.
        headers_at: nanoseconds, arrival of the first byte.
        payloads: data of the dispatched events, in order; the caller may take them out.
        times: one arrival per payload, nanoseconds.
    """

    __slots__ = (
        "_data",
        "_head",
        "_head_bytes",
        "_is_first_body",
        "_left",
        "_marks",
        "_parser",
        "_pieces",
        "_skip_line_feed",
        "body",
        "headers_at",
        "is_complete",
        "payloads",
        "status",
        "times",
    )

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._marks: list[int] = []
        self._head = _Head(self._pieces)
        self._parser = httptools.HttpResponseParser(self._head)
        self._head_bytes = 0
        self._is_first_body = True
        self._data: list[bytes] = []
        self._left = b""
        self._skip_line_feed = False
        self.body = b""
        self.headers_at: int | None = None
        self.is_complete = False
        self.payloads: list[bytes] = []
        self.times: list[int] = []
        self.status: int | None = None

    @property
    def is_stream(self) -> bool:
        """The answer says that it is a stream of events."""
        return self._head.media_type == "text/event-stream"

    @property
    def is_kept(self) -> bool:
        """The connection may carry another request after this answer."""
        return (
            self.is_complete
            and self._head.tells_end
            and not self._head.closes
            and self._parser.get_http_version() != "1.0"
        )

    def feed(self, times: Sequence[int], reads: Sequence[bytes]) -> None:
        """Take reads with their arrivals.

        Raises:
            httptools.HttpParserError: not HTTP.
            AnswerTooLarge: beyond the bounds of this module.
        """
        pieces, marks, feed = self._pieces, self._marks, self._parser.feed_data
        try:
            for time, data in zip(times, reads, strict=True):
                feed(data)
                if self.status is None:
                    self._take_head(time, data)
                while len(marks) < len(pieces):
                    marks.append(time)
        finally:  # what came before a fault counts
            del pieces[len(marks) :]
            if pieces:
                self._cut()
        if self._head.is_complete and self.status is not None:
            self.is_complete = True

    def close(self) -> None:
        """The server closed the connection: an answer that tells no end is complete then."""
        if self.status is not None and not self._head.tells_end:
            self.is_complete = True

    def _take_head(self, time: int, data: bytes) -> None:
        if self.headers_at is None:
            self.headers_at = time
        head = self._head
        self._head_bytes += len(data)
        if not head.is_over:
            if self._head_bytes > _MOST_HEAD:
                raise AnswerTooLarge(f"headers of more than {_MOST_HEAD:,} bytes")
            return
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS:
            self.status = status
        else:  # an interim answer: the final one follows
            head.is_over = head.is_complete = False

    def _cut(self) -> None:
        """Turn the collected pieces of the body into events."""
        body = b"".join(self._pieces)
        if not self.is_stream:
            self.body += body
            if len(self.body) > _MOST_UNDISPATCHED:
                raise AnswerTooLarge(f"an answer of more than {_MOST_UNDISPATCHED:,} bytes that is no stream")
        elif self._left or self._data or self._skip_line_feed or not self._cut_plain(body):
            self._cut_lines(body)
        self._pieces.clear()
        self._marks.clear()

    def _cut_plain(self, body: bytes) -> bool:
        """The usual case fast: whole events of one `data: ` line each, LF alone. False: another case."""
        if body[-2:] != b"\n\n" or b"\r" in body or len(body) > _MOST_UNDISPATCHED:
            return False
        events = body.split(b"\n\n")
        events.pop()
        payloads = [event[6:] for event in events if event[:6] == b"data: "]
        if len(payloads) != len(events) or body.count(b"\n") != 2 * len(events):
            return False
        if len(events) == len(self._pieces) and all(piece[-2:] == b"\n\n" for piece in self._pieces):
            self.times += self._marks
        else:
            ends = accumulate(len(event) + 2 for event in events)
            self.times += self._times_at(end - 1 for end in ends)
        self.payloads += payloads
        self._is_first_body = False
        return True

    def _cut_lines(self, new: bytes) -> None:
        """Any stream, line by line."""
        buffer = self._left + new
        skipped = 0
        if self._is_first_body:
            if len(buffer) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(buffer):
                self._left = buffer
                return
            skipped = len(_BYTE_ORDER_MARK) if buffer.startswith(_BYTE_ORDER_MARK) else 0
        elif self._skip_line_feed and buffer[:1] == b"\n":
            skipped = 1
        self._is_first_body = False
        shift = skipped - len(self._left)
        buffer = buffer[skipped:]
        done = 0
        at: list[int] = []
        for end in _LINE_END.finditer(buffer):
            line, done = buffer[done : end.start()], end.end()
            if line[:5] == b"data:":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                if sum(map(len, self._data)) > _MOST_UNDISPATCHED:
                    break  # the same event is refused below, whole or in pieces
                self.payloads.append(b"\n".join(self._data))
                self._data.clear()
                at.append(end.start() + shift)
        self._skip_line_feed = new[-1:] == b"\r"
        self._left = buffer[done:]
        self.times += self._times_at(at)
        if len(self._left) + sum(map(len, self._data)) > _MOST_UNDISPATCHED:
            raise AnswerTooLarge(f"one event of more than {_MOST_UNDISPATCHED:,} bytes")

    def _times_at(self, offsets: Iterable[int]) -> list[int]:
        """Arrival of the byte at each of the ascending offsets into the collected pieces."""
        pieces, marks = self._pieces, self._marks
        times: list[int] = []
        number, end = 0, len(pieces[0])
        for offset in offsets:
            while offset >= end:
                number += 1
                end += len(pieces[number])
            times.append(marks[number])
        return times
