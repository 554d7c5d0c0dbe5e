"""A run of `bench` for a terminal: what it amounts to, the rungs, the plot, the findings, the instrument."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bringup.report.bench_plot import Point, plot
from bringup.report.bench_words import (
    instrument_words,
    interrupted_words,
    load_text,
    paragraph,
    throughput,
    verdict,
)
from bringup.report.columns import fits, table_lines
from bringup.report.words import MARKS, visible
from bringup.values.bench import BenchRun, Distribution, Rung
from bringup.values.finding import WORST_FIRST, Finding, Severity, worst
from bringup.values.report import Cell, Table

_STYLES = {
    Severity.OK: "32",
    Severity.NOTE: "36",
    Severity.UNKNOWN: "35",
    Severity.WARNING: "33",
    Severity.FAILURE: "1;31",
}
_BOLD, _DIM = "1", "2"
_WIDEST_TEXT = 100  # columns of prose: longer lines are hard to read


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStyle:
    """What the terminal is like."""

    width: int = 100
    has_color: bool = False
    is_ascii: bool = False
    show_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One figure of a rung."""

    name: str
    read: Callable[[Rung], Cell]
    is_always: bool = False  # shown although nobody has it


def render_bench_text(run: BenchRun, style: TextStyle, *, beside: BenchRun | None = None) -> str:
    """The run as text of at most `style.width` columns, as far as its numbers allow."""
    parts = [_head(run, style), _table(run, beside, style)]
    drawn = _plot(run, beside, style)
    parts += [drawn] if drawn else []
    shown = [one for one in run.findings if style.show_all or one.severity is not Severity.OK]
    if shown:
        ordered = sorted(shown, key=lambda one: WORST_FIRST.index(one.severity))
        lines = [line for finding in ordered for line in _finding(finding, style)]
        parts.append("\n".join([_styled("Findings", _BOLD, style), *lines]) + "\n")
    parts.append(_notes(run, style))
    return "\n".join(parts)


def _head(run: BenchRun, style: TextStyle) -> str:
    severity = worst(run.findings)
    engine = run.engine or "an unknown engine"
    version = f" {run.engine_version}" if run.engine_version else ""
    title = visible(f"{run.model} on {engine}{version} at {run.url}")
    first = f"{_styled(verdict(run), _STYLES[severity], style)}   {_styled(title, _BOLD, style)}"
    lines = [first]
    if len(verdict(run)) + 3 + len(title) > style.width:
        parts = [(verdict(run), _STYLES[severity]), (title, _BOLD)]
        lines = [_styled(line, code, style) for part, code in parts for line in _wrapped(part, style)]
    lines += _wrapped(paragraph(run), style)
    return "\n".join(lines) + "\n"


def _table(run: BenchRun, beside: BenchRun | None, style: TextStyle) -> str:
    lines = _wrapped(f"{run.load}: {run.workload}" if run.workload else run.load, style)
    lines = [_styled(line, _BOLD, style) for line in lines]
    if not run.rungs:
        return "\n".join([*lines, "no load was measured"]) + "\n"
    others = [_same_load(rung, beside) for rung in run.rungs] if beside is not None else []
    tables = [_figures(run, others, (*_SPEEDS, *_TIMES), _BESIDE if beside else ())]
    if not fits(tables[0], width=style.width):
        tables = [
            _figures(run, others, _SPEEDS, _BESIDE[:1] if beside else ()),
            _figures(run, others, (_SPEEDS[0], *_TIMES), _BESIDE[1:] if beside else ()),
        ]
    for number, part in enumerate(one for table in tables for one in _parts(table, style.width)):
        lines += [""] * bool(number) + table_lines(part, width=style.width)
    if beside is not None:
        lines += _wrapped(f"beside: {beside.model} at {beside.url}, {beside.workload}", style)
    lines += [line for note in _table_notes(run) for line in _wrapped(note, style)]
    return "\n".join(lines) + "\n"


def _parts(table: Table, width: int) -> list[Table]:
    """The table, or where it is too wide several, each with the column of loads."""
    parts: list[Table] = []
    chosen = [0]
    for number in range(1, len(table.columns)):
        if len(chosen) > 1 and not fits(_only(table, [*chosen, number]), width=width):
            parts.append(_only(table, chosen))
            chosen = [0]
        chosen.append(number)
    return [*parts, _only(table, chosen)]


def _only(table: Table, numbers: Sequence[int]) -> Table:
    """Some columns of a table."""
    return Table(
        title="",
        columns=tuple(table.columns[number] for number in numbers),
        rows=tuple(tuple(row[number] for number in numbers) for row in table.rows),
    )


def _figures(
    run: BenchRun, others: Sequence[Rung | None], columns: Sequence[_Column], beside: Sequence[_Column]
) -> Table:
    """Those columns that somebody has, and the same figures of the run beside."""
    shown = [one for one in columns if one.is_always or any(one.read(rung) is not None for rung in run.rungs)]
    rows = [tuple(column.read(rung) for column in shown) for rung in run.rungs]
    if others:
        rows = [
            (*row, *(None if other is None else column.read(other) for column in beside))
            for row, other in zip(rows, others, strict=True)
        ]
    names = (*(column.name for column in shown), *(f"{column.name} beside" for column in beside))
    return Table(title="", columns=names, rows=tuple(rows))


def _same_load(rung: Rung, other: BenchRun) -> Rung | None:
    same = [one for one in other.rungs if (one.concurrency, one.rate) == (rung.concurrency, rung.rate)]
    return same[-1] if same else None


def _table_notes(run: BenchRun) -> list[str]:
    """What the names of the columns do not say."""
    notes = ["Latencies in ms but e2e, which is in s; p50, p95, p99 are of all good requests."]
    if any(rung.rate is not None for rung in run.rungs):
        notes.append("Latencies count from the moment a request was due, not from when it could be sent.")
    if any(rung.itl_is_estimated for rung in run.rungs):
        several = max((rung.tokens_per_event or 1.0 for rung in run.rungs), default=1.0)
        notes.append(
            f"itl is estimated: the server sends up to {several:.1f} tokens in one event, and only events "
            "have a time."
        )
    if any(rung.tokens_counted != "usage" for rung in run.rungs):
        notes.append("The server told no usage for some answers: their tokens are counted by events.")
    return notes


def _errors(rung: Rung) -> Cell:
    return sum(rung.errors.values())


def _goodput(rung: Rung) -> Cell:
    return None if rung.goodput_per_s is None else round(rung.goodput_per_s, 2)


def _within(rung: Rung) -> Cell:
    return None if rung.within_slo is None else ("yes" if rung.within_slo else "no")


def _in_ms(read: Callable[[Rung], Distribution | None], figure: str) -> Callable[[Rung], Cell]:
    def cell(rung: Rung) -> Cell:
        found = read(rung)
        return None if found is None else _rounded(1000 * getattr(found, figure))

    return cell


def _e2e(figure: str) -> Callable[[Rung], Cell]:
    def cell(rung: Rung) -> Cell:
        return None if rung.e2e is None else _rounded(getattr(rung.e2e, figure))

    return cell


def _queued(rung: Rung) -> Cell:
    """Waiting worth a column: 1 ms and more."""
    return None if rung.queued is None or rung.queued.p99 < 0.001 else _rounded(1000 * rung.queued.p99)


def _per_stream(rung: Rung) -> Cell:
    total, streams = throughput(rung), rung.mean_running or rung.concurrency
    return None if total is None or not streams else _rounded(total / streams)


def _rounded(value: float) -> float:
    """Three significant digits and more, as a column of figures has them."""
    return round(value, 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0)


def _optional(read: Callable[[Rung], float | None]) -> Callable[[Rung], Cell]:
    def cell(rung: Rung) -> Cell:
        value = read(rung)
        return None if value is None else float(f"{value:.4g}")

    return cell


_TOKENS = _Column(name="tokens/s", read=_optional(throughput), is_always=True)
_TTFT = _Column(name="ttft p95", read=_in_ms(lambda rung: rung.ttft, "p95"), is_always=True)
_ITL = _Column(name="itl mean", read=_in_ms(lambda rung: rung.itl, "mean"))
_SPEEDS = (
    _Column(name="load", read=load_text, is_always=True),
    _Column(name="requests", read=lambda rung: rung.requests, is_always=True),
    _Column(name="errors", read=_errors, is_always=True),
    _TOKENS,
    _Column(name="per stream", read=_per_stream),
    _Column(name="requests/s", read=_optional(lambda rung: rung.requests_per_s)),
    _Column(name="good/s", read=_goodput),
    _Column(name="in SLO", read=_within),
    _Column(name="J/token", read=_optional(lambda rung: rung.joules_per_token)),
    _Column(name="cost/M tokens", read=_optional(lambda rung: rung.cost_per_million_tokens)),
)
_TIMES = (
    _Column(name="ttft p50", read=_in_ms(lambda rung: rung.ttft, "p50"), is_always=True),
    _TTFT,
    _Column(name="ttft p99", read=_in_ms(lambda rung: rung.ttft, "p99"), is_always=True),
    _ITL,
    _Column(name="itl p99", read=_in_ms(lambda rung: rung.itl, "p99")),
    _Column(name="tpot p50", read=_in_ms(lambda rung: rung.tpot, "p50")),
    _Column(name="e2e p50", read=_e2e("p50"), is_always=True),
    _Column(name="e2e p99", read=_e2e("p99"), is_always=True),
    _Column(name="queued p99", read=_queued),
)
_BESIDE = (_TOKENS, _TTFT, _ITL)


def _plot(run: BenchRun, beside: BenchRun | None, style: TextStyle) -> str:
    points = [*_points(run, is_other=False), *(_points(beside, is_other=True) if beside else [])]
    return plot(
        points,
        width=min(style.width, _WIDEST_TEXT),
        x_title="output tokens per second; o: this run, x: the one beside"
        if beside
        else "output tokens per second",
        y_title="seconds per request, median",
        is_ascii=style.is_ascii,
    )


def _points(run: BenchRun, *, is_other: bool) -> list[Point]:
    return [
        Point(x=total, y=rung.e2e.p50, label=load_text(rung), is_other=is_other)
        for rung in sorted(run.rungs, key=lambda one: one.concurrency or one.rate or 0)
        if (total := throughput(rung)) is not None and rung.e2e is not None
    ]


def _finding(finding: Finding, style: TextStyle) -> list[str]:
    mark = _styled(f"{MARKS[finding.severity]} {finding.severity.value}", _STYLES[finding.severity], style)
    lines = [f"{mark}  {_styled(finding.id, _BOLD, style)}"]
    labelled = (
        ("", finding.summary),
        ("wanted: ", finding.expected),
        ("why: ", finding.explanation),
        ("do: ", finding.action),
        ("measure: ", finding.next_measurement),
    )
    for label, text in labelled:
        if text:
            lines += _wrapped(f"{label}{text}", style, indent="    ")
    for one in finding.evidence if style.show_all else finding.evidence[:2]:
        lines += _wrapped(f"{one.source}: {' '.join(one.text.split())}", style, indent="    ")
    return lines


def _notes(run: BenchRun, style: TextStyle) -> str:
    lines = _wrapped(instrument_words(run), style)
    for note in run.notes:
        lines += _wrapped(note, style)
    if not run.is_complete:
        lines += _wrapped(interrupted_words(run), style)
    return "\n".join(lines) + "\n"


def _wrapped(text: str, style: TextStyle, *, indent: str = "") -> list[str]:
    room = max(len(indent) + 12, min(style.width, _WIDEST_TEXT))
    return textwrap.wrap(
        visible(text),
        room,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _styled(text: str, code: str, style: TextStyle) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if style.has_color and text else text
