import pytest

from bringup.checks.speed import CHECK
from bringup.values.exchange import Problem

PIECES = ["word "] * 41


def test_tokens_per_second_and_first_token(make):
    times = [0.5 + 0.025 * place for place in range(41)]
    judgement = make.judge(CHECK, make.deployment(), make.stream("stream", PIECES, times=times))
    assert make.found(judgement) == {"speed": "ok"}
    figures = {figure.name: (figure.value, figure.unit) for figure in judgement.measurements}
    assert figures["single-stream speed"] == (pytest.approx(40.0), "tokens/s")
    assert figures["time to first token"] == (pytest.approx(0.5), "s")


def test_two_tokens_per_event_are_estimated(make):
    times = [0.5 + 0.05 * place for place in range(41)]
    judgement = make.judge(CHECK, make.deployment(), make.stream("stream", PIECES, times=times, tokens=82))
    assert judgement.measurements[0].name == "single-stream speed (estimated)"
    assert judgement.measurements[0].value == pytest.approx(40.0)
    assert "estimated" in judgement.findings[0].summary


def test_without_usage_events_are_counted_and_said_to_be_an_estimate(make):
    judgement = make.judge(CHECK, make.deployment(), make.stream("stream", PIECES, tokens=None))
    assert "estimated" in judgement.findings[0].summary


def test_one_lump_is_not_measured(make):
    judgement = make.judge(CHECK, make.deployment(), make.stream("stream", PIECES, times=[3.0] * 41))
    assert make.found(judgement) == {"speed": "unknown"}
    assert [figure.value for figure in judgement.measurements] == [None, None]


def test_no_answer_is_not_measured_and_no_verdict(make):
    for answer in (make.error("stream", 500), make.broken("stream", Problem.RESET), make.page("stream")):
        judgement = make.judge(CHECK, make.deployment(), answer)
        assert make.found(judgement) == {"speed": "unknown"}
    assert make.found(make.judge(CHECK, make.deployment())) == {"speed": "unknown"}


def test_asks_once(make):
    result = make.run(CHECK, make.deployment(), lambda ask: make.stream(ask.key, PIECES))
    assert (result.rounds, len(result.asked)) == (1, 1)


def test_lumps_are_tried_again_and_the_first_good_stream_counts(make):
    spread = [0.5 + 0.025 * place for place in range(41)]

    def answered(ask):
        return make.stream(ask.key, PIECES, times=spread if ask.key == "stream 2" else [3.0] * 41)

    result = make.run(CHECK, make.deployment(), answered)
    assert [ask.key for ask in result.asked] == ["stream", "stream 2"]
    assert make.found(result.judgement) == {"speed": "ok"}


def test_three_lumps_are_enough(make):
    result = make.run(CHECK, make.deployment(), lambda ask: make.stream(ask.key, PIECES, times=[3.0] * 41))
    assert len(result.asked) == 3
    assert make.found(result.judgement) == {"speed": "unknown"}
