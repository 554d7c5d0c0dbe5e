"""Answers to known questions were wrong or garbage under load.

Wrong answers are held against those of the smallest load: a model that is not able to answer is wrong there
too. Garbage and a loss that chance does not explain mean that the figures are those of a broken server.
"""

from collections.abc import Iterator, Sequence
from math import comb

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Rung, RungResult
from bringup.values.finding import Finding, Severity

_CHANCE = 0.01  # of a loss as great as this one if load did not matter


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A failure for garbage, a warning for answers that load made worse, a note for a weak model."""
    _ = results
    asked = [rung for rung in run.rungs if rung.questions]
    garbled = [rung for rung in asked if rung.garbled]
    if garbled:
        yield Finding(
            id="bench.answers.garbled",
            severity=Severity.FAILURE,
            summary=f"answers were no language at all at {loads_words(garbled)}",
            expected="readable answers under every load",
            explanation="a benchmark of garbage is no result",
            action="run `bringup verify`, which looks for the cause",
            evidence=tuple(told(rung, f"{rung.garbled} of {rung.questions} answers") for rung in garbled),
        )
    worse = [rung for rung in asked[1:] if _loss_by_chance(asked[0], rung) < _CHANCE]
    if worse:
        yield Finding(
            id="bench.answers.worse_under_load",
            severity=Severity.WARNING,
            summary=f"known questions were answered worse at {loads_words(worse)}",
            expected="as many right answers as under the smallest load",
            explanation="under load other kernels and batches run; a fault in them shows only so",
            action="run `bringup verify` with its load exercise",
            evidence=tuple(told(rung, _right(rung)) for rung in (asked[0], *worse)),
        )
    weak = [rung for rung in asked if rung not in worse and rung not in garbled and _wrong(rung)]
    if weak:
        yield Finding(
            id="bench.answers.wrong",
            severity=Severity.NOTE,
            summary=f"some known questions were answered wrong at {loads_words(weak)}",
            expected="every known question answered right",
            explanation="load is not seen to be the reason: a weak model does this under every load",
            evidence=tuple(told(rung, _right(rung)) for rung in weak),
            next_measurement=f"bringup verify {run.url}",
        )


def _wrong(rung: Rung) -> int:
    return rung.questions - rung.questions_right


def _right(rung: Rung) -> str:
    return f"{rung.questions_right} of {rung.questions} right"


def _loss_by_chance(least: Rung, rung: Rung) -> float:
    """Chance of as many wrong answers in `rung` as there were, if both loads were alike (Fisher's test)."""
    wrong, all_wrong = _wrong(rung), _wrong(rung) + _wrong(least)
    total = rung.questions + least.questions
    ways = comb(total, rung.questions)
    most = min(all_wrong, rung.questions)
    return (
        sum(
            comb(all_wrong, count) * comb(total - all_wrong, rung.questions - count)
            for count in range(wrong, most + 1)
            if rung.questions - count <= total - all_wrong
        )
        / ways
    )


JUDGE = Judge(judge=judge)
