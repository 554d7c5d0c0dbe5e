"""Two results of `bench` beside each other: what differs, by how much, and how sure that is."""

import dataclasses
import json
import textwrap

from bringup.report.bench import TextStyle
from bringup.report.columns import table_lines
from bringup.report.words import visible
from bringup.stats.compare import Comparison, Difference, RungComparison
from bringup.stats.load_words import load_words
from bringup.values.bench import BenchRun, Rung
from bringup.values.report import Cell, Table

SCHEMA = "bringup/bench-comparison/1"
_BETTER, _WORSE = "better", "worse"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two runs, and what differs between them."""

    before: BenchRun
    after: BenchRun
    before_name: str
    after_name: str
    comparison: Comparison


def is_worse(comparison: Comparison) -> bool:
    """Whether some figure is shown to have become worse."""
    return any(one.is_better is False for rung in comparison.rungs for one in rung.differences)


def render_comparison_text(sides: Sides, style: TextStyle) -> str:
    """The verdict, what is unlike in how they were measured, and a table for each load."""
    comparison = sides.comparison
    lines = [*_wrapped(_verdict(comparison), style)]
    for note in (*unlike(sides.before, sides.after), *_left_out(sides)):
        lines += _wrapped(note, style)
    for rung in comparison.rungs:
        lines += ["", *_rung(rung, style)]
    if not comparison.rungs:
        lines += _wrapped("The two runs have no load in common.", style)
    if comparison.judged:
        lines += [""]
        lines += _wrapped(
            f"Intervals hold {100 * comparison.confidence:g} % of what chance within the two runs makes; of "
            f"{comparison.judged} figures about {comparison.by_chance:.0f} would be shown to differ though "
            "nothing does. What changes from run to run only repeated runs show.",
            style,
        )
    return "\n".join(lines) + "\n"


def render_comparison_json(sides: Sides) -> str:
    """The same as one JSON object, schema `bringup/bench-comparison/1`."""
    body = {
        "schema": SCHEMA,
        "before": {"name": sides.before_name, "url": sides.before.url, "model": sides.before.model},
        "after": {"name": sides.after_name, "url": sides.after.url, "model": sides.after.model},
        "unlike": list(unlike(sides.before, sides.after)),
        **dataclasses.asdict(sides.comparison),
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def unlike(before: BenchRun, after: BenchRun) -> tuple[str, ...]:
    """What was not the same in how the two were measured, in words: a difference may come from that."""
    named = (
        ("model", before.model, after.model),
        ("engine", _engine(before), _engine(after)),
        ("server", before.url, after.url),
        ("workload", before.workload, after.workload),
    )
    return tuple(f"{name}: {one}, then {other}" for name, one, other in named if one != other)


def _engine(run: BenchRun) -> str:
    return f"{run.engine or 'unknown'} {run.engine_version or ''}".strip()


def _verdict(comparison: Comparison) -> str:
    shown = [one for rung in comparison.rungs for one in rung.differences if one.is_better is not None]
    better, worse = sum(one.is_better is True for one in shown), sum(one.is_better is False for one in shown)
    if not comparison.judged:
        return "Not known: the records do not settle whether anything differs. Keep them with `-o FILE`."
    if not shown:
        return f"No difference shown in {comparison.judged} figures."
    return f"{better} figures are better, {worse} are worse, of {comparison.judged} that could be judged."


def _left_out(sides: Sides) -> list[str]:
    comparison = sides.comparison
    pairs = (
        (sides.before_name, comparison.only_before),
        (sides.after_name, comparison.only_after),
    )
    return [f"only in {name}: {', '.join(loads)}" for name, loads in pairs if loads]


def _rung(rung: RungComparison, style: TextStyle) -> list[str]:
    from_load = Rung(concurrency=rung.concurrency, rate=rung.rate)
    title = load_words(from_load)
    rows = tuple(_row(one) for one in rung.differences)
    columns = ("figure", "before", "after", "unit", "change", "between", "verdict")
    return [title, *table_lines(Table(title=title, columns=columns, rows=rows), width=style.width)]


def _row(one: Difference) -> tuple[Cell, ...]:
    scale, unit = (1000.0, "ms") if one.unit == "s" else (1.0, one.unit)
    low, high = one.change_low, one.change_high
    between = f"{100 * low:+.1f} to {100 * high:+.1f} %" if low is not None and high is not None else None
    tone = {True: f", {_BETTER}", False: f", {_WORSE}", None: ""}[one.is_better]
    return (
        one.figure,
        None if one.before is None else _figure(one.before * scale),
        None if one.after is None else _figure(one.after * scale),
        unit,
        None if one.change is None else f"{100 * one.change:+.1f} %",
        between,
        f"{one.verdict}{tone}",
    )


def _figure(value: float) -> float:
    return float(f"{value:.4g}")


def _wrapped(text: str, style: TextStyle) -> list[str]:
    return textwrap.wrap(visible(text), min(style.width, 100), break_long_words=False, break_on_hyphens=False)
