"""The model ended its answers before the asked length: the work was less than planned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.stats import latency
from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.05  # of the asked tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _Short:
    """A rung that brought fewer tokens than asked."""

    rung: Rung
    asked: float  # per request
    came: float


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs in which more than 5 % of the asked tokens are missing."""
    _ = run
    short = [found for result in results if (found := _short(result)) is not None]
    if short:
        yield Finding(
            id="bench.early_ends",
            severity=Severity.NOTE,
            summary=f"answers were shorter than asked at {loads_words([one.rung for one in short])}:"
            " the model ended them itself",
            expected="answers of the asked length",
            explanation="two runs with answers of different length cannot be compared by requests per second",
            action="ask the server to ignore the end token, where it can",
            evidence=tuple(
                told(one.rung, f"{one.came:.0f} of {one.asked:.0f} tokens per answer") for one in short
            ),
        )


def _short(result: RungResult) -> _Short | None:
    ended = [
        (record.asked_tokens, record.output_tokens)
        for run in result.runs
        for record in run.records
        if latency.outcome(record) == latency.GOOD
        and record.asked_tokens is not None
        and record.output_tokens is not None
        and record.question is None  # a known question is meant to be answered in few words
        and not (
            record.output_tokens < record.asked_tokens and record.finish_reason not in latency.NATURAL_ENDS
        )
    ]
    if not ended:
        return None
    asked = sum(wanted for wanted, _ in ended) / len(ended)
    came = sum(got for _, got in ended) / len(ended)
    return _Short(rung=result.rung, asked=asked, came=came) if came < (1 - _SHARE) * asked else None


JUDGE = Judge(judge=judge)
