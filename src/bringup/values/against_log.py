"""A plan beside what the log of a real start says, line by line."""

from dataclasses import dataclass
from enum import StrEnum

from bringup.errors import EXIT_FINDINGS
from bringup.values.start_log import Cite, StartLog


class Agreement(StrEnum):
    """How one line of the plan and the log go together."""

    EQUAL = "equal"  # within the log's own rounding
    INSIDE = "inside"  # within the plan's bounds
    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    TOLD_ONLY = "told only"  # the plan has no such line


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """One quantity, predicted and told."""

    name: str  # "weights", "kv_pool", "kv_tokens", ...
    ranks: tuple[str, ...]  # that tell the same value; empty: the whole engine
    unit: str  # "bytes", "tokens", "blocks", "requests"
    predicted: float | None
    low: float | None
    high: float | None
    told: float
    within: float  # half of the log's last digit
    agreement: Agreement
    explanation: str = ""
    cite: Cite | None = None

    @property
    def difference(self) -> float | None:
        """What the log says more than the plan."""
        return None if self.predicted is None else self.told - self.predicted

    @property
    def share(self) -> float | None:
        """The difference as a share of what the log says; None where that is nothing."""
        return None if self.difference is None or not self.told else self.difference / self.told


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstLog:
    """The comparison with one start."""

    source: str  # the file
    start: StartLog
    words: str  # which start of the file it is, where that is a question
    lines: tuple[ComparedLine, ...]
    notes: tuple[str, ...] = ()  # what could not be compared, and why

    @property
    def unexplained(self) -> tuple[ComparedLine, ...]:
        """Lines beyond their bounds for a reason that no rule knows."""
        return tuple(line for line in self.lines if line.agreement is Agreement.UNEXPLAINED)

    def exit_code(self, plan: int) -> int:
        """1 where something is unexplained, else the plan's own."""
        return EXIT_FINDINGS if self.unexplained else plan
