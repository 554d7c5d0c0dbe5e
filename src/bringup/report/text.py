"""A report for a terminal, and the same as an SVG picture. The only module that knows rich."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from bringup.report.words import MARKS, cell_text, visible
from bringup.units import bytes_text
from bringup.values.finding import WORST_FIRST, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console, RenderableType
    from rich.text import Text

    from bringup.values.report import Bar, Cell, Report, Table

STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.UNKNOWN: "magenta",
    Severity.WARNING: "yellow",
    Severity.FAILURE: "bold red",
}
# What stands for each part of a bar: a letter for those who see no colour, and a colour.
SYMBOLS = {
    "weights": ("W", "blue"),
    "KV cache": ("K", "green"),
    "states": ("S", "cyan"),
    "work space": ("+", "yellow"),
    "kept prompts": ("P", "cyan"),
    "program": ("+", "yellow"),
    "engine": ("E", "blue"),
    "another engine": ("e", "magenta"),
    "another process": ("o", "bold red"),
    "others": ("o", "magenta"),
    "unnamed": ("?", "magenta"),
    "reserved": ("r", "dim"),
    "free": (".", "dim"),
}
_OTHER_SYMBOL = ("#", "white")
_NARROWEST_BAR, _WIDEST_BAR = 10, 60
_SEEN = 0.002  # share of a bar below which a part is not drawn
_MOST_QUOTED = 2  # pieces of evidence, unless all is wanted
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
            is_named = finding.id.rpartition(".")[2] in report.verdict.split(", ")[1:]
            console.print(
                _head(finding) if is_brief else _finding(finding, is_whole=show_all, is_named=is_named)
            )
    if report.bars:
        console.print()
        for line in _bars(report.bars, console.width):
            console.print(line)
    folded = [table for table in report.tables if table.is_detail and not show_all]
    for table in report.tables:
        if table in folded:
            continue
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(_table(table, console.width))
        if table.note:
            console.print(Text(table.note, style="dim"))
    if folded:
        names = ", ".join(table.title for table in folded)
        console.print()
        console.print(Text(f"--all shows also: {names}", style="dim"))


def _head(finding: Finding) -> Text:
    """Severity, id and what was found."""
    from rich.text import Text

    severity = (f"{MARKS[finding.severity]} {finding.severity.value}", STYLES[finding.severity])
    return Text.assemble(severity, "  ", (finding.id, "bold"), "  ", visible(finding.summary))


def _finding(finding: Finding, *, is_whole: bool, is_named: bool) -> RenderableType:
    """A finding with what belongs to it; of a note, unless all is wanted, only what to do.

    Why is told as well where the verdict names it: that is what the reader came for.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    is_note = finding.severity is Severity.NOTE and not is_whole
    labelled = (
        ("wanted", "" if is_note else finding.expected),
        ("why", "" if is_note and not is_named else finding.explanation),
        ("do", "" if is_note and _is_nothing(finding.action) else finding.action),
        ("measure", finding.next_measurement),
    )
    details = [Text.assemble((f"{label}: ", "dim"), visible(text)) for label, text in labelled if text]
    quoted = () if is_note else finding.evidence if is_whole else finding.evidence[:_MOST_QUOTED]
    details += [Text.assemble((f"{one.source}: ", "dim"), (_one_line(one.text), "italic")) for one in quoted]
    return Group(_head(finding), *(Padding(detail, (0, 0, 0, 4)) for detail in details))


def _is_nothing(action: str) -> bool:
    return action.split(" ", maxsplit=1)[0].rstrip(",:;") in ("none", "nothing")


def _bars(bars: tuple[Bar, ...], width: int) -> Iterator[Text]:
    """One line per GPU, each part with a letter of its own, and what the letters mean."""
    from rich.text import Text

    drawn = [part for bar in bars for part in bar.segments if part.size > _SEEN * bar.total]
    names = list(dict.fromkeys(part.name for part in drawn))
    labels = max(len(bar.label) for bar in bars)
    notes = max(len(bar.note) for bar in bars)
    room = max(_NARROWEST_BAR, min(_WIDEST_BAR, width - labels - notes - 4))
    for bar in bars:
        sizes = [part.size for part in bar.segments]
        pieces: list[str | tuple[str, str]] = [f"{visible(bar.label):{labels}}  "]
        for part, count in zip(bar.segments, _columns(sizes, room), strict=True):
            letter, style = SYMBOLS.get(part.name, _OTHER_SYMBOL)
            pieces.append((letter * count, style))
        yield Text.assemble(*pieces, f"  {bar.note:>{notes}}")
    first = {part.name: part.size for part in bars[0].segments}
    yield from _legend(names, first, labels=labels, width=width)


def _legend(names: list[str], sizes: Mapping[str, int], *, labels: int, width: int) -> Iterator[Text]:
    """What the letters mean, with sizes; a line is broken between parts, not within one."""
    from rich.text import Text

    line = Text(" " * labels)
    for name in names:
        letter, style = SYMBOLS.get(name, _OTHER_SYMBOL)
        size = f" {bytes_text(sizes[name])}" if sizes.get(name) else ""
        part = Text.assemble("  ", (letter, style), f" {name}{size}")
        if len(line) > labels and len(line) + len(part) > width:
            yield line
            line = Text(" " * labels)
        line.append(part)
    yield line


def _columns(sizes: list[int], room: int) -> list[int]:
    """Columns of each part, in sum `room`; a part that is worth a look has one at least."""
    total = sum(sizes) or 1
    counts = [max(int(size > _SEEN * total), round(room * size / total)) for size in sizes]
    while counts and sum(counts) != room:
        step = 1 if sum(counts) < room else -1
        counts[max(range(len(counts)), key=counts.__getitem__)] += step
    return counts


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
