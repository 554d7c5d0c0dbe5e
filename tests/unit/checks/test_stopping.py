import json

import pytest

from bringup.checks.stopping import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Problem


def good(make, **others):
    answers = {
        "limit": make.stream("limit", ["word "] * 8, finish="length"),
        "stop": make.stream("stop", ["1 ", "2 ", "3 ", "4 "], finish="stop"),
        "ends": make.stream("ends", ["Paris", "."]),
    }
    return (answers | others).values()


def judged(make, ability=Ability.CAPABLE, **others):
    return make.found(make.judge(CHECK, make.deployment(ability=ability), *good(make, **others)))


def test_good(make):
    assert judged(make) == {"stopping": "ok"}


def test_bodies_carry_limit_and_stop(make):
    result = make.run(CHECK, make.deployment(), lambda ask: make.broken(ask.key, Problem.NOT_ASKED))
    bodies = {ask.key: json.loads(ask.body) for ask in result.asked}
    assert bodies["limit"]["max_tokens"] == 8
    assert bodies["stop"]["stop"] == ["5"]
    assert all(ask.abort_after_events for ask in result.asked)
    assert set(make.found(result.judgement).values()) == {"unknown"}


@pytest.mark.parametrize("ability", list(Ability))
@pytest.mark.parametrize("depth", list(Depth))
def test_a_small_task_never_asks_for_more_than_the_context(make, ability, depth):
    under_test = make.deployment(ability=ability, depth=depth, context_tokens=512)
    result = make.run(CHECK, under_test, lambda ask: make.broken(ask.key, Problem.NOT_ASKED))
    assert all(json.loads(ask.body)["max_tokens"] <= 256 for ask in result.asked)


def test_max_tokens_ignored(make):
    endless = make.stream(
        "limit", ["word "] * 56, finish=None, tokens=None, done=False, problem=Problem.ABORTED
    )
    assert judged(make, limit=endless) == {"stopping.max_tokens": "failure"}
    huge = make.stream(
        "limit", ["word "] * 56, finish=None, tokens=None, done=False, problem=Problem.TOO_LARGE
    )
    assert judged(make, limit=huge) == {"stopping.max_tokens": "failure"}
    long = make.stream("limit", ["word "] * 30, finish="stop")
    assert judged(make, limit=long) == {"stopping.max_tokens": "failure"}


def test_slow_is_not_endless(make):
    slow = make.stream("limit", ["a "] * 3, finish=None, tokens=None, done=False, problem=Problem.TIME_LIMIT)
    assert judged(make, limit=slow) == {"stopping.max_tokens": "warning"}
    ends = make.stream("ends", ["Pa"], finish=None, tokens=None, done=False, problem=Problem.TIME_LIMIT)
    assert judged(make, ends=ends) == {"stopping.ends": "warning"}


def test_a_body_without_end_says_nothing_of_tokens(make):
    body = make.broken("limit", Problem.TOO_LARGE, "more than 4000000 bytes")
    (finding,) = make.judge(CHECK, make.deployment(), *good(make, limit=body)).findings
    assert "tokens" not in finding.summary


def test_cut_but_called_stop(make):
    limit = make.stream("limit", ["word "] * 8, finish="stop")
    assert judged(make, limit=limit) == {"stopping.max_tokens": "note"}


def test_stop_sequence(make):
    ignored = make.stream("stop", ["1 2 3 4 ", "5 ", "6 7"])
    assert judged(make, stop=ignored) == {"stopping.stop_sequence": "failure"}
    left_in = make.stream("stop", ["1 2 3 4 ", "5"])
    assert judged(make, stop=left_in) == {"stopping.stop_sequence": "warning"}
    never = make.stream("stop", ["I ", "like ", "fish"])
    assert judged(make, stop=never) == {"stopping.stop_sequence": "note"}


def test_a_stop_sequence_in_the_reasoning_trace_only_is_honoured(make):
    trace = '{"choices": [{"delta": {"reasoning_content": "count 1, 2, 3, 4, 5, 6"}}]}'
    thinking = make.stream("stop", ["1, 2, 3, 4, "], extra_frames=[trace])
    assert judged(make, stop=thinking) == {"stopping": "ok"}


ENDLESS = ["and ", "then ", "we ", "went ", "to ", "sea ", "with ", "Ann ", "once "]


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.UNKNOWN, "warning"),
        (Ability.CAPABLE, "failure"),
    ],
)
def test_a_small_task_without_end(make, ability, severity):
    ends = make.stream("ends", ENDLESS, finish="length")
    assert judged(make, ability, ends=ends) == {"stopping.ends": severity}


def test_template_marks_make_it_a_failure_for_any_model(make):
    ends = make.stream("ends", ["Paris", "<|im_end|>", "\n<|im_start|>user"], finish="length")
    assert judged(make, Ability.TINY, ends=ends) == {"stopping.ends": "failure"}


def test_still_reasoning_is_a_note(make):
    ends = make.stream("ends", ["<think>", "The user asks about France. "], finish="length")
    assert judged(make, Ability.CAPABLE, ends=ends) == {"stopping.ends": "note"}


def test_engine_errors(make):
    assert judged(make, ends=make.error("ends", 500)) == {"stopping.ends": "failure"}
    assert judged(make, limit=make.broken("limit", Problem.RESET)) == {"stopping.max_tokens": "failure"}
    assert judged(make, stop=make.error("stop", 400)) == {"stopping.stop_sequence": "unknown"}
