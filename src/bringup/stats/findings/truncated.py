"""Answers ended before the asked length although the model did not end them."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs with truncated answers."""
    _ = results
    cut = [rung for rung in run.rungs if rung.truncated]
    if cut:
        yield Finding(
            id="bench.truncated",
            severity=Severity.WARNING,
            summary=f"answers were shorter than asked, not by their own end, at {loads_words(cut)}",
            expected="every answer as long as asked",
            explanation="users get cut answers, and the server did less work than it seems",
            action="see whether prompt and answer fit into the context and the KV cache together",
            evidence=tuple(told(rung, f"{rung.truncated} of {rung.good} answers") for rung in cut),
        )


JUDGE = Judge(judge=judge)
