"""Ready, not yet, never: by what the endpoint answers and what is known of the process."""

import json

import pytest

from bringup.parse.readiness import Seen, judge_chat, obstacle
from bringup.values.exchange import Answer, Problem
from bringup.values.readiness import State

LOADING = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


def answer(status: int | None = 200, body: str = "", problem: Problem | None = None) -> Answer:
    return Answer(key="x", status=status, body=body, problem=problem, detail="as it says" if problem else "")


REFUSED = answer(None, problem=Problem.REFUSED)


def models(*ids: str) -> Answer:
    return answer(body=json.dumps({"object": "list", "data": [{"id": name} for name in ids]}))


def seen(**facts: object) -> Seen:
    return Seen(**{"expected_model": "m", "health": answer(), "models": models("m"), **facts})


def test_nothing_in_the_way() -> None:
    assert obstacle(seen()) is None
    assert obstacle(seen(is_alive=True, owns_port=True, is_expected_engine=True)) is None
    assert obstacle(seen(expected_model=None, models=models("whatever"))) is None
    assert obstacle(seen(models=models("a", "m"))) is None


def test_a_server_without_a_health_path_is_judged_by_its_models() -> None:
    assert obstacle(seen(health=answer(404, "Not Found"))) is None


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({"is_alive": False}, State.DEAD, "has ended"),
        ({"owns_port": False}, State.SQUATTED, "not started here"),
        ({"is_expected_engine": False}, State.SQUATTED, "another engine"),
        ({"models": models("other")}, State.SQUATTED, "it serves `other` and not `m`"),
        ({"models": models("a", "b", "c", "d")}, State.SQUATTED, "`a`, `b`, `c`, ..."),
        ({"models": answer(200, "<html>Grafana</html>")}, State.SQUATTED, "another kind of server"),
        ({"models": answer(404, "404 page not found")}, State.SQUATTED, "another kind of server"),
        ({"health": answer(None, problem=Problem.MALFORMED)}, State.SQUATTED, "does not speak HTTP"),
        ({"models": answer(401, '{"error": "Unauthorized"}')}, State.CLOSED, "401 (Unauthorized)"),
        ({"health": answer(403)}, State.CLOSED, "needs a key"),
    ],
)
def test_waiting_does_not_help(facts: dict[str, object], state: State, words: str) -> None:
    found = obstacle(seen(**facts))
    assert found is not None
    assert (found.state, found.is_final) == (state, True)
    assert words in found.reason


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"health": answer(None, problem=Problem.REFUSED)}, "nothing listens"),
        ({"health": answer(None, problem=Problem.TIME_LIMIT)}, "no answer: as it says"),
        ({"health": answer(503, LOADING)}, "503 (Loading model)"),
        ({"health": answer(500)}, "answers 500"),
        ({"health": None}, "not asked"),
        ({"models": None}, "not asked"),
        ({"models": answer(503, LOADING)}, "/v1/models answers 503 (Loading model)"),
        ({"models": models()}, "no model is listed yet"),
        ({"models": answer(200, "{", Problem.TRUNCATED)}, "not whole"),
        ({"models": answer(None, problem=Problem.RESET)}, "no answer"),
        ({"owns_port": False, "health": REFUSED, "models": REFUSED}, "nothing listens"),
        ({"is_alive": None, "owns_port": None, "health": answer(502, "<html>")}, "answers 502"),
    ],
)
def test_waiting_may_help(facts: dict[str, object], words: str) -> None:
    found = obstacle(seen(**facts))
    assert found is not None
    assert (found.state, found.is_final) == (State.LOADING, False)
    assert words in found.reason


def chat(**message: object) -> str:
    return json.dumps({"choices": [{"message": message, "finish_reason": "length"}]})


def test_one_token_is_ready() -> None:
    assert judge_chat(answer(200, chat(role="assistant", content="Hi"))).state is State.READY


def test_a_token_of_thought_counts() -> None:
    body = chat(role="assistant", content=None, reasoning_content="The")
    assert judge_chat(answer(200, body)).state is State.READY


@pytest.mark.parametrize(
    ("given", "state", "is_final", "words"),
    [
        (answer(500, '{"error": {"message": "EngineCore died"}}'), State.FAILING, False, "EngineCore died"),
        (answer(400, '{"error": {"message": "no template"}}'), State.FAILING, True, "no template"),
        (answer(404, "Not Found"), State.FAILING, True, "404"),
        (answer(200, "<html>hello"), State.FAILING, False, "an HTML page"),
        (answer(200, '{"error": "boom"}'), State.FAILING, False, "boom"),
        (answer(200, ""), State.FAILING, False, "empty"),
        (answer(200, chat(content="Hi"), Problem.TRUNCATED), State.FAILING, False, "as it says"),
        (answer(None, problem=Problem.TIME_LIMIT), State.FAILING, False, "as it says"),
        (answer(503, LOADING), State.LOADING, False, "Loading model"),
        (answer(429), State.LOADING, False, "429"),
        (answer(401), State.CLOSED, True, "needs a key"),
    ],
)
def test_anything_else_is_not(given: Answer, state: State, is_final: bool, words: str) -> None:
    verdict = judge_chat(given)
    assert (verdict.state, verdict.is_final) == (state, is_final)
    assert words in verdict.reason
