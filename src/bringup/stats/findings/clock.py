"""The clock is too coarse for what was measured, or ran backwards.

A monotonic clock does not, but the clocks of several machines can be set apart, and a virtual machine that
was moved can jump.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import load_words
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, GeneratorRun, RequestRecord, RungResult
from bringup.values.finding import Evidence, Finding, Severity

_SHARE = 0.01  # of the shortest mean inter-token latency


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A failure where times run backwards, a warning where the clock's steps are too long."""
    broken = tuple(line for result in results for line in _backwards(result))
    if broken:
        yield Finding(
            id="bench.clock.backwards",
            severity=Severity.FAILURE,
            summary="times ran backwards within requests",
            expected="due, sent, first token, last token and end in this order",
            explanation="no latency from such a clock means anything",
            action="repeat it on a machine with a steady clock source (see `current_clocksource`)",
            evidence=broken,
        )
    means = [rung.itl.mean for rung in run.rungs if rung.itl is not None]
    if run.self_test is not None and means and run.self_test.clock_step_s > _SHARE * min(means):
        step = seconds_text(run.self_test.clock_step_s)
        yield Finding(
            id="bench.clock.coarse",
            severity=Severity.WARNING,
            summary=f"the clock counts in steps of {step}",
            expected="steps below 1 % of the inter-token latency",
            explanation="single gaps cannot be told apart; means over whole requests hold",
            action="use a machine with a finer clock source (`tsc`, `kvm-clock`)",
            evidence=(Evidence(source="self-test", text=f"clock step {step}"),),
        )


def _backwards(result: RungResult) -> Iterator[Evidence]:
    for run in result.runs:
        count = sum(map(_is_backwards, run.records)) + _negative(run)
        if count:
            yield Evidence(
                source=run.generator, text=f"{load_words(result.rung)}: {count} times out of order"
            )


def _is_backwards(record: RequestRecord) -> bool:
    times = (record.sent, record.first, record.last, record.ended or None)
    told = [at for at in times if at is not None]
    return told != sorted(told)


def _negative(run: GeneratorRun) -> int:
    return sum((tally.least_ns or 0) < 0 for tally in (run.gaps, run.event_gaps))


JUDGE = Judge(judge=judge)
