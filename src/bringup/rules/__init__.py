"""One file per rule or family of rules. A rule reads a case and says what broke it and what cures it.

A rule names the literals without which it cannot match: a log is searched for all of them at once, and only
lines with one of them (and tracebacks) reach the rules.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bringup.parse.log_message import Message, Said, surest, with_frames
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a rule found in a case."""

    kind: str  # id of the taxonomy: "mem.sampler_warmup_oom"
    sure: float  # 0..1: how far the lines settle it; ranks the findings
    lines: tuple[CaseLine, ...]  # that decide, the most telling first; empty where a probe decides
    summary: str  # with the case's own numbers
    explanation: str = ""
    fixes: tuple[Fix, ...] = ()  # computed for this case, the best first
    next_measurement: str = ""  # a command, where this does not settle it
    severity: Severity = Severity.FAILURE
    probes: tuple[tuple[str, str], ...] = ()  # (source, text) that decide beside lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of failure, or several that are told apart in one place."""

    kinds: tuple[str, ...]  # ids of the taxonomy that it can give
    title: str  # "no kernel image for this GPU"
    literals: tuple[str, ...]  # plain text, case as printed; a line without one is never looked at
    read: Callable[[Case], tuple[Match, ...]]
    meaning: str  # what has happened, in a sentence or two
    told_apart: str  # from what it is told apart, and by what
    cure: str  # what cures it, in general
    source: str  # the message's place in the engine's source, or the reports


Cures = Callable[[Case, re.Match[str]], tuple[Fix, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One message by which a kind is known. The pattern's named groups fill `{names}` in the texts."""

    kind: str
    pattern: re.Pattern[str]  # of the line that decides
    sure: float
    summary: str
    explanation: str = ""
    fixes: tuple[Fix, ...] | Cures = ()
    beside: re.Pattern[str] | None = None  # lines that are quoted with it, where they are there
    needs: re.Pattern[str] | None = None  # one line must have it
    unless: re.Pattern[str] | None = None  # no line may have it
    next_measurement: str = ""
    severity: Severity = Severity.FAILURE
    is_last_first: bool = False  # the last such line tells most, not the first


MOST_QUOTED = 6
_UNTOLD = re.compile(r" \([^()]*\?\)")  # what a summary says in brackets of a value that was not named


def read_signs(signs: tuple[Sign, ...]) -> Callable[[Case], tuple[Match, ...]]:
    """The reader of a table of messages: for each kind the surest of its signs, with the lines of all."""

    def read(case: Case) -> tuple[Match, ...]:
        best: dict[str, Match] = {}
        for sign in signs:
            match = match_of(sign, case)
            if match is not None:
                best[sign.kind] = _joined(best.get(sign.kind), match)
        return tuple(best.values())

    return read


def read_messages(
    messages: tuple[Message, ...],
    fixes: Mapping[str, Callable[[Case, Said], tuple[Fix, ...]]],
    *,
    explain: Callable[[Said], str] = lambda _: "",
    next_measurements: Mapping[str, str] | None = None,
    holds: Callable[[Case, Said], bool] = lambda _, __: True,
    notes: frozenset[str] = frozenset(),
) -> Callable[[Case], tuple[Match, ...]]:
    """The reader of a table of messages whose cures are computed by kind.

    `holds` says whether what a message needs beside itself is there; kinds in `notes` break nothing.
    """
    then = next_measurements or {}

    def read(case: Case) -> tuple[Match, ...]:
        return tuple(
            Match(
                kind=one.message.kind,
                sure=one.message.sure,
                lines=with_frames(case, one.lines),
                summary=_without_unknowns(one.summary),
                explanation=explain(one),
                fixes=fixes[one.message.kind](case, one),
                next_measurement=then.get(one.message.kind, ""),
                severity=Severity.NOTE if one.message.kind in notes else Severity.FAILURE,
            )
            for one in surest(case, messages)
            if holds(case, one)
        )

    return read


def _without_unknowns(summary: str) -> str:
    """A summary without the question marks of groups that did not take part."""
    return re.sub(r"(?<=\S)\s*\?+", "", re.sub(r"\?+(?=[^\s?:,.;)\]])", "", summary)).strip()


def match_of(sign: Sign, case: Case) -> Match | None:
    """What one sign says of a case; None where it is not there."""
    found = list(case.matches(sign.pattern))
    if not found or (sign.needs and not _stands(case, sign.needs)):
        return None
    if sign.unless and _stands(case, sign.unless):
        return None
    if sign.is_last_first:
        found.reverse()
    words = {name: value or "?" for name, value in found[0][1].groupdict().items()}
    beside = [line for line, _ in case.matches(sign.beside)] if sign.beside else []
    return Match(
        kind=sign.kind,
        sure=sign.sure,
        lines=_different([line for line, _ in found] + beside),
        summary=_UNTOLD.sub("", sign.summary.format(**words)),
        explanation=sign.explanation.format(**words),
        fixes=sign.fixes(case, found[0][1]) if callable(sign.fixes) else sign.fixes,
        next_measurement=sign.next_measurement.format(**words),
        severity=sign.severity,
    )


def _stands(case: Case, pattern: re.Pattern[str]) -> bool:
    """Whether any line has it, or what collectors and Ray wrote around it."""
    return any(pattern.search(line.text) or pattern.search(line.raw) for line in case.lines)


def _joined(first: Match | None, second: Match) -> Match:
    """The surer of two statements of one kind, with the lines of both."""
    if first is None:
        return second
    best, other = (second, first) if second.sure > first.sure else (first, second)
    return replace(best, lines=_different((*best.lines, *other.lines)), fixes=best.fixes or other.fixes)


def _different(lines: Iterable[CaseLine]) -> tuple[CaseLine, ...]:
    """The first lines, each text once: ranks repeat each other."""
    by_text: dict[str, CaseLine] = {}
    for line in lines:
        by_text.setdefault(line.text.strip(), line)
    return tuple(by_text.values())[:MOST_QUOTED]
