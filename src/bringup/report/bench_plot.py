"""Throughput against latency as a plot of characters, in 20 to 200 columns. Pure."""

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_NARROWEST, _WIDEST = 20, 200
_HEIGHT = 11
_LOW_HEIGHT = 7  # of a narrow terminal
_LOG_FROM = 20.0  # most over least, from which on the smaller ones would lie on one line
_MARKS = ("●", "·", "│", "└", "─", "┤", "┬")
_ASCII_MARKS = ("o", ".", "|", "+", "-", "+", "+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One load: where it lies, and what it is called."""

    x: float
    y: float
    label: str  # "64"
    is_other: bool = False  # of the run that stands beside


def plot(
    points: Sequence[Point],
    *,
    width: int,
    x_title: str,
    y_title: str,
    is_ascii: bool = False,
) -> str:
    """The points as lines of at most `width` columns, joined in their order; empty of fewer than two.

    The y axis is logarithmic where the latencies differ much, and says so.
    """
    shown = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y) and point.y > 0]
    if len(shown) < 2:
        return ""
    width = min(_WIDEST, max(_NARROWEST, width))
    marks = _ASCII_MARKS if is_ascii else _MARKS
    ys = [point.y for point in shown]
    is_log = max(ys) / min(ys) > _LOG_FROM
    scale = _Scale(shown, is_log=is_log, width=width)
    canvas = _Canvas(scale.columns, scale.rows)
    for others in (True, False):
        _draw(canvas, scale, [point for point in shown if point.is_other is others], marks)
    title = f"{y_title}, logarithmic" if is_log else y_title
    lines = [*textwrap.wrap(title, width), *_rows(canvas, scale, marks), *_x_axis(scale, marks)]
    lines += [part.rjust(width) for part in textwrap.wrap(x_title, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


class _Scale:
    """Where a point lies on the canvas."""

    def __init__(self, points: Sequence[Point], *, is_log: bool, width: int) -> None:
        xs, ys = [point.x for point in points], [point.y for point in points]
        self.is_log = is_log
        self.low_x, self.high_x = min(0.0, *xs), max(xs)
        self.low_y = min(ys) if is_log else 0.0
        self.high_y = max(ys)
        self.rows = _LOW_HEIGHT if width < 50 else _HEIGHT
        self.ticks = {row: figure(self.value(row)) for row in (0, self.rows // 2, self.rows - 1)}
        self.margin = max(map(len, self.ticks.values())) + 2
        self.columns = max(4, width - self.margin)

    def column(self, x: float) -> int:
        return round((x - self.low_x) / ((self.high_x - self.low_x) or 1.0) * (self.columns - 1))

    def row(self, y: float) -> int:
        low, high = self._of(self.low_y), self._of(self.high_y)
        return round((high - self._of(y)) / ((high - low) or 1.0) * (self.rows - 1))

    def value(self, row: int) -> float:
        low, high = self._of(self.low_y), self._of(self.high_y)
        at = low + (high - low) * (self.rows - 1 - row) / (self.rows - 1)
        return math.exp(at) if self.is_log else at

    def _of(self, y: float) -> float:
        return math.log(y) if self.is_log else y


class _Canvas:
    """Characters by row and column."""

    def __init__(self, columns: int, rows: int) -> None:
        self.lines = [[" "] * columns for _ in range(rows)]
        self.columns = columns

    def put(self, row: int, column: int, character: str, *, over: str = " ") -> None:
        if 0 <= column < self.columns and self.lines[row][column] in over:
            self.lines[row][column] = character

    def label(self, row: int, column: int, text: str) -> None:
        """`text` beside a point, where there is room for the whole of it."""
        for start in (column + 2, column - 1 - len(text)):
            end = start + len(text)
            free = self.lines[row][max(0, start - 1) : end + 1]
            if start >= 0 and end <= self.columns and all(one in " ·." for one in free[1 : len(text) + 1]):
                self.lines[row][start:end] = text
                return


def _draw(canvas: _Canvas, scale: _Scale, points: Sequence[Point], marks: Sequence[str]) -> None:
    places = [(scale.row(point.y), scale.column(point.x)) for point in points]
    for (row, column), (to_row, to_column) in itertools.pairwise(places):
        steps = max(abs(to_column - column), abs(to_row - row))
        for step in range(1, steps):
            at = step / steps
            canvas.put(round(row + (to_row - row) * at), round(column + (to_column - column) * at), marks[1])
    for (row, column), point in zip(places, points, strict=True):
        canvas.put(row, column, "x" if point.is_other else marks[0], over=f" {marks[1]}x")
    for (row, column), point in zip(places, points, strict=True):
        canvas.label(row, column, point.label)


def _rows(canvas: _Canvas, scale: _Scale, marks: Sequence[str]) -> list[str]:
    room = scale.margin - 2
    return [
        f"{scale.ticks.get(row, ''):>{room}} {marks[5] if row in scale.ticks else marks[2]}{''.join(line)}"
        for row, line in enumerate(canvas.lines)
    ]


def _x_axis(scale: _Scale, marks: Sequence[str]) -> list[str]:
    """The axis and its figures. A figure that has no room is left out, never cut."""
    line = [marks[4]] * scale.columns
    figures = [" "] * (scale.margin + scale.columns)
    free_from = 0
    ends = (scale.columns - 1, 0, (scale.columns - 1) // 2)
    placed: list[tuple[int, int]] = []
    for column in ends:
        at = scale.low_x + (scale.high_x - scale.low_x) * column / (scale.columns - 1)
        text = figure(at)
        start = min(max(0, scale.margin + column - len(text) // 2), len(figures) - len(text))
        if start < free_from or any(
            start < end + 2 and start + len(text) + 2 > begin for begin, end in placed
        ):
            continue
        placed.append((start, start + len(text)))
        figures[start : start + len(text)] = text
        line[column] = marks[6]
    return [f"{' ' * (scale.margin - 1)}{marks[3]}{''.join(line)}", "".join(figures)]


def figure(value: float) -> str:
    """A figure of an axis: three significant digits, thousands marked, never an exponent.

    >>> figure(1234.5), figure(61.24), figure(0.05123), figure(0)
    ('1,234', '61.2', '0.0512', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
