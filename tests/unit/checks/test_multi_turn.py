import pytest

from bringup.checks.multi_turn import CHECK
from bringup.values.deployment import Ability


def judged(make, text, *, ability=Ability.CAPABLE, prompt_tokens=90, alone=20):
    return make.judge(
        CHECK,
        make.deployment(ability=ability),
        make.whole("name", text, prompt_tokens=prompt_tokens),
        make.whole("alone", "I", prompt_tokens=alone),
    )


def test_the_name_is_remembered(make):
    assert make.found(judged(make, "Ada.")) == {"multi_turn": "ok"}


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_a_model_that_forgets_is_judged_by_its_size(make, ability, severity):
    assert make.found(judged(make, "I do not know.", ability=ability)) == {"multi_turn": severity}


def test_turns_that_never_reach_even_a_tiny_model_are_a_failure(make):
    judgement = judged(make, "I do not know.", ability=Ability.TINY, prompt_tokens=21)
    assert make.found(judgement) == {"multi_turn": "failure"}
    assert "do not reach the model" in judgement.findings[0].summary


def test_token_counts_do_not_speak_against_a_right_answer(make):
    assert make.found(judged(make, "Ada", prompt_tokens=5)) == {"multi_turn": "ok"}


def test_without_token_counts_only_the_answer_counts(make):
    judgement = judged(make, "Bob", ability=Ability.TINY, prompt_tokens=None)
    assert make.found(judgement) == {"multi_turn": "note"}


def test_an_error_is_a_failure(make):
    judgement = make.judge(CHECK, make.deployment(), make.error("name", 500), make.error("alone", 500))
    assert make.found(judgement) == {"multi_turn.delivery": "failure"}


def test_both_requests_are_sent_once(make):
    ran = make.run(CHECK, make.deployment(), lambda ask: make.whole(ask.key, "Ada"))
    assert [ask.key for ask in ran.asked] == ["name", "alone"]
