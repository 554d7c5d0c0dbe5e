import json

import pytest

from bringup.checks import MAX_ROUNDS, Replies
from bringup.checks.code import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Ask, Problem, Program, ProgramResult

GOOD = "Here you are:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds."


def respond(make, text, results=(), problem="", unavailable="", **more):
    """Judgement, asks and programs at quick depth, with a sandbox that says what it is told."""
    deployment = make.deployment(depth=Depth.QUICK, **more)
    answers, programs, ran = {}, {}, []
    for _ in range(MAX_ROUNDS):
        batch = CHECK.asks(deployment, Replies(answers=dict(answers), programs=dict(programs), everyone={}))
        if not batch:
            break
        for one in batch:
            if isinstance(one, Program):
                assert one.key not in programs
                ran.append(one)
                programs[one.key] = ProgramResult(
                    key=one.key, results=results, problem=problem, unavailable=unavailable
                )
            else:
                assert isinstance(one, Ask)
                answers[one.key] = text(one) if callable(text) else make.whole(one.key, text)
    return CHECK.judge(deployment, Replies(answers=answers, programs=programs, everyone={})), ran


def test_a_function_that_works_is_ok(make):
    judgement, ran = respond(make, GOOD, results=("5", "0", "1234"))
    assert make.found(judgement) == {"code": "ok"}
    assert ran[0].source == "def add(a, b):\n    return a + b"
    assert ran[0].calls == ("add(2, 3)", "add(-7, 7)", "add(1200, 34)")


@pytest.mark.parametrize(
    ("results", "problem", "said"),
    [
        (("6", "0", "1234"), "", "`add(2, 3)` gave 6, not 5"),
        (("5", "!TypeError: no", "1234"), "", "`add(-7, 7)` gave !TypeError: no, not 0"),
        (("5",), "time limit", "time limit"),
        ((), "SyntaxError: invalid syntax (<program>, line 1)", "SyntaxError"),
        (("5", "0", "1234"), "the program wrote where only results are written", "wrote where only"),
        (("5", "0"), "", "not every call was answered"),
    ],
)
@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_a_function_that_does_not_work_weighs_by_the_size_of_the_model(
    make, results, problem, said, ability, severity
):
    judgement, _ = respond(make, GOOD, results=results, problem=problem, ability=ability)
    assert make.found(judgement) == {"code": severity}
    assert said in judgement.findings[0].summary


def test_an_answer_without_the_function_is_judged_without_running_anything(make):
    judgement, ran = respond(make, "I would rather not.", ability=Ability.CAPABLE)
    assert ran == []
    assert make.found(judgement) == {"code": "failure"}
    assert "no function `add`" in judgement.findings[0].summary


def test_without_isolation_nothing_is_known(make):
    judgement, _ = respond(make, GOOD, unavailable="isolation needs Linux namespaces; this is darwin")
    assert make.found(judgement) == {"code.isolation": "unknown"}
    assert "darwin" in judgement.findings[0].summary


def test_a_program_that_was_not_run_is_unknown(make):
    deployment = make.deployment(depth=Depth.QUICK)
    judgement = make.judge(CHECK, deployment, make.whole("add", GOOD))
    assert make.found(judgement) == {"code.isolation": "unknown"}


def test_an_answer_that_did_not_come_is_no_weak_code(make):
    judgement, ran = respond(make, lambda ask: make.broken(ask.key, Problem.RESET), ability=Ability.TINY)
    assert ran == []
    assert make.found(judgement) == {"code.delivery": "failure"}


def test_a_cut_off_trace_is_asked_again(make):
    def text(ask):
        if json.loads(ask.body)["max_tokens"] < 100:
            return make.whole(ask.key, "<think>I need", finish="length")
        return make.whole(ask.key, f"<think>def add(x): wrong</think>{GOOD}")

    judgement, ran = respond(make, text, results=("5", "0", "1234"))
    assert make.found(judgement) == {"code": "ok"}
    assert "wrong" not in ran[0].source


def test_deeper_asks_more_functions(make):
    deployment = make.deployment(depth=Depth.DEFAULT)
    batch = CHECK.asks(deployment, Replies(answers={}, programs={}, everyone={}))
    assert [ask.key for ask in batch] == ["add", "is_palindrome", "fibonacci"]
