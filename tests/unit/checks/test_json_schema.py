import json

import pytest

from bringup.checks.json_schema import CHECK
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Problem

FACTS = '{"city": "Paris", "country": "France", "population_millions": 2.1}'


def judged(make, text, *, engine="vllm", **more):
    return make.judge(CHECK, make.deployment(engine=engine), make.whole("facts", text, **more))


@pytest.mark.parametrize(
    "text",
    [
        FACTS,
        f"\n  {FACTS}\n",
        FACTS.replace("2.1", "11.133333333333334e+1000"),
        FACTS.replace("2.1", "-1e400"),
        FACTS.replace("2.1", "9" * 10_000),
        f"<think>They want facts.</think>{FACTS}",
    ],
)
def test_an_enforced_schema_is_ok_whatever_the_numbers(make, text):
    assert make.found(judged(make, text)) == {"json_schema": "ok"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Paris is the capital of France.", "not JSON"),
        (f"```json\n{FACTS}\n```", "not JSON"),
        (FACTS.replace("2.1", "NaN"), "not JSON"),
        (FACTS.replace('"France"', "true"), "`country` is a boolean, not a string"),
        ('{"answer": "Paris"}', "`city` is missing"),
        (FACTS.replace("{", '{"river": "Seine", '), "`river` is not in the schema"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the value is an array, not an object"),
    ],
)
def test_a_schema_that_is_not_enforced_is_a_warning(make, text, said):
    judgement = judged(make, text)
    assert make.found(judgement) == {"json_schema": "warning"}
    assert said in judgement.findings[0].summary


def test_a_server_that_may_not_know_schemas_gets_a_note(make):
    assert make.found(judged(make, "Paris.", engine="unknown")) == {"json_schema": "note"}


def test_a_refusal_is_not_supported(make):
    judgement = make.judge(CHECK, make.deployment(), make.error("facts", 400, "guided decoding is off"))
    assert make.found(judgement) == {"json_schema": "note"}
    assert "guided decoding is off" in judgement.findings[0].summary


@pytest.mark.parametrize("problem", [Problem.RESET, Problem.TIME_LIMIT])
def test_a_grammar_that_kills_the_engine_is_a_failure(make, problem):
    judgement = make.judge(CHECK, make.deployment(), make.broken("facts", problem, "after 2 s"))
    assert make.found(judgement) == {"json_schema.delivery": "failure"}
    judgement = make.judge(CHECK, make.deployment(), make.error("facts", 500, "grammar"))
    assert make.found(judgement) == {"json_schema.delivery": "failure"}


def test_json_that_ran_out_of_tokens_is_enforced_as_far_as_it_goes(make):
    judgement = judged(make, '{"city": "Paris, the city of', finish="length")
    assert make.found(judgement) == {"json_schema": "note"}


def test_words_that_ran_out_of_tokens_are_not_enforced(make):
    assert make.found(judged(make, "Paris is a city of", finish="length")) == {"json_schema": "warning"}


def test_a_trace_that_did_not_end_says_nothing(make):
    assert make.found(judged(make, "<think>They want", finish="length")) == {"json_schema": "unknown"}


def test_the_question_does_not_give_the_form_away(make):
    ran = make.run(
        CHECK,
        make.deployment(depth=Depth.FULL, ability=Ability.TINY),
        lambda ask: make.whole(ask.key, FACTS),
    )
    assert [ask.key for ask in ran.asked] == ["facts", "nested"]
    for ask in ran.asked:
        body = json.loads(ask.body)
        assert "json" not in body["messages"][0]["content"].lower()
        assert body["response_format"]["json_schema"]["strict"] is True
    assert make.found(ran.judgement) == {"json_schema": "ok", "json_schema.nested": "warning"}
