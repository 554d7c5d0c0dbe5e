"""A run's result, ready to be rendered: the same for every face."""

from dataclasses import dataclass, field

from bringup.values.finding import Finding, Fingerprint, Measurement

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under named columns; numbers stay numbers until they are rendered."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    is_detail: bool = False  # shown in a terminal only when everything is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar."""

    name: str  # "weights", "KV cache", "free"
    size: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One GPU's memory as a bar: its parts in order, which add up to the whole."""

    label: str
    segments: tuple[Segment, ...]
    note: str = ""  # stands behind the bar

    @property
    def total(self) -> int:
        """The whole, bytes."""
        return sum(part.size for part in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Verdict, findings (worst first), measurements and tables of one run."""

    kind: str  # "verify"
    verdict: str  # "works", "works, with warnings", "broken", "not measured"; the findings say more
    title: str  # one line: model, engine, place
    paragraph: str  # what a tired engineer acts on
    findings: tuple[Finding, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    tables: tuple[Table, ...] = ()
    bars: tuple[Bar, ...] = ()
    fingerprint: Fingerprint | None = None
    facts: dict[str, object] = field(default_factory=dict[str, object])  # engine, model, host: for --json
    taken_at: float = 0.0  # Unix time, seconds
    duration_s: float | None = None
    tool_version: str = ""
    exit_code: int = 0
