"""What the values of an engine's flags have to look like: what it would refuse is told, not passed over."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bringup.errors import UnreadableAnswer
from bringup.parse.json_value import read_json
from bringup.values.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class Want:
    """What a flag takes, in words, and whether a text is that."""

    words: str
    accepts: Callable[[str], bool]


def finite_number(text: str | None) -> float | None:
    """The number that a flag's value states; None where it states none, nan and infinity among them.

    >>> finite_number("0.9"), finite_number("0,9"), finite_number("nan"), finite_number("")
    (0.9, None, None, None)
    """
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def one_of(*words: str) -> Want:
    """Any of `words`."""
    return Want(" or ".join(f"`{word}`" for word in words), lambda text: text in words)


def either(*wants: Want) -> Want:
    """What any of `wants` takes."""
    return Want(" or ".join(want.words for want in wants), lambda text: any(w.accepts(text) for w in wants))


def _whole(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS else None


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except UnreadableAnswer:
        return False
    return True


_MOST_DIGITS = 18
COUNT = Want("a whole number from 1 on", lambda text: (_whole(text) or 0) >= 1)
WHOLE = Want("a whole number", lambda text: _whole(text) is not None)
NUMBER = Want("a number", lambda text: finite_number(text) is not None)
AMOUNT = Want("a number from 0 on", lambda text: (finite_number(text) or 0.0) >= 0 and NUMBER.accepts(text))
JSON = Want("JSON", _is_json)


def value_findings(engine: str, flags: Mapping[str, str], wants: Mapping[str, Want]) -> Iterator[Finding]:
    """A failure for every flag whose value is not what `wants` says.

    >>> [finding.summary for finding in value_findings("vLLM", {"-n": "$N"}, {"-n": COUNT})]
    ['`-n` takes a whole number from 1 on, not `$N`']
    """
    for name, value in flags.items():
        want = wants.get(name)
        if want is None or want.accepts(value):
            continue
        yield Finding(
            id="flags.value",
            severity=Severity.FAILURE,
            summary=f"`{name}` takes {want.words}, not `{value}`"
            if value
            else f"`{name}` has no value: it takes {want.words}",
            explanation=f"{engine} does not start with it; planned as if the flag were not there",
        )
