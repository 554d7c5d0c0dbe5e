"""Which events carry tokens, when they came, and what the server counted."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.token_events import TokenEvents


def chat(**delta: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()


FINISH = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}).encode()
USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}).encode()
ROLE = chat(role="assistant", content="")
DONE = b"[DONE]"


def read(payloads: list[bytes], *, keep_text: bool = False) -> TokenEvents:
    tokens = TokenEvents(keep_text=keep_text)
    tokens.take([10 * number for number in range(len(payloads))], payloads)
    return tokens


def test_role_finish_and_usage_are_no_tokens() -> None:
    tokens = read([ROLE, chat(content="a"), chat(content="b"), chat(content="c"), FINISH, USAGE, DONE])
    assert (tokens.events, tokens.first, tokens.last, tokens.gaps) == (3, 10, 30, [10, 10])
    assert (tokens.finish_reason, tokens.is_done) == ("length", True)
    assert tokens.usage is not None
    assert tokens.usage.completion_tokens == 3


def test_reasoning_and_tool_calls_are_tokens() -> None:
    call = [{"index": 0, "function": {"arguments": "{"}}]
    tokens = read([chat(reasoning_content="a"), chat(reasoning="b"), chat(content=None, tool_calls=call)])
    assert (tokens.events, tokens.gaps) == (3, [10, 10])


def test_completions_have_text() -> None:
    event = json.dumps({"choices": [{"index": 0, "text": " a", "finish_reason": None}]}).encode()
    empty = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}).encode()
    tokens = read([event, event, empty], keep_text=True)
    assert (tokens.events, "".join(tokens.texts), tokens.finish_reason) == (2, " a a", "stop")


def test_the_gaps_of_several_choices_are_their_own() -> None:
    def of(index: int) -> bytes:
        return json.dumps({"choices": [{"index": index, "delta": {"content": "x"}}]}).encode()

    tokens = read([of(0), of(1), of(1), of(0)])
    assert (tokens.events, sorted(tokens.gaps)) == (4, [10, 30])


def test_the_servers_counts_per_event_are_kept() -> None:
    def of(total: int) -> bytes:
        return json.dumps(
            {"choices": [{"index": 0, "delta": {"content": "xyz"}}], "usage": {"completion_tokens": total}}
        ).encode()

    tokens = read([of(2), of(5), of(6)])
    assert (tokens.first_event_tokens, tokens.gap_tokens) == (2, [3, 1])


def test_one_bad_event_leaves_the_others_alone() -> None:
    tokens = read([chat(content="a"), b"{cut", chat(content="b"), b"\xff", DONE])
    assert (tokens.events, tokens.malformed, tokens.is_done) == (2, 2, True)
    assert tokens.gaps == [20]


def test_an_error_inside_a_stream_is_kept() -> None:
    tokens = read([chat(content="a"), b'{"error": {"message": "out of memory"}}'])
    assert "out of memory" in tokens.error
    tokens = read([b'{"object": "error", "message": "too long", "code": 400}'])
    assert "too long" in tokens.error


def test_json_over_several_lines_is_one_event() -> None:
    tokens = read([json.dumps(json.loads(chat(content="a")), indent=1).encode(), chat(content="b")])
    assert (tokens.events, tokens.malformed) == (2, 0)


def test_an_answer_in_one_piece_comes_at_once() -> None:
    tokens = TokenEvents(keep_text=True)
    body = {"choices": [{"message": {"content": "four words in it"}, "finish_reason": "stop"}]}
    tokens.take_whole(70, json.dumps(body | {"usage": {"completion_tokens": 4}}).encode())
    assert (tokens.first, tokens.last, tokens.gaps, tokens.events) == (70, 70, [], 1)
    assert "".join(tokens.texts) == "four words in it"


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("tte r")), max_size=60), st.data())
def test_slices_change_nothing(steps: list[tuple[int, str]], data: st.DataObject) -> None:
    kinds = {"t": chat(content="a"), "e": FINISH, " ": ROLE, "r": chat(reasoning_content="b")}
    times, payloads, now = [], [], 0
    for step, kind in steps:
        now += step
        times.append(now)
        payloads.append(kinds[kind])
    came = [time for time, (_, kind) in zip(times, steps, strict=True) if kind in "tr"]
    tokens = TokenEvents(keep_text=data.draw(st.booleans()))
    start = 0
    while start < len(times):
        size = data.draw(st.integers(1, 20))
        tokens.take(times[start : start + size], payloads[start : start + size])
        start += size
    assert tokens.events == len(came)
    assert tokens.gaps == [later - earlier for earlier, later in pairwise(came)]
    assert (tokens.first, tokens.last) == ((came[0], came[-1]) if came else (None, None))


@pytest.mark.parametrize(
    ("told", "meant"), [("7", 7), ("7.0", 7), ('"7"', 7), ("-7", None), ("9" * 20, None), ("null", None)]
)
def test_a_count_that_can_be_none_is_not_taken_for_one(told: str, meant: int | None) -> None:
    usage = b'{"choices": [], "usage": {"prompt_tokens": %b, "completion_tokens": %b}}'
    tokens = read([chat(content="a"), FINISH, usage % (told.encode(), told.encode()), DONE])
    assert (tokens.malformed, tokens.events, tokens.is_done) == (0, 1, True)
    assert tokens.usage is not None
    assert (tokens.usage.prompt_tokens, tokens.usage.completion_tokens) == (meant, meant)
