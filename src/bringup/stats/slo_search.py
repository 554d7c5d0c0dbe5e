"""The largest load within the limits: doubling until they break, then halving what lies between.

Whether a load keeps the limits is a count of requests and so partly chance. On the way the count decides as
it is. When the bounds have met, each is asked again where chance could have decided it (its Wilson interval
holds the wanted share), a few times at most; a bound that turns out the other way opens the search again.
The answer is the largest load with no smaller one that broke the limits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from bringup.stats.step import Answer, Next
from bringup.stats.tally import place
from bringup.values.bench import Rung, Slo

_MOST_REPEATS = 3  # measurements of one load
_CLOSE = 0.05  # bounds this near to each other, as a share, end the search
_LEAST_RATE = 1 / 64  # of the first rate: where nothing keeps the limits the search ends below it
_MOST_STEPS = 60  # far more than any search needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rung: how many of the requests that count kept every limit."""

    load: float
    kept: int
    asked: int


def trial(rung: Rung) -> Trial | None:
    """`rung` as a search sees it; `None` without limits or without a request that counts."""
    load = rung.concurrency if rung.concurrency is not None else rung.rate
    asked = rung.good + sum(rung.errors.values())
    if load is None or rung.in_slo is None or not asked:
        return None
    return Trial(load=load, kept=rung.in_slo, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched: whole streams or a rate, from where, up to where."""

    slo: Slo
    start: float = 1
    largest: float = 8192
    is_whole: bool = True  # streams; False: requests per second


def next_load(tried: Sequence[Trial], search: Search) -> Next | Answer:
    """The next load to measure, or the largest one within the limits."""
    if not tried:
        return Next(load=search.start, why="the first")
    points = _pooled(tried)
    if len(tried) >= _MOST_STEPS:
        kept = [point.load for point in points if _keeps(point, search)]
        return Answer(load=max(kept, default=None), why="the loads contradict each other", is_settled=False)
    broken = next((point for point in points if not _keeps(point, search)), None)
    within = [point for point in points if broken is None or point.load < broken.load]
    best = within[-1] if within else None
    if broken is None:
        return _upward(points[-1], tried, search)
    if best is None:
        return _downward(broken, tried, search)
    if not _have_met(best.load, broken.load, search):
        return Next(
            load=_between(best.load, broken.load, search),
            why=f"between {best.load:g} and {broken.load:g}",
        )
    again = _doubtful(best, tried, search) or _doubtful(broken, tried, search)
    return again or Answer(load=best.load, why=_why(best, broken))


def _upward(top: Trial, tried: Sequence[Trial], search: Search) -> Next | Answer:
    if top.load < search.largest:
        return Next(load=min(search.largest, top.load * 2), why="within the limits so far")
    again = _doubtful(top, tried, search)
    why = f"the largest load allowed keeps the limits ({_share(top):.1%} of the requests)"
    return again or Answer(load=top.load, why=why, is_settled=False)


def _downward(broken: Trial, tried: Sequence[Trial], search: Search) -> Next | Answer:
    least = 1 if search.is_whole else search.start * _LEAST_RATE
    if broken.load > least:
        half = max(least, broken.load / 2)
        return Next(load=math.floor(half) if search.is_whole else half, why="not within the limits so far")
    again = _doubtful(broken, tried, search)
    why = f"not even a load of {broken.load:g} keeps the limits ({_share(broken):.1%} of the requests)"
    return again or Answer(load=None, why=why)


def _doubtful(point: Trial, tried: Sequence[Trial], search: Search) -> Next | None:
    """The same load once more where chance could have decided it and it was not asked often enough."""
    low, high = wilson(point.kept, point.asked)
    times = sum(one.load == point.load for one in tried)
    if times >= _MOST_REPEATS or not low < search.slo.share < high:
        return None
    return Next(load=point.load, why="once more: chance could have decided it")


def wilson(kept: int, asked: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Bounds of a share of which `kept` of `asked` were seen, by Wilson's score.

    >>> [round(bound, 3) for bound in wilson(98, 100)]
    [0.93, 0.994]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = kept / asked
    middle = share + z * z / (2 * asked)
    reach = z * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked))
    scale = 1 + z * z / asked
    return (middle - reach) / scale, (middle + reach) / scale


def _have_met(best: float, broken: float, search: Search) -> bool:
    close = best * _CLOSE
    return broken - best <= (max(1.0, close) if search.is_whole else close)


def _between(best: float, broken: float, search: Search) -> float:
    middle = math.sqrt(best * broken)
    return min(broken - 1, max(best + 1, round(middle))) if search.is_whole else middle


def _keeps(point: Trial, search: Search) -> bool:
    return point.kept >= place(search.slo.share, point.asked)


def _share(point: Trial) -> float:
    return point.kept / point.asked


def _why(best: Trial, broken: Trial) -> str:
    return f"{_share(best):.1%} of the requests within the limits, {_share(broken):.1%} at {broken.load:g}"


def _pooled(tried: Sequence[Trial]) -> list[Trial]:
    """One trial per load, ascending, repeats added up."""
    by_load: dict[float, Trial] = {}
    for one in tried:
        before = by_load.get(one.load, Trial(load=one.load, kept=0, asked=0))
        by_load[one.load] = Trial(load=one.load, kept=before.kept + one.kept, asked=before.asked + one.asked)
    return [by_load[load] for load in sorted(by_load)]
