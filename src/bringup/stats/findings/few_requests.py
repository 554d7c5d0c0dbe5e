"""Too few requests for the quantiles that are shown."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity

_FEWEST = 100  # below it the p99 is the slowest request


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs with fewer than 100 good requests."""
    _ = results
    few = [rung for rung in run.rungs if 0 < rung.good < _FEWEST]
    if few:
        yield Finding(
            id="bench.few_requests",
            severity=Severity.NOTE,
            summary=f"fewer than {_FEWEST} requests at {loads_words(few)}: p99 is the slowest one",
            expected=f"{_FEWEST} good requests and more",
            explanation="the slowest of a few is mostly chance",
            action="more requests per rung where the slow ones matter",
            evidence=tuple(told(rung, f"{rung.good} good requests") for rung in few),
        )


JUDGE = Judge(judge=judge)
