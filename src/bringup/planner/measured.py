"""Figures of an earlier start that may replace estimates, and how that is said."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bringup.planner.workspace import Estimate
from bringup.values.finding import Evidence, Finding, Severity
from bringup.values.start_log import RankStart, StartLog, rank_fact

AS_LOGGED = "as logged"
_MOST_CITES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of the earlier start by the name of what they replace, and what is to be said."""

    parts: dict[str, Estimate] = field(default_factory=dict[str, Estimate])
    held: frozenset[str] = frozenset()  # names of parts that stay estimates, their doubt lying in another
    used: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # with the reason
    facts: tuple[str, ...] = ()  # of the log, that were used

    @property
    def names(self) -> frozenset[str]:
        """The parts that were measured."""
        return frozenset(self.parts) - self.held

    def finding(self, start: StartLog) -> Finding:
        """What the earlier start gave and what it could not give."""
        cites = [start.cites[name] for name in start.cites if name.partition("@")[0] in self.facts]
        return Finding(
            id="plan.measured",
            severity=Severity.NOTE,
            summary=f"measured by the earlier start: {'; '.join(self.used) or 'nothing that holds here'}",
            explanation="not taken from it: " + "; ".join(self.left_out) if self.left_out else "",
            evidence=tuple(
                Evidence(source="engine log", text=cite.text, line=cite.line) for cite in cites[:_MOST_CITES]
            ),
        )


def largest(start: StartLog, name: str) -> int | None:
    """The largest value of any rank; None where no rank says one."""
    values: Iterable[object] = (getattr(rank, name) for rank in start.ranks)
    return max((value for value in values if isinstance(value, int)), default=None)


def as_told(start: StartLog, name: str, told: int) -> Estimate:
    """A logged value with its rounding."""
    rank = next(rank for rank in start.ranks if getattr(rank, name) == told)
    return around(told, rounding(start, (name,), rank), AS_LOGGED)


def rounding(start: StartLog, names: tuple[str, ...], rank: RankStart) -> int:
    """Bytes that the sum of these facts may be off by, for the digits that the log leaves out."""
    cites = (start.cites.get(rank_fact(name, rank.label)) for name in names)
    return sum(cite.within for cite in cites if cite is not None)


def around(size: int, within: int, formula: str) -> Estimate:
    """A size, never below nothing, with what it may be off by on either side."""
    size = max(0, size)
    return Estimate(bytes=size, low=max(0, size - within), high=size + within, formula=formula)


def is_same_model(one: str | None, other: str | None) -> bool:
    """Whether two names mean one model, wherever it lies.

    >>> is_same_model("/models/Qwen3-32B/", "Qwen/Qwen3-32B"), is_same_model(None, "Qwen/Qwen3-32B")
    (True, False)
    """

    def short(name: str) -> str:
        return name.rstrip("/").rpartition("/")[2].lower()

    return bool(one and other) and short(one or "") == short(other or "")
