"""The time of a rung in which the asked load was really there, and what was done in it.

A closed loop ramps up to its streams and at the end drains; an open loop begins with an empty server. Figures
over the whole wall time hold both ends and so read low; these hold neither.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bringup.stats.latency import starts
from bringup.values.bench import GeneratorRun, RequestRecord

_BIN_NS = 100_000_000  # of `GeneratorRun.token_bins`
_FEWEST_BINS = 3  # guess: below that the cut ends of the window weigh more than its middle
_THERE = 0.95  # of the asked streams: one lost connection among many does not end the steady time
_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of a rung, nanoseconds after its start."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.begin) * _NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Little's law over a window: requests there on average, ended per second, and what these two imply."""

    running: float  # time average of the requests under way
    requests_per_s: float  # that ended inside
    implied: float | None  # requests per second times their mean stay; None when none ended


def whole(records: Sequence[RequestRecord]) -> Window | None:
    """From the first request that was due until the last one ended; `None` without requests."""
    if not records:
        return None
    return Window(begin=min(map(starts, records)), end=max(max(r.ended, r.sent) for r in records))


def most_open(records: Iterable[RequestRecord]) -> int:
    """Requests under way at the same time, at most."""
    return max((open_now for _, open_now in _levels(records)), default=0)


def full_window(records: Sequence[RequestRecord], concurrency: int) -> Window | None:
    """From when `concurrency` requests were first under way until they no longer were; `None` if never."""
    wanted = max(1, -int(-concurrency * _THERE // 1))
    begin = end = None
    was_full = False
    for at, open_now in _levels(records):
        is_full = open_now >= wanted
        if is_full and begin is None:
            begin = at
        if was_full and not is_full:
            end = at
        was_full = is_full
    return None if begin is None or end is None or end <= begin else Window(begin=begin, end=end)


def arriving_window(records: Sequence[RequestRecord]) -> Window | None:
    """From one mean stay after the first arrival, when the server has filled, to the last arrival."""
    arrivals = sorted(map(starts, records))
    if len(arrivals) < 2:
        return None
    stay = sum(max(0, record.ended - starts(record)) for record in records) // len(records)
    begin = arrivals[0] + stay
    return Window(begin=begin, end=arrivals[-1]) if arrivals[-1] > begin else None


def flow(records: Iterable[RequestRecord], window: Window) -> Flow:
    """Requests there, and gone per second, within `window`."""
    there = 0
    stays: list[int] = []
    for record in records:
        there += max(0, min(record.ended, window.end) - max(record.sent, window.begin))
        if window.begin < record.ended <= window.end:
            stays.append(record.ended - record.sent)
    rate = len(stays) / window.seconds
    return Flow(
        running=there * _NS / window.seconds,
        requests_per_s=rate,
        implied=rate * sum(stays) / len(stays) * _NS if stays else None,
    )


def events_per_s(runs: Iterable[GeneratorRun], window: Window) -> float | None:
    """Events per second of all generators in the whole tenths of a second inside `window`.

    `None` when the window holds too few of them.
    """
    bins: Counter[int] = Counter()
    for run in runs:
        bins.update(run.token_bins)
    first = -(-window.begin // _BIN_NS)
    past = window.end // _BIN_NS
    if past - first < _FEWEST_BINS or not bins:
        return None
    return _sum_between(bins, first, past) / ((past - first) * _BIN_NS * _NS)


def _sum_between(bins: Mapping[int, int], first: int, past: int) -> int:
    return sum(events for tenth, events in bins.items() if first <= tenth < past)


def _levels(records: Iterable[RequestRecord]) -> Iterable[tuple[int, int]]:
    """Times in order, each with the requests under way from then on. At one time ends come before starts."""
    changes: Counter[int] = Counter()
    for record in records:
        changes[record.sent] += 1
        changes[max(record.ended, record.sent)] -= 1
    open_now = 0
    for at in sorted(changes):
        open_now += changes[at]
        yield at, open_now
