"""A table as lines of characters, without rich: for what must be there fast. No number is ever cut."""

import textwrap
from collections.abc import Sequence

from bringup.report.words import cell_text
from bringup.values.report import Cell, Table

_GAP = "  "


def table_lines(table: Table, *, width: int) -> list[str]:
    """Names, a rule and a line per row; where they do not fit `width`, a block per row.

    >>> table_lines(Table(title="", columns=("load", "tokens/s"), rows=((1, 84.31), (64, 1234.5))), width=40)
    ['load  tokens/s', '----  --------', '   1     84.31', '  64     1,234']
    """
    cells = [[cell_text(cell) for cell in row] for row in table.rows]
    widths = _widths(table)
    if not fits(table, width=width):
        return _blocks(table, cells, width)
    is_left = [_is_words([row[number] for row in table.rows]) for number in range(len(table.columns))]

    def line(row: Sequence[str]) -> str:
        placed = (
            cell.ljust(room) if left else cell.rjust(room)
            for cell, room, left in zip(row, widths, is_left, strict=True)
        )
        return _GAP.join(placed).rstrip()

    return [line(table.columns), _GAP.join("-" * room for room in widths), *map(line, cells)]


def fits(table: Table, *, width: int) -> bool:
    """Whether the table has room side by side."""
    widths = _widths(table)
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= width


def _widths(table: Table) -> list[int]:
    return [
        max([len(name), *(len(cell_text(row[number])) for row in table.rows)])
        for number, name in enumerate(table.columns)
    ]


def _is_words(cells: Sequence[Cell]) -> bool:
    """Whether a column holds words, not figures with their units."""
    return any(isinstance(cell, str) and not cell[:1].isdigit() for cell in cells)


def _blocks(table: Table, cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """One block per row, a line per cell: for a terminal too narrow for the table."""
    lines: list[str] = []
    for row in cells:
        for number, (name, cell) in enumerate(zip(table.columns, row, strict=True)):
            begin = "- " if number == 0 else "  "
            lines += textwrap.wrap(
                f"{name}: {cell}",
                max(width, 2 + len(cell)),
                initial_indent=begin,
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return lines
