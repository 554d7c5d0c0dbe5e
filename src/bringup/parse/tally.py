"""Answers to questions with known answers, sorted: right, wrong, cut off, not delivered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, reply_or_fault
from bringup.parse.reasoning import Spoken, split_reply
from bringup.parse.second_try import settled
from bringup.values.deployment import Ability
from bringup.values.exchange import Answer
from bringup.values.finding import WORST_FIRST, Evidence, Finding, Severity
from bringup.values.grade import advise, explain, grade

_QUOTED = 200  # characters of an answer that a finding quotes
_EXPECTED = "an answer to a short question"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One delivered answer."""

    key: str
    spoken: Spoken
    output_tokens: int | None = None
    is_cut: bool = False  # it ran into the limit on tokens, inside its trace or after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All answers of one check."""

    right: tuple[Heard, ...]
    wrong: tuple[Heard, ...]
    cut_off: tuple[Heard, ...]  # the reasoning trace did not end
    faults: tuple[Finding, ...]  # one per answer that was due and did not come

    @property
    def delivered(self) -> tuple[Heard, ...]:
        """Every answer that came, whatever it says."""
        return self.right + self.wrong + self.cut_off


def tally(
    check: str, questions: Sequence[tuple[str, Callable[[str], bool]]], answers: Mapping[str, Answer]
) -> Tally:
    """The answers of `check` by key, each accepted or not by its question's own test."""
    right: list[Heard] = []
    wrong: list[Heard] = []
    cut_off: list[Heard] = []
    faults: list[Finding] = []
    for key, accepts in questions:
        heard = hear(check, key, answers)
        if isinstance(heard, Finding):
            faults.append(heard)
        elif not heard.spoken.is_finished:
            cut_off.append(heard)
        else:
            (right if accepts(heard.spoken.answer) else wrong).append(heard)
    return Tally(right=tuple(right), wrong=tuple(wrong), cut_off=tuple(cut_off), faults=tuple(faults))


def hear(check: str, key: str, answers: Mapping[str, Answer]) -> Heard | Finding:
    """What was said to `key`, or the finding that nothing was."""
    answer = settled(answers, key)
    source = f"answer {check}/{key}"
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault):
        return _undelivered(check, reply, source)
    spoken = split_reply(reply)
    if spoken.answer or spoken.trace or reply.tool_calls:
        return Heard(
            key=key,
            spoken=spoken,
            output_tokens=reply.completion_tokens,
            is_cut=reply.finish_reason == "length",
        )
    return Finding(
        id=f"{check}.delivery",
        severity=Severity.FAILURE,
        summary=f"an empty answer, finish reason `{reply.finish_reason}`",
        expected=_EXPECTED,
        explanation="clients get a success without content",
        action=(
            "look for an end-of-text token that comes first: a chat template or tokenizer that does not"
            " belong to these weights does this"
        ),
        evidence=(Evidence(source=source, text=_short(answer.body if answer else "")),),
    )


def _undelivered(check: str, fault: Fault, source: str) -> Finding:
    """The finding for a fault; a refusal weighs more here, because nothing special was asked for."""
    finding = fault_finding(f"{check}.delivery", fault, source=source, expected=_EXPECTED)
    if fault.kind is not FaultKind.REFUSED:
        return finding
    lacks_template = "chat template" in fault.quote.lower() or "chat_template" in fault.quote.lower()
    return replace(
        finding,
        severity=Severity.FAILURE,
        summary=f"a plain chat request is refused: {fault.what}",
        explanation="nothing special was asked for, so no client can chat with this model as it is served",
        action=(
            "start the engine with `--chat-template`, or serve the instruct weights instead of the base model"
            if lacks_template
            else "read the message; check that the URL is the engine's and that the model can chat"
        ),
    )


def fault_findings(sorted_answers: Tally, asked: int) -> tuple[Finding, ...]:
    """One finding for all answers that did not come, the worst one's, with the count; none when all came."""
    faults = sorted(sorted_answers.faults, key=lambda fault: WORST_FIRST.index(fault.severity))
    if not faults:
        return ()
    worst = faults[0]
    if asked == 1:
        return (worst,)
    return (replace(worst, summary=f"{len(faults)} of {asked} questions: {worst.summary}"),)


def cut_off_findings(check: str, sorted_answers: Tally) -> tuple[Finding, ...]:
    """A finding for traces that did not end, none when all did."""
    cut = sorted_answers.cut_off
    if not cut:
        return ()
    tokens = max((heard.output_tokens or 0 for heard in cut), default=0)
    within = f"within {tokens} tokens" if tokens else "within the tokens allowed"
    return (
        Finding(
            id=f"{check}.trace",
            severity=Severity.UNKNOWN,
            summary=f"not measured: the reasoning trace of {len(cut)} question(s) did not end {within}",
            expected="a trace that ends and is followed by an answer",
            explanation="a cut-off answer is neither right nor wrong; a trace that never ends is a loop",
            action="ask again with more depth (`--full`), and look at the trace below for repetition",
            evidence=quotes(check, cut[:3]),
        ),
    )


def quotes(check: str, heard: Sequence[Heard]) -> tuple[Evidence, ...]:
    """Each answer, quoted; its trace where there is no answer."""
    return tuple(
        Evidence(source=f"answer {check}/{one.key}", text=_short(one.spoken.answer or one.spoken.trace))
        for one in heard
    )


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def graded_findings(
    check: str, sorted_answers: Tally, *, what: str, ability: Ability, able_from: Ability, expected: str
) -> tuple[Finding, ...]:
    """The finding on what was right and wrong; none when no answer can be judged. `what`: "facts right"."""
    right, wrong = len(sorted_answers.right), len(sorted_answers.wrong)
    if not right + wrong:
        return ()
    severity = grade(ability, right=right, asked=right + wrong, able_from=able_from)
    return (
        Finding(
            id=check,
            severity=severity,
            summary=f"{right} of {right + wrong} {what}",
            expected=expected,
            explanation=explain(severity, ability),
            action=advise(severity),
            evidence=quotes(check, sorted_answers.wrong[:3] or sorted_answers.right[:1]),
        ),
    )
