"""What a check or a rule says, and how bad it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is. Unknown is a value of its own: neither good nor bad."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILURE = "failure"


WORST_FIRST = (Severity.FAILURE, Severity.WARNING, Severity.UNKNOWN, Severity.NOTE, Severity.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a statement comes from, quoted."""

    source: str  # "answer fact/capital", "nvidia-smi", "engine log"
    text: str
    line: int | None = None  # 1-based line of the original input


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change that cures a finding or works around it."""

    type: str  # flag, env, package, driver, hardware, file, kernel-param, service
    name: str
    old: str | None = None  # written as "from"
    new: str | None = None  # written as "to"
    kind: str = "cure"  # or "workaround"
    cost: str = ""


def same_value(one: str | None, other: str | None) -> bool:
    """Whether two values of a setting mean the same, however they are spelled.

    >>> same_value("0.90", ".9"), same_value("True", "true"), same_value(None, "1")
    (True, True, False)
    """
    if one is None or other is None:
        return False
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()


def changes_only(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """The fixes that change something, each once."""
    found: list[Fix] = []
    for fix in fixes:
        is_told = any(
            (fix.type, fix.name) == (one.type, one.name)
            and (fix.new == one.new or same_value(fix.new, one.new))
            for one in found
        )
        if not is_told and not same_value(fix.old, fix.new):
            found.append(fix)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A figure that a check took, with its unit: never a bare number."""

    name: str  # "single-stream speed"
    value: float | int | str | None  # None: not measured
    unit: str = ""  # "tokens/s", "s", "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One statement about the deployment: what, measured against what, why it matters, what to do."""

    id: str  # the check's name, or `check.case`; for rules the id of the taxonomy
    severity: Severity
    summary: str  # what was found
    expected: str = ""  # what it was measured against
    explanation: str = ""  # why it matters
    action: str = ""  # what to do, as a sentence
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    next_measurement: str = ""  # a command, when this settles nothing

    def __post_init__(self) -> None:
        """No finding offers what is there already, or the same change twice."""
        object.__setattr__(self, "fixes", changes_only(self.fixes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Log-probabilities of fixed texts and greedy answers of fixed prompts: changes when numerics change."""

    texts: tuple[tuple[str, str], ...] = ()  # (prompt key, greedy answer)
    logprobs: tuple[
        tuple[str, tuple[tuple[str, float], ...]], ...
    ] = ()  # (prompt key, ((token, logprob), ...))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All that one check concludes."""

    findings: tuple[Finding, ...]
    measurements: tuple[Measurement, ...] = ()
    fingerprint: Fingerprint | None = None


def worst(findings: tuple[Finding, ...]) -> Severity:
    """The worst severity among `findings`; OK when there are none."""
    present = {finding.severity for finding in findings}
    return next((severity for severity in WORST_FIRST if severity in present), Severity.OK)
