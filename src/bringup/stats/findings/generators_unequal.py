"""One generator was much worse off than the others: its share of the figures is its own.

With one generator on a slow or busy machine the slow quantiles are that machine's.
"""

from collections.abc import Iterator, Sequence

from bringup.stats import latency
from bringup.stats.findings import Judge
from bringup.stats.load_words import load_words
from bringup.stats.tally import distribution_of
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, GeneratorRun, RungResult
from bringup.values.finding import Evidence, Finding, Severity

_TIMES = 1.5  # guess: the median of the fastest generator
_FEWEST = 20  # good requests of a generator from which its median says something


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs in which generators saw different servers."""
    _ = run
    evidence = tuple(line for result in results for line in _unequal(result))
    if evidence:
        yield Finding(
            id="bench.generators_unequal",
            severity=Severity.WARNING,
            summary="the generators measured different times to the first token",
            expected=f"medians of all generators within {_TIMES:g} times",
            explanation="the server does not know who asks: the difference is in machines or networks",
            action="compare lag and processor time of the generators; leave the slow one out",
            evidence=evidence,
        )


def _unequal(result: RungResult) -> Iterator[Evidence]:
    medians = [(one, median) for one in result.runs if (median := _median_s(one)) is not None]
    if len(medians) < 2:
        return
    least = min(median for _, median in medians)
    if max(median for _, median in medians) <= _TIMES * least:
        return
    for one, median in medians:
        text = f"{load_words(result.rung)}: median {seconds_text(median)}"
        yield Evidence(source=one.generator, text=text)


def _median_s(run: GeneratorRun) -> float | None:
    took = [
        value
        for record in run.records
        if latency.outcome(record) == latency.GOOD and (value := latency.ttft_ns(record)) is not None
    ]
    figures = distribution_of(took) if len(took) >= _FEWEST else None
    return None if figures is None else figures.p50


JUDGE = Judge(judge=judge)
