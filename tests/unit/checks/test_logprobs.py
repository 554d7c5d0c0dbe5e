import json
import math

import pytest

from bringup.checks.logprobs import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Answer, Problem

VALUES = (-0.5, -0.1, -0.9, -0.3)


def rows(*values, top=None):
    return [
        {
            "token": f" t{place}",
            "logprob": value,
            "top_logprobs": top
            or [{"token": f" t{place}", "logprob": value}, {"token": " x", "logprob": -4.0}],
        }
        for place, value in enumerate(values)
    ]


def judged(make, first, second=None, **options):
    second = rows(*VALUES, *VALUES) if second is None else second
    answers = make.whole("sea", "ahoy", logprobs=first), make.whole("capital", "Paris", logprobs=second)
    return make.judge(CHECK, make.deployment(depth=Depth.QUICK, **options), *answers)


def test_sane(make):
    judgement = judged(make, rows(*VALUES))
    assert make.found(judgement) == {"logprobs": "ok"}
    assert judgement.measurements[0].value == pytest.approx(-0.45)


def test_fingerprint_has_texts_and_values_by_key(make):
    fingerprint = judged(make, rows(-0.5, -0.1)).fingerprint
    assert fingerprint is not None
    assert dict(fingerprint.texts) == {"sea": "ahoy", "capital": "Paris"}
    assert dict(fingerprint.logprobs)["sea"] == ((" t0", -0.5), (" t1", -0.1))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_numbers(make, value):
    assert make.found(judged(make, rows(value, *VALUES))) == {"logprobs.values": "failure"}


def test_infinities_of_both_signs_have_no_mean(make):
    judgement = judged(make, rows(*[math.inf, -math.inf] * 4))
    assert make.found(judgement) == {"logprobs.values": "failure"}
    assert judgement.measurements[0].value is None


def test_an_alternative_without_any_probability_is_sane(make):
    top = [{"token": " t0", "logprob": -0.1}, {"token": " x", "logprob": -math.inf}]
    assert make.found(judged(make, rows(-0.1, -0.2, top=top))) == {"logprobs": "ok"}


@pytest.mark.parametrize("value", [1e308, -1e308])
def test_numbers_at_the_end_of_the_range_are_judged_and_overflow_nothing(make, value):
    level = [{"token": "a", "logprob": value, "top_logprobs": []} for _ in range(8)]
    assert set(make.found(judged(make, level, level))) <= {"logprobs.values", "logprobs.guessing"}


def test_nan_as_vllm_reports_it(make):
    answer = make.error("sea", 500, "Out of range float values are not JSON compliant: nan")
    judgement = make.judge(CHECK, make.deployment(depth=Depth.QUICK), answer, make.whole("capital", "Paris"))
    assert make.found(judgement)["logprobs"] == "failure"
    assert "NaN" in judgement.findings[0].summary


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rows(0.7, *VALUES), None),
        (rows(*VALUES, top=[{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]), None),
        (rows(-2.0, top=[{"token": "a", "logprob": -0.2}]), None),
        (rows(*[-0.5] * 8), rows(*[-0.5] * 8)),
        (rows(*[0.0] * 8), rows(*[0.0] * 8)),
    ],
    ids=["above 0", "over 1", "not the best", "all equal", "all 0"],
)
def test_wrong_values(make, first, second):
    assert make.found(judged(make, first, second)) == {"logprobs.values": "warning"}


@pytest.mark.parametrize(
    ("ability", "level", "severity"),
    [(Ability.TINY, -4.5, "warning"), (Ability.CAPABLE, -4.5, "failure"), (Ability.TINY, -8.9, "failure")],
)
def test_guessing(make, ability, level, severity):
    low = [{"token": "a", "logprob": level - place / 100, "top_logprobs": []} for place in range(8)]
    assert make.found(judged(make, low, low, ability=ability)) == {"logprobs.guessing": severity}


def test_not_supported(make):
    assert make.found(judged(make, None, [])) == {"logprobs": "note"}

    def respond(ask):
        if "logprobs" in json.loads(ask.body):
            return make.error(ask.key, 400, "logprobs are not supported")
        return make.whole(ask.key, "ahoy")

    result = make.run(CHECK, make.deployment(), respond)
    assert make.found(result.judgement) == {"logprobs": "note"}
    assert [ask.key for ask in result.asked] == [
        "sea",
        "sea plain",
        "capital plain",
        "count plain",
        "code plain",
    ]
    assert dict(result.judgement.fingerprint.texts)["sea"] == "ahoy"


def test_not_asked_and_broken(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"logprobs": "unknown"}
    broken = make.judge(CHECK, make.deployment(depth=Depth.QUICK), make.broken("sea", Problem.RESET))
    assert make.found(broken) == {"logprobs": "failure"}
    assert broken.fingerprint is None


def test_one_at_a_time_and_the_same_at_every_depth(make):
    def respond(ask):
        return make.whole(ask.key, "ahoy", logprobs=rows(*VALUES, *VALUES))

    full = make.run(CHECK, make.deployment(depth=Depth.FULL), respond)
    quick = make.run(CHECK, make.deployment(depth=Depth.QUICK), respond)
    assert full.rounds == len(full.asked)
    assert [ask.body for ask in quick.asked] == [ask.body for ask in full.asked][: len(quick.asked)]


TEXT = "The quick brown fox jumps over the lazy dog. Two plus two is four."


@pytest.mark.parametrize(("echo", "expected"), [(TEXT, True), ("", False)])
def test_a_scored_text_joins_the_fingerprint(make, echo, expected):
    values = {"tokens": ["The", " quick", " So"], "token_logprobs": [None, -3.5, -0.2]}
    body = json.dumps({"choices": [{"text": f"{echo} So", "logprobs": values, "finish_reason": "length"}]})
    answer = Answer(key="text", status=200, headers=(("content-type", "application/json"),), body=body)
    judgement = make.judge(CHECK, make.deployment(), make.whole("sea", "ahoy"), answer)
    assert judgement.fingerprint is not None
    assert dict(judgement.fingerprint.logprobs) == ({"text": ((" quick", -3.5),)} if expected else {})
