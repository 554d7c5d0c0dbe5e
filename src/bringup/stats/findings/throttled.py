"""GPUs were slowed down while the figures were taken."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note with what slowed which GPU; `bringup verify` judges whether that is a fault."""
    _ = results
    slow = [rung for rung in run.rungs if rung.gpu is not None and rung.gpu.throttled]
    if slow:
        yield Finding(
            id="bench.throttled",
            severity=Severity.NOTE,
            summary=f"GPUs were slowed down at {loads_words(slow)}",
            expected="full clocks",
            explanation="a power limit is often meant so; heat is not, and grows with the time under load",
            action="compare with a cooler machine or a higher power limit",
            evidence=tuple(
                told(rung, text, source="GPU clock reasons")
                for rung in slow
                if rung.gpu is not None
                for text in rung.gpu.throttled
            ),
            next_measurement="bringup verify",
        )


JUDGE = Judge(judge=judge)
