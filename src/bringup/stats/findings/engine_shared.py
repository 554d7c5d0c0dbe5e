"""Somebody else used the engine meanwhile: the figures are of a load that nobody knows."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs in which the engine's counters show foreign requests."""
    _ = results
    shared = [rung for rung in run.rungs if rung.engine is not None and rung.engine.is_shared]
    if shared:
        yield Finding(
            id="bench.engine_shared",
            severity=Severity.WARNING,
            summary=f"another client used the engine at {loads_words(shared)}",
            expected="the engine to itself",
            explanation="its requests took part of the throughput and made ours wait",
            action="repeat it when nobody else uses the engine",
            evidence=tuple(told(rung, _counts(rung), source="engine counters") for rung in shared),
        )


def _counts(rung: Rung) -> str:
    engine = rung.engine
    if engine is None or engine.requests is None:
        return "foreign requests seen"
    return f"{engine.requests:,.0f} requests ended there, {rung.requests + rung.stopped:,} were ours"


JUDGE = Judge(judge=judge)
