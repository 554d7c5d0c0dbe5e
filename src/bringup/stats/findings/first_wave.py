"""The first requests of a closed loop start together and wait for each other's prefill.

Their time to the first token is that of a burst. With few requests per stream it moves the mean and makes up
the slow quantiles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.stats import latency
from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SLOWER = 2.0  # guess: times the later requests
_MOVES = 0.1  # guess: by this share the mean is moved
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wave:
    """A rung whose first requests were slow."""

    rung: Rung
    first: float  # mean time to first token of the first wave, seconds
    later: float  # of all others


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs whose mean the first wave moves, and over those that are nothing else."""
    waves = [wave for result in results if (wave := _wave(result)) is not None]
    if waves:
        yield Finding(
            id="bench.first_wave",
            severity=Severity.NOTE,
            summary="the time to the first token holds the start, when all streams sent at once, at"
            f" {loads_words([wave.rung for wave in waves])}",
            expected="the first wave of requests moves the mean by less than 10 %",
            explanation="the first prompts wait for each other; later ones arrive spread out",
            action="more requests per rung, or a longer one",
            evidence=tuple(
                told(wave.rung, f"first wave {seconds_text(wave.first)}, then {seconds_text(wave.later)}")
                for wave in waves
            ),
        )
    only = [rung for rung in run.rungs if _is_one_wave(rung)]
    if only:
        yield Finding(
            id="bench.first_wave.only",
            severity=Severity.NOTE,
            summary=f"no stream sent twice at {loads_words(only)}: a burst, not a load that lasts",
            expected="several requests per stream",
            explanation="time to the first token is that of a queue, throughput holds ramp and drain",
            action="more requests per rung",
            evidence=tuple(told(rung, f"{rung.requests} requests") for rung in only),
        )


def _wave(result: RungResult) -> _Wave | None:
    streams = result.rung.concurrency
    if streams is None or streams < 2:
        return None
    good = [
        record for run in result.runs for record in run.records if latency.outcome(record) == latency.GOOD
    ]
    good.sort(key=lambda record: (record.sent, record.index))
    took = [value / _NS for record in good if (value := latency.ttft_ns(record)) is not None]
    first, later = took[:streams], took[streams:]
    if not later:
        return None
    mean_first, mean_later = sum(first) / len(first), sum(later) / len(later)
    mean = sum(took) / len(took)
    is_slow = mean_first > _SLOWER * mean_later and mean - mean_later > _MOVES * mean_later
    return _Wave(rung=result.rung, first=mean_first, later=mean_later) if is_slow else None


def _is_one_wave(rung: Rung) -> bool:
    return rung.concurrency is not None and rung.concurrency > 1 and 0 < rung.requests <= rung.concurrency


JUDGE = Judge(judge=judge)
