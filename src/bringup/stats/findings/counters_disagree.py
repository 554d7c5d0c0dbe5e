"""Client and server count differently: one of them is wrong, or they do not speak of the same requests.

Where requests failed, were hung up on or cut, the server may rightly have counted more; where others used the
engine, nothing can be compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.stats.findings import Judge
from bringup.stats.load_words import told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Evidence, Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One count of both sides."""

    rung: Rung
    what: str
    ours: int
    theirs: float
    allowed: int  # by how much they may rightly differ: tokens that one side counts by another rule
    was_disturbed: bool  # requests without an end of their own: the server may have done more

    @property
    def differs(self) -> bool:
        """Whether they disagree at all."""
        return self.theirs < self.ours or (self.theirs > self.ours and not self.was_disturbed)

    @property
    def is_beyond(self) -> bool:
        """Whether no rule of counting explains it."""
        return self.differs and abs(self.theirs - self.ours) > self.allowed


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A warning over the counts that disagree, a note where the end tokens explain it."""
    _ = results
    pairs = [pair for rung in run.rungs for pair in _pairs(rung)]
    wrong = [pair for pair in pairs if pair.is_beyond]
    if wrong:
        yield Finding(
            id="bench.counters_disagree",
            severity=Severity.WARNING,
            summary=f"client and server disagree on {_named(wrong)}",
            expected="the same counts on both sides",
            explanation="tokens per second are only as good as the count of tokens",
            action="see whether something between here and the engine answers, caches or retries",
            evidence=tuple(_told(pair) for pair in wrong),
        )
    near = [pair for pair in pairs if pair.differs and not pair.is_beyond]
    if near:
        yield Finding(
            id="bench.counters_disagree.by_rule",
            severity=Severity.NOTE,
            summary=f"client and server count {_named(near)} by different rules",
            expected="the same counts on both sides",
            explanation="at most one token per request: one side counts the end token, or the first one",
            evidence=tuple(_told(pair) for pair in near),
        )


def _pairs(rung: Rung) -> Iterator[_Pair]:
    engine = rung.engine
    if engine is None or engine.is_shared:
        return
    was_disturbed = bool(rung.cancelled or rung.stopped or rung.errors)
    counts = (
        ("requests", rung.good, engine.requests, 0),
        ("input tokens", rung.input_tokens, engine.input_tokens, rung.good),
        ("output tokens", rung.output_tokens, engine.output_tokens, rung.good),
    )
    for what, ours, theirs, allowed in counts:
        if ours is None or theirs is None or (what == "output tokens" and rung.tokens_counted != "usage"):
            continue
        yield _Pair(
            rung=rung, what=what, ours=ours, theirs=theirs, allowed=allowed, was_disturbed=was_disturbed
        )


def _named(pairs: Sequence[_Pair]) -> str:
    return ", ".join(dict.fromkeys(pair.what for pair in pairs))


def _told(pair: _Pair) -> Evidence:
    return told(
        pair.rung, f"{pair.what}: {pair.ours:,} here, {pair.theirs:,.0f} there", source="engine counters"
    )


JUDGE = Judge(judge=judge)
