"""What the answers to known questions say of the deployment: sound, weak, broken, or broken under load only.

A question that came back wrong is asked again when the load is over, with the same body. Right then: the load
broke it. Wrong again: the model is weak, or broken with and without load, and `bringup verify` tells which.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from bringup.values.bench import LoadRequest, RequestRecord
from bringup.values.deployment import Ability
from bringup.values.finding import Evidence, Finding, Severity
from bringup.values.grade import explain, grade
from bringup.workload import Workload
from bringup.workload.known_questions import Judged, Verdict, judge_record, question_text

_ID = "bench.answers"
_EXPECTED = "every known question answered under load as it is answered alone"
_MOST_AGAIN = 8  # questions asked again: enough to tell load from weakness
_FEW = 3  # wrong answers that a sound model may give among many: batches change the last digits of logits
_MUCH = 0.1  # of the questions
_QUOTED = 3
_BAD = (Verdict.GARBLED, Verdict.EMPTY, Verdict.WRONG)  # the worst first


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One question, what came and how it is judged."""

    index: int
    key: str
    text: str
    judged: Judged


def answered(records: Sequence[RequestRecord]) -> tuple[Answered, ...]:
    """The judged answers among the records, in their order."""
    return tuple(
        Answered(index=record.index, key=record.question, text=record.text or "", judged=judged)
        for record in records
        if record.question is not None and (judged := judge_record(record)) is not None
    )


def to_ask_again(answers: Sequence[Answered]) -> tuple[int, ...]:
    """The numbers of the requests to be sent once more, alone: the worst of every kind of question."""
    bad = sorted(
        (one for one in answers if one.judged.verdict in _BAD), key=lambda one: _BAD.index(one.judged.verdict)
    )
    kinds: dict[str, int] = {}
    for one in bad:
        kinds.setdefault(one.key.partition(" ")[0], one.index)
    return tuple(kinds.values())[:_MOST_AGAIN]


def request_of(workload: Workload, index: int) -> LoadRequest | None:
    """The request with a number, made once more; None when the workload has no such request."""
    mine = workload.requests(index, index + 1)
    found = next(islice(mine, 1), None)
    return found if found is not None and found.index == index else None


def answers_finding(
    answers: Sequence[Answered], again: Mapping[int, Judged], *, ability: Ability = Ability.UNKNOWN
) -> Finding | None:
    """One finding on all known questions of a rung; None when there was none.

    `again` are the verdicts of those that were asked once more, by the number of the request.
    """
    if not answers:
        return None
    counts = Counter(one.judged.verdict for one in answers)
    judged = len(answers) - counts[Verdict.CUT]
    if not judged:
        return Finding(
            id=_ID,
            severity=Severity.UNKNOWN,
            summary=f"none of {len(answers)} known questions could be judged: {answers[0].judged.reason}",
            expected=_EXPECTED,
            explanation="the answers ended, as asked, before they could say anything",
            action="ask for more: `--output-tokens 32`, or several hundred for a model that reasons",
        )
    if not any(one.judged.verdict in _BAD for one in answers):
        summary = f"{judged} of {judged} known questions right"
        return Finding(id=_ID, severity=Severity.OK, summary=summary, expected=_EXPECTED)
    return _bad_finding(answers, again, ability, judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    severity: Severity
    explanation: str
    action: str


def _bad_finding(
    answers: Sequence[Answered], again: Mapping[int, Judged], ability: Ability, judged: int
) -> Finding:
    bad = sorted(
        (one for one in answers if one.judged.verdict in _BAD), key=lambda one: _BAD.index(one.judged.verdict)
    )
    counts = Counter(one.judged.verdict for one in bad)
    how = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _BAD if counts[verdict])
    alone = [again[one.index].verdict for one in bad if one.index in again]
    right_alone = alone.count(Verdict.RIGHT)
    weighed = _weigh(counts, judged, right_alone, ability)
    asked = f"; {right_alone} of {len(alone)} asked again alone were right" if alone else ""
    return Finding(
        id=_ID,
        severity=weighed.severity,
        summary=f"{judged - len(bad)} of {judged} known questions right, {how}{asked}",
        expected=_EXPECTED,
        explanation=weighed.explanation,
        action=weighed.action,
        evidence=tuple(_evidence(one) for one in bad[:_QUOTED]),
    )


def _weigh(counts: Counter[Verdict], judged: int, right_alone: int, ability: Ability) -> _Weighed:
    bad = counts.total()
    if counts[Verdict.GARBLED]:
        return _Weighed(
            severity=Severity.FAILURE,
            explanation="no model says this, however small: broken, not weak, and its speed is no result",
            action="run `bringup verify`; try without CUDA graphs and without quantised KV cache, in turn",
        )
    if right_alone:
        is_much = bad >= _FEW and bad > _MUCH * judged
        return _Weighed(
            severity=Severity.FAILURE if is_much or counts[Verdict.EMPTY] else Severity.WARNING,
            explanation="right alone and wrong under load: requests disturb one another (wrong cache blocks, "
            "a faulty batched kernel or all-reduce)",
            action="try without CUDA graphs, prefix caching and custom all-reduce, one after the other",
        )
    severity = grade(ability, right=judged - bad, asked=judged, able_from=Ability.SMALL)
    return _Weighed(
        severity=severity,
        explanation=explain(severity, ability),
        action="run `bringup verify`, which asks more",
    )


def _evidence(one: Answered) -> Evidence:
    source = f"answer to request {one.index}: {question_text(one.key)}"
    return Evidence(source=source, text=one.text.strip()[:200] or "(empty)")
