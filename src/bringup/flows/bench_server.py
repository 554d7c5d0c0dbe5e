"""Who answers at the URL of a bench, asked in a few quick requests side by side."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bringup import registry
from bringup.engines import Engine, surest
from bringup.errors import HostError, UnreadableAnswer
from bringup.parse.json_value import json_or_none
from bringup.transport import Endpoint
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer, Ask, Problem

_FIRST = ("/v1/models", "/version", "/metrics")  # tell the engine; quick everywhere
_LIMIT_S = 10.0
_MOST_BYTES = 4_000_000  # a metrics page has some 100 kB
_CLOSED = (401, 403)
# Paths that generate, or that tell of each slot.
_NOT_ASKED = frozenset({"/health", "/health_generate", "/metrics", "/slots", "/prometheus/metrics/"})
# Takes `ignore_eos` in the body of a chat. Source: vLLM 0.32.0 `protocol.py`, SGLang 0.5 `protocol.py`,
# llama.cpp b11549 `server-task.cpp`, TensorRT-LLM 1.2 `openai_protocol.py`, LMDeploy 0.12 `protocol.py`.
_IGNORES_END = frozenset({"vllm", "sglang", "llama_cpp", "tensorrt_llm", "lmdeploy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The engine and the model that are measured."""

    status: EngineStatus
    model: str
    engine: Engine | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The engine's name; None where it is not known."""
        return None if self.status.engine == "unknown" else self.status.display_name

    @property
    def ignores_end(self) -> bool:
        """Whether it can be told to write on to the asked length."""
        return self.status.engine in _IGNORES_END


async def ask_server(endpoint: Endpoint, *, url: str, model: str | None) -> Server:
    """The engine and model behind `endpoint`.

    Raises:
        HostError: nothing answers there.
        UnreadableAnswer: something answers that serves no model, and none was named.
    """
    asking = asyncio.create_task(_ask(endpoint, _FIRST))
    await asyncio.sleep(0)  # the requests leave before the engines are loaded
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    answers = await asking
    if all(answer.status is None for answer in answers.values()):
        raise _no_answer(answers["/v1/models"], url)
    status = surest(engines, answers)
    engine = engines.get(status.engine)
    if engine is not None and status.version is None:
        more = tuple(path for path in engine.probes if path not in (*answers, *_NOT_ASKED))
        answers |= await _ask(endpoint, more)
        status = surest(engines, answers)
    return _server(status, engine, answers, url=url, model=model)


async def _ask(endpoint: Endpoint, paths: tuple[str, ...]) -> dict[str, Answer]:
    asks = [
        Ask(key=path, path=path, method="GET", time_limit_s=_LIMIT_S, max_bytes=_MOST_BYTES) for path in paths
    ]
    answers = await asyncio.gather(*(endpoint.send(ask) for ask in asks))
    return {ask.key: answer for ask, answer in zip(asks, answers, strict=True)}


def _server(
    status: EngineStatus,
    engine: Engine | None,
    answers: Mapping[str, Answer],
    *,
    url: str,
    model: str | None,
) -> Server:
    models = answers["/v1/models"]
    if model is None and models.status in _CLOSED:
        raise HostError(
            f"{url} answers HTTP {models.status}: it wants a key, or another one",
            hint="name it with --api-key, or in BRINGUP_API_KEY",
        )
    found, notes = _model(status, model)
    if found is None:
        start = " ".join(models.body[:80].split())
        is_json = json_or_none(models.body) is not None
        raise UnreadableAnswer(
            f"no model is told at {url}: `GET /v1/models` gave "
            f"{f'HTTP {models.status}' if models.status else models.detail}: `{start}`",
            text=models.body,
            hint="name the model with --model"
            if is_json
            else "is this the engine's port? `--model ID` goes without that list",
        )
    return Server(
        status=status,
        model=found,
        engine=engine if status.engine != "unknown" else None,
        notes=notes,
    )


def _model(status: EngineStatus, wanted: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The id to ask for, and what is to be said of the choice."""
    ids = [one.id for one in status.models]
    if wanted is not None:
        if ids and wanted not in ids and not any(_is_named(one, wanted) for one in status.models):
            return wanted, (f"The server lists no model `{wanted}`: it lists {', '.join(ids[:5])}.",)
        return next((one.id for one in status.models if _is_named(one, wanted)), wanted), ()
    whole = [one.id for one in status.models if not one.is_adapter] or ids
    if not whole:
        return None, ()
    notes = (f"Of {len(ids)} models the first is measured, `{whole[0]}`; --model names another.",)
    return whole[0], notes if len(whole) > 1 else ()


def _is_named(model: ServedModel, wanted: str) -> bool:
    return wanted in (model.id, model.root)


def _no_answer(answer: Answer, url: str) -> HostError:
    said = answer.detail or str(answer.problem)
    if answer.problem is Problem.REFUSED:
        hint = (
            "the engine still loads, has ended, or listens on another port: `ss -ltnp` on its machine shows; "
            "if only on its own loopback: `bringup bench http://127.0.0.1:PORT --host HOST`"
        )
    elif "CERTIFICATE_VERIFY_FAILED" in said:
        hint = "name the CA's certificate with --cacert FILE, or go without the proof with --insecure"
    elif answer.problem is Problem.UNREACHABLE:
        hint = "check the name, the scheme (http or https) and the way there"
    else:
        hint = "is this the engine's port, and http or https?"
    return HostError(f"no endpoint answered at {url}: {said}", hint=hint)
