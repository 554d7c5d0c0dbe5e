"""The time of a rung in which the asked load was really there, and what was done in it.

A closed loop ramps up to its streams and at the end drains; an open loop begins with an empty server. Figures
over the whole wall time hold both ends and so read low; these hold neither.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bringup.stats.latency import GOOD, outcome, starts, tokens
from bringup.values.bench import GeneratorRun, RequestRecord, Rung

TENTH_NS = 100_000_000  # of `GeneratorRun.token_bins`
_SHORTEST = 300_000_000  # guess: in less the ends of the window weigh more than its middle
_THERE = 0.95  # of the asked streams: one lost connection among many does not end the steady time
_LITTLE = 0.1  # guess: the share by which N and X * R may differ
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of a rung, nanoseconds after its start."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.begin) / _NS


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


def asked_window(records: Sequence[RequestRecord], concurrency: int | None) -> Window | None:
    """The time in which the asked load was there: a closed loop's concurrency, else the arrivals."""
    return arriving_window(records) if concurrency is None else full_window(records, concurrency)


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
        running=there / _NS / window.seconds,
        requests_per_s=rate,
        implied=rate * sum(stays) / len(stays) / _NS if stays else None,
    )


def holds(rung: Rung) -> bool | None:
    """Whether Little's law N = X * R holds over the steady time of `rung`; `None` where it is not known.

    It holds for every load that neither grows nor shrinks. Requests cut by the ends of the window are
    missing from X or R, about one mean stay's worth, and few requests scatter: both are allowed for.
    """
    if rung.mean_running is None or rung.little_running is None or not rung.steady_s:
        return None
    stay = rung.e2e.mean if rung.e2e is not None else 0.0
    ended = (rung.steady_requests_per_s or 0.0) * rung.steady_s
    allowed = _LITTLE + stay / rung.steady_s + 2 / math.sqrt(max(1.0, ended))
    return abs(rung.little_running - rung.mean_running) <= allowed * max(rung.mean_running, 1.0)


def tokens_per_s(records: Iterable[RequestRecord], window: Window, *, per_event: float) -> float | None:
    """Output tokens per second inside `window`; `None` when it is too short to say.

    Of a request that reaches over an end of the window the part inside counts, as if its tokens had come
    evenly after the first. What failed or was hung up on was served too: it counts by its events.
    """
    if window.end - window.begin < _SHORTEST:
        return None
    # `fsum`: the same sum in whatever order the generators' records come.
    return math.fsum(_tokens_inside(record, window, per_event) for record in records) / window.seconds


def _tokens_inside(record: RequestRecord, window: Window, per_event: float) -> float:
    if record.first is None or record.last is None:
        return 0.0
    all_of_it = tokens(record) if outcome(record) == GOOD else record.events * per_event
    first = min(record.first_event_tokens or 1, all_of_it)
    inside = first if window.begin <= record.first < window.end else 0.0
    if record.last > record.first:
        overlap = min(record.last, window.end) - max(record.first, window.begin)
        inside += (all_of_it - first) * max(0, overlap) / (record.last - record.first)
    elif inside:
        inside = all_of_it
    return inside


def events_by_tenth(runs: Iterable[GeneratorRun], window: Window) -> list[int]:
    """Events of all generators in each whole tenth of a second inside `window`; empty if none were noted."""
    noted: Counter[int] = Counter()
    for run in runs:
        noted.update(run.token_bins)
    first = -(-window.begin // TENTH_NS)
    return [noted[tenth] for tenth in range(first, window.end // TENTH_NS)] if noted else []


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
