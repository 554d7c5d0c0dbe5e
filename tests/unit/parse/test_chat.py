import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.chat import read_reply
from bringup.values.exchange import Answer

STREAM = (("content-type", "text/event-stream"),)

# what a chunk may hold where something else is due
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["", "stop", "\ud83d", "\0", "x" * 50]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "index", "id", "function", "logprob"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
KEYS = ("choices", "delta", "message", "content", "tool_calls", "function", "arguments", "index", "usage")
KEYS += ("logprobs", "top_logprobs", "logprob", "token", "finish_reason", "error", "model", "timings", "text")
CHUNKS = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


def frames(*values):
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values) + "data: [DONE]\n\n"


def chunk(text="", **choice):
    return {"model": "m", "choices": [{"index": 0, "delta": {"content": text}, **choice}]}


def streamed(*values, arrivals=()):
    return read_reply(Answer(key="a", status=200, headers=STREAM, body=frames(*values), arrivals=arrivals))


def encodable(reply):
    """Everything in a reply can be written to a file and a terminal."""
    return repr(reply).encode("utf-8") and json.dumps(reply.text, ensure_ascii=False).encode("utf-8")


@given(CHUNKS)
def test_no_body_raises(value):
    body = json.dumps(value)
    assert encodable(read_reply(Answer(key="a", status=200, body=body)))
    wrapped = json.dumps({"choices": [{"message": value, "logprobs": value, "delta": value}]})
    assert encodable(read_reply(Answer(key="a", status=200, body=wrapped)))


@given(st.lists(CHUNKS, max_size=4))
def test_no_stream_raises(values):
    assert encodable(streamed(*values))
    assert encodable(streamed(*({"choices": [{"delta": v, "logprobs": {"content": v}}]} for v in values)))


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_raise(raw, is_stream):
    body = raw.decode("utf-8", "replace")
    reply = read_reply(Answer(key="a", status=200, headers=STREAM * is_stream, body=body))
    assert encodable(reply)
    assert reply.flaws or is_stream or body.lstrip().startswith(("{", "data:", ":", "event:"))


@given(st.lists(st.text(max_size=8), max_size=12), st.data())
def test_the_text_is_the_same_however_it_arrived(tokens, data):
    body = frames(*(chunk(token) for token in tokens))
    size = len(body.encode())
    cuts = sorted({*data.draw(st.lists(st.integers(1, size), max_size=10)), size})
    arrivals = tuple((float(number), cut) for number, cut in enumerate(cuts, start=1))
    reply = read_reply(Answer(key="a", status=200, headers=STREAM, body=body, arrivals=arrivals))
    said = [token for token in tokens if token]
    assert reply.text == "".join(tokens)
    assert reply.content_events == len(said)
    assert reply.flaws == ()
    assert list(reply.event_times) == sorted(reply.event_times)
    assert set(reply.event_times) <= {when for when, _ in arrivals}


def test_an_event_has_arrived_when_its_last_byte_has():
    first = len(b"data: " + json.dumps(chunk("a")).encode() + b"\n\n")
    reply = streamed(chunk("a"), chunk("b"), arrivals=((1.0, first - 1), (2.0, first), (3.0, 10_000)))
    assert reply.event_times == (2.0, 3.0)


def test_half_a_surrogate_pair_becomes_a_replacement_character():
    reply = streamed(chunk("a\ud83d"), chunk("\ude00b"))
    assert reply.text == "a\ufffd\ufffdb"
    whole = json.dumps({"choices": [{"message": {"content": "\U0001f600 \ud83d"}}]})
    assert read_reply(Answer(key="a", status=200, body=whole)).text == "\U0001f600 \ufffd"


def test_numbers_beyond_a_float_are_no_logprobs():
    row = {"token": "a", "logprob": 10**400, "top_logprobs": [{"token": "b", "logprob": -(10**400)}]}
    reply = streamed(chunk("a", logprobs={"content": [row]}))
    assert [math.isfinite(one.logprob) for one in reply.logprobs] in ([], [False])


def test_tool_calls_without_an_index_stay_apart():
    def part(arguments, **more):
        return {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": arguments}} | more]}}]}

    reply = streamed(part('{"a":', id="1"), part("1}"), part('{"b":2}', id="2"))
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("1", '{"a":1}'), ("2", '{"b":2}')]


def test_flaws_are_told_and_not_hoarded():
    reply = read_reply(Answer(key="a", status=200, headers=STREAM, body="data: x\n\n" * 50_000))
    assert "not JSON" in reply.flaws[0]
    assert len(reply.flaws) <= 60


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "empty"),
        ("<!DOCTYPE html><html>", "an HTML page"),
        ("  <html>", "an HTML page"),
        ("plain", "not JSON"),
        ("[1]", "not JSON"),
        ("{}", "no `choices[0]`"),
        ('{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}", "not JSON"),
    ],
)
def test_what_is_no_reply_is_a_flaw(body, words):
    assert words in read_reply(Answer(key="a", status=200, body=body)).flaws[0]
