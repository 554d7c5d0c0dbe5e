"""One file per rule or family of rules. A rule reads a case and says what broke it and what cures it.

A rule names the literals without which it cannot match: a log is searched for all of them at once, and only
lines with one of them (and tracebacks) reach the rules.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
