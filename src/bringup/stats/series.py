"""One rung's records as series in the order of time, cut into batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bringup.stats import latency, steady
from bringup.stats.interval import Batch, Interval, batch_interval, batches_of
from bringup.values.bench import GeneratorRun, RequestRecord, Rung, RungResult

_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RungSeries:
    """The good requests of a rung in the order in which they were sent, and its steady time."""

    rung: Rung
    runs: tuple[GeneratorRun, ...]
    good: tuple[RequestRecord, ...]
    together: int  # requests that shared the server at a time
    window: steady.Window | None

    def values(self, of: Callable[[RequestRecord], float | None]) -> list[float]:
        """One latency of every request that has it, in seconds."""
        return [value / _NS for record in self.good if (value := of(record)) is not None]

    def token_batches(self) -> list[Batch]:
        """Tokens by stretches of the steady time: as the events came, at the level of the rung's figure."""
        per_second = self.rung.steady_output_tokens_per_s
        if self.window is None or per_second is None:
            return []
        by_tenth = steady.events_by_tenth(self.runs, self.window)
        events = sum(by_tenth)
        level = per_second * len(by_tenth) * steady.TENTH_NS / _NS
        return self._by_time([count * level / events for count in by_tenth]) if events else []

    def request_batches(self) -> list[Batch]:
        """Requests that ended, by stretches of the steady time."""
        if self.window is None:
            return []
        tenths = (self.window.end - self.window.begin) // steady.TENTH_NS
        ended = [0.0] * tenths
        for record in self.good:
            tenth = (record.ended - self.window.begin) // steady.TENTH_NS
            if 0 <= tenth < tenths:
                ended[tenth] += 1
        return self._by_time(ended)

    def _by_time(self, by_tenth: Sequence[float]) -> list[Batch]:
        """Batches no shorter than a request's mean stay: streams that began together rise and fall so."""
        stay = self.rung.e2e.mean if self.rung.e2e is not None else 0.0
        tenth_s = steady.TENTH_NS / _NS
        batches = batches_of(by_tenth, together=max(1, round(stay / tenth_s)))
        return [Batch(size=batch.size * tenth_s, total=batch.total) for batch in batches]


def series_of(result: RungResult) -> RungSeries:
    """The series of `result`; empty where no records were kept."""
    records = [record for run in result.runs for record in run.records]
    good = [record for record in records if latency.outcome(record) == latency.GOOD]
    rung = result.rung
    return RungSeries(
        rung=rung,
        runs=result.runs,
        good=tuple(sorted(good, key=lambda record: (record.sent, record.index))),
        together=max(1, rung.concurrency or round(rung.mean_running or 1)),
        window=steady.asked_window(records, rung.concurrency),
    )


def throughput_interval(result: RungResult, *, confidence: float = 0.95) -> Interval | None:
    """Output tokens per second of the steady time with their interval; `None` where it was too short."""
    return batch_interval(series_of(result).token_batches(), confidence=confidence)
