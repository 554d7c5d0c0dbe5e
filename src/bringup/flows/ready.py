"""Waits until a freshly started endpoint can really be used, or says why it never will be."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bringup.engines import HEALTH_LIMIT_S, Engine
from bringup.errors import EngineError
from bringup.parse.models_list import read_models
from bringup.parse.readiness import Seen, judge_chat, obstacle
from bringup.transport import Endpoint
from bringup.values.exchange import Answer, Ask
from bringup.values.readiness import Readiness, State

_MODELS = "/v1/models"
_LEAST_S = 0.5  # a request near the end of the wait still gets that long
_CHAT_LIMIT_S = 120.0  # a first request may compile kernels
_HINTS = {
    State.SQUATTED: "stop the other server or choose another port",
    State.CLOSED: "give the key with `--api-key` or BRINGUP_API_KEY",
    State.DEAD: "its log says why",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How the wait stands."""

    state: State
    text: str
    elapsed_s: float


async def wait_until_ready(  # noqa: PLR0913 - each is one fact about what is awaited, all but two optional
    endpoint: Endpoint,
    *,
    limit_s: float,
    expected_model: str | None = None,
    engine: Engine | None = None,
    is_alive: Callable[[], bool | None] = lambda: None,
    owns_port: Callable[[], bool | None] = lambda: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    pause_s: float = 0.5,
) -> Readiness:
    """The verdict `ready`. `on_progress` is told whenever the reason changes.

    `is_alive` and `owns_port` answer for the started process; None when that cannot be told. Without
    `owns_port` another server of the same engine and model on the port is taken for the started one.

    Raises:
        EngineError: not ready within `limit_s`, or never will be: dead, squatted, closed, or refusing.
    """
    begun = time.monotonic()
    told = ""
    while True:
        left_s = limit_s - (time.monotonic() - begun)
        facts = Seen(expected_model=expected_model, is_alive=is_alive())
        verdict = await _look(endpoint, engine, facts, owns_port, left_s)
        if is_alive() is False:  # it may have ended while another server answered for it
            verdict = Readiness(state=State.DEAD, reason="the started process has ended", is_final=True)
        elapsed_s = time.monotonic() - begun
        if verdict.reason != told:
            told = verdict.reason
            on_progress(Progress(state=verdict.state, text=told, elapsed_s=elapsed_s))
        if verdict.state is State.READY:
            return verdict
        if verdict.is_final:
            raise EngineError(f"the engine is {verdict.state}: {told}", hint=_HINTS.get(verdict.state))
        if elapsed_s + pause_s >= limit_s:
            raise EngineError(f"the engine is not ready after {limit_s:g} s: {told}")
        await asyncio.sleep(pause_s)


async def _look(
    endpoint: Endpoint,
    engine: Engine | None,
    facts: Seen,
    owns_port: Callable[[], bool | None],
    left_s: float,
) -> Readiness:
    """One look at the endpoint, asking no more than the answers so far allow."""
    if facts.is_alive is False:
        return Readiness(state=State.DEAD, reason="the started process has ended", is_final=True)
    health_path = "/health" if engine is None else engine.health_path
    answers = await _answers(endpoint, (health_path, _MODELS), left_s)
    # asked after the answers: before them the started process may not have listened yet
    seen = replace(facts, health=answers[health_path], models=answers[_MODELS], owns_port=owns_port())
    found = obstacle(seen)
    if found is None and engine is not None:
        answers |= await _answers(endpoint, tuple(set(engine.probes) - set(answers)), left_s)
        found = obstacle(replace(seen, is_expected_engine=engine.identify(answers) is not None))
    if found is not None:
        return found
    return judge_chat(await endpoint.send(_chat(_model(seen), left_s)))


async def _answers(endpoint: Endpoint, paths: tuple[str, ...], left_s: float) -> dict[str, Answer]:
    """The answers of GET requests sent together, by path."""
    limit_s = max(_LEAST_S, min(HEALTH_LIMIT_S, left_s))
    asks = [Ask(key=path, path=path, method="GET", time_limit_s=limit_s) for path in dict.fromkeys(paths)]
    answers = await asyncio.gather(*(endpoint.send(ask) for ask in asks))
    return {ask.key: answer for ask, answer in zip(asks, answers, strict=True)}


def _model(seen: Seen) -> str:
    """The model to ask: the expected one, else the first that is listed and no adapter."""
    listed = read_models(seen.models.body) if seen.models is not None else ()
    ids = [model.id for model in listed if not model.is_adapter] or [model.id for model in listed]
    return seen.expected_model or ids[0]


def _chat(model: str, left_s: float) -> Ask:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    return Ask(key="chat", body=json.dumps(body), time_limit_s=max(_LEAST_S, min(_CHAT_LIMIT_S, left_s)))
