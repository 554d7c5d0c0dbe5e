"""A report for a terminal, and the same as an SVG picture. The only module that knows rich."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from bringup.report.words import MARKS, cell_text, visible
from bringup.values.finding import WORST_FIRST, Finding, Severity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from bringup.values.report import Cell, Report, Table

STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.UNKNOWN: "magenta",
    Severity.WARNING: "yellow",
    Severity.FAILURE: "bold red",
}
_NARROWEST_TEXT = 16  # a column of words below this width is a column of syllables
SVG_WIDTH = 100  # columns of the picture

# Fonts are named, not fetched: the picture must look right on a machine without a network.
_SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def render_text(report: Report, *, width: int, color: bool, show_all: bool = False) -> str:
    """The report in `width` columns; with `show_all` also the findings that are fine, and every table."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
    )
    _print(console, report, show_all=show_all)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def render_svg(report: Report, *, title: str, is_brief: bool = False) -> str:
    """The report as a picture of a terminal, without any outside reference; brief: a line per finding."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=SVG_WIDTH, record=True, force_terminal=True, highlight=False, emoji=False
    )
    _print(console, report, show_all=False, is_brief=is_brief)
    return console.export_svg(title=title, code_format=_SVG, unique_id="bringup")


def _print(console: Console, report: Report, *, show_all: bool, is_brief: bool = False) -> None:
    from rich.text import Text

    worst = report.findings[0].severity if report.findings else Severity.OK
    title = (visible(report.title), "bold")
    console.print(Text.assemble((f"{report.verdict}", f"bold {STYLES[worst]}"), "   ", title))
    console.print(Text(visible(report.paragraph)))
    shown = [one for one in report.findings if show_all or one.severity is not Severity.OK]
    if shown:
        console.print()
        console.print(Text("Findings", style="bold"))
        for finding in sorted(shown, key=lambda one: WORST_FIRST.index(one.severity)):
            console.print(_head(finding) if is_brief else _finding(finding))
    for table in report.tables:
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(_table(table, console.width))
        if table.note:
            console.print(Text(table.note, style="dim"))


def _head(finding: Finding) -> Text:
    """Severity, id and what was found."""
    from rich.text import Text

    severity = (f"{MARKS[finding.severity]} {finding.severity.value}", STYLES[finding.severity])
    return Text.assemble(severity, "  ", (finding.id, "bold"), "  ", visible(finding.summary))


def _finding(finding: Finding) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    labelled = (
        ("wanted", finding.expected),
        ("why", finding.explanation),
        ("do", finding.action),
        ("measure", finding.next_measurement),
    )
    details = [Text.assemble((f"{label}: ", "dim"), visible(text)) for label, text in labelled if text]
    details += [
        Text.assemble((f"{one.source}: ", "dim"), (_one_line(one.text), "italic")) for one in finding.evidence
    ]
    return Group(_head(finding), *(Padding(detail, (0, 0, 0, 4)) for detail in details))


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _table(table: Table, width: int) -> RenderableType:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    cells = [[cell_text(cell) for cell in row] for row in table.rows]
    columns = [tuple(row[number] for row in table.rows) for number in range(len(table.columns))]
    wraps = [_wraps(values) for values in columns]
    if _needed(table, cells, wraps) > width:
        return _stacked(table, cells)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, values, may_wrap in zip(table.columns, columns, wraps, strict=True):
        justify = "left" if _is_words(values) else "right"
        drawn.add_column(Text(name), no_wrap=not may_wrap, overflow="fold", justify=justify)
    for row in cells:
        styled = [Text(cell, style=_style_of(cell)) for cell in row]
        drawn.add_row(*styled)
    return drawn


def _style_of(cell: str) -> str:
    """Severities are coloured wherever they stand in a table."""
    return STYLES[Severity(cell)] if cell in set(Severity) else ""


def _is_words(values: tuple[Cell, ...]) -> bool:
    """Whether a column holds words, not figures with their units."""
    return any(isinstance(value, str) and not value[:1].isdigit() for value in values)


def _wraps(values: tuple[Cell, ...]) -> bool:
    """Whether a column may be broken over lines: sentences may, numbers and short words never."""
    long = (isinstance(value, str) and (" " in value or len(value) > _NARROWEST_TEXT) for value in values)
    return _is_words(values) and any(long)


def _needed(table: Table, cells: list[list[str]], wraps: list[bool]) -> int:
    """Columns of the terminal below which a number would be cut."""
    needed = 2 * len(table.columns)
    for column, may_wrap in enumerate(wraps):
        widest = max([len(table.columns[column]), *(len(row[column]) for row in cells)])
        needed += min(widest, _NARROWEST_TEXT) if may_wrap else widest
    return needed


def _stacked(table: Table, cells: list[list[str]]) -> RenderableType:
    """One block per row, a line per cell: for a terminal too narrow for the table."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text] = []
    for row in cells:
        for number, (name, cell) in enumerate(zip(table.columns, row, strict=True)):
            lines.append(
                Text.assemble(("- " if number == 0 else "  "), (f"{name}: ", "dim"), (cell, _style_of(cell)))
            )
    return Group(*lines)
