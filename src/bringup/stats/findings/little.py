"""Little's law N = X * R does not hold: the load was growing or shrinking while it was measured.

Of an open loop that means: the server does not keep up, and every figure depends on how long was measured.
"""

import math
from collections.abc import Iterator, Sequence

from bringup.stats import steady
from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_KEEPS_UP = 0.9  # guess: of the asked rate
_SPREADS = 3  # standard deviations


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs without a steady load, another over rates that the server did not follow."""
    _ = results
    behind = [rung for rung in run.rungs if _is_behind(rung)]
    if behind:
        yield Finding(
            id="bench.little.overload",
            severity=Severity.WARNING,
            summary=f"the server does not keep up with {loads_words(behind)}",
            expected="as many requests ended as arrived",
            explanation="the queue grows as long as requests arrive: latencies depend on the time measured",
            action="a lower rate, or a closed loop to find what the server can do",
            evidence=tuple(
                told(rung, f"{rung.steady_requests_per_s:.3g} requests/s ended")
                for rung in behind
                if rung.steady_requests_per_s is not None
            ),
        )
    drifting = [rung for rung in run.rungs if rung not in behind and steady.holds(rung) is False]
    if drifting:
        yield Finding(
            id="bench.little",
            severity=Severity.WARNING,
            summary=f"the load was not steady at {loads_words(drifting)}: Little's law does not hold",
            expected="requests under way = requests per second x mean time of a request",
            explanation="the figures are means over something that changed meanwhile",
            action="a longer rung; look for what changed (heat, another client, the engine's cache filling)",
            evidence=tuple(told(rung, _both(rung)) for rung in drifting),
        )


def _is_behind(rung: Rung) -> bool:
    """Whether clearly fewer requests ended than arrived, beyond what chance does to Poisson arrivals."""
    if rung.rate is None or rung.steady_requests_per_s is None or not rung.steady_s:
        return False
    missing = (rung.rate - rung.steady_requests_per_s) * rung.steady_s
    by_chance = _SPREADS * math.sqrt(rung.rate * rung.steady_s)
    return missing > max(by_chance, (1 - _KEEPS_UP) * rung.rate * rung.steady_s)


def _both(rung: Rung) -> str:
    return f"{rung.mean_running or 0:.3g} under way, {rung.little_running or 0:.3g} by throughput and time"


JUDGE = Judge(judge=judge)
