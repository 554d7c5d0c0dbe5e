"""Kept lines of a log to lines without prefixes, in the order in which they were written."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bringup.parse.log_line import LogLine, read_line
from bringup.parse.log_stream import KeptLine, KeptLines
from bringup.values.case import CaseLine
from bringup.values.start_log import Phase, StartLog

_COLOUR = re.compile(r"(?:\x1b|\^\[|#033)\[[0-9;?]*[A-Za-z]")
_TORCH_RANK = re.compile(r"\[rank(\d+)\]:(?: |$)")
_SHORT_CLOCK = re.compile(r"^[A-Z][a-z]{2} [ \d]\d (\d\d):(\d\d):(\d\d) ")
# What rsyslog writes for a tab, a line end, a carriage return; after a stamp of its own only: "#012" is a
# colour elsewhere.
_ESCAPED = {"#011": "\t", "#012": "\n", "#015": "\r"}
_SYSLOG = re.compile(r"(?:<\d+>1 )?\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ")
_LONGEST_TEXT = 16_384  # characters that rules look at
_DAY = 86_400
_CLEARLY = 3  # times more steps back than forward make a log newest-first
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = '  File "'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLine:
    """A line of the log as it stood there and as the engine wrote it."""

    line: LogLine
    raw: str  # without colours

    @property
    def source(self) -> tuple[str, str, int]:
        """Who wrote it: lines of one source belong together."""
        return (self.line.rank or "", self.line.process or "", self.line.pid or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """A log's lines, oldest first, with ascending numbers."""

    lines: tuple[ReadLine, ...]
    total: int
    is_newest_first: bool = False  # as it came in; then the numbers count from its end

    def original(self, number: int) -> int:
        """The number of a line in the input as it came in.

        >>> ReadLog(lines=(), total=10, is_newest_first=True).original(1)
        10
        """
        return self.total + 1 - number if self.is_newest_first else number


def read_kept(kept: KeptLines) -> ReadLog:
    """The lines read, oldest first."""
    groups = [tuple(_read(line)) for line in kept.lines]
    total = max(kept.total_lines, max((line.number for line in kept.lines), default=0))
    if not is_newest_first([one for group in groups for one in group]):
        return ReadLog(lines=tuple(one for group in groups for one in group), total=total)
    turned = tuple(
        replace(one, line=replace(one.line, number=total + 1 - one.line.number))
        for group in reversed(groups)
        for one in group
    )
    return ReadLog(lines=turned, total=total, is_newest_first=True)


def is_newest_first(lines: Sequence[ReadLine]) -> bool:
    """Whether a collector exported the newest line first: by the clock, else by tracebacks read backwards."""
    clocks = [clock for one in lines if (clock := _clock(one)) is not None]
    steps = [later - earlier for earlier, later in pairwise(clocks)]
    back = sum(-_DAY < step < 0 for step in steps)
    forward = sum(0 < step < _DAY for step in steps)
    if back > _CLEARLY * forward and back > 1:
        return True
    if forward:
        return False
    return _reads_backwards(lines)


def case_lines(lines: Sequence[ReadLine], start: StartLog | None) -> tuple[CaseLine, ...]:
    """The lines as rules see them, each with the phase of the start that it falls into."""
    phases = sorted(start.phases, key=lambda one: one.first_line) if start else []
    found: list[CaseLine] = []
    place, phase = 0, None
    for one in lines:
        while place < len(phases) and phases[place].first_line <= one.line.number:
            phase, place = phases[place].name, place + 1
        found.append(_case_line(one, phase))
    return tuple(found)


def _case_line(one: ReadLine, phase: Phase | None) -> CaseLine:
    return CaseLine(
        number=one.line.number,
        text=one.line.text[:_LONGEST_TEXT],
        raw=one.raw[:_LONGEST_TEXT],
        rank=one.line.rank or one.line.process,
        time=one.line.time,
        phase=phase,
    )


def _read(kept: KeptLine) -> Iterator[ReadLine]:
    """One line; several where a collector packed a message of several lines into one."""
    raw = _COLOUR.sub("", kept.raw) if "[" in kept.raw else kept.raw
    raw = raw.rstrip("\r\n")
    if "#01" in raw and _SYSLOG.match(raw):
        raw = re.sub("#01[125]", lambda found: _ESCAPED[found[0]], raw)
    line = _without_torch_rank(read_line(kept.number, raw))
    if "\n" not in line.text:
        yield ReadLine(line=line, raw=raw)
        return
    for part in line.text.split("\n"):
        inner = _without_torch_rank(read_line(kept.number, part))
        yield ReadLine(line=replace(inner, time=inner.time or line.time), raw=part)


def _without_torch_rank(line: LogLine) -> LogLine:
    """The line without the `[rank0]: ` that torch puts before what a failing rank prints."""
    match = _TORCH_RANK.match(line.text)
    if match is None:
        return line
    return replace(line, text=line.text[match.end() :], rank=line.rank or f"rank {match[1]}")


def _clock(one: ReadLine) -> float | None:
    if one.line.time is not None:
        return one.line.time
    match = _SHORT_CLOCK.match(one.raw)
    return int(match[1]) * 3600.0 + int(match[2]) * 60 + int(match[3]) if match else None


def _reads_backwards(lines: Sequence[ReadLine]) -> bool:
    """Whether tracebacks end with their first line."""
    heads = [place for place, one in enumerate(lines) if _TRACEBACK in one.line.text]
    before = sum(any(_FRAME in two.line.text for two in lines[max(0, at - 3) : at]) for at in heads)
    behind = sum(any(_FRAME in two.line.text for two in lines[at + 1 : at + 4]) for at in heads)
    return before > behind
