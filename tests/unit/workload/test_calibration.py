import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import first, synthetic, words
from bringup.values.exchange import Answer
from bringup.workload.calibration import Calibration, calibration, calibration_asks, read_count
from bringup.workload.filler import WORDS
from bringup.workload.known_questions import question_tails
from bringup.workload.request_body import BodyShape

CHAT = BodyShape(model="m")


def prompt_of(ask):
    body = json.loads(ask.body)
    return body["messages"][-1]["content"] if "messages" in body else body["prompt"]


def counted(cost, overhead=9, shape=CHAT, tails=None, **options):
    """What a server tells that counts `cost(word)` tokens for a word and `overhead` for its template."""
    counts, rounds = {}, 0
    while asks := calibration_asks(shape, counts, tails or {}, **options):
        rounds += 1
        assert rounds <= 2
        for ask in asks:
            counts[ask.key] = overhead + sum(cost(word) for word in prompt_of(ask).split())
    return counts, rounds


@given(overhead=st.integers(0, 3000))
def test_three_requests_tell_the_template_exactly(overhead):
    counts, rounds = counted(lambda _: 1, overhead)
    found = calibration(counts)
    assert (len(counts), rounds) == (3, 1)
    assert (found.overhead, found.is_exact, found.words) == (overhead, True, "exact")
    assert found.words_for(overhead + 500) == 500


@given(split=st.sets(st.sampled_from(WORDS), min_size=1, max_size=10), overhead=st.integers(0, 50))
def test_words_that_are_several_tokens_are_left_out_and_lengths_stay_exact(split, overhead):
    counts, rounds = counted(lambda word: 2 + len(word) % 2 if word in split else 1, overhead)
    found = calibration(counts)
    assert rounds == 2
    assert found.is_exact
    assert found.overhead == overhead
    assert not split & set(found.vocabulary)
    request = first(synthetic("400", calibration=found), 1)[0]
    assert sum(2 if word in split else 1 for word in words(request)) + overhead == 400


def test_where_no_word_is_one_token_lengths_are_near_and_say_how_near():
    counts, _ = counted(len, 9)  # a token a character
    found = calibration(counts)
    assert not found.is_exact
    assert found.tokens_per_word == pytest.approx(sum(map(len, WORDS)) / len(WORDS))
    assert found.words.startswith("about, 4.")
    for request in first(synthetic("1000", calibration=found), 50):
        true = 9 + sum(map(len, words(request)))
        assert abs(true - 1000) <= found.within(1000)
        assert abs(request.input_tokens - 1000) <= found.tokens_per_word
    assert found.within(1000) < 80


def test_the_texts_that_end_prompts_are_counted_too():
    tails = question_tails()
    counts, rounds = counted(lambda _: 1, 9, tails=tails)
    assert rounds == 1
    assert dict(calibration(counts).tails) == {key: len(text.split()) for key, text in tails.items()}


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"first half": 137, "second half": 137, "whole": None},
        {"first half": 1, "second half": 1, "whole": 1},  # always the same
        {"first half": 10, "second half": 20, "whole": 900},  # not additive
    ],
)
def test_a_server_that_does_not_count_leaves_the_lengths_estimated(counts):
    found = calibration(counts)
    assert (found.within(500), found.words) == (None, "estimated")
    assert bool(calibration_asks(CHAT, counts, {})) is not bool(counts)  # it is not asked any further


def test_the_asks_are_whole_requests_for_one_token():
    asks = calibration_asks(CHAT, {}, {})
    body = json.loads(asks[0].body)
    assert (body["max_tokens"], body["stream"]) == (1, False)
    assert "stream_options" not in body
    assert {ask.path for ask in asks} == {"/v1/chat/completions"}
    assert prompt_of(asks[2]) == f"{prompt_of(asks[0])} {prompt_of(asks[1])}"


@pytest.mark.parametrize(
    ("engine", "is_chat", "path"),
    [
        ("vllm", True, "/tokenize"),
        ("vllm", False, "/tokenize"),
        ("sglang", True, "/v1/chat/completions"),
        ("sglang", False, "/tokenize"),
        ("llama.cpp", False, "/tokenize"),
        (None, False, "/v1/completions"),
    ],
)
def test_a_tokenizer_is_asked_where_it_counts_what_a_request_is_counted_as(engine, is_chat, path):
    shape = BodyShape(model="m", is_chat=is_chat, system="Be short." if is_chat else None)
    asks = calibration_asks(shape, {}, {}, engine=engine)
    assert {ask.path for ask in asks} == {path}
    if is_chat:
        assert json.loads(asks[0].body)["messages"][0] == {"role": "system", "content": "Be short."}


@pytest.mark.parametrize(
    ("status", "body", "count"),
    [
        (200, '{"usage": {"prompt_tokens": 265}}', 265),
        (200, '{"count": 12, "tokens": [1, 2]}', 12),
        (200, '{"tokens": [1, 2, 3]}', 3),
        (200, '{"usage": null}', None),
        (200, "<html>", None),
        (400, '{"usage": {"prompt_tokens": 265}}', None),
        (None, "", None),
    ],
)
def test_a_count_is_read_from_what_engines_answer(status, body, count):
    assert read_count(Answer(key="k", status=status, body=body)) == count


def test_an_unasked_calibration_is_no_promise():
    assert not Calibration().is_exact
    assert Calibration().within(100) is None
