import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import CALIBRATED, first, said, shared_out, synthetic
from bringup.values.bench import RequestRecord
from bringup.values.deployment import Ability
from bringup.values.finding import Severity
from bringup.workload.answers import answered, answers_finding, request_of, to_ask_again
from bringup.workload.conversations import Conversations
from bringup.workload.filler import WORDS
from bringup.workload.known_questions import (
    Judged,
    Verdict,
    WithQuestions,
    judge_record,
    judge_text,
    question_tails,
    question_text,
)
from bringup.workload.lengths import fixed_length
from bringup.workload.request_body import BodyShape

RIGHT = {
    "capital": "The capital of France is Paris.",
    "japan": "Tokyo",
    "sum": "2 + 2 = 4",
    "opposite": "The opposite of hot is **cold**.",
    "week": "There are seven days in a week.",
    "secret river": 'The secret word is "river".',
}


def with_questions(share=0.1, lengths="60:200", **fields):
    inner = synthetic(lengths, "24", **fields)
    return WithQuestions(workload=inner, padding=inner, share=share, seed=5)


def record(text, key="capital", index=0, **fields):
    fields = {"output_tokens": 24, "events": 24, "finish_reason": "length"} | fields
    return RequestRecord(index=index, sent=0, question=key, text=text, **fields)


@pytest.mark.parametrize(("key", "text"), RIGHT.items())
def test_a_right_answer_is_right_with_anything_after_it(key, text):
    assert judge_text(text, key).verdict is Verdict.RIGHT
    assert judge_text(f"{text}\n\n!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", key).verdict is Verdict.RIGHT
    assert judge_text(f"<think>\nThe user asks.\n</think>\n\n{text}", key).verdict is Verdict.RIGHT


@pytest.mark.parametrize(
    ("text", "key", "verdict"),
    [
        ("The capital of France is London.", "capital", Verdict.WRONG),
        ("2 + 2 = 5, as everybody knows, or so they say", "sum", Verdict.WRONG),
        ("What is 2 + 2?", "sum", Verdict.WRONG),
        ("The secret word is cloud.", "secret river", Verdict.WRONG),
        ("a comparison of things", "capital", Verdict.WRONG),
        ("word " * 100 + "Paris", "capital", Verdict.WRONG),  # too late to be the answer
        ("", "capital", Verdict.EMPTY),
        (" \n ", "capital", Verdict.EMPTY),
        ("!" * 60, "capital", Verdict.GARBLED),
        ("\ufffd" * 8 + " the", "capital", Verdict.GARBLED),
    ],
)
def test_a_wrong_answer_is_told_apart(text, key, verdict):
    judged = judge_text(text, key, output_tokens=24)
    assert judged.verdict is verdict
    assert judged.reason


def test_a_reason_says_what_was_wanted_and_found():
    assert judge_text("London", "capital").reason == "wanted `Paris`, found `London`"


@pytest.mark.parametrize("text", ["The", ""])
def test_an_answer_too_short_to_judge_is_not_judged(text):
    assert judge_record(record(text, output_tokens=1, events=1)).verdict is Verdict.CUT
    assert judge_record(record("Paris", output_tokens=1)).verdict is Verdict.RIGHT


def test_an_answer_that_ended_in_the_reasoning_is_not_judged():
    assert judge_record(record("", reasoning_tokens=24)).verdict is Verdict.CUT
    assert judge_record(record("", events=24)).verdict is Verdict.CUT
    assert judge_record(record("", events=0)).verdict is Verdict.EMPTY


@pytest.mark.parametrize("fields", [{"error": "time limit"}, {"is_cancelled": True}, {"question": None}])
def test_a_request_that_brought_no_whole_answer_is_not_judged(fields):
    made = RequestRecord(**({"index": 0, "sent": 0, "question": "capital", "text": "London"} | fields))
    assert judge_record(made) is None
    assert answered([made]) == ()


@given(generators=st.integers(1, 7))
def test_the_same_requests_are_questions_for_any_number_of_generators(generators):
    workload = with_questions()
    alone = first(workload, 60)
    assert shared_out(workload, 60, generators) == alone
    assert pickle.loads(pickle.dumps(workload)) == workload


@pytest.mark.parametrize(("share", "wanted"), [(0.02, 20), (0.1, 100), (1.0, 1000)])
def test_the_asked_share_are_questions_and_the_first_request_always(share, wanted):
    keys = [one.question for one in first(with_questions(share), 1000)]
    assert sum(key is not None for key in keys) == wanted
    assert keys[0] is not None


def test_no_share_changes_nothing():
    assert first(with_questions(0.0), 30) == first(synthetic("60:200", "24"), 30)


def test_questions_are_as_long_as_what_they_replace_and_end_in_the_question():
    workload = with_questions(1.0, calibration=replaced_tails())
    for question, plain in zip(first(workload, 40), first(workload.workload, 40), strict=True):
        assert question.input_tokens == plain.input_tokens
        assert question.output_tokens == plain.output_tokens
        assert len(said(question).split()) + CALIBRATED.overhead == question.input_tokens
        assert said(question).endswith(question_text(question.question))
        assert "\n\n" in said(question)
        assert json.loads(question.body)["max_tokens"] == 24


def test_a_completion_says_whose_turn_it_is():
    (request,) = first(with_questions(1.0, shape=BodyShape(model="m", is_chat=False)), 1)
    assert said(request).endswith(f"\n\nQuestion: {question_text(request.question)}\nAnswer:")
    assert question_tails(is_chat=False)["sum"].startswith("\n\nQuestion: What is 2 + 2?")


def replaced_tails():
    tails = tuple((key, len(text.split())) for key, text in question_tails().items())
    return type(CALIBRATED)(overhead=CALIBRATED.overhead, spread=0.0, tails=tails)


def test_questions_differ_in_kind_and_secrets_are_words_of_one_token():
    keys = [one.question for one in first(with_questions(1.0), 200)]
    assert {key.partition(" ")[0] for key in keys} == set(question_tails())
    secrets = {key.partition(" ")[2] for key in keys if key.startswith("secret")}
    assert len(secrets) > 20
    assert secrets <= set(WORDS)


def test_a_question_keeps_the_shared_prefix():
    workload = with_questions(0.5, lengths="209", prefix_share=0.5)
    made = first(workload, 20)
    shared = {tuple(said(one).split()[:90]) for one in made}
    assert len(shared) == 1


def test_a_question_is_no_conversation():
    inner = Conversations(first=synthetic("60"), turns=fixed_length(3), turn_lengths=fixed_length(20))
    made = first(WithQuestions(workload=inner, padding=inner.first, share=0.5), 10)
    asked = [one for one in made if one.question]
    assert all(one.conversation is None for one in asked)
    assert inner.next_turn(made[1] if not made[1].question else made[2], "yes") is not None
    wrapped = WithQuestions(workload=inner, padding=inner.first, share=0.5)
    assert wrapped.next_turn(asked[0], "Paris") is None


def answers(*texts, key="capital"):
    return answered([record(text, key=key, index=index) for index, text in enumerate(texts)])


def test_all_right_is_ok():
    finding = answers_finding(answers(*["Paris"] * 9), {})
    assert (finding.severity, finding.summary) == (Severity.OK, "9 of 9 known questions right")


def test_no_question_is_no_finding():
    assert answers_finding((), {}) is None


def test_garbage_is_a_failure_whatever_the_size():
    finding = answers_finding(answers("!" * 60, *["Paris"] * 9), {}, ability=Ability.TINY)
    assert finding.severity is Severity.FAILURE
    assert finding.summary == "9 of 10 known questions right, 1 garbled"
    assert finding.evidence[0].text == "!" * 60


def test_right_alone_and_wrong_under_load_is_the_loads_doing():
    heard = answers(*["London"] * 4, *["Paris"] * 6)
    right = {index: Judged(verdict=Verdict.RIGHT) for index in to_ask_again(heard)}
    finding = answers_finding(heard, right, ability=Ability.TINY)
    assert finding.severity is Severity.FAILURE
    assert "1 of 1 asked again alone were right" in finding.summary
    assert "right alone and wrong under load" in finding.explanation


def test_one_wrong_answer_of_many_is_a_warning():
    heard = answers("London", *["Paris"] * 60)
    finding = answers_finding(heard, {0: Judged(verdict=Verdict.RIGHT)})
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, Severity.NOTE),
        (Ability.SMALL, Severity.FAILURE),
        (Ability.CAPABLE, Severity.FAILURE),
        (Ability.UNKNOWN, Severity.WARNING),
    ],
)
def test_wrong_alone_as_well_is_weak_for_a_small_model_and_broken_for_a_large_one(ability, severity):
    heard = answers(*["London"] * 4, *["Paris"] * 6)
    finding = answers_finding(heard, {0: Judged(verdict=Verdict.WRONG)}, ability=ability)
    assert finding.severity is severity


def test_nothing_to_judge_is_unknown():
    finding = answers_finding(answered([record("The", output_tokens=1)]), {})
    assert finding.severity is Severity.UNKNOWN
    assert "none of 1 known questions could be judged" in finding.summary


def test_each_kind_of_question_is_asked_again_once_and_the_worst_of_it():
    heard = (*answers("London", "", "Paris"), *answered([record("!" * 60, index=7), record("5", "sum", 8)]))
    assert to_ask_again(heard) == (7, 8)


def test_a_request_can_be_made_once_more_by_its_number():
    workload = with_questions(0.2)
    assert request_of(workload, 17) == first(workload, 18)[17]
