"""The engine was restarted while it was measured."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs in which the engine's counters fell back."""
    _ = results
    fell = [rung for rung in run.rungs if rung.engine is not None and rung.engine.is_restarted]
    if fell:
        yield Finding(
            id="bench.engine_restarted",
            severity=Severity.WARNING,
            summary=f"the engine was restarted at {loads_words(fell)}",
            expected="counters that only grow",
            explanation="a supervisor starts an engine that died again, and only its counters tell",
            action="look for the death in the engine's log (`bringup diagnose`)",
            evidence=tuple(told(rung, "counters fell back", source="engine counters") for rung in fell),
        )


JUDGE = Judge(judge=judge)
