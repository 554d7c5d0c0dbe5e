import json
from dataclasses import replace

import pytest

from bringup.checks import Replies
from bringup.checks.streaming import CHECK
from bringup.values.deployment import Ability
from bringup.values.exchange import Problem

PIECES = [f"{number}, " for number in range(1, 13)]
TEXT = "".join(PIECES)


def judged(make, streamed, whole=None, *more, **options):
    whole = whole or make.whole("whole", TEXT, tokens=12)
    return make.found(make.judge(CHECK, make.deployment(**options), whole, streamed, *more))


def test_good(make):
    assert judged(make, make.stream("streamed", PIECES)) == {"streaming": "ok"}


def test_asks_a_pair_and_stops_when_the_texts_agree(make):
    def respond(ask):
        is_stream = json.loads(ask.body).get("stream", False)
        return make.stream(ask.key, PIECES) if is_stream else make.whole(ask.key, TEXT, tokens=12)

    result = make.run(CHECK, make.deployment(), respond)
    assert (result.rounds, len(result.asked)) == (1, 2)
    assert make.found(result.judgement) == {"streaming": "ok"}


@pytest.mark.parametrize(
    ("problem", "severity"),
    [
        (Problem.RESET, "failure"),
        (Problem.TRUNCATED, "failure"),
        (Problem.TIME_LIMIT, "warning"),
        (Problem.NOT_ASKED, "unknown"),
    ],
)
def test_a_stream_that_breaks(make, problem, severity):
    streamed = make.stream("streamed", PIECES[:5], finish=None, tokens=None, done=False, problem=problem)
    assert judged(make, streamed) == {"streaming": severity}


def test_silence_is_a_failure(make):
    assert judged(make, make.broken("streamed", Problem.TIME_LIMIT, "60 s")) == {"streaming": "failure"}


def test_nothing_asked_is_unknown(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"streaming": "unknown"}


def test_page_with_200(make):
    assert judged(make, make.page("streamed")) == {"streaming": "failure"}


def test_error_inside_the_stream(make):
    frame = '{"error": {"message": "EngineCore died", "code": 500}}'
    streamed = make.stream("streamed", PIECES[:3], finish=None, tokens=None, done=False, extra_frames=[frame])
    assert judged(make, streamed) == {"streaming": "failure"}


def test_frames_that_are_not_json(make):
    assert (
        judged(make, make.stream("streamed", PIECES, extra_frames=["{cut"]))["streaming.frames"] == "failure"
    )


def test_cut_inside_a_frame(make):
    streamed = make.stream("streamed", PIECES, done=False, tail='data: {"choices": [')
    assert judged(make, streamed)["streaming.frames"] == "failure"


def test_endless(make):
    streamed = make.stream(
        "streamed", PIECES * 9, finish=None, tokens=None, done=False, problem=Problem.ABORTED
    )
    assert judged(make, streamed) == {"streaming.endless": "failure"}


def test_no_done(make):
    assert judged(make, make.stream("streamed", PIECES, done=False)) == {"streaming.done": "warning"}


def test_no_finish_reason(make):
    assert judged(make, make.stream("streamed", PIECES, finish=None)) == {"streaming.finish": "warning"}
    cut = make.stream("streamed", PIECES, finish=None, tokens=None, done=False)
    assert judged(make, cut)["streaming.finish"] == "failure"


def test_no_usage_is_a_note(make):
    assert judged(make, make.stream("streamed", PIECES, tokens=None)) == {"streaming.usage": "note"}


@pytest.mark.parametrize("tokens", [0, 3, 900])
def test_wrong_usage(make, tokens):
    assert judged(make, make.stream("streamed", PIECES, tokens=tokens)) == {"streaming.usage": "warning"}


def test_usage_that_differs_from_the_whole_answer(make):
    assert judged(make, make.stream("streamed", PIECES, tokens=24)) == {"streaming.usage": "warning"}


def test_several_tokens_per_event_are_right(make):
    pairs = ["1, 2, ", "3, 4, ", "5, 6, ", "7, 8, ", "9, 10, ", "11, 12, "]
    assert judged(make, make.stream("streamed", pairs, tokens=12)) == {"streaming": "ok"}


def test_one_lump_at_the_end(make):
    assert judged(make, make.stream("streamed", PIECES, times=[2.0] * 12)) == {"streaming.lump": "warning"}


def test_a_buffer_that_is_flushed_when_it_is_full_makes_lumps_too(make):
    times = [2.0] * 8 + [3.0] * 4
    assert judged(make, make.stream("streamed", PIECES, times=times)) == {"streaming.lump": "warning"}


def test_a_stall_after_an_early_beginning_is_no_buffer(make):
    times = [0.0035] * 3 + [0.114] * 9
    assert judged(make, make.stream("streamed", PIECES, times=times)) == {"streaming": "ok"}


def test_a_fast_answer_in_one_packet_is_no_lump(make):
    assert judged(make, make.stream("streamed", PIECES, times=[0.01] * 12)) == {"streaming": "ok"}


def test_a_lump_that_does_not_come_again_was_chance(make):
    def respond(ask):
        if not json.loads(ask.body).get("stream", False):
            return make.whole(ask.key, TEXT, tokens=12)
        return make.stream(ask.key, PIECES, times=[2.0] * 12 if ask.key == "streamed" else None)

    result = make.run(CHECK, make.deployment(), respond)
    assert (result.rounds, make.found(result.judgement)) == (2, {"streaming": "ok"})


def test_content_type(make):
    streamed = replace(make.stream("streamed", PIECES), headers=(("content-type", "text/plain"),))
    assert judged(make, streamed) == {"streaming.content_type": "warning"}


def test_slow_start_then_fast_is_no_lump(make):
    times = [2.0 + 0.004 * place for place in range(12)]
    assert judged(make, make.stream("streamed", PIECES, times=times)) == {"streaming": "ok"}


def test_stream_ignored(make):
    assert judged(make, make.whole("streamed", TEXT, tokens=12)) == {"streaming.ignored": "warning"}


def test_whole_answer_missing(make):
    whole = make.error("whole", 500, "CUDA error")
    assert judged(make, make.stream("streamed", PIECES), whole) == {"streaming.whole": "failure"}


OTHER = [*PIECES[:6], "seven, ", *PIECES[7:]]


def test_a_difference_is_asked_again_and_weighed(make):
    def respond(ask):
        is_stream = json.loads(ask.body).get("stream", False)
        return make.stream(ask.key, OTHER) if is_stream else make.whole(ask.key, TEXT, tokens=12)

    result = make.run(CHECK, make.deployment(ability=Ability.TINY), respond)
    assert (result.rounds, len(result.asked)) == (2, 4)
    assert make.found(result.judgement) == {"streaming.text": "warning"}
    assert "at character 19" in result.judgement.findings[0].summary


def test_a_difference_that_does_not_come_again_is_a_note(make):
    again = make.whole("again", TEXT, tokens=12), make.stream("streamed again", PIECES)
    assert judged(make, make.stream("streamed", OTHER), None, *again) == {"streaming.text": "note"}


def test_white_space_alone_is_a_note(make):
    whole = make.whole("whole", TEXT.strip(), tokens=12)
    assert judged(make, make.stream("streamed", PIECES), whole) == {"streaming.text": "note"}


def test_characters_cut_in_two(make):
    whole = make.whole("whole", f"{TEXT}é", tokens=12)
    streamed = make.stream("streamed", [*PIECES, "\ufffd\ufffd"])
    assert judged(make, streamed, whole) == {"streaming.text": "failure"}


@pytest.mark.parametrize(
    ("other_times", "expected"),
    [
        ([0.5 + 0.05 * place for place in range(12)], {"streaming": "ok"}),  # pieces elsewhere: no buffer
        ([3.0] * 12, {"streaming.lump": "warning"}),
    ],
)
def test_what_buffers_buffers_every_stream(make, other_times, expected):
    lump = make.stream("streamed", PIECES, times=[2.0] * 12)
    answers = {"whole": make.whole("whole", TEXT, tokens=12), "streamed": lump}
    other = {"stream": make.stream("stream", PIECES, times=other_times)}
    replies = Replies(answers=answers, programs={}, everyone={"streaming": answers, "speed": other})
    assert make.found(CHECK.judge(make.deployment(), replies)) == expected
