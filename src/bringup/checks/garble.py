"""No text that any check got is machine garbage.

Source: NaN in the logits makes argmax return token 0, which is `!` in the vocabularies of GPT-2 descent,
hence answers of `!!!!`; wrong quantisation scales, a wrong rope setting or damaged weights give mixed scripts
or loops; bytes lost in the detokeniser give U+FFFD.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.parse.answer_fault import fault_of
from bringup.parse.chat import read_reply
from bringup.parse.text_quality import Sign, garble_signs
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity

# Their requests are broken on purpose (temperature -5 and the like), so nonsense is a fair answer.
_NOT_JUDGED = frozenset({"bad_requests", "context_limit"})
_TELLING = 4  # tokens: fewer may be a line break or half a character
_BROKEN_SHARE = 0.5  # of the texts: above it not even a tiny model counts as weak only
_CAPABLE_SHARE = 0.1  # of the texts: a model of 7e9 parameters and more does not go this far


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """One text and where it came from."""

    source: str
    text: str
    signs: tuple[Sign, ...]
    is_empty: bool


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """One finding over all texts, hard signs first."""
    texts = tuple(_texts(replies))
    expected = "language, code or data in every answer"
    if not texts:
        finding = Finding(
            id="garble",
            severity=Severity.UNKNOWN,
            summary="not measured: no check got a text",
            expected=expected,
            explanation="the engine gave no answer that could be read",
            action="see the other findings first",
        )
        return Judgement(findings=(finding,))
    findings = tuple(_findings(deployment, texts, expected))
    if not findings:
        summary = f"{len(texts)} {'answer' if len(texts) == 1 else 'answers'} read, no sign of garbage"
        findings = (Finding(id="garble", severity=Severity.OK, summary=summary, expected=expected),)
    return Judgement(
        findings=findings, measurements=(Measurement(name="texts read for garbage", value=len(texts)),)
    )


def _texts(replies: Replies) -> Iterator[_Text]:
    for check, answers in sorted(replies.everyone.items()):
        if check in _NOT_JUDGED:
            continue
        for key, answer in sorted(answers.items()):
            if not (answer.problem is None or answer.arrivals) or answer.status != 200:
                continue
            reply = read_reply(answer)
            said = reply.everything
            is_chat = reply.is_stream or reply.finish_reason is not None
            is_cut_short = reply.finish_reason == "length" and (reply.completion_tokens or 0) < _TELLING
            is_empty = not (said.strip() or reply.tool_calls or is_cut_short)
            if not is_chat or (is_empty and (fault_of(answer) or answer.problem)):
                continue  # no model's answer at all; whoever asked says so
            yield _Text(
                source=f"answer {check}/{key}", text=said, signs=garble_signs(said), is_empty=is_empty
            )


def _findings(deployment: Deployment, texts: tuple[_Text, ...], expected: str) -> Iterator[Finding]:
    hard = tuple(text for text in texts if any(sign.is_hard for sign in text.signs))
    template = tuple(text for text in texts if any(sign.name == "template tokens" for sign in text.signs))
    soft = tuple(
        text
        for text in texts
        if text not in hard and any(sign.name != "template tokens" for sign in text.signs)
    )
    empty = tuple(text for text in texts if text.is_empty)
    if hard:
        yield Finding(
            id="garble",
            severity=Severity.FAILURE,
            summary=f"{len(hard)} of {len(texts)} answers are garbage: {_first(hard, is_hard=True)}",
            expected=expected,
            explanation="no model says this, however small: the numbers go wrong (NaN in the logits, a bad "
            "kernel or quantisation, damaged weights) or the detokeniser loses bytes",
            action="compare the weights' checksums, then start without quantised KV cache, CUDA graphs and "
            "custom all-reduce, one after the other, to find which one it is",
            evidence=_quotes(hard),
        )
    if soft:
        yield _soft(deployment, soft, len(texts), expected)
    if empty:
        yield _empty(deployment, empty, len(texts))
    if template:
        yield Finding(
            id="garble.template",
            severity=Severity.WARNING,
            summary=f"marks of the chat template stand in {len(template)} of {len(texts)} answers: "
            f"{_sign(template[0], 'template tokens').words}",
            expected="the template's marks stay inside the engine",
            explanation="the end-of-turn token is not known as such: answers run on and show marks to users",
            action="check chat template, `eos_token_id` of generation_config.json and the tokenizer files",
            evidence=_quotes(template),
        )


def _soft(deployment: Deployment, soft: tuple[_Text, ...], total: int, expected: str) -> Finding:
    share = len(soft) / total
    if share > _BROKEN_SHARE and total >= 4:
        severity, why = Severity.FAILURE, "so many that the model as served does not work"
    elif deployment.ability in (Ability.TINY, Ability.SMALL):
        severity, why = Severity.NOTE, "models of this size fall into loops at temperature 0"
    elif deployment.ability is Ability.CAPABLE and share > _CAPABLE_SHARE:
        severity = Severity.FAILURE
        why = "models of this size do not do this: weights, quantisation or rope scaling"
    else:
        severity, why = Severity.WARNING, "a sound model does this rarely, and then at temperature 0"
    return Finding(
        id="garble.loops",
        severity=severity,
        summary=f"{len(soft)} of {total} answers do not read like language: {_first(soft, is_hard=False)}",
        expected=expected,
        explanation=why,
        action="read the quoted answers"
        if severity is Severity.NOTE
        else "compare with the same weights elsewhere",
        evidence=_quotes(soft),
    )


def _empty(deployment: Deployment, empty: tuple[_Text, ...], total: int) -> Finding:
    if len(empty) > _BROKEN_SHARE * total:
        severity = Severity.FAILURE
    else:
        severity = Severity.NOTE if deployment.ability is Ability.TINY else Severity.WARNING
    return Finding(
        id="garble.empty",
        severity=severity,
        summary=f"{len(empty)} of {total} answers are empty",
        expected="a text, a reasoning trace or a tool call in every answer",
        explanation="the model ended its turn at once, or something (a parser) swallowed its output",
        action="check chat template, reasoning parser and tool parser of the engine",
        evidence=tuple(Evidence(source=text.source, text="(empty)") for text in empty[:5]),
    )


def _sign(text: _Text, name: str) -> Sign:
    return next(sign for sign in text.signs if sign.name == name)


def _first(texts: tuple[_Text, ...], *, is_hard: bool) -> str:
    return next(sign.words for sign in texts[0].signs if sign.is_hard is is_hard)


def _quotes(texts: tuple[_Text, ...]) -> tuple[Evidence, ...]:
    return tuple(Evidence(source=text.source, text=text.text[:200]) for text in texts[:5])


CHECK = Check(title="no garbage in any answer", phase="judge", depth=Depth.QUICK, judge=judge, reads_all=True)
