"""Requests were to be hung up on, and none was: their answers were over before the time came."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_EXPECTED = 20  # good requests: of fewer a small share may well be none


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs in which nothing was cancelled although it was asked."""
    _ = results
    if not run.asked.get("cancel_share"):
        return
    missing = [rung for rung in run.rungs if not rung.cancelled and rung.good >= _EXPECTED]
    if missing:
        yield Finding(
            id="bench.cancels_missing",
            severity=Severity.WARNING,
            summary=f"no request was hung up on at {loads_words(missing)}, though a share was asked for",
            expected="requests cancelled while their answers run",
            explanation="the answers were over before the time came at which they were to be cancelled",
            action="an earlier time (`--cancel-share 10%,0.1:0.5`: after 0.1 to 0.5 s), or longer answers",
            evidence=tuple(told(rung, _longest(rung)) for rung in missing),
        )


def _longest(rung: Rung) -> str:
    longest = "" if rung.e2e is None else f", the longest took {seconds_text(rung.e2e.max)}"
    return f"0 of {rung.requests} cancelled{longest}"


JUDGE = Judge(judge=judge)
