"""Whole answers came in one piece: the time to the first token is the time of the last.

The server does not stream, or something between here and there collects its answers.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.latency import GOOD, outcome, tokens
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, RequestRecord, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.5  # of the good answers: one short answer in one packet is no sign of anything
_LEAST_TOKENS = 4
_LAG_SHARE = 0.25  # of an answer's time: a lag above it hides whether it was streamed


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the rungs whose answers came whole."""
    _ = run
    whole = [(one.rung, *_counted(one)) for one in results]
    whole = [(rung, came, good) for rung, came, good in whole if came > _SHARE * good and not _was_away(rung)]
    if whole:
        yield Finding(
            id="bench.not_streamed",
            severity=Severity.WARNING,
            summary=f"the answers came in one piece at {loads_words([rung for rung, _, _ in whole])}: what is"
            " shown as time to first token is the time of the whole answer",
            expected="events one after the other, as `stream` in the request asks for",
            explanation="the server does not stream, or a proxy collects the answer; nothing is known of the"
            " time to the first token and between tokens",
            action="ask the engine's own port; judge by e2e and tokens/s alone",
            evidence=tuple(
                told(rung, f"{came} of {good} answers had all their tokens in one read")
                for rung, came, good in whole
            ),
        )


def _was_away(rung: Rung) -> bool:
    """This side was so late that it would read any answer in one piece."""
    if rung.self_error is None or rung.e2e is None:
        return False
    return rung.self_error.lag_p99_s > _LAG_SHARE * rung.e2e.p50


def _counted(result: RungResult) -> tuple[int, int]:
    """Good answers of some length that came in one piece, and all of some length."""
    long = [
        record
        for one in result.runs
        for record in one.records
        if outcome(record) == GOOD and tokens(record) >= _LEAST_TOKENS
    ]
    return sum(map(_is_whole, long)), len(long)


def _is_whole(record: RequestRecord) -> bool:
    return record.first is not None and record.first == record.last


JUDGE = Judge(judge=judge)
