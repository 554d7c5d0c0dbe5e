"""Any stream, in any framing, cut anywhere: every event keeps the time of the read that brought it."""

import itertools
import json
from dataclasses import dataclass

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.parse.event_times import AnswerTooLarge, EventTimes

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


@dataclass(frozen=True)
class Answer:
    """What a server sends: bytes, and for each event the byte that brings it."""

    wire: bytes
    payloads: list[bytes]
    places: list[int]  # offset in `wire` of the first byte of the blank line's end


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    payload = st.dictionaries(st.sampled_from(["a", "content", "data: "]), st.text(max_size=12), max_size=2)
    payloads: list[bytes] = []
    body = b""
    marks: list[int] = []
    ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
    one_end = draw(st.booleans())
    usual = draw(ends)
    if draw(st.booleans()):
        body += b"\xef\xbb\xbf"
    for _ in range(draw(st.integers(0, 12))):
        end = usual if one_end else draw(ends)
        if draw(st.integers(0, 9)) == 0:
            body += b": comment" + end + (end if draw(st.booleans()) else b"")
        if draw(st.integers(0, 9)) == 0:
            body += b"event: message" + end + b"id: 7" + end
        text = json.dumps(draw(payload), ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
        body += draw(st.sampled_from([b"data: ", b"data:"])) + text + end
        marks.append(len(body))
        body += end
        payloads.append(text)
    head, framed, places = draw(framings(body, marks))
    wire = head + framed
    return Answer(wire=wire, payloads=payloads, places=[len(head) + place for place in places])


@st.composite
def framings(draw: st.DrawFn, body: bytes, marks: list[int]) -> tuple[bytes, bytes, list[int]]:
    """The body with Content-Length, until the end of the connection, or in chunks cut anywhere."""
    kind = draw(st.sampled_from(["length", "close", "chunks", "chunks", "chunks with extras"]))
    if kind == "length":
        return f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode(), body, marks
    if kind == "close":
        return f"{HEAD}Connection: close\r\n\r\n".encode(), body, marks
    cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=8)) | {0, len(body)})
    framed = b""
    moved: dict[int, int] = {}
    for start, end in itertools.pairwise(cuts):
        extra = b";name=value" if kind == "chunks with extras" and draw(st.booleans()) else b""
        framed += b"%x%b\r\n" % (end - start, extra)
        moved |= {place: len(framed) + place - start for place in marks if start <= place < end}
        framed += body[start:end] + b"\r\n"
    trailer = b"x-took: 1\r\n" if kind == "chunks with extras" and draw(st.booleans()) else b""
    framed += b"0\r\n" + trailer + b"\r\n"
    return f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), framed, [moved[place] for place in marks]


def cut(data: st.DataObject, wire: bytes) -> tuple[list[int], list[bytes]]:
    """The wire in reads with arrivals."""
    most = min(len(wire) - 1, 40)
    places = data.draw(st.sets(st.integers(1, max(1, len(wire) - 1)), max_size=max(0, most)))
    edges = [0, *sorted(place for place in places if place < len(wire)), len(wire)]
    reads = [wire[start:end] for start, end in itertools.pairwise(edges)]
    times = [1000 + 7 * number for number in range(len(reads))]
    return times, reads


def read_in_slices(data: st.DataObject, times: list[int], reads: list[bytes]) -> EventTimes:
    answer = EventTimes()
    start = 0
    while start < len(reads):
        step = data.draw(st.integers(1, len(reads)))
        answer.feed(times[start : start + step], reads[start : start + step])
        start += step
    return answer


@given(answers(), st.data())
@settings(max_examples=300)
def test_any_stream_in_any_cutting_gives_the_exact_times(sent: Answer, data: st.DataObject) -> None:
    times, reads = cut(data, sent.wire)
    answer = read_in_slices(data, times, reads)
    ends = [sum(map(len, reads[: number + 1])) for number in range(len(reads))]
    wanted = [
        next(time for time, end in zip(times, ends, strict=True) if end > place) for place in sent.places
    ]
    assert answer.payloads == sent.payloads
    assert answer.times == wanted
    assert answer.status == 200
    assert answer.headers_at == times[0]
    answer.close()
    assert answer.is_complete


def test_an_answer_is_whole_by_its_framing_alone() -> None:
    answer = EventTimes()
    answer.feed([1], [f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + b"9\r\ndata: a\n\n\r\n"])
    answer.close()
    assert not answer.is_complete
    answer = EventTimes()
    answer.feed([1, 2], [f"{HEAD}Content-Length: 9\r\n\r\n".encode(), b"data: a\n\n"])
    assert answer.is_complete
    assert answer.is_kept


def test_an_interim_answer_is_passed_over() -> None:
    answer = EventTimes()
    answer.feed(
        [1, 2], [b"HTTP/1.1 100 Continue\r\n\r\n", f"{HEAD}Content-Length: 9\r\n\r\ndata: a\n\n".encode()]
    )
    assert (answer.status, answer.payloads, answer.is_complete) == (200, [b"a"], True)


def test_what_is_no_stream_is_kept_as_a_body() -> None:
    answer = EventTimes()
    answer.feed(
        [1], [b"HTTP/1.1 429 Too Many\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"]
    )
    assert (answer.status, answer.body, answer.payloads) == (429, b"{}", [])


def test_what_came_before_a_fault_counts() -> None:
    answer = EventTimes()
    good = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + b"9\r\ndata: a\n\n\r\n"
    with pytest.raises(httptools.HttpParserError):
        answer.feed([1, 2], [good, b"no chunk\r\n"])
    assert (answer.payloads, answer.times) == ([b"a"], [1])


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 300_000,
        f"{HEAD}Connection: close\r\n\r\n".encode() + b"data: " + b"a" * 5_000_000,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + b"a" * 5_000_000,
    ],
    ids=["headers", "event", "page"],
)
def test_what_no_server_means_to_send_is_bounded(wire: bytes) -> None:
    answer = EventTimes()
    pieces = [wire[start : start + 60_000] for start in range(0, len(wire), 60_000)]
    numbers = list(range(len(pieces)))
    with pytest.raises((AnswerTooLarge, httptools.HttpParserError)):
        answer.feed(numbers, pieces)


def test_an_event_beyond_the_bound_is_refused_in_any_cutting() -> None:
    event = b"data: " + b"x" * 4_000_001 + b"\n\n"
    wire = f"{HEAD}Content-Length: {2 * len(event) + 9}\r\n\r\n".encode() + b"data: a\n\n" + event + event
    for size in (len(wire), 1_000_000):
        answer = EventTimes()
        reads = [wire[start : start + size] for start in range(0, len(wire), size)]
        with pytest.raises(AnswerTooLarge):
            answer.feed(range(len(reads)), reads)
        assert answer.payloads == [b"a"]
        assert answer.times == [0]
