"""Prompts did not have the length that was asked for, by the server's own count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.stats import latency
from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.02  # guess: of the meant tokens; a chat template adds a few


@dataclass(frozen=True, slots=True, kw_only=True)
class _Off:
    """A rung whose prompts were of another length."""

    rung: Rung
    meant: float  # per request
    counted: float


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs whose prompts were off by more than 2 % on average."""
    _ = run
    off = [found for result in results if (found := _off(result)) is not None]
    if off:
        yield Finding(
            id="bench.prompt_lengths",
            severity=Severity.NOTE,
            summary=f"prompts were not as long as asked at {loads_words([one.rung for one in off])}",
            expected="the asked number of tokens, to 2 %",
            explanation="the server's chat template adds tokens, and its tokenizer may cut words differently",
            action="compare by the counted length",
            evidence=tuple(
                told(one.rung, f"{one.meant:.0f} meant, {one.counted:.0f} counted", source="usage")
                for one in off
            ),
        )


def _off(result: RungResult) -> _Off | None:
    pairs = [
        (record.meant_input_tokens, record.input_tokens)
        for run in result.runs
        for record in run.records
        if latency.outcome(record) == latency.GOOD
        and record.meant_input_tokens is not None
        and record.input_tokens is not None
    ]
    if not pairs:
        return None
    meant = sum(wanted for wanted, _ in pairs) / len(pairs)
    counted = sum(got for _, got in pairs) / len(pairs)
    is_off = abs(counted - meant) > _SHARE * meant
    return _Off(rung=result.rung, meant=meant, counted=counted) if is_off else None


JUDGE = Judge(judge=judge)
