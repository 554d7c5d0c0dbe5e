"""Whether a function that the model writes does what it should: it is extracted and run, shut in.

Seen in: SmolLM2-135M-Instruct at temperature 0, which writes `add` rightly with this wording and a Fibonacci
that looks right and is wrong: only running it tells.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.code_block import extract_function
from bringup.parse.second_try import next_asks
from bringup.parse.tally import Heard, Tally, cut_off_findings, fault_findings, hear, quotes
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Answer, Ask, Program, ProgramResult
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.grade import advise, explain, grade


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exercise:
    """One function to write, with calls and the `repr` that each must give."""

    name: str
    task: str
    cases: tuple[tuple[str, str], ...]


_EXERCISES = (
    _Exercise(
        name="add",
        task="Write a Python function add(a, b) that returns the sum of a and b. Only the code.",
        cases=(("add(2, 3)", "5"), ("add(-7, 7)", "0"), ("add(1200, 34)", "1234")),
    ),
    _Exercise(
        name="is_palindrome",
        task=(
            "Write a Python function is_palindrome(text) that returns True if text reads the same backwards,"
            " else False. Only the code."
        ),
        cases=(
            ("is_palindrome('level')", "True"),
            ("is_palindrome('levels')", "False"),
            ("is_palindrome('')", "True"),
            ("is_palindrome('abba')", "True"),
        ),
    ),
    _Exercise(
        name="fibonacci",
        task=(
            "Write a Python function fibonacci(n) that returns the n-th Fibonacci number, with"
            " fibonacci(0) = 0 and fibonacci(1) = 1. Only the code."
        ),
        cases=(
            ("fibonacci(0)", "0"),
            ("fibonacci(1)", "1"),
            ("fibonacci(2)", "1"),
            ("fibonacci(10)", "55"),
            ("fibonacci(20)", "6765"),
        ),
    ),
)
_MAX_TOKENS = {Depth.QUICK: 48, Depth.DEFAULT: 160, Depth.FULL: 256}  # a cut-off answer is asked again
_EXPECTED = "a function that gives the right result in every case when it is run"


def _exercises(deployment: Deployment) -> tuple[_Exercise, ...]:
    return _EXERCISES[:1] if deployment.depth is Depth.QUICK else _EXERCISES


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    exercises = _exercises(deployment)
    first = tuple(
        Ask(
            key=exercise.name,
            body=chat_body(deployment.model.id, exercise.task, max_tokens=_MAX_TOKENS[deployment.depth]),
        )
        for exercise in exercises
    )
    return next_asks(first, replies.answers, deployment) or tuple(
        program
        for exercise in exercises
        if exercise.name not in replies.programs and (program := _program(exercise, replies.answers))
    )


def _program(exercise: _Exercise, answers: Mapping[str, Answer]) -> Program | None:
    """The program to run for an exercise; None when the answer holds no such function."""
    heard = hear("code", exercise.name, answers)
    source = None if isinstance(heard, Finding) else extract_function(heard.spoken.answer, exercise.name)
    if source is None:
        return None
    return Program(key=exercise.name, source=source, calls=tuple(call for call, _ in exercise.cases))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of one exercise; all empty when the function did as it should."""

    heard: Heard | Finding
    not_run: str = ""  # why nothing is known about what was written
    wrong: str = ""  # what it did instead


def _outcome(exercise: _Exercise, replies: Replies) -> _Outcome:
    heard = hear("code", exercise.name, replies.answers)
    if isinstance(heard, Finding) or not heard.spoken.is_finished:
        return _Outcome(heard=heard)
    if extract_function(heard.spoken.answer, exercise.name) is None:
        return _Outcome(heard=heard, wrong=f"no function `{exercise.name}` in the answer")
    result = replies.programs.get(exercise.name)
    if result is None or result.unavailable:
        return _Outcome(heard=heard, not_run=result.unavailable if result else "the program was not run")
    return _Outcome(heard=heard, wrong=_difference(exercise, result))


def _difference(exercise: _Exercise, result: ProgramResult) -> str:
    """The first case that went wrong, in words; empty when none did."""
    for (call, wanted), got in zip(exercise.cases, result.results, strict=False):
        if got != wanted:
            return f"`{call}` gave {got}, not {wanted}"
    if result.problem:
        return result.problem
    return "" if len(result.results) == len(exercise.cases) else "not every call was answered"


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    outcomes = [_outcome(exercise, replies) for exercise in _exercises(deployment)]
    run = [one for one in outcomes if not one.not_run]
    heard = [(one.heard, one.wrong) for one in run if isinstance(one.heard, Heard)]
    finished = [(one, wrong) for one, wrong in heard if one.spoken.is_finished]
    sorted_answers = Tally(
        right=tuple(one for one, wrong in finished if not wrong),
        wrong=tuple(one for one, wrong in finished if wrong),
        cut_off=tuple(one for one, _ in heard if not one.spoken.is_finished),
        faults=tuple(one.heard for one in run if isinstance(one.heard, Finding)),
    )
    return Judgement(
        findings=(
            *fault_findings(sorted_answers, len(outcomes)),
            *cut_off_findings("code", sorted_answers),
            *_not_run([one.not_run for one in outcomes if one.not_run]),
            *_graded(deployment.ability, sorted_answers, [one.wrong for one in run if one.wrong]),
        )
    )


def _not_run(reasons: list[str]) -> tuple[Finding, ...]:
    if not reasons:
        return ()
    return (
        Finding(
            id="code.isolation",
            severity=Severity.UNKNOWN,
            summary=f"not measured: {len(reasons)} function(s) were written but not run: {reasons[0]}",
            expected=_EXPECTED,
            explanation="code that a model wrote is run only where it cannot do harm",
            action=(
                "run bringup on a Linux machine that allows user namespaces, outside of containers that"
                " forbid them"
            ),
            evidence=(Evidence(source="sandbox", text=reasons[0]),),
        ),
    )


def _graded(ability: Ability, heard: Tally, reasons: list[str]) -> tuple[Finding, ...]:
    right, asked = len(heard.right), len(heard.right) + len(heard.wrong)
    if not asked:
        return ()
    severity = grade(ability, right=right, asked=asked, able_from=Ability.CAPABLE)
    because = f": {reasons[0]}" if reasons else ""
    return (
        Finding(
            id="code",
            severity=severity,
            summary=f"{right} of {asked} functions work when they are run{because}",
            expected=_EXPECTED,
            explanation=explain(severity, ability),
            action=advise(severity),
            evidence=(
                *(Evidence(source="sandbox", text=reason) for reason in reasons),
                *quotes("code", heard.wrong[:2] or heard.right[:1]),
            ),
        ),
    )


CHECK = Check(title="writes code that runs", depth=Depth.QUICK, asks=_asks, judge=_judge)
