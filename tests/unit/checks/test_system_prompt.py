import pytest

from bringup.checks.system_prompt import CHECK
from bringup.values.deployment import Ability
from bringup.values.exchange import Problem


def judged(make, text, *, ability=Ability.CAPABLE, prompt_tokens=110, without=30):
    return make.judge(
        CHECK,
        make.deployment(ability=ability),
        make.whole("mango", text, prompt_tokens=prompt_tokens),
        make.whole("without", "I", prompt_tokens=without),
    )


def test_an_instruction_that_is_followed_is_ok(make):
    assert make.found(judged(make, "MANGO")) == {"system_prompt": "ok"}


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_an_instruction_that_is_ignored_is_judged_by_size(make, ability, severity):
    assert make.found(judged(make, "Apples, pears.", ability=ability)) == {"system_prompt": severity}


def test_a_dropped_system_message_shows_in_the_token_counts(make):
    judgement = judged(make, "Apples", ability=Ability.TINY, prompt_tokens=30)
    assert make.found(judgement) == {"system_prompt": "warning"}
    assert "dropped" in judgement.findings[0].summary


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System role not supported"),
        (400, "Only user and assistant roles are supported!"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (500, "Jinja Exception: System role not supported"),
    ],
)
def test_a_template_without_system_role_is_not_a_failure(make, status, message):
    judgement = make.judge(CHECK, make.deployment(), make.error("mango", status, message))
    assert make.found(judgement) == {"system_prompt": "note"}
    assert "no system role" in judgement.findings[0].summary


@pytest.mark.parametrize("status", [400, 500])
def test_any_other_error_is_a_failure(make, status):
    judgement = make.judge(CHECK, make.deployment(), make.error("mango", status, "illegal memory access"))
    assert make.found(judgement) == {"system_prompt.delivery": "failure"}


def test_not_asked_is_unknown(make):
    judgement = make.judge(CHECK, make.deployment(), make.broken("mango", Problem.NOT_ASKED))
    assert make.found(judgement) == {"system_prompt.delivery": "unknown"}


def test_both_requests_are_sent_once(make):
    ran = make.run(CHECK, make.deployment(), lambda ask: make.whole(ask.key, "MANGO"))
    assert [ask.key for ask in ran.asked] == ["mango", "without"]
