import pytest

from bringup.values.deployment import Ability
from bringup.values.finding import Severity
from bringup.values.grade import advise, explain, grade


@pytest.mark.parametrize("ability", list(Ability))
def test_all_right_is_ok_whatever_the_size(ability):
    assert grade(ability, right=3, asked=3, able_from=Ability.CAPABLE) is Severity.OK


@pytest.mark.parametrize(
    ("ability", "right", "severity"),
    [
        (Ability.UNKNOWN, 9, Severity.WARNING),
        (Ability.TINY, 0, Severity.NOTE),
        (Ability.SMALL, 4, Severity.WARNING),
        (Ability.SMALL, 5, Severity.NOTE),
        (Ability.CAPABLE, 7, Severity.FAILURE),
        (Ability.CAPABLE, 8, Severity.WARNING),
    ],
)
def test_wrong_answers_of_ten(ability, right, severity):
    assert grade(ability, right=right, asked=10, able_from=Ability.CAPABLE) is severity


def test_words_follow_the_severity():
    assert "not expected" in explain(Severity.NOTE, Ability.TINY)
    assert "not known" in explain(Severity.WARNING, Ability.UNKNOWN)
    assert "tensor parallel 1" in advise(Severity.FAILURE)
    assert explain(Severity.OK, Ability.TINY) == advise(Severity.OK) == ""
