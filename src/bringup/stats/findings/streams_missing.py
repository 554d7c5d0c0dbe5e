"""The concurrency that was asked for was never there.

A server's own queue does not cause this: a request that waits there is under way. Limits of this side, of a
proxy or of the number of connections do.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_THERE = 0.95  # of the asked streams


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the closed-loop rungs that had fewer streams than asked, at every moment."""
    _ = results
    short = [rung for rung in run.rungs if _is_short(rung)]
    if short:
        yield Finding(
            id="bench.streams_missing",
            severity=Severity.WARNING,
            summary=f"the asked streams were never open together at {loads_words(short)}",
            expected="as many requests under way as asked",
            explanation="the figures belong to a smaller load than the one they stand beside",
            action="see the errors, if any; then more requests per rung, more generators, a higher limit of"
            " connections in the proxy",
            evidence=tuple(
                told(rung, f"at most {rung.most_open} at a time, {rung.requests} requests") for rung in short
            ),
        )


def _is_short(rung: Rung) -> bool:
    return rung.concurrency is not None and rung.requests > 0 and rung.most_open < _THERE * rung.concurrency


JUDGE = Judge(judge=judge)
