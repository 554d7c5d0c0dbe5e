"""How far the instrument itself can have moved the figures of a rung.

A token's time is read when its loop comes to it; until then it waits for what the loop is busy with, and so
does the loop's alarm: the lag of the alarms is a sample of that wait, L >= 0, taken at times that the load
does not know of. `lag` cannot see below the step of the alarms, of which half is added to each bound.
Answers that end together wait for each other's ends, at times that the load does know of: the p99 of the
loop's turns while it had such work takes the place of the p99 of L where it is larger.

- TTFT = first - start. `first` is read late by L, the send is read just before it happens: the error of
  one TTFT is L. Bound: the p99 of L, or its mean where a few very long waits make that larger, and the p50
  of L once more for a kernel that wakes the other side as late as this one. An open loop counts
  from the due time, so that what this side sent late is in TTFT by its own doing: its p99 is added.
- Mean ITL of a request = (last - first) / intervals: whatever happened in between, its error is
  (L2 - L1) / intervals, at most max(L1, L2) / intervals; max(L1, L2) <= L1 + L2 has at most twice the mean
  of L. Bound: the larger of p99 and twice the mean, over the intervals, averaged over the requests; the mean
  over all gaps weighs long requests more and so is moved less than that.
- One gap: |L2 - L1| <= max(L1, L2), which is above x at most twice as often as L is. Its p99 is therefore
  no more than the p99.5 of L.
"""

import math
from collections.abc import Iterable, Sequence

from bringup.stats.latency import intervals
from bringup.stats.tally import mean_ns, merge, quantile_ns
from bringup.values.bench import GeneratorRun, RequestRecord, SelfError

_NS = 1e9


def self_error(runs: Sequence[GeneratorRun], good: Iterable[RequestRecord]) -> SelfError | None:
    """Bounds for a rung; `None` where no alarm was ever served, so that the lag is not known."""
    lag = merge(run.lag for run in runs)
    p50, p99, p995 = (quantile_ns(lag, share) for share in (0.5, 0.99, 0.995))
    mean = mean_ns(lag)
    if p50 is None or p99 is None or p995 is None or mean is None:
        return None
    turn = quantile_ns(merge(run.turns for run in runs), 0.99)
    waited = p50 + turn if turn is not None else 0.0
    half_step = max(run.alarm_step_ns for run in runs) / 2
    late = quantile_ns(merge(run.send_late for run in runs), 0.99) or 0
    shares = [1 / after for record in good if (after := intervals(record))]
    share = math.fsum(shares) / len(shares) if shares else 1.0
    return SelfError(
        ttft_s=(max(p99, mean, waited) + p50 + half_step + late) / _NS,
        itl_mean_s=(max(p99, 2 * mean, waited) + half_step) * share / _NS,
        itl_gap_s=(max(p995, waited) + half_step) / _NS,
        lag_p50_s=p50 / _NS,
        lag_p99_s=p99 / _NS,
        busy_share=max(map(busy_share, runs)),
    )


def busy_share(run: GeneratorRun) -> float:
    """Share of one processor that a generator used while it ran; 0 where it did not run."""
    seconds = (run.ended - run.started) / _NS
    return run.busy_s / seconds if seconds > 0 else 0.0
