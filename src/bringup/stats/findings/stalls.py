"""The server stood still: gaps between tokens far above the usual one.

A prefill between decode steps, a preemption, a garbage collection or a proxy that buffers shows so. Gaps
that this machine's own lag could explain are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.stats.tally import count, merge, quantile_ns
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult, Tally
from bringup.values.finding import Finding, Severity

_TIMES = 10  # guess: the median gap
_LEAST_NS = 50_000_000  # guess: a reader does not see less
_SHARE = 0.1  # of all time between tokens
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stalls:
    """The long gaps of one rung."""

    rung: Rung
    gaps: int
    of: int
    longest_s: float
    share: float  # of the time between tokens


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note on stalls; a warning where they took more than a tenth of the time."""
    _ = run
    stalled = [found for result in results if (found := _stalls(result)) is not None]
    if not stalled:
        return
    worst = max(stalled, key=lambda found: found.share)
    yield Finding(
        id="bench.stalls",
        severity=Severity.WARNING if worst.share > _SHARE else Severity.NOTE,
        summary=f"tokens stopped coming for up to {seconds_text(max(one.longest_s for one in stalled))} at"
        f" {loads_words([one.rung for one in stalled])}",
        expected=f"no gap above {_TIMES} times the median one",
        explanation="the engine did other work between two tokens: prefill of new prompts, preemption, a"
        " collection of garbage; or a proxy held events back",
        action="compare the times with the engine's log; limit the tokens of one step (chunked prefill) where"
        " prompts are long",
        evidence=tuple(
            told(
                one.rung,
                f"{one.gaps:,} of {one.of:,} gaps, longest {seconds_text(one.longest_s)},"
                f" {one.share:.1%} of the time",
            )
            for one in stalled
        ),
    )


def _stalls(result: RungResult) -> _Stalls | None:
    gaps = merge(tally for run in result.runs for tally in (run.gaps, run.event_gaps))
    median = quantile_ns(gaps, 0.5)
    if median is None or gaps.most_ns is None:
        return None
    own = max((run.lag.most_ns or 0 for run in result.runs), default=0)
    limit = max(_TIMES * median, _LEAST_NS, own + 2 * median)
    beyond = _beyond(gaps, limit)
    if not beyond:
        return None
    lost = sum(micro * 1000 * times for micro, times in gaps.counts.items() if micro * 1000 > limit)
    return _Stalls(
        rung=result.rung,
        gaps=beyond,
        of=count(gaps),
        longest_s=gaps.most_ns / _NS,
        share=lost / gaps.total_ns,
    )


def _beyond(gaps: Tally, limit: int) -> int:
    return sum(times for micro, times in gaps.counts.items() if micro * 1000 > limit)


JUDGE = Judge(judge=judge)
