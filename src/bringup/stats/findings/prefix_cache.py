"""Much of the prompts came out of the prefix cache: prefill was measured on what was already known."""

from collections.abc import Iterator, Sequence

from bringup.stats import latency
from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_SHARE = 0.2  # guess: of the prompt tokens


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note over the rungs with a high share of cached prompt tokens."""
    told_by = [_cached_share(result) for result in results] or [None] * len(run.rungs)
    shares = [(rung, _share(rung, usage)) for rung, usage in zip(run.rungs, told_by, strict=True)]
    high = [(rung, share) for rung, share in shares if share is not None and share > _SHARE]
    rungs = [rung for rung, _ in high]
    if high:
        yield Finding(
            id="bench.prefix_cache",
            severity=Severity.NOTE,
            summary=f"much of the prompts came from the prefix cache at {loads_words(rungs)}",
            expected="prompts that the server has not seen",
            explanation="time to the first token is that of repeated prompts; where users do not repeat"
            " theirs, it will be longer",
            action="another seed for every run, and no shared prefix, unless that is what is to be measured",
            evidence=tuple(told(rung, f"{share:.0%} of the prompt tokens") for rung, share in high),
        )


def _share(rung: Rung, from_usage: float | None) -> float | None:
    if from_usage is not None:
        return from_usage
    return None if rung.engine is None else rung.engine.cache_hit_rate


def _cached_share(result: RungResult) -> float | None:
    """By the usage of the answers; `None` where it does not tell."""
    pairs = [
        (record.cached_tokens, record.input_tokens)
        for run in result.runs
        for record in run.records
        if latency.outcome(record) == latency.GOOD
        and record.cached_tokens is not None
        and record.input_tokens is not None
    ]
    prompts = sum(prompt for _, prompt in pairs)
    return sum(cached for cached, _ in pairs) / prompts if prompts else None


JUDGE = Judge(judge=judge)
