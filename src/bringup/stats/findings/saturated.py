"""From which concurrency on more streams bring no more throughput."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note with the place where it was found."""
    _ = results
    if run.saturation is None:
        return
    yield Finding(
        id="bench.saturated",
        severity=Severity.NOTE,
        summary=f"throughput no longer grows from {run.saturation:g} streams on",
        expected="throughput grows with the number of streams until something is full",
        explanation="beyond it every further stream only waits longer",
        action="take this as the upper end of what the deployment is given",
        evidence=tuple(told(rung, _rate(rung)) for rung in run.rungs),
    )


def _rate(rung: Rung) -> str:
    rate = rung.steady_output_tokens_per_s
    rate = rung.output_tokens_per_s if rate is None else rate
    return "not measured" if rate is None else f"{rate:,.0f} tokens/s"


JUDGE = Judge(judge=judge)
