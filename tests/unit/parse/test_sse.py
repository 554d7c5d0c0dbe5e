import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.sse import read_events

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)
NOISE = st.sampled_from(["", ": comment", "id: 7", "retry: 10", "id"])
PIECES = st.lists(st.sampled_from([*"\r\n: \tdat", "data:", "data: {}", "\n\n", "event: x", "é", "\0"]))


@st.composite
def streams(draw):
    """Events as (name, data), and a body that carries them, in any legal spelling."""
    end = draw(LINE_ENDS)
    events, lines = [], []
    for _ in range(draw(st.integers(0, 5))):
        name, data = draw(st.sampled_from(["", "delta"])), draw(st.lists(VALUES, min_size=1, max_size=3))
        fields = [f"event: {name}"] * bool(name) + [f"data: {line}" for line in data]
        noise = draw(st.lists(NOISE.filter(bool), max_size=1))
        lines += [*noise, *fields, *[""] * draw(st.integers(1, 2))]
        events.append((name, "\n".join(data)))
    return events, end.join([*lines, ""])


@given(streams())
def test_any_spelling_of_a_stream_gives_its_events(stream):
    events, body = stream
    found = read_events(body)
    assert [(event.name, event.data) for event in found.events] == events
    assert found.strangers == ()
    assert found.rest == ""


@given(streams(), st.data())
def test_a_cut_stream_gives_the_events_that_had_ended_and_keeps_the_rest(stream, data):
    _, body = stream
    raw = body.encode()
    place = data.draw(st.integers(0, len(raw)))
    whole, cut = read_events(body), read_events(raw[:place].decode("utf-8", "ignore"))
    assert [event.data for event in cut.events] == [event.data for event in whole.events][: len(cut.events)]
    # an event that ended before the cut is never lost
    assert len(cut.events) >= sum(event.end <= place for event in whole.events)


@given(PIECES)
def test_garbled_streams_never_raise_and_lose_no_byte_silently(pieces):
    body = "".join(pieces)
    found = read_events(body)
    ends = [event.end for event in found.events]
    assert ends == sorted(set(ends))
    assert all(0 < end <= len(body.encode()) for end in ends)
    assert body.endswith(found.rest)


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw):
    read_events(raw.decode("utf-8", "replace"))


def test_an_events_end_counts_bytes_not_characters():
    body = "data: é\n\ndata: b\n\n"
    assert [event.end for event in read_events(body).events] == [10, 19]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    found = read_events("\ufeffdata: a\n\n")
    assert [event.data for event in found.events] == ["a"]
    assert found.strangers == ()


def test_lines_of_another_format_are_shown_and_not_hoarded():
    found = read_events("<html>\n" * 100_000)
    assert found.strangers[0] == "<html>"
    assert len(found.strangers) <= 20


@pytest.mark.parametrize("body", ["data: a", "data: a\n", "data: a\r\n", "data: a\r"])
def test_an_event_without_its_blank_line_is_rest(body):
    found = read_events(body)
    assert found.events == ()
    assert found.rest == body


def test_an_event_without_data_is_none():
    assert read_events("event: ping\n\ndata\n\n").events[0].data == ""
    assert len(read_events("event: ping\n\n").events) == 0
