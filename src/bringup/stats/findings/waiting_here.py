"""Requests of a closed loop waited on this side although their stream was free.

Such a wait is in no latency, as these count from the send; it lowers the load that the server gets.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.05  # guess: of the mean time that a request takes


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs whose streams stood idle for more than 5 % of the time."""
    _ = results
    idle = [rung for rung in run.rungs if rung.concurrency is not None and _idle_share(rung) > _SHARE]
    if idle:
        yield Finding(
            id="bench.waiting_here",
            severity=Severity.WARNING,
            summary=f"free streams waited on this side before they sent at {loads_words(idle)}",
            expected="a free stream sends at once",
            explanation="the server had fewer requests than asked, so throughput reads low",
            action="use more generators, and look at what limits new connections (proxy, port range)",
            evidence=tuple(
                told(rung, f"mean wait {seconds_text(rung.queued.mean)} ({_idle_share(rung):.0%})")
                for rung in idle
                if rung.queued is not None
            ),
        )


def _idle_share(rung: Rung) -> float:
    if rung.queued is None or rung.e2e is None or not rung.e2e.mean:
        return 0.0
    return rung.queued.mean / (rung.queued.mean + rung.e2e.mean)


JUDGE = Judge(judge=judge)
