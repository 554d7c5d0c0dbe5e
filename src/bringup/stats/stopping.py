"""When a rung has measured enough: its means are known well enough, by batch means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bringup.stats import latency
from bringup.stats.interval import Batch, Interval, batch_interval, value_interval
from bringup.values.bench import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """How well each mean must be known.

    Looking often and stopping at the first narrow interval stops a little early now and then: `least`
    requests, and at least five batches, keep that rare.
    """

    relative: float = 0.05  # half width of the interval as a share of the mean
    confidence: float = 0.95
    least: int = 50  # guess: good requests
    waves: int = 5  # good requests per stream


def why_stop(records: Iterable[RequestRecord], *, together: int, rule: StopRule) -> str | None:
    """Why a rung with these records may end; `None` while its means are not known well enough.

    `together`: requests under way at a time. Records may come in any order.
    """
    good = sorted(
        (record for record in records if latency.outcome(record) == latency.GOOD),
        key=lambda record: (record.sent, record.index),
    )
    if len(good) < max(rule.least, rule.waves * together):
        return None
    figures = {
        "ttft": [value for record in good if (value := latency.ttft_ns(record)) is not None],
        "tpot": [value for record in good if (value := latency.tpot_ns(record)) is not None],
        "e2e": [value for record in good if (value := latency.e2e_ns(record)) is not None],
    }
    return _verdict(
        {
            name: value_interval(values, together=together, confidence=rule.confidence)
            for name, values in figures.items()
            if values
        },
        rule,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far all generators of a rung were at one moment, as they tell it while they run."""

    at_s: float  # since the rung's start
    finished: int  # requests
    events: int  # with tokens


def why_stop_early(readings: Sequence[Progress], *, streams: int, rule: StopRule) -> str | None:
    """The same from progress alone, while records are not at hand: by the events per second.

    With a fixed number of streams the rate and the mean time of a request are known equally well. The ramp,
    until as many requests ended as there are streams, is left out; a batch lasts at least as long as a
    request, and there are as many batches as the rule wants waves.
    """
    settled = [reading for reading in readings if reading.finished >= streams]
    if len(settled) < 2:
        return None
    first, last = settled[0], settled[-1]
    seconds, finished = last.at_s - first.at_s, last.finished - first.finished
    if seconds <= 0 or finished < max(rule.least, rule.waves * streams):
        return None
    batches: list[Batch] = []
    shortest = seconds * streams / finished  # Little's law: what a request takes
    for reading in settled:
        if reading.at_s - first.at_s >= shortest:
            batches.append(Batch(size=reading.at_s - first.at_s, total=reading.events - first.events))
            first = reading
    return _verdict({"events per second": batch_interval(batches, confidence=rule.confidence)}, rule)


def _verdict(intervals: Mapping[str, Interval | None], rule: StopRule) -> str | None:
    known = [interval.relative for interval in intervals.values() if interval is not None]
    if len(known) < len(intervals) or not known or max(known) > rule.relative:
        return None
    return f"the mean of {', '.join(intervals)} is known to {max(known):.1%}"
