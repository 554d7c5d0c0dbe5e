import json

import pytest

from bringup.checks.fact import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Problem

KEYS = ("capital", "capital_named", "japan", "sky")
RIGHT = {"capital": "Paris", "capital_named": "It is Paris.", "japan": "**Tokyo**", "sky": "Blue."}


def answers(make, **changed):
    return [make.whole(key, {**RIGHT, **changed}[key]) for key in KEYS]


def test_right_answers_in_any_dress_are_ok(make):
    assert make.found(make.judge(CHECK, make.deployment(), *answers(make))) == {"fact": "ok"}


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "failure"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_wrong_answers_weigh_what_the_size_of_the_model_makes_them(make, ability, severity):
    wrong = answers(make, capital="London", capital_named="comparison", japan="Osaka")
    judgement = make.judge(CHECK, make.deployment(ability=ability), *wrong)
    assert make.found(judgement) == {"fact": severity}
    assert judgement.findings[0].summary == "1 of 4 facts right"
    assert "London" in judgement.findings[0].evidence[0].text
    if ability is Ability.UNKNOWN:
        assert "size of the model is not known" in judgement.findings[0].explanation


def test_quick_asks_one_question_and_judges_only_that(make):
    ran = make.run(CHECK, make.deployment(depth=Depth.QUICK), lambda ask: make.whole(ask.key, "Paris"))
    assert [ask.key for ask in ran.asked] == ["capital"]
    body = json.loads(ran.asked[0].body)
    assert body["temperature"] == 0
    assert body["max_tokens"] <= 32
    assert make.found(ran.judgement) == {"fact": "ok"}


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        (lambda make, key: make.error(key, 500, "CUDA error"), "failure"),
        (lambda make, key: make.page(key), "failure"),
        (lambda make, key: make.broken(key, Problem.RESET), "failure"),
        (lambda make, key: make.broken(key, Problem.TIME_LIMIT, "no answer within 120 s"), "failure"),
        (lambda make, key: make.broken(key, Problem.MALFORMED), "failure"),
        (lambda make, key: make.whole(key, ""), "failure"),
        (lambda make, key: make.error(key, 400, "model has no chat template"), "failure"),
        (lambda make, key: make.error(key, 401), "unknown"),
        (lambda make, key: make.error(key, 429), "unknown"),
        (lambda make, key: make.broken(key, Problem.NOT_ASKED, "budget used up"), "unknown"),
    ],
)
@pytest.mark.parametrize("ability", list(Ability))
def test_what_was_not_delivered_is_never_called_weak(make, fault, severity, ability):
    broken = [fault(make, key) for key in KEYS]
    judgement = make.judge(CHECK, make.deployment(ability=ability), *broken)
    assert make.found(judgement) == {"fact.delivery": severity}
    assert judgement.findings[0].summary.startswith("4 of 4 questions")


def test_a_time_limit_is_told_with_its_figure(make):
    late = [make.broken(key, Problem.TIME_LIMIT, "no answer within 120 s") for key in KEYS]
    assert "120 s" in make.judge(CHECK, make.deployment(), *late).findings[0].summary


def test_one_lost_answer_does_not_hide_the_others(make):
    some = [*answers(make)[:3], make.error("sky", 503, "overloaded")]
    found = make.found(make.judge(CHECK, make.deployment(), *some))
    assert found == {"fact.delivery": "failure", "fact": "ok"}


def test_nothing_asked_is_unknown(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"fact.delivery": "unknown"}


def test_a_missing_chat_template_is_named_with_its_flag(make):
    refused = [make.error(key, 400, "default chat template is no longer allowed") for key in KEYS]
    finding = make.judge(CHECK, make.deployment(), *refused).findings[0]
    assert "--chat-template" in finding.action
