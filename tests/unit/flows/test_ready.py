"""The wait for a started engine, against endpoints whose answers are data."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bringup import registry
from bringup.engines import Engine
from bringup.errors import EngineError
from bringup.flows.ready import Progress, wait_until_ready
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.readiness import State

GOLDEN = Path(__file__).parents[2] / "golden" / "engines"
ENGINES = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
CHAT = Answer(key="chat", status=200, body='{"choices": [{"message": {"content": "Hi"}}]}')
REFUSED = Answer(key="", problem=Problem.REFUSED, detail="Connection refused")


def recorded(case: str) -> dict[str, Answer]:
    rows = json.loads((GOLDEN / f"{case}.json").read_text())["answers"]
    return {
        path: Answer(key=path, status=row["status"], headers=tuple(row["headers"].items()), body=row["body"])
        for path, row in rows.items()
    }


class Server:
    """Plays one set of answers per look; the last one stays. A path that is not in the set is a 404."""

    def __init__(self, *looks: Mapping[str, Answer], chat: Answer = CHAT) -> None:
        self.looks = looks
        self.chat = chat
        self.look = -1
        self.asked: list[Ask] = []

    async def send(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        if ask.path == "/health":
            self.look += 1
        if ask.path == "/v1/chat/completions":
            return self.chat
        answers = self.looks[min(self.look, len(self.looks) - 1)]
        missing = REFUSED if not answers else Answer(key="", status=404, body='{"detail":"Not Found"}')
        return replace(answers.get(ask.path, missing), key=ask.key)

    async def close(self) -> None:
        """Nothing to close."""


def wait(server: Server, **options: object) -> list[Progress]:
    """What was told on the way to `ready`."""
    told: list[Progress] = []
    settings = {"expected_model": "smollm2-135m-instruct", "limit_s": 60.0, "pause_s": 0.0, **options}
    verdict = asyncio.run(wait_until_ready(server, on_progress=told.append, **settings))
    assert verdict.state is State.READY
    return told


def refusal(server: Server, **options: object) -> EngineError:
    with pytest.raises(EngineError) as caught:
        wait(server, **options)
    return caught.value


UP = recorded("llama_cpp/recorded-11549")
LOADING = recorded("llama_cpp/loading")


def test_refused_then_loading_then_ready() -> None:
    server = Server({}, {}, LOADING, LOADING, UP)
    told = wait(server, engine=ENGINES["llama_cpp"], is_alive=lambda: True, owns_port=lambda: True)
    assert [progress.state for progress in told] == [State.LOADING, State.LOADING, State.READY]
    assert [progress.text for progress in told] == [
        "nothing listens on the port yet",
        "the health endpoint answers 503 (Loading model)",
        "it generated a token",
    ]


def test_the_chat_asks_the_expected_model_for_one_token() -> None:
    server = Server(UP)
    wait(server)
    asked = [ask for ask in server.asked if ask.method == "POST"]
    assert len(asked) == 1
    body = json.loads(asked[0].body)
    assert (body["model"], body["max_tokens"]) == ("smollm2-135m-instruct", 1)


def test_the_health_endpoint_gets_the_time_it_may_take() -> None:
    server = Server(UP)
    wait(server)
    assert next(ask for ask in server.asked if ask.path == "/health").time_limit_s >= 25


def test_without_an_expected_model_the_first_base_model_is_asked() -> None:
    rows = [{"id": "sql", "parent": "base"}, {"id": "base", "parent": None}]
    server = Server({"/health": _ok(), "/v1/models": _list(rows)})
    wait(server, expected_model=None)
    assert json.loads(server.asked[-1].body)["model"] == "base"


def test_models_that_are_listed_early_do_not_make_it_ready() -> None:
    """SGLang lists its models while it warms up."""
    warming = recorded("sglang/warming-up")
    server = Server(warming, warming, recorded("sglang/recorded-0.5.23-cpu"))
    told = wait(server, expected_model="smollm2", engine=ENGINES["sglang"])
    assert [progress.state for progress in told] == [State.LOADING, State.READY]
    assert sum(ask.method == "POST" for ask in server.asked) == 1


def test_a_dead_process_ends_the_wait_at_once() -> None:
    server = Server({})
    error = refusal(server, is_alive=lambda: False)
    assert "has ended" in error.message
    assert server.asked == []


def test_a_process_that_dies_while_another_server_answers_is_dead() -> None:
    """The other server has the same model: only the ended process tells."""
    alive = iter([True, False])
    error = refusal(Server(UP), is_alive=lambda: next(alive))
    assert error.message == "the engine is dead: the started process has ended"


def test_the_port_s_owner_is_looked_at_after_the_answers() -> None:
    """Nobody owns the port before the engine listens; that must not pass for another owner."""
    server = Server({}, UP)
    wait(server, owns_port=lambda: server.look >= 1)


def test_a_port_that_is_another_process_s() -> None:
    error = refusal(Server(UP), is_alive=lambda: True, owns_port=lambda: False)
    assert "squatted" in error.message
    assert error.hint == "stop the other server or choose another port"


def test_another_model_on_the_port() -> None:
    error = refusal(Server(recorded("vllm/recorded-0.32.0-cpu")))
    assert "it serves `smollm2` and not `smollm2-135m-instruct`" in error.message


def test_another_engine_with_the_same_model_on_the_port() -> None:
    vllm = recorded("vllm/recorded-0.32.0-cpu")
    error = refusal(Server(vllm), expected_model="smollm2", engine=ENGINES["llama_cpp"])
    assert "another engine" in error.message


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "openai_compatible"])
def test_every_engine_is_ready_by_its_own_answers(engine: str) -> None:
    case = next(path for path in sorted((GOLDEN / engine).glob("*.json")) if _is_up(path))
    answers = recorded(f"{engine}/{case.stem}") | {"/health_generate": _ok()}
    wait(Server(answers), expected_model=None, engine=ENGINES[engine], pause_s=0.0)


def test_a_key_is_missing() -> None:
    error = refusal(Server(recorded("vllm/models-need-a-key")), expected_model="smollm2")
    assert "needs a key" in error.message
    assert "--api-key" in (error.hint or "")


def test_up_but_unable_to_generate() -> None:
    died = Answer(key="chat", status=500, body='{"error": {"message": "EngineCore encountered an issue"}}')
    error = refusal(Server(UP, chat=died), limit_s=0.0)
    assert "not ready after 0 s" in error.message
    assert "EngineCore encountered an issue" in error.message


def test_a_chat_that_is_refused_ends_the_wait() -> None:
    refused = Answer(key="chat", status=400, body='{"error": {"message": "no chat template"}}')
    assert "no chat template" in refusal(Server(UP, chat=refused)).message


def test_the_limit_ends_the_wait_and_says_what_it_waited_for() -> None:
    error = refusal(Server({}), limit_s=0.0)
    assert error.message == "the engine is not ready after 0 s: nothing listens on the port yet"


def _ok() -> Answer:
    return Answer(key="", status=200, body="")


def _list(rows: list[dict[str, object]]) -> Answer:
    return Answer(key="", status=200, body=json.dumps({"object": "list", "data": rows}))


def _is_up(path: Path) -> bool:
    case = json.loads(path.read_text())
    lists_models = case["answers"].get("/v1/models", {"status": 404})["status"] == 200
    return lists_models and case["expected"].get("is_healthy") is True and "models" not in case["expected"]
