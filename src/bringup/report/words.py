"""How a severity and a cell are written, in every format: readable without colour."""

import re

from bringup.values.finding import Severity
from bringup.values.report import Cell

MARKS = {
    Severity.OK: "+",
    Severity.NOTE: "i",
    Severity.UNKNOWN: "?",
    Severity.WARNING: "!",
    Severity.FAILURE: "x",
}


def cell_text(cell: Cell) -> str:
    """A cell as text: thousands marked, four significant figures, a dash for what is not known.

    >>> cell_text(131072), cell_text(36.68412), cell_text(None), cell_text("P0")
    ('131,072', '36.68', '-', 'P0')
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 10_000 else f"{cell:,.0f}"
    return visible(cell)


# Controls (C0 but newline, DEL, C1), line separators, bidirectional marks, zero-width characters.
_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""`text` with whatever could steer a terminal or hide written out: shown, not obeyed.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
