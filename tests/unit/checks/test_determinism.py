import json

import pytest

from bringup.checks.determinism import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.engine import EngineSpec
from bringup.values.exchange import Problem

TEXT = "1. 1\n2. 2\n3. 3\n4. 4\n5. 5\n6. 6\n"
OTHER = "1, 2, 3, 4, 5, 6"
GARBAGE = "!" * 60


def run(make, texts=None, answers=None, **options):
    """What the check says when these keys get these texts or answers, and all else the same text."""
    texts, answers = texts or {}, answers or {}

    def respond(ask):
        return answers.get(ask.key) or make.whole(ask.key, texts.get(ask.key, TEXT))

    return make.run(CHECK, make.deployment(**options), respond)


def test_equal(make):
    result = run(make)
    assert make.found(result.judgement) == {"determinism": "ok"}
    assert result.rounds == 3


@pytest.mark.parametrize(("depth", "crowd"), [(Depth.DEFAULT, 16), (Depth.FULL, 16)])
def test_the_crowd_is_asked_at_once_and_greedily(make, depth, crowd):
    result = run(make, depth=depth)
    others = [ask for ask in result.asked if ask.key.startswith("other")]
    assert len(others) == crowd
    assert all(json.loads(ask.body)["temperature"] == 0 for ask in result.asked)


def test_differing_in_a_crowd_is_a_note_with_the_place(make):
    result = run(make, {"among 2": OTHER})
    assert make.found(result.judgement) == {"determinism.among": "note"}
    assert "at character 2" in result.judgement.findings[0].summary


def test_differing_in_spite_of_a_promise_is_a_warning(make):
    spec = EngineSpec(engine="sglang", flags={"--enable-deterministic-inference": "true"})
    result = run(make, {"among 1": OTHER}, spec=spec)
    assert make.found(result.judgement) == {"determinism.among": "warning"}


def test_only_the_first_differs_is_a_note(make):
    result = run(make, {"alone 1": OTHER})
    assert make.found(result.judgement) == {"determinism.alone": "note"}
    assert result.rounds == 4


def test_varying_alone_is_a_warning(make):
    result = run(make, {"alone 1": OTHER, "alone 3": "one two three"})
    assert make.found(result.judgement)["determinism.alone"] == "warning"


@pytest.mark.parametrize("ability", [Ability.SMALL, Ability.CAPABLE, Ability.UNKNOWN])
def test_garbage_in_a_crowd_is_a_failure(make, ability):
    result = run(make, {"among 1": GARBAGE}, ability=ability)
    assert make.found(result.judgement) == {"determinism.garbage": "failure"}
    assert make.found(run(make, {"other 3": GARBAGE}, ability=ability).judgement) == {
        "determinism.garbage": "failure"
    }


def test_an_empty_answer_in_a_crowd_is_a_failure(make):
    assert make.found(run(make, {"among 1": ""}).judgement) == {"determinism.garbage": "failure"}


def test_a_loop_of_another_question_says_nothing(make):
    assert make.found(run(make, {"other 3": "the sea " * 40}).judgement) == {"determinism": "ok"}


def test_garbage_alone_is_left_to_garble(make):
    texts = dict.fromkeys(("alone 1", "alone 2", "among 1", "among 2"), GARBAGE)
    assert "determinism.garbage" not in make.found(run(make, texts).judgement)


def test_errors_in_a_crowd_are_a_failure(make):
    answers = {key: make.error(key, 500, "CUDA error") for key in ("other 1", "among 2")}
    result = run(make, answers=answers)
    assert make.found(result.judgement) == {"determinism.concurrency": "failure"}
    assert "2 of 19 requests failed when asked at the same time" in result.judgement.findings[0].summary


def test_a_rate_limit_is_not_measured(make):
    answers = {"other 1": make.error("other 1", 429, "slow down")}
    assert make.found(run(make, answers=answers).judgement) == {"determinism.concurrency": "unknown"}


def test_engine_dead_or_not_asked(make):
    dead = {key: make.broken(key, Problem.REFUSED) for key in ("alone 1", "alone 2")}
    assert make.found(run(make, answers=dead).judgement) == {"determinism": "failure"}
    assert make.found(make.judge(CHECK, make.deployment())) == {"determinism": "unknown"}
    cut = make.judge(CHECK, make.deployment(), make.whole("alone 1", TEXT), make.whole("alone 2", TEXT))
    assert make.found(cut) == {"determinism.concurrency": "unknown"}
