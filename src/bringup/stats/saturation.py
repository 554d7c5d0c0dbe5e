"""Which concurrency to measure next, and from which one on throughput no longer grows.

Concurrency doubles while throughput grows. Where doubling brings less than a few percent, and the intervals
leave no room for more, the place is narrowed down between the last load that was clearly below and the first
that was not. A rung in which the asked streams were not there, or in which Little's law N = X * R did not
hold, tells nothing of the server: it is measured once more, and if that does not help the search ends and
says so.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bringup.stats import steady
from bringup.stats.series import throughput_interval
from bringup.stats.step import Answer, Next
from bringup.values.bench import RungResult

_GROWTH = 0.05  # guess: what doubling must bring to count as growth, and how near to the peak counts as there
_CLOSE = 1.25  # guess: bounds this near to each other end the search
_THERE = 0.9  # of the asked streams, on average
_FAILED = 0.1  # guess: share of failed requests beyond which a throughput says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a search for saturation needs of one rung."""

    concurrency: int
    throughput: float  # output tokens per second
    half_width: float | None = None  # of its interval; None: not known
    is_steady: bool = True  # the asked streams were there and Little's law held
    failed_share: float = 0.0


def measured(result: RungResult) -> Measured | None:
    """`result` as a search sees it; `None` of an open loop, or when nothing was measured."""
    rung = result.rung
    interval = throughput_interval(result)
    throughput = interval.mean if interval is not None else rung.steady_output_tokens_per_s
    if throughput is None:
        throughput = rung.output_tokens_per_s or 0.0
    if rung.concurrency is None or not rung.requests:
        return None
    was_there = rung.mean_running is None or rung.mean_running >= _THERE * rung.concurrency
    return Measured(
        concurrency=rung.concurrency,
        throughput=throughput,
        half_width=interval.half_width if interval is not None else None,
        is_steady=was_there and steady.holds(rung) is not False,
        failed_share=sum(rung.errors.values()) / rung.requests,
    )


def next_concurrency(tried: Sequence[Measured], *, start: int = 1, largest: int = 8192) -> Next | Answer:
    """The next concurrency to measure, or from which one on throughput no longer grows."""
    if not tried:
        return Next(load=start, why="the first")
    points = _pooled(tried)
    top = points[-1]
    if top.failed_share > _FAILED:
        why = f"{top.failed_share:.0%} of the requests failed at {top.concurrency} streams"
        return Answer(load=None, why=why, is_settled=False)
    unsteady = _unsteady(points, tried)
    if unsteady is not None:
        return unsteady
    return _refined(points) if _is_flat(points) else _grown(points, largest)


def _grown(points: Sequence[Measured], largest: int) -> Next | Answer:
    top = points[-1]
    if top.concurrency >= largest:
        why = f"throughput still grew at {top.concurrency} streams, the most allowed"
        return Answer(load=None, why=why, is_settled=False)
    return Next(load=min(largest, top.concurrency * 2), why="throughput still grows, or may")


def _refined(points: Sequence[Measured]) -> Next | Answer:
    """Between the last concurrency that is below the peak and the first that reaches it."""
    peak = max(point.throughput for point in points)
    enough = (1 - _GROWTH) * peak
    high = next(number for number, point in enumerate(points) if point.throughput >= enough)
    above = points[high].concurrency
    below = points[high - 1].concurrency if high else 0
    if high == 0 or above - below <= 1 or above <= below * _CLOSE:
        why = f"{points[high].throughput:,.0f} of at most {peak:,.0f} tokens/s"
        return Answer(load=above, why=why)
    middle = min(above - 1, max(below + 1, round(math.sqrt(below * above))))
    return Next(load=middle, why=f"throughput stops growing between {below} and {above} streams")


def _is_flat(points: Sequence[Measured]) -> bool:
    """Whether doubling clearly brought nothing, or twice in a row nothing was seen of it."""
    rises = [
        (_rise(low, high, high.throughput - low.throughput), _rise(low, high, _most_rise(low, high)))
        for low, high in itertools.pairwise(points)
    ]
    if any(most <= _GROWTH for _, most in rises):
        return True
    flat = [rise <= _GROWTH for rise, _ in rises]
    return any(first and second for first, second in itertools.pairwise(flat))


def _rise(low: Measured, high: Measured, difference: float) -> float:
    """`difference` as a share, per doubling."""
    if not low.throughput:
        return math.inf
    return difference / low.throughput / max(1.0, math.log2(high.concurrency / low.concurrency))


def _most_rise(low: Measured, high: Measured) -> float:
    if low.half_width is None or high.half_width is None:
        return math.inf
    return high.throughput - low.throughput + math.hypot(low.half_width, high.half_width)


def _unsteady(points: Sequence[Measured], tried: Sequence[Measured]) -> Next | Answer | None:
    """Once more what was not steady; the end when it was not steady again."""
    for point in points:
        if point.is_steady:
            continue
        if sum(one.concurrency == point.concurrency for one in tried) == 1:
            return Next(load=point.concurrency, why="once more: the load was not steady")
        why = f"at {point.concurrency} streams the load never became steady"
        return Answer(load=None, why=why, is_settled=False)
    return None


def _pooled(tried: Sequence[Measured]) -> list[Measured]:
    """One point per concurrency, ascending; of repeats the mean of those that were steady, if any was."""
    by_load: dict[int, list[Measured]] = {}
    for one in tried:
        by_load.setdefault(one.concurrency, []).append(one)
    return [_mean_of(by_load[concurrency]) for concurrency in sorted(by_load)]


def _mean_of(repeats: Sequence[Measured]) -> Measured:
    sound = [one for one in repeats if one.is_steady] or list(repeats)
    widths = [one.half_width for one in sound if one.half_width is not None]
    return Measured(
        concurrency=sound[0].concurrency,
        throughput=sum(one.throughput for one in sound) / len(sound),
        half_width=math.hypot(*widths) / len(sound) if len(widths) == len(sound) else None,
        is_steady=sound[0].is_steady,
        failed_share=max(one.failed_share for one in sound),
    )
