"""Facts of a start from a table of the shapes of lines: every engine's reader is such a table.

A shape's named groups are `FIELD__UNIT`: `weights__gib`, `kv_tokens__n`, `load_seconds__s`. A field of
`RankStart` belongs to the rank that wrote the line, any other to the start. Two groups of one field add up.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto

import msgspec

from bringup.parse.log_line import LogLine
from bringup.parse.redact import redact
from bringup.units import GIB, MIB
from bringup.values.start_log import Cite, Phase, RankStart, StartPhase, rank_fact

Value = int | float | str

_RANK_FIELDS = frozenset(one.name for one in fields(RankStart)) - {"label", "pid"}
_UNITS = {"gib": GIB, "mib": MIB}
_MOST_QUOTED = 400  # characters of a line that is kept
_EVERYWHERE = frozenset({"build", "device", "reserved ", "blocks: ", "version ", "page_size"})
_LONGEST_PAUSE = 86_400.0  # seconds; a longer one between two lines is a clock that was set


class Keep(Enum):
    """Which value counts when several lines give one."""

    FIRST = auto()
    LAST = auto()
    SUM = auto()
    LEAST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The wording of a line that carries facts."""

    literal: str  # stands in every such line: looked for before the pattern
    pattern: re.Pattern[str]
    keep: Keep = Keep.FIRST
    closes: tuple[str, ...] = ()  # fields that no later line of this rank may change


@dataclass(slots=True, kw_only=True)
class Facts:
    """What was found so far."""

    ranks: dict[str, dict[str, Value]] = field(default_factory=dict[str, dict[str, Value]])
    whole: dict[str, Value] = field(default_factory=dict[str, Value])
    cites: dict[str, Cite] = field(default_factory=dict[str, Cite])
    closed: set[str] = field(default_factory=set[str])
    pids: dict[str, int] = field(default_factory=dict[str, int])

    def text(self, name: str) -> str | None:
        """A fact that is words."""
        value = self.whole.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        """A fact that is a count."""
        value = self.whole.get(name)
        return value if isinstance(value, int) else None

    def ratio(self, name: str) -> float | None:
        """A fact that is a number with decimals."""
        value = self.whole.get(name)
        return float(value) if isinstance(value, int | float) else None


def shape(literal: str, pattern: str, keep: Keep = Keep.FIRST, closes: tuple[str, ...] = ()) -> Shape:
    """A row of the table."""
    return Shape(literal=literal, pattern=re.compile(pattern), keep=keep, closes=closes)


def literals_of(
    shapes: Sequence[Shape], marks: Mapping[Phase, Sequence[str]], further: Sequence[str] = ()
) -> tuple[str, ...]:
    """What a line must have one of to tell a reader something, without words that stand everywhere."""
    words = {one.literal for one in shapes} | {word for some in marks.values() for word in some}
    return tuple(sorted({word for word in words if word not in _EVERYWHERE} | set(further)))


def gather(lines: Iterable[LogLine], shapes: Sequence[Shape]) -> Facts:
    """All facts that the shapes find."""
    facts = Facts()
    for line in lines:
        for one in shapes:
            if one.literal in line.text and (match := one.pattern.search(line.text)):
                _take(facts, line, match, one)
    return facts


def rank_starts(facts: Facts) -> tuple[RankStart, ...]:
    """The ranks with their facts, in the order of their numbers.

    Weights of less than nothing, where others freed memory meanwhile, are not known.
    """
    labels = sorted(facts.ranks, key=_order)
    found = (
        msgspec.convert({"label": label, "pid": facts.pids.get(label), **facts.ranks[label]}, RankStart)
        for label in labels
    )
    return tuple(replace(one, weights=None) if (one.weights or 0) < 0 else one for one in found)


def phases_of(lines: Sequence[LogLine], marks: Mapping[Phase, Sequence[str]]) -> tuple[StartPhase, ...]:
    """Each step that a mark was seen of, with the seconds until the next one began."""
    seen: dict[Phase, LogLine] = {}
    for line in lines:
        for phase, words in marks.items():
            if phase not in seen and any(word in line.text for word in words):
                seen[phase] = line
    ordered = sorted(seen.items(), key=lambda item: (item[1].number, list(Phase).index(item[0])))
    ends = [line for _, line in ordered[1:]]
    return tuple(
        StartPhase(
            name=phase,
            first_line=line.number,
            seconds=_between(line, ends[place]) if place < len(ends) else None,
        )
        for place, (phase, line) in enumerate(ordered)
    )


def with_seconds(
    phases: tuple[StartPhase, ...], told: Mapping[Phase, float | None]
) -> tuple[StartPhase, ...]:
    """The steps with the seconds that the engine itself says."""
    return tuple(
        replace(phase, seconds=seconds) if (seconds := told.get(phase.name)) is not None else phase
        for phase in phases
    )


def quoted(line: LogLine, within: int = 0) -> Cite:
    """The line as evidence."""
    text = redact(line.text.strip())
    short = text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]} ..."
    return Cite(line=line.number, text=short, within=within)


def size_of(text: str, unit: str) -> tuple[int, int]:
    """Bytes, and half of the last digit given.

    >>> size_of("53.75", "gib")
    (57713623040, 5368709)
    """
    decimals = len(text.partition(".")[2])
    step = _UNITS[unit]
    return round(float(text) * step), round(step * 10.0**-decimals / 2)


def _take(facts: Facts, line: LogLine, match: re.Match[str], one: Shape) -> None:
    found: dict[str, Value] = {}
    within: dict[str, int] = {}
    given = match.groupdict()
    label = given.pop("rank", None) or line.rank or ""
    for group, text in given.items():
        if text is None:
            continue
        name, _, unit = group.partition("__")
        value, doubt = _value(text, unit.rstrip("0123456789"))
        found[name] = _together(found.get(name), value)
        within[name] = within.get(name, 0) + doubt
    for name, value in found.items():
        _keep(facts, line, label, name, value, within[name], one.keep)
    facts.closed.update(rank_fact(name, label) for name in one.closes)


def _keep(  # noqa: PLR0913, PLR0917 - one fact has that many sides
    facts: Facts, line: LogLine, label: str, name: str, value: Value, within: int, keep: Keep
) -> None:
    is_rank = name in _RANK_FIELDS
    place = facts.ranks.setdefault(label, {}) if is_rank else facts.whole
    key = rank_fact(name, label) if is_rank else name
    if is_rank and line.pid is not None:
        facts.pids.setdefault(label, line.pid)
    if key in facts.closed or (keep is Keep.FIRST and name in place):
        return
    before = place.get(name)
    if keep is Keep.SUM and before is not None:
        value = _together(before, value)
        within += facts.cites[key].within
    if keep is Keep.LEAST and _is_no_less(value, before):
        return
    place[name] = value
    facts.cites[key] = quoted(line, within)


def _is_no_less(value: Value, before: Value | None) -> bool:
    return isinstance(value, int | float) and isinstance(before, int | float) and value >= before


def _together(before: Value | None, value: Value) -> Value:
    """Numbers add up; words take each other's place."""
    if isinstance(before, int | float) and not isinstance(value, str):
        return before + value
    return value


def _value(text: str, unit: str) -> tuple[Value, int]:
    if unit in _UNITS:
        return size_of(text, unit)
    if unit == "n":
        return int(text.replace(",", "")), 0
    if unit in ("s", "x"):
        return float(text.replace(",", "")), 0
    return text, 0


def _between(line: LogLine, later: LogLine) -> float | None:
    if line.time is None or later.time is None:
        return None
    seconds = later.time - line.time
    return seconds if 0 <= seconds < _LONGEST_PAUSE else None


def _order(label: str) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", label)], label
