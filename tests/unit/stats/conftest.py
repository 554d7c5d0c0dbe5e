"""Runs as generators would record them, made from what the server is said to have done."""

import heapq
from dataclasses import dataclass, replace
from random import Random

import pytest

from bringup.stats.rung import rung_of
from bringup.stats.tally import tally_of
from bringup.values.bench import BenchRun, GeneratorRun, RequestRecord, RungResult, SelfTest

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Made:
    """One request with the arrivals of its events."""

    record: RequestRecord
    arrivals: tuple[int, ...]


def made(index=0, *, sent=0, ttft=50 * MS, gaps=(), **more):
    """One good request whose tokens came one per event, unless `more` says otherwise."""
    arrivals = [sent + ttft]
    for gap in gaps:
        arrivals.append(arrivals[-1] + gap)
    facts = {
        "index": index,
        "sent": sent,
        "first": arrivals[0],
        "last": arrivals[-1],
        "ended": arrivals[-1],
        "events": len(arrivals),
        "output_tokens": len(arrivals),
        "asked_tokens": len(arrivals),
        "input_tokens": 10,
        "finish_reason": "length",
    }
    return Made(record=RequestRecord(**(facts | more)), arrivals=tuple(arrivals))


def run_of(requests, *, name="local 0", several=False, **more):
    """What one generator recorded of `requests`; `several`: their events carried several tokens."""
    good = [one for one in requests if one.record.error is None and not one.record.is_cancelled]
    gaps = [b - a for one in good for a, b in zip(one.arrivals, one.arrivals[1:], strict=False)]
    bins = {}
    for one in requests:
        for at in one.arrivals:
            bins[at // (100 * MS)] = bins.get(at // (100 * MS), 0) + 1
    tally = tally_of(gaps)
    late = [one.record.sent - one.record.scheduled for one in requests if one.record.scheduled is not None]
    tokens = sum(one.record.output_tokens or 0 for one in good)
    facts = {
        "generator": name,
        "records": tuple(one.record for one in requests),
        "lag": tally_of([10_000] * 100),
        "send_late": tally_of(late),
        "busy_s": 0.1,
        "ended": max((one.record.ended for one in requests), default=0),
        "token_bins": bins,
    }
    facts |= {"event_gaps": tally, "event_gap_tokens": tokens - len(good)} if several else {"gaps": tally}
    return GeneratorRun(**(facts | more))


def split(requests, generators):
    """The same requests as several generators would have recorded them."""
    return [
        run_of([one for one in requests if one.record.index % generators == number], name=f"local {number}")
        for number in range(generators)
    ]


def closed_loop(*, streams, requests, seed=0, ttft=0.05, itl=0.02, tokens=50, spread=0.2):
    """A closed loop against a server with log-normal times; medians in seconds."""
    random = Random(seed)
    free = [(0, number) for number in range(streams)]
    found = []
    for index in range(requests):
        at, stream = heapq.heappop(free)
        first = int(ttft * SECOND * random.lognormvariate(0, spread))
        gap = int(itl * SECOND * random.lognormvariate(0, spread / 2))
        found.append(made(index, sent=at, ttft=first, gaps=(gap,) * (tokens - 1), ready=at))
        heapq.heappush(free, (found[-1].record.ended, stream))
    return found


def queue(*, rate, capacity, requests, seed=0):
    """An M/M/1 queue: Poisson arrivals, one request at a time, exponential service; answers of one token."""
    random = Random(seed)
    at = done = 0.0
    found = []
    for index in range(requests):
        at += random.expovariate(rate)
        done = max(at, done) + random.expovariate(capacity)
        due = int(at * SECOND)
        found.append(made(index, sent=due, ttft=int(done * SECOND) - due, scheduled=due))
    return found


def slots(*, most, streams, requests, seed=0, tokens=10, itl=0.02):
    """A closed loop against a server with so many slots, first come first served."""
    random = Random(seed)
    free = [(0, number) for number in range(streams)]
    slot = [0] * most
    found = []
    for index in range(requests):
        at, stream = heapq.heappop(free)
        begin = max(at, heapq.heappop(slot))
        gap = int(itl * SECOND * random.lognormvariate(0, 0.2))
        found.append(made(index, sent=at, ttft=begin - at + gap, gaps=(gap,) * (tokens - 1), ready=at))
        heapq.heappush(slot, found[-1].record.ended)
        heapq.heappush(free, (found[-1].record.ended, stream))
    return found


def result(requests, *, generators=1, **asked):
    """The result of a rung of `requests`."""
    runs = tuple(split(requests, generators))
    return RungResult(rung=rung_of(runs, **asked), runs=runs)


SOUND = SelfTest(
    deliver_p50_s=2e-5,
    deliver_p99_s=5e-5,
    lag_p50_s=1e-5,
    lag_p99_s=5e-5,
    clock_step_s=1e-9,
    seconds=0.1,
)


def bench(*results, **more):
    """A run with these results."""
    facts = {"url": "http://127.0.0.1:8000", "model": "m", "self_test": SOUND}
    return BenchRun(**(facts | {"rungs": tuple(one.rung for one in results)} | more))


def changed(one, **figures):
    """`one` with other figures in its rung."""
    return replace(one, rung=replace(one.rung, **figures))


class Make:
    """All of the above in one place."""

    made = staticmethod(made)
    run_of = staticmethod(run_of)
    split = staticmethod(split)
    closed_loop = staticmethod(closed_loop)
    queue = staticmethod(queue)
    slots = staticmethod(slots)
    result = staticmethod(result)
    bench = staticmethod(bench)
    changed = staticmethod(changed)
    ms = MS
    second = SECOND


@pytest.fixture(scope="session")
def make():
    return Make
