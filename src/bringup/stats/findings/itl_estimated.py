"""Events carried several tokens: the time between tokens is an estimate."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs with an estimated inter-token latency."""
    _ = results
    estimated = [rung for rung in run.rungs if rung.itl_is_estimated]
    if estimated:
        yield Finding(
            id="bench.itl_estimated",
            severity=Severity.NOTE,
            summary=f"the inter-token latency is estimated at {loads_words(estimated)}: events carry several"
            " tokens",
            expected="one token per event",
            explanation="when the tokens of one event were ready is not visible; the mean holds, its"
            " quantiles are those of the events divided by their tokens",
            action="compare the time between events and TPOT",
            evidence=tuple(told(rung, _events(rung)) for rung in estimated),
        )


def _events(rung: Rung) -> str:
    tokens = f"{rung.tokens_per_event:.2f}" if rung.tokens_per_event is not None else "an unknown number of"
    between = "" if rung.event_gap is None else f", {seconds_text(rung.event_gap.mean)} apart"
    return f"{tokens} tokens per event{between}"


JUDGE = Judge(judge=judge)
