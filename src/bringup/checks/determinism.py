"""One question has one answer at temperature 0: asked alone, again, and among others.

Source: GPU kernels choose their tiling by the batch's size, so that sums are rounded in another order and a
close call between two tokens goes the other way: differing is expected there, garbage is not. vLLM has a mode
in which it may not differ (`VLLM_BATCH_INVARIANT=1`), SGLang too (`--enable-deterministic-inference`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.parse.text_difference import first_difference
from bringup.parse.text_quality import garble_signs, is_salad
from bringup.values.deployment import Ability, Deployment
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_PROMPT = "Count from 1 to 30."
_TOKENS = 32
_OTHERS = (
    "Write a sentence about the sea.",
    "Write a sentence about winter.",
    "Name three animals.",
    "Name three colours.",
    "What is a bicycle?",
    "What is bread made of?",
    "Count from 50 to 60.",
    "Write a line of Python that prints hello.",
)
_CROWD = 16  # others at the same time
_ALONE = ("alone 1", "alone 2")
_AMONG = ("among 1", "among 2")
_EXPECTED = "the same answer every time at temperature 0"
_INVARIANT = ("enable_deterministic_inference", "batch_invariant", "vllm_batch_invariant")


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """Alone, alone again (a third time when they differ), then twice in a crowd."""
    answers = replies.answers
    for key in _ALONE:
        if key not in answers:
            return (_ask(deployment, key, _PROMPT),)
    if any(fault_of(answers[key]) for key in _ALONE):
        return ()
    if "alone 3" not in answers and _text(answers, "alone 1") != _text(answers, "alone 2"):
        return (_ask(deployment, "alone 3", _PROMPT),)
    if "among 1" in answers:
        return ()
    crowd = [
        _ask(deployment, f"other {number + 1}", _OTHERS[number % len(_OTHERS)]) for number in range(_CROWD)
    ]
    middle = _CROWD // 2
    return (
        *crowd[:middle],
        *(_ask(deployment, key, _PROMPT) for key in _AMONG),
        *crowd[middle:],
    )


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Errors and garbage first, then differences."""
    answers = replies.answers
    alone = reply_or_fault(answers.get("alone 1"))
    if isinstance(alone, Fault):
        finding = fault_finding("determinism", alone, source="answer determinism/alone 1", expected=_EXPECTED)
        return Judgement(findings=(finding,))
    findings = (*_errors(answers), *_garbage(deployment, answers, alone))
    if not findings:
        findings = (*_alone(answers, alone), *_among(deployment, answers, alone))
    if not findings:
        crowd = sum(1 for key in answers if key.startswith("other"))
        summary = f"4 equal answers: alone, again, and twice among {crowd} others"
        findings = (Finding(id="determinism", severity=Severity.OK, summary=summary, expected=_EXPECTED),)
    return Judgement(findings=findings)


def _ask(deployment: Deployment, key: str, prompt: str) -> Ask:
    return Ask(key=key, body=chat_body(deployment.model.id, prompt, max_tokens=_TOKENS))


def _text(answers: Mapping[str, Answer], key: str) -> str | None:
    """The text of one answer; None when there is none."""
    reply = reply_or_fault(answers.get(key))
    return None if isinstance(reply, Fault) else reply.everything


def _errors(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """The first error among the repetitions and the crowd, with the count."""
    not_asked = Fault(kind=FaultKind.NOT_ASKED, what="the others were not asked")
    keys = [key for key in answers if key != "alone 1"]
    faults = [(key, fault) for key in keys if (fault := fault_of(answers[key])) is not None]
    if "among 1" not in answers and not faults:
        faults = [("among 1", not_asked)]
    if not faults:
        return
    key, fault = faults[0]
    finding = fault_finding(
        "determinism.errors" if "alone" in key else "determinism.concurrency",
        fault,
        source=f"answer determinism/{key}",
        expected=f"{len(keys)} answers, most of them at the same time",
    )
    where = "" if "alone" in key else " when asked at the same time"
    yield replace(finding, summary=f"{len(faults)} of {len(keys)} requests failed{where}: {fault.what}")


def _garbage(deployment: Deployment, answers: Mapping[str, Answer], alone: ChatReply) -> Iterator[Finding]:
    """Sound alone and garbage in a crowd: never a matter of rounding."""
    if garble_signs(alone.everything) or not alone.everything.strip():
        return  # `garble` says so
    crowd = {key: text for key in answers if "alone" not in key and (text := _text(answers, key)) is not None}
    same = {key: text for key, text in crowd.items() if key in _AMONG and garble_signs(text)}
    others = {key: text for key, text in crowd.items() if key not in _AMONG and is_salad(text)}
    empty = {key: text for key, text in crowd.items() if key in _AMONG and not text.strip()}
    bad = same | others | empty
    if not bad:
        return
    is_certain = bool(others or empty) or deployment.ability is not Ability.TINY
    yield Finding(
        id="determinism.garbage",
        severity=Severity.FAILURE if is_certain else Severity.WARNING,
        summary=f"garbage under concurrency: {len(bad)} of {len(crowd)} answers, though sound alone",
        expected="sound answers however many are asked at the same time",
        explanation="requests disturb one another: wrong KV blocks, a faulty batched kernel or all-reduce",
        action="try without CUDA graphs, prefix caching and custom all-reduce, one after the other; then "
        "`bringup p2p` for GPU-to-GPU copies",
        evidence=(
            Evidence(source="answer determinism/alone 1", text=alone.everything[:200]),
            *_quotes({key: text or "(empty)" for key, text in bad.items()}),
        ),
    )


def _alone(answers: Mapping[str, Answer], alone: ChatReply) -> Iterator[Finding]:
    again, third = _text(answers, "alone 2"), _text(answers, "alone 3")
    if again is None or (place := first_difference(alone.everything, again)) is None:
        return
    if third == again:
        severity = Severity.NOTE
        why = "only the first answer differs: a cached prompt is computed in other pieces than a new one"
    else:
        severity = Severity.WARNING
        why = "it varies on a quiet engine: something drops `temperature`, or kernels vary by themselves"
    yield Finding(
        id="determinism.alone",
        severity=severity,
        summary=f"asked twice alone, the answers differ {place}",
        expected=_EXPECTED,
        explanation=why,
        action="look for a sampling default or a proxy that overrides `temperature`, and for prefix caching",
        evidence=_quotes({"alone 1": alone.everything, "alone 2": again, "alone 3": third}),
    )


def _among(deployment: Deployment, answers: Mapping[str, Answer], alone: ChatReply) -> Iterator[Finding]:
    known = {alone.everything, _text(answers, "alone 2"), _text(answers, "alone 3")}
    texts = {key: _text(answers, key) for key in _AMONG}
    differing = {key: text for key, text in texts.items() if text is not None and text not in known}
    if not differing:
        return
    flag = _invariant_flag(deployment)
    key, text = next(iter(differing.items()))
    yield Finding(
        id="determinism.among",
        severity=Severity.WARNING if flag else Severity.NOTE,
        summary=f"among others the answer differs {first_difference(alone.everything, text)}",
        expected=_EXPECTED + (f", as `{flag}` promises" if flag else ""),
        explanation="sums are rounded in another order in another batch, and a close call between two "
        "tokens goes the other way: usual on GPUs, and no loss of quality"
        if not flag
        else "the engine runs in its batch-invariant mode, so this should not be",
        action="none; where answers must be repeatable use the engine's batch-invariant mode"
        if not flag
        else "check that the mode covers this attention backend and quantisation",
        evidence=_quotes({"alone 1": alone.everything, key: text}),
    )


def _invariant_flag(deployment: Deployment) -> str:
    """The flag that promises equal answers in every batch, where it is set."""
    flags = deployment.engine.flags | (deployment.spec.flags if deployment.spec else {})
    for name, value in flags.items():
        plain = name.strip("-").replace("-", "_").lower()
        if plain in _INVARIANT and value.lower() not in ("false", "0", "none"):
            return name
    return ""


def _quotes(texts: Mapping[str, str | None]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(source=f"answer determinism/{key}", text=text[:200]) for key, text in texts.items() if text
    )


CHECK = Check(title="same question, same answer", phase="exclusive", asks=asks, judge=judge)
