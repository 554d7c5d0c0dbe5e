import json

import pytest

from bringup.checks.bad_requests import CHECK
from bringup.values.exchange import Problem


def run(make, engine="vllm", **special):
    """What the check says when all is refused, except `special` (by key with `_` for a space)."""

    def respond(ask):
        if ask.key in ("before", "after"):
            return special.get(ask.key) or make.whole(ask.key, "hi")
        return special.get(ask.key.replace(" ", "_")) or make.error(ask.key, 400, "wrong")

    return make.run(CHECK, make.deployment(engine=engine), respond)


def found(make, engine="vllm", **special):
    return make.found(run(make, engine, **special).judgement)


def test_all_refused(make):
    assert found(make) == {"bad_requests": "ok"}


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_bodies_are_wrong_in_their_way(make):
    bodies = {ask.key: ask.body for ask in run(make).asked}
    assert not is_json(bodies["malformed JSON"])
    assert not is_json(bodies["NUL in JSON"])
    assert "\0" in bodies["NUL in JSON"]
    assert json.loads(bodies["unknown model"])["model"] != "m"
    assert json.loads(bodies["wrong type"])["max_tokens"] == "many"
    assert json.loads(bodies["huge max_tokens"])["max_tokens"] > 1_000_000
    assert json.loads(bodies["negative temperature"])["temperature"] < 0
    assert "\0" in json.loads(bodies["NUL in text"])["messages"][0]["content"]


def test_one_at_a_time_then_a_sound_one(make):
    result = run(make)
    assert result.rounds == len(result.asked) == 9
    assert (result.asked[0].key, result.asked[-1].key) == ("before", "after")


@pytest.mark.parametrize(
    ("engine", "severity"), [("vllm", "warning"), ("sglang", "note"), ("llama_cpp", "note")]
)
def test_any_model_name(make, engine, severity):
    answer = make.whole("unknown model", "hi")
    assert found(make, engine, unknown_model=answer) == {"bad_requests.unknown_model": severity}


@pytest.mark.parametrize(("engine", "severity"), [("vllm", "warning"), ("llama_cpp", "note")])
def test_server_error_for_malformed_json(make, engine, severity):
    answer = make.error("malformed JSON", 500, "parse error")
    assert found(make, engine, malformed_JSON=answer) == {"bad_requests.malformed_json": severity}


def test_server_error_elsewhere_is_a_warning_for_any_engine(make):
    answer = make.error("negative temperature", 500, "boom")
    assert found(make, "llama_cpp", negative_temperature=answer) == {
        "bad_requests.negative_temperature": "warning"
    }


def test_values_capped_in_silence_are_notes(make):
    endless = make.stream(
        "huge max_tokens", ["a "] * 24, finish=None, tokens=None, done=False, problem=Problem.ABORTED
    )
    assert found(make, huge_max_tokens=endless) == {"bad_requests.huge_max_tokens": "note"}


def test_a_nul_in_the_text_may_be_answered(make):
    assert found(make, NUL_in_text=make.whole("NUL in text", "hi")) == {"bad_requests": "ok"}
    assert found(make, NUL_in_text=make.error("NUL in text", 500)) == {"bad_requests.nul_in_text": "warning"}


def test_malformed_json_answered(make):
    assert found(make, malformed_JSON=make.whole("malformed JSON", "hi")) == {
        "bad_requests.malformed_json": "warning"
    }


def test_dead_afterwards_names_the_cause(make):
    result = run(
        make,
        huge_max_tokens=make.broken("huge max_tokens", Problem.RESET),
        negative_temperature=make.broken("negative temperature", Problem.REFUSED),
        after=make.broken("after", Problem.REFUSED),
    )
    assert [ask.key for ask in result.asked][-2:] == ["negative temperature", "after"]
    assert make.found(result.judgement)["bad_requests.after"] == "failure"


def cause(make, **special):
    special["after"] = make.error("after", 500, "EngineCore died")
    (death, *_) = run(make, **special).judgement.findings
    assert death.id == "bad_requests.after"
    return death.summary.removeprefix("after ").partition(" the engine")[0]


def test_the_first_case_without_a_sound_answer_is_to_blame(make):
    dead = {
        key: make.error(key, 500, "EngineCore died")
        for key in ("huge_max_tokens", "negative_temperature", "NUL_in_text", "NUL_in_JSON")
    }
    assert cause(make, **dead) == "`max_tokens: 10000000`"
    assert cause(make) == "a NUL byte in the JSON itself"


@pytest.mark.parametrize("problem", [Problem.TOO_LARGE, Problem.RESET, Problem.TIME_LIMIT])
def test_a_server_that_is_sick_from_the_start_gets_one_finding(make, problem):
    result = make.run(CHECK, make.deployment(), lambda ask: make.broken(ask.key, problem))
    assert make.found(result.judgement) == {"bad_requests": "failure"}


def test_a_reset_that_does_not_kill(make):
    answer = make.broken("wrong type", Problem.RESET)
    assert found(make, wrong_type=answer) == {"bad_requests.wrong_type": "failure"}


@pytest.mark.parametrize(("status", "severity"), [(400, "unknown"), (500, "failure"), (401, "unknown")])
def test_a_server_that_refuses_a_sound_request_is_not_put_to_the_test(make, status, severity):
    result = make.run(CHECK, make.deployment(), lambda ask: make.error(ask.key, status))
    assert make.found(result.judgement) == {"bad_requests": severity}
    assert len(result.asked) == 1


def test_not_asked(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"bad_requests": "unknown"}
    nothing = {ask.key: make.broken(ask.key, Problem.NOT_ASKED) for ask in run(make).asked}
    assert make.found(make.judge(CHECK, make.deployment(), *nothing.values())) == {"bad_requests": "unknown"}
