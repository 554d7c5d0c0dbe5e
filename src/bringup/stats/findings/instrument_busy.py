"""A generator used most of a processor: it is about to become the bottleneck, or already is."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity

_BUSY = 0.8  # of one processor: beyond it waiting grows steeply


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs in which the busiest generator used more than 80 % of a processor."""
    _ = results
    busy = [rung for rung in run.rungs if rung.self_error is not None and rung.self_error.busy_share > _BUSY]
    if not busy:
        return
    most = max(rung.self_error.busy_share for rung in busy if rung.self_error is not None)
    yield Finding(
        id="bench.instrument_busy",
        severity=Severity.WARNING,
        summary=f"a generator used {most:.0%} of a processor at {loads_words(busy)}",
        expected="the busiest generator below 80 % of one processor",
        explanation="a client without time to spare slows its own requests down and measures that",
        action="use more generators, on this machine or on more machines",
        evidence=tuple(
            told(rung, f"busiest generator {rung.self_error.busy_share:.0%}", source="processor time")
            for rung in busy
            if rung.self_error is not None
        ),
    )


JUDGE = Judge(judge=judge)
