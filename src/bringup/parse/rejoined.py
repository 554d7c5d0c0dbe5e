r"""A log whose lines terminals, forms or wrappers broke and quoted anew, read as it was written.

Terminals break at a fixed column, within a word; forms break between words; programs that pass a message on
put it between quotes of their own and write its line ends as `\n`. The first reading of a log takes lines as
they stand; this is the second one, of logs that the first could not explain.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bringup.parse.log_line import read_line
from bringup.parse.traceback import is_error

_COLOUR = re.compile(r"(?:\x1b|\^\[|#033)\[[0-9;?]*[A-Za-z]")
_NARROWEST, _WIDEST = 40, 400  # columns of terminals and forms
_SHORTEST = 30  # of a line that is broken for its length
_IN_CELL = "\x1f"  # before a row that goes on with the cell above
_OFTEN = 2  # lines of the same greatest width show a terminal's edge
_MOST_JOINED = 20  # lines of one message
_MANY = 100  # lines, of which in a log some begin something
_NEARLY_ALL = 0.8
_BEGINS = re.compile(  # what begins a line of its own, and goes on from none
    r"\s|Traceback \(most recent|During handling of|The above exception|File \"|[|+=\-#{}$@]|> |"
    r"\[?\d{4}-\d\d-\d\d|"
    r"(?:\[\w+ *\] ?|time=\S+ )?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\[[A-Z0-9]|"
    r"[a-z0-9]+(?:_[a-z0-9]+)+: |[IWEF]\d{4} \d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:|"
    r"[*•→✓✗] |\d+[.)] |raise \w|\(\w+ pid="
)
_OPEN_FRAME = re.compile(r"File \"[^\"]*$|File \"[^\"]+\", (?:line?)?$|File \"[^\"]+\", line \d+,?(?: in?)?$|"
                         r"File \"[^\"]+\",?$|File \"[^\"]+\", line \d+, in$")  # fmt: skip
_ENDS = re.compile(r"[.!?:{}\[\];|]$")
_GOES_ON = re.compile(r"[a-z(]")
_QUOTED = re.compile(
    r"\\?[\"`\u2018\u2019\u201c\u201d](?P<name>[\w.\-/+:]{1,80})\\?[\"`\u2018\u2019\u201c\u201d]"
)
_FRAME = re.compile(r"File \\?\"")
_BOX = re.compile(r"^\s*[│┃|] ?(?P<inside>.*?)\s*[│┃|]\s*$")
_BOX_EDGE = re.compile(r"^\s*(?:\+[-=]{3,}[-=+]*\+|[╭╰┌└├┏┗][─━┬┴┼\s\w().]*[╮╯┐┘┤┓┛])\s*$")
_CELLS = re.compile(r"\s+[│┃|]\s+|\s+[│┃|]$")
_ESCAPED_END = re.compile(r"(?:\\r)?\\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """The text as it was written, and which lines of the input each of its lines was made of."""

    text: str
    lines: tuple[range, ...]  # numbers in the input, by line of the text
    is_wrapped: bool = False  # beyond doubt: what was cut is not worth a first reading


def rejoined(text: str) -> tuple[Rejoined, ...]:
    r"""The text with its lines put together again and its quotes alike, the likeliest way first.

    Whether a line that ends at the edge was cut within a word or between two, one such line does not tell.

    >>> [one.text for one in rejoined("ValueError: 64 is not divisible by\nblock_k, which it must be\n")]
    ['ValueError: 64 is not divisible by block_k, which it must be\n']
    >>> rejoined("INFO: up\n")
    ()
    """
    rows = [row.rstrip("\r") for row in text.split("\n")]
    if rows and not rows[-1]:
        rows.pop()
    if any(_BOX_EDGE.match(row) for row in rows):
        rows = _unboxed(rows)
    edge = _edge(rows)
    is_wrapped = _is_wrapped(rows, edge)
    if not is_wrapped:  # a terminal does not count what only colours
        rows = [_COLOUR.sub("", row) if "[" in row else row for row in rows]
        edge = _edge(rows)
        is_wrapped = _is_wrapped(rows, edge)
    if len(rows) > _MANY and sum(len(row) == edge for row in rows) > _NEARLY_ALL * len(rows):
        return ()  # a block of characters, no log
    found: dict[str, Rejoined] = {text if text.endswith("\n") else f"{text}\n": Rejoined(text=text, lines=())}
    for between in ("", " ") if is_wrapped else (" ", ""):
        one = _joined(rows, edge, between, is_wrapped=is_wrapped)
        found.setdefault(one.text, one)
        alike = _alike(one)
        found.setdefault(alike.text, alike)
    return tuple(found.values())[1:]


def _joined(rows: Sequence[str], edge: int, between: str, *, is_wrapped: bool) -> Rejoined:
    """The lines put together, those that end at the edge with `between` them."""
    joined: list[tuple[str, range]] = []
    for number, row in enumerate(rows, start=1):
        before, span = joined[-1] if joined else ("", range(0))
        glue = _glue(rows[number - 2], row, edge, is_wrapped=is_wrapped) if number > 1 else None
        if row.startswith(_IN_CELL) and span and len(span) < _MOST_JOINED:
            joined[-1] = (f"{before} {row[len(_IN_CELL) :]}", range(span.start, number + 1))
        elif glue is None or len(span) >= _MOST_JOINED:
            joined.append((row, range(number, number + 1)))
        elif len(rows[number - 2]) == edge:
            joined[-1] = (before + between + row, range(span.start, number + 1))
        else:
            joined[-1] = (before + glue + row.lstrip(), range(span.start, number + 1))
    return _rejoined(joined, is_wrapped=is_wrapped)


def _alike(one: Rejoined) -> Rejoined:
    """The same with one kind of quotes and with the lines within lines apart."""
    rows = zip(one.text.split("\n"), one.lines, strict=False)
    return _rejoined([(part, span) for row, span in rows for part in _parts(row)], is_wrapped=one.is_wrapped)


def _rejoined(rows: Sequence[tuple[str, range]], *, is_wrapped: bool) -> Rejoined:
    return Rejoined(
        text="".join(f"{row}\n" for row, _ in rows),
        lines=tuple(span for _, span in rows),
        is_wrapped=is_wrapped,
    )


def _unboxed(rows: Sequence[str]) -> list[str]:
    """The rows without the frames that terminals draw: of a table the last cell, which holds the message.

    A cell that goes on in further rows leaves the others empty; those of documents have no drawn edge.
    """
    found: list[str] = []
    is_inside = False
    for row in rows:
        box = _BOX.match(row)
        if box is None:
            is_inside = _BOX_EDGE.match(row) is not None
            found.append("" if is_inside else row)
            continue
        cells = [cell.strip() for cell in _CELLS.split(box["inside"])]
        goes_on = is_inside and len(cells) > 1 and not cells[0] and bool(cells[-1])
        found.append(
            _IN_CELL + cells[-1] if goes_on else (cells[-1] if is_inside or row.strip()[0] in "│┃" else row)
        )
    return found


def _edge(rows: Sequence[str]) -> int:
    """The column at which lines end; 0 where they are too short or too long for that."""
    widest = max((len(row) for row in rows), default=0)
    return widest if _NARROWEST <= widest <= _WIDEST else 0


def _is_wrapped(rows: Sequence[str], edge: int) -> bool:
    """Whether lines end at one column again and again and go on below."""
    if not edge:
        return False
    at_edge = [(row, after) for row, after in pairwise(rows) if len(row) == edge]
    on = sum(_glue(row, after, edge, is_wrapped=True) is not None for row, after in at_edge)
    return on >= _OFTEN and 2 * on >= len(at_edge)


def _glue(before: str, row: str, edge: int, *, is_wrapped: bool) -> str | None:
    """What stood between two lines that were one; None where they were two."""
    if not row or not before.strip():
        return None
    if len(before) == edge and is_wrapped:
        # A cut at the edge may leave anything at the beginning of the next line, but no whole prefix.
        return None if _has_prefix(row) or _begins_surely(row) else ""
    if _OPEN_FRAME.search(before) and not is_error(row) and not row.startswith((" ", "Traceback")):
        return " "
    at_edge = len(before) == edge
    if _begins(row[1:] if at_edge and row.startswith(" ") else row) or (before[0].isspace() and not at_edge):
        return None
    first = row.split(" ", 1)[0]
    has_no_room = edge > 0 and len(before) + 1 + len(first) > edge
    goes_on = len(before) >= _SHORTEST and _GOES_ON.match(row) is not None and _ENDS.search(before) is None
    return " " if has_no_room or goes_on else None


def _begins(row: str) -> bool:
    """Whether a line has the looks of one that begins something."""
    return _BEGINS.match(row) is not None or is_error(row) or _has_prefix(row)


def _begins_surely(row: str) -> bool:
    return row.startswith(("Traceback (", '  File "', "    ", "During handling", "|", "+-", "==")) or (
        is_error(row) and ": " in row
    )


def _has_prefix(row: str) -> bool:
    line = read_line(1, row)
    return line.time is not None or line.process is not None or line.text != row


def _parts(row: str) -> list[str]:
    r"""The lines within a line: a message passed on has its line ends written as `\n`."""
    if row.startswith("{"):  # a collector's: read as such
        return [row]
    if "\\n" in row and ("Error" in row or "Traceback" in row):
        return [_unquoted(part) for part in _ESCAPED_END.split(row) if part.strip()]
    return [_unquoted(row)]


def _unquoted(row: str) -> str:
    """Names between one kind of quotes; places of frames keep theirs."""
    if _FRAME.search(row):
        return row.replace('\\"', '"')
    return _QUOTED.sub(r"'\g<name>'", row)
