"""Complete distributions of durations: built, merged, and read as quantiles.

Quantiles are nearest-rank, as of a sorted list: the share `q` of `n` values is the one at place
`ceil(q * n)`, counted from 1. Nothing is interpolated, so every quantile is a duration that occurred (from a
`Tally`: its whole microsecond, never beyond the least and the most).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from bringup.values.bench import Distribution, Tally

_NS = 1e9  # divided by, which rounds better than times 1e-9


def tally_of(durations: Iterable[int]) -> Tally:
    """Tally of `durations`, nanoseconds; a microsecond holds what lies from it up to the next one.

    >>> tally_of([1_999, 2_000, 2_001]).counts == {1: 1, 2: 2}
    True
    """
    values = list(durations)
    if not values:
        return Tally()
    return Tally(
        counts=dict(Counter(value // 1000 for value in values)),
        total_ns=sum(values),
        least_ns=min(values),
        most_ns=max(values),
    )


def merge(tallies: Iterable[Tally]) -> Tally:
    """One tally of all values of `tallies`, the same in whatever order and grouping they are merged."""
    counts: Counter[int] = Counter()
    total = 0
    least: list[int] = []
    most: list[int] = []
    for tally in tallies:
        counts.update(tally.counts)
        total += tally.total_ns
        least += [] if tally.least_ns is None else [tally.least_ns]
        most += [] if tally.most_ns is None else [tally.most_ns]
    return Tally(
        counts=dict(counts),
        total_ns=total,
        least_ns=min(least, default=None),
        most_ns=max(most, default=None),
    )


def count(tally: Tally) -> int:
    """How many durations `tally` holds."""
    return sum(tally.counts.values())


def mean_ns(tally: Tally) -> float | None:
    """Mean in nanoseconds; `None` of an empty tally."""
    held = count(tally)
    return tally.total_ns / held if held else None


def quantile_ns(tally: Tally, share: float) -> int | None:
    """The duration at `share` of all, in nanoseconds, to the microsecond; `None` of an empty tally.

    >>> quantile_ns(tally_of([5_000, 1_000, 9_000]), 0.5)
    5000
    """
    return next(iter(_quantiles_ns(tally, (share,))), None)


def distribution(tally: Tally) -> Distribution | None:
    """Figures of `tally`; `None` when nothing is in it."""
    held = count(tally)
    if not held or tally.least_ns is None or tally.most_ns is None:
        return None
    p50, p90, p95, p99 = _quantiles_ns(tally, (0.5, 0.9, 0.95, 0.99))
    return Distribution(
        count=held,
        mean=tally.total_ns / (held * _NS),
        p50=p50 / _NS,
        p90=p90 / _NS,
        p95=p95 / _NS,
        p99=p99 / _NS,
        max=tally.most_ns / _NS,
        min=tally.least_ns / _NS,
    )


def distribution_of(durations: Sequence[float]) -> Distribution | None:
    """Figures of `durations`, nanoseconds, exact; `None` when there are none.

    >>> distribution_of([2_000_000_000, 1_000_000_000]).p50
    1.0
    """
    if not durations:
        return None
    ordered = sorted(durations)
    held = len(ordered)
    p50, p90, p95, p99 = (ordered[place(share, held) - 1] / _NS for share in (0.5, 0.9, 0.95, 0.99))
    return Distribution(
        count=held,
        mean=sum(ordered) / (held * _NS),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=ordered[-1] / _NS,
        min=ordered[0] / _NS,
    )


def scaled(figures: Distribution, factor: float, *, held: int) -> Distribution:
    """`figures` with every duration multiplied by `factor`, as if of `held` values."""
    return Distribution(
        count=held,
        mean=figures.mean * factor,
        p50=figures.p50 * factor,
        p90=figures.p90 * factor,
        p95=figures.p95 * factor,
        p99=figures.p99 * factor,
        max=figures.max * factor,
        min=figures.min * factor,
    )


def place(share: float, held: int) -> int:
    """1-based place of the nearest-rank quantile among `held` sorted values.

    The share counts as the decimal number that it is written as: 0.07 of 100 is place 7, although the
    product of the two binary numbers is a little more than 7.

    >>> place(0.5, 3), place(0.99, 100), place(0.07, 100), place(0.0, 5)
    (2, 99, 7, 1)
    """
    exact = Fraction(str(share)) * held
    return min(held, max(1, -(-exact.numerator // exact.denominator)))


def _quantiles_ns(tally: Tally, shares: Sequence[float]) -> list[int]:
    """Values at ascending `shares`, in one pass; empty for an empty tally."""
    held = count(tally)
    if not held:
        return []
    return [_clamped(tally, value * 1000) for value in _walk(tally.counts, [place(s, held) for s in shares])]


def _walk(counts: Mapping[int, int], places: Sequence[int]) -> Iterable[int]:
    """The values at ascending 1-based `places` of the sorted values."""
    waiting = list(reversed(places))
    passed = 0
    for value in sorted(counts):
        passed += counts[value]
        while waiting and waiting[-1] <= passed:
            waiting.pop()
            yield value


def _clamped(tally: Tally, value: int) -> int:
    least = value if tally.least_ns is None else max(tally.least_ns, value)
    return least if tally.most_ns is None else min(tally.most_ns, least)
