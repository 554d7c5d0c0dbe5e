"""The engine took requests out of the KV cache again and computed them once more."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.05  # guess: preemptions per request beyond which throughput suffers visibly


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs with preemptions; a warning where they are many."""
    _ = results
    found = [
        (rung, rung.engine.preemptions)
        for rung in run.rungs
        if rung.engine is not None and rung.engine.preemptions
    ]
    if not found:
        return
    is_many = any(times > _SHARE * max(1, rung.requests) for rung, times in found)
    yield Finding(
        id="bench.preemptions",
        severity=Severity.WARNING if is_many else Severity.NOTE,
        summary=f"the KV cache was full: requests were preempted at {loads_words([one for one, _ in found])}",
        expected="no preemption",
        explanation="a preempted request is computed again: its tokens stop coming and throughput is lost",
        action="fewer requests at once (`max_num_seqs`), a shorter context, or more memory for the KV cache",
        evidence=tuple(
            told(rung, f"{times:,.0f} preemptions in {rung.requests:,} requests", source="engine counters")
            for rung, times in found
        ),
    )


JUDGE = Judge(judge=judge)
