"""Tokens were counted from events, because the server told no usage."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs whose tokens are events."""
    _ = results
    counted = [rung for rung in run.rungs if rung.good and rung.tokens_counted != "usage"]
    if counted:
        yield Finding(
            id="bench.token_counts",
            severity=Severity.NOTE,
            summary=f"the server told no usage at {loads_words(counted)}: each event counts as one token",
            expected="usage in the last event (`stream_options.include_usage`)",
            explanation="a server that sends several tokens per event is faster than shown",
            action="see whether a proxy takes the usage away",
            evidence=tuple(told(rung, f"counted from {rung.tokens_counted}") for rung in counted),
        )


JUDGE = Judge(judge=judge)
