"""The instrument itself was late compared with what it measured.

The bounds of the self-error are compared with the figures. Where the usual lag, or what it may do to the
mean, is more than one percent of the inter-token latency, the server's own is not known: that says nothing
against the server; a note where only the slowest percent of the
gaps, or of the first tokens, may be this side's doing.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Distribution, Rung, RungResult, SelfError
from bringup.values.finding import Finding, Severity

_SHARE = 0.01  # of the measured inter-token latency
_TTFT_SHARE = 0.1  # guess: of the median time to the first token
_EXPECTED = "the instrument's own lag below 1 % of the inter-token latency"
_ACTION = "use more generators, on this machine or on more machines, or leave this one more processor time"


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """`unknown` over the rungs whose means are in doubt, a note over those with doubtful single gaps."""
    _ = results
    doubtful = [rung for rung in run.rungs if _moves_mean(rung)]
    if doubtful:
        yield Finding(
            id="bench.instrument_lag",
            severity=Severity.UNKNOWN,
            summary=f"this side read the answers late at {loads_words(doubtful)}: its lag is in the figures",
            expected=_EXPECTED,
            explanation="what a late client measures is itself; the server was faster or slower than shown",
            action=_ACTION,
            evidence=tuple(told(rung, _bounds(rung), source="alarms of the generators") for rung in doubtful),
        )
    single = [rung for rung in run.rungs if rung not in doubtful and _moves_tails(rung)]
    if single:
        yield Finding(
            id="bench.instrument_lag.single",
            severity=Severity.NOTE,
            summary=f"the slowest gaps and first tokens may be this machine's doing at {loads_words(single)}",
            expected=_EXPECTED,
            explanation="means and medians hold; p99 and maximum are known less well than to 1 %",
            action=_ACTION,
            evidence=tuple(told(rung, _bounds(rung), source="alarms of the generators") for rung in single),
        )


def _moves_mean(rung: Rung) -> bool:
    error = rung.self_error
    if error is None:
        return False
    itl = _mean(rung.itl or rung.event_gap)
    return itl is not None and max(error.itl_mean_s, error.lag_p50_s) > _SHARE * itl


def _moves_tails(rung: Rung) -> bool:
    error, itl = rung.self_error, _mean(rung.itl)
    if error is None:
        return False
    moves_gaps = itl is not None and error.lag_p99_s > _SHARE * itl
    return moves_gaps or (rung.ttft is not None and error.ttft_s > _TTFT_SHARE * rung.ttft.p50)


def _mean(figures: Distribution | None) -> float | None:
    return None if figures is None else figures.mean


def _bounds(rung: Rung) -> str:
    error = rung.self_error
    return "" if error is None else ", ".join(_parts(rung, error))


def _parts(rung: Rung, error: SelfError) -> Iterator[str]:
    yield f"lag p50 {seconds_text(error.lag_p50_s)}, p99 {seconds_text(error.lag_p99_s)}"
    if rung.itl is not None:
        yield f"mean inter-token latency {seconds_text(rung.itl.mean)} ± {seconds_text(error.itl_mean_s)}"
    if rung.ttft is not None:
        yield (
            f"time to first token {seconds_text(rung.ttft.p50)}, of which up to"
            f" {seconds_text(error.ttft_s)} this side's"
        )


JUDGE = Judge(judge=judge)
