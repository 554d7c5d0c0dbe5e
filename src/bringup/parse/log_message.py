"""Messages of engines as tables: a pattern and what it means; and where a case says them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bringup.values.case import Case, CaseLine

_FRAMES = 3
_MOST_LINES = 5  # quoted of one message; further ones are the same from other ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message template of an engine or of a library under it."""

    kind: str  # id of the taxonomy
    sure: float  # 0..1, when nothing else speaks
    pattern: str  # a regular expression; its named groups are what a cure is computed from
    literals: tuple[str, ...]  # plain text, one of which every match holds
    summary: str  # with the groups in braces
    unless: str = ""  # a regular expression: said anywhere, it takes the message's meaning away
    compiled: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        """Compiled once, where the table is built."""
        object.__setattr__(self, "compiled", re.compile(self.pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message that a case holds."""

    message: Message
    lines: tuple[CaseLine, ...]  # the first first
    values: dict[str, str]  # named groups of the first that has them
    text: str  # of the first match, whole

    @property
    def summary(self) -> str:
        """The message's summary with this case's values."""
        return self.message.summary.format_map(_Blank(self.values))

    def number(self, name: str) -> float | None:
        """A group as a number; None where it did not take part."""
        text = self.values.get(name)
        return float(text.replace(",", "").rstrip(".")) if text else None

    def count(self, name: str) -> int | None:
        """A group as a whole number."""
        value = self.number(name)
        return None if value is None else int(value)


class _Blank(dict[str, str]):
    """Groups that did not take part read as a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def said(case: Case, messages: Iterable[Message]) -> Iterator[Said]:
    """Every message of the table that the case holds, in the table's order."""
    for message in messages:
        matches = list(case.matches(message.compiled))
        if not matches or (message.unless and case.says(message.unless)):
            continue
        # The message itself tells more than a traceback's echo of the statement that prints it.
        matches.sort(key=lambda pair: (_is_echo(pair[0].text), pair[0].number))
        values: dict[str, str] = {}
        for _, match in matches:
            for name, value in match.groupdict().items():
                if value is not None:
                    values.setdefault(name, value)
        yield Said(
            message=message,
            lines=tuple(line for line, _ in matches[:_MOST_LINES]),
            values=values,
            text=matches[0][1].group(),
        )


def surest(case: Case, messages: Iterable[Message]) -> tuple[Said, ...]:
    """Of every kind the message that settles it best, in the table's order."""
    found: dict[str, Said] = {}
    for one in said(case, messages):
        known = found.get(one.message.kind)
        if known is None or one.message.sure > known.message.sure:
            found[one.message.kind] = one
    return tuple(found.values())


def with_frames(case: Case, lines: tuple[CaseLine, ...]) -> tuple[CaseLine, ...]:
    """The lines, and the engine's outermost and innermost frames of the traceback that they end."""
    traces = (case.traceback_of(line) for line in lines)
    trace = next((one for one in traces if one is not None), None)
    if trace is None:
        return lines
    own = [frame.number for frame in trace.frames if frame.is_engine]
    return (*lines, *lines_at(case, dict.fromkeys((*own[:1], *own[-_FRAMES:]))))


def lines_at(case: Case, numbers: Iterable[int]) -> tuple[CaseLine, ...]:
    """The case's lines with these numbers."""
    wanted = set(numbers)
    return tuple(line for line in case.lines if line.number in wanted)


def literals_of(*tables: Iterable[Message]) -> tuple[str, ...]:
    """What a log is searched for so that none of these messages is missed."""
    return tuple(dict.fromkeys(one for table in tables for message in table for one in message.literals))


def _is_echo(text: str) -> bool:
    return re.search(r"(?:^|\s)raise \w|^\s*f?\"", text) is not None
