"""Whether the model calculates, and where its reasoning trace ends up.

Arithmetic is the first thing that a damaged model loses while its sentences still sound right: 7 x 13 = 91
needs every layer. A reasoning trace is looked for in every form, because a trace that reaches the answer is
the most frequent fault of a reasoning model that otherwise works.

Seen in: SmolLM2-135M-Instruct, which gives 77 for 7 x 13 with nothing broken; vLLM and SGLang put the
trace into `reasoning_content` or `reasoning`, or leave it in the answer without a reasoning parser.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.reasoning import Place
from bringup.parse.second_try import next_asks
from bringup.parse.short_answer import gives_number
from bringup.parse.tally import Heard, Tally, cut_off_findings, fault_findings, graded_findings, quotes, tally
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.parsers import as_arguments, reasoning_fixes

# No result is one of its own operands, so that an echo of the question is not taken for the answer.
_EXERCISES = (
    ("7x13", "7 x 13", 91),
    ("12x12", "12 x 12", 144),
    ("9x8", "9 x 8", 72),
    ("17x6", "17 x 6", 102),
    ("48+57", "48 + 57", 105),
    ("123+456", "123 + 456", 579),
    ("100-37", "100 - 37", 63),
    ("81-29", "81 - 29", 52),
    ("144/16", "144 / 16", 9),
    ("2^10", "2 to the power of 10", 1024),
)
_MAX_TOKENS = 24
_QUOTED = 200  # characters of a trace that a finding quotes
_PLACE_WORDS = {
    Place.FIELD: "in its own field",
    Place.IN_ANSWER: "in the answer",
    Place.CLOSING_ONLY: "in the answer, without its opening mark",
}


def _exercises(deployment: Deployment) -> tuple[tuple[str, str, int], ...]:
    return _EXERCISES[:1] if deployment.depth is Depth.QUICK else _EXERCISES


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    first = tuple(
        Ask(
            key=key,
            body=chat_body(
                deployment.model.id,
                f"What is {exercise}? Answer with the number only.",
                max_tokens=_MAX_TOKENS,
            ),
        )
        for key, exercise, _ in _exercises(deployment)
    )
    return next_asks(first, replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    tests: list[tuple[str, Callable[[str], bool]]] = [
        (key, partial(gives_number, number=result)) for key, _, result in _exercises(deployment)
    ]
    heard = tally("arithmetic", tests, replies.answers)
    findings = (
        *fault_findings(heard, len(tests)),
        *cut_off_findings("arithmetic", heard),
        *_graded(deployment.ability, heard),
        *_leaks(deployment, heard),
    )
    return Judgement(findings=findings, measurements=_trace(heard))


def _graded(ability: Ability, heard: Tally) -> tuple[Finding, ...]:
    """The finding on right and wrong; 7 x 13 itself is not forgiven to a model that can do it."""
    graded = graded_findings(
        "arithmetic",
        heard,
        what="calculations right",
        ability=ability,
        able_from=Ability.CAPABLE,
        expected="7 x 13 = 91, and others of that kind",
    )
    missed_first = any(one.key == _EXERCISES[0][0] for one in heard.wrong)
    if ability is Ability.CAPABLE and missed_first:
        return tuple(replace(finding, severity=Severity.FAILURE) for finding in graded)
    return graded


def _trace(heard: Tally) -> tuple[Measurement, ...]:
    """Where the reasoning trace was found; nothing when no answer came."""
    if not heard.delivered:
        return ()
    places = sorted({one.spoken.place for one in heard.delivered} - {Place.NONE})
    value = ", ".join(_PLACE_WORDS[place] for place in places) or "none"
    return (Measurement(name="reasoning trace", value=value),)


def _leaks(deployment: Deployment, heard: Tally) -> tuple[Finding, ...]:
    """A finding when the trace reaches the answer."""
    leaking = tuple(one for one in heard.delivered if one.spoken.is_leaking)
    if not leaking:
        return ()
    parser = deployment.engine.reasoning_parser
    if parser and "append" in parser:
        return (_by_design(parser, leaking),)
    fixes = reasoning_fixes(deployment.engine.engine, deployment.model.root or deployment.model.id)
    is_opened = any(one.spoken.place is Place.IN_ANSWER for one in leaking)
    cause = f"reasoning parser `{parser}` does not match this model" if parser else "no reasoning parser"
    action = f"start the engine with {as_arguments(fixes)}" if fixes else "set the engine's reasoning parser"
    return (
        Finding(
            id="arithmetic.reasoning_leak",
            severity=Severity.WARNING,
            summary=(
                f"the reasoning trace is in the answer of {len(leaking)} of {len(heard.delivered)} replies"
                f"{'' if is_opened else ', without its opening mark'}: {cause}"
            ),
            expected="the trace in `reasoning_content` or `reasoning`, the answer alone in `content`",
            explanation="clients show the trace to users, store it in the history and pay for it again",
            action=action,
            evidence=tuple(
                Evidence(source=f"answer arithmetic/{one.key}", text=_beginning(one.spoken.trace))
                for one in leaking[:2]
            ),
            fixes=fixes,
        ),
    )


def _by_design(parser: str, leaking: tuple[Heard, ...]) -> Finding:
    return Finding(
        id="arithmetic.reasoning_leak",
        severity=Severity.NOTE,
        summary=f"the reasoning trace stays in the answer, as parser `{parser}` is meant to do",
        expected="the trace wherever the configured parser puts it",
        explanation="clients must take it out before they show the answer",
        action="choose the parser without `append` when clients expect `reasoning_content`",
        evidence=quotes("arithmetic", leaking[:1]),
    )


def _beginning(trace: str) -> str:
    return trace if len(trace) <= _QUOTED else f"{trace[:_QUOTED]}..."


CHECK = Check(title="calculates", depth=Depth.QUICK, asks=_asks, judge=_judge)
