"""The timed client against raw sockets: cut in every way, bounded in bytes and in what it keeps."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.parse.chat import read_reply
from bringup.transport.http_stream import HttpEndpoint, Target
from bringup.values.exchange import Answer, Ask, Problem

TOKENS = ("Hé", "llo", " \U0001f30a", " sea", "\n", "data: x", "")
EVENTS = [{"model": "m", "choices": [{"index": 0, "delta": {"content": token}}]} for token in TOKENS]
FRAMES = [f"data: {json.dumps(event, ensure_ascii=False)}\r\n\r\n".encode() for event in EVENTS]
FRAMES.append(b"data: [DONE]\r\n\r\n")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%b\r\n" % (len(frame), frame) for frame in FRAMES
) + b"0\r\n\r\n"  # fmt: skip
CLOSED = HEAD + b"connection: close\r\n\r\n" + b"".join(FRAMES)


async def answered(pieces: list[bytes], *, endless: bool = False, **options: object) -> Answer:
    """What the client makes of a server that sends `pieces`, one write each, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            while True:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if not endless:
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        endpoint = HttpEndpoint(Target(scheme="http", host="127.0.0.1", port=port))
        answer = await endpoint.send(Ask(key="a", time_limit_s=20.0, **options))
        await endpoint.close()
    return answer


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted({*places}), len(data)])]


@pytest.mark.parametrize("wire", [CHUNKED, CLOSED])
@settings(max_examples=25)
@given(st.lists(st.integers(1, min(len(CHUNKED), len(CLOSED)) - 1), max_size=12))
def test_every_way_of_cutting_gives_the_same_reply(wire, places):
    reply = read_reply(asyncio.run(answered(cut(wire, places))))
    assert reply.text == "".join(TOKENS)
    assert reply.has_done
    assert reply.flaws == ()
    assert list(reply.event_times) == sorted(reply.event_times)


def test_each_byte_in_a_write_of_its_own():
    reply = read_reply(asyncio.run(answered(cut(CHUNKED, list(range(len(CHUNKED)))))))
    assert reply.text == "".join(TOKENS)
    assert reply.flaws == ()


@settings(max_examples=40)
@given(st.binary(max_size=80), st.integers(0, len(CHUNKED)))
def test_no_garbage_raises(garbage, place):
    answer = asyncio.run(answered([CHUNKED[:place], garbage]))
    assert answer.problem is not None or answer.status is not None
    read_reply(answer)


def test_a_body_without_end_keeps_only_its_beginning():
    answer = asyncio.run(answered([HEAD + b"\r\n", *[b"x" * 100_000] * 40], max_bytes=1_000_000))
    assert answer.problem is Problem.TOO_LARGE
    assert answer.body.startswith("xxx")
    assert len(answer.body) <= 65_536


def test_a_body_of_the_size_that_is_allowed_is_kept_whole():
    answer = asyncio.run(
        answered([HEAD + b"content-length: 500000\r\n\r\n", b"x" * 500_000], max_bytes=500_000)
    )
    assert answer.problem is None
    assert len(answer.body) == 500_000


@pytest.mark.parametrize(
    "piece", [b"x-more: " + b"a" * 8000 + b"\r\n", b"x-more-of-the-same-header-without-an-end" * 200]
)
def test_headers_without_end_end_soon(piece):
    answer = asyncio.run(answered([HEAD, *[piece] * 100], endless=True))
    assert answer.problem is Problem.MALFORMED
    assert sum(len(name) + len(value) for name, value in answer.headers) <= 65_536


def test_chunks_of_one_byte_are_no_headers_without_end():
    body = b"1\r\nx\r\n" * 100_000
    answer = asyncio.run(answered([HEAD + b"transfer-encoding: chunked\r\n\r\n", body, b"0\r\n\r\n"]))
    assert answer.problem is None
    assert len(answer.body) == 100_000


def test_single_bytes_do_not_fill_the_memory_with_times():
    from bringup.transport.http_stream import _MOST_ARRIVALS, _Connection, _Exchange  # noqa: PLC0415

    async def fed() -> _Exchange:
        exchange = _Exchange(Ask(key="a"), _Connection())
        exchange.received(1, HEAD + b"\r\n")
        for moment in range(2, 3 * _MOST_ARRIVALS):
            exchange.received(moment, b"x")
        return exchange

    exchange = asyncio.run(fed())
    assert _MOST_ARRIVALS // 2 <= len(exchange.arrivals) <= _MOST_ARRIVALS
    assert exchange.arrivals == sorted(exchange.arrivals)
    # every byte's time is still told, a little late at most
    assert exchange.arrivals[-1] == (3 * _MOST_ARRIVALS - 1, exchange.size)
    late = max(when - (size + 1) for when, size in exchange.arrivals)
    assert late == 0
