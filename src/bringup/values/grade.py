"""How bad wrong answers are, given what a model of that size does. Delivery faults are judged elsewhere."""

from bringup.values.deployment import Ability
from bringup.values.finding import Severity

SIZE_WORDS = {
    Ability.UNKNOWN: "a model of unknown size",
    Ability.TINY: "a model of under 1 billion parameters",
    Ability.SMALL: "a model of 1 to 7 billion parameters",
    Ability.CAPABLE: "a model of 7 billion parameters or more",
}


def grade(ability: Ability, *, right: int, asked: int, able_from: Ability) -> Severity:
    """Severity of `right` answers out of `asked`, when models from `able_from` on are expected to manage all.

    One wrong answer in five is forgiven to a warning. A small model that is not expected to manage
    everything still gets half of it.

    >>> grade(Ability.TINY, right=0, asked=10, able_from=Ability.CAPABLE).value
    'note'
    >>> grade(Ability.CAPABLE, right=0, asked=1, able_from=Ability.CAPABLE).value
    'failure'
    """
    if right >= asked:
        return Severity.OK
    if ability is Ability.UNKNOWN:
        return Severity.WARNING
    if ability >= able_from:
        return Severity.FAILURE if right * 5 < asked * 4 else Severity.WARNING
    if ability is Ability.SMALL and right * 2 < asked:
        return Severity.WARNING
    return Severity.NOTE


def explain(severity: Severity, ability: Ability) -> str:
    """Why wrong answers of this severity matter, or why they do not."""
    size = SIZE_WORDS[ability]
    if severity is Severity.OK:
        return ""
    if severity is Severity.NOTE:
        return f"{size} is not expected to manage this; every answer was delivered whole"
    if ability is Ability.UNKNOWN:
        return "the size of the model is not known, so a weak model cannot be told from a broken one"
    return (
        f"{size} manages this; wrong weights, a wrong chat template, a bad quantisation or damaged"
        " GPU-to-GPU copies show here first"
    )


def advise(severity: Severity) -> str:
    """What to do about wrong answers of this severity."""
    if severity is Severity.OK:
        return ""
    if severity is Severity.NOTE:
        return "nothing; a larger model answers this, should you need it"
    return (
        "ask the same of a run on one GPU (tensor parallel 1) or of unquantised weights, and compare the chat"
        " template with the model's own"
    )
