import pytest

from bringup.checks.garble import CHECK
from bringup.values.deployment import Ability
from bringup.values.exchange import Problem

GOOD = "The capital of France is Paris."
LOOP = "the sea and the sea " * 12


def judged(make, ability=Ability.CAPABLE, **everyone):
    return make.found(make.judge(CHECK, make.deployment(ability=ability), **everyone))


def texts(make, *said, finish="stop"):
    return [make.whole(f"q{place}", text, finish=finish) for place, text in enumerate(said)]


def test_good(make):
    assert judged(make, fact=texts(make, GOOD, GOOD)) == {"garble": "ok"}


def test_nothing_read_is_unknown(make):
    assert judged(make) == {"garble": "unknown"}
    assert judged(make, fact=[make.error("a", 500), make.broken("b", Problem.RESET), make.page("c")]) == {
        "garble": "unknown"
    }


@pytest.mark.parametrize("ability", list(Ability))
def test_hard_signs_are_a_failure_for_any_model(make, ability):
    assert judged(make, ability, fact=texts(make, GOOD, GOOD, GOOD, "!" * 50)) == {"garble": "failure"}
    broken = "Th\ufffd cap\ufffdtal \ufffdf Fr\ufffdnce"
    assert judged(make, ability, fact=texts(make, GOOD, GOOD, GOOD, broken)) == {"garble": "failure"}


@pytest.mark.parametrize(
    ("ability", "good", "severity"),
    [
        (Ability.TINY, 3, "note"),
        (Ability.SMALL, 3, "note"),
        (Ability.UNKNOWN, 3, "warning"),
        (Ability.CAPABLE, 3, "failure"),
        (Ability.CAPABLE, 30, "warning"),
    ],
)
def test_loops_are_weighed_by_size_and_share(make, ability, good, severity):
    assert judged(make, ability, fact=texts(make, LOOP, *[GOOD] * good)) == {"garble.loops": severity}


def test_loops_everywhere_break_even_a_tiny_model(make):
    assert judged(make, Ability.TINY, fact=texts(make, LOOP, LOOP, LOOP, GOOD)) == {"garble.loops": "failure"}


def test_empty_answers(make):
    assert judged(make, fact=texts(make, "", GOOD)) == {"garble.empty": "warning"}
    assert judged(make, Ability.TINY, fact=texts(make, "", GOOD)) == {"garble.empty": "note"}
    assert judged(make, Ability.TINY, fact=texts(make, "", "")) == {"garble.empty": "failure"}
    assert judged(make, Ability.TINY, fact=texts(make, "", "", GOOD)) == {"garble.empty": "failure"}


def test_a_first_token_without_a_sign_is_not_empty(make):
    assert judged(make, long_context=[make.whole("bare", "\n", tokens=1, finish="length")]) == {
        "garble": "ok"
    }


def test_a_tool_call_or_a_trace_is_not_empty(make):
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    answers = [make.whole("a", "", tool_calls=[call]), make.whole("b", "", reasoning_content=GOOD)]
    assert judged(make, tools=answers) == {"garble": "ok"}


def test_template_marks(make):
    assert judged(make, fact=texts(make, f"{GOOD}<|im_end|>", GOOD)) == {"garble.template": "warning"}


def test_answers_to_requests_broken_on_purpose_are_not_judged(make):
    everyone = {"bad_requests": texts(make, "!" * 50), "fact": texts(make, GOOD)}
    assert judged(make, **everyone) == {"garble": "ok"}


def test_a_stream_that_broke_is_read_as_far_as_it_came(make):
    cut = make.stream("s", ["!" * 30], finish=None, tokens=None, done=False, problem=Problem.RESET)
    assert judged(make, streaming=[cut]) == {"garble": "failure"}


def test_the_finding_quotes_where_it_was(make):
    judgement = make.judge(CHECK, make.deployment(), fact=texts(make, GOOD, "!" * 50))
    assert judgement.findings[0].evidence[0].source == "answer fact/q1"
    assert "1 of 2" in judgement.findings[0].summary
