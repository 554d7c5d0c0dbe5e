"""Requests of an open loop left later than they were due: part of every latency is this side's."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.1  # guess: of the median time to the first token
_LEAST_S = 0.001  # below it no server is judged


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the open-loop rungs that were sent late."""
    _ = results
    late = [rung for rung in run.rungs if rung.concurrency is None and _is_late(rung)]
    if late:
        yield Finding(
            id="bench.late_sends",
            severity=Severity.WARNING,
            summary=f"requests were sent later than they were due at {loads_words(late)}",
            expected="99 % of the requests sent within a tenth of the time to the first token",
            explanation="latencies count from the due time, so the delay is in them and is not the server's",
            action="use more generators or machines, and look for a limit of connections",
            evidence=tuple(
                told(
                    rung, f"p99 {seconds_text(rung.queued.p99)} late, at most {seconds_text(rung.queued.max)}"
                )
                for rung in late
                if rung.queued is not None
            ),
        )


def _is_late(rung: Rung) -> bool:
    if rung.queued is None or rung.ttft is None:
        return False
    return rung.queued.p99 > max(_LEAST_S, _SHARE * rung.ttft.p50)


JUDGE = Judge(judge=judge)
