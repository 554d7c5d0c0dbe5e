"""Finds out which engine answers at a URL, or why nothing of use does."""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from bringup import registry
from bringup.engines import Engine, probe_asks, surest
from bringup.errors import HostError, UnreadableAnswer
from bringup.parse.json_value import json_or_none
from bringup.transport import Endpoint
from bringup.values.engine import EngineStatus
from bringup.values.exchange import Answer, Ask, Problem

_CHAT = "/v1/chat/completions"


async def identify(
    endpoint: Endpoint,
    *,
    url: str,
    is_forwarded: bool = False,
    has_api_key: bool = False,
    limit_s: float = math.inf,
) -> tuple[EngineStatus, dict[str, Answer]]:
    """The engine behind `endpoint`, and the answers that say so, by key, all within `limit_s` seconds.

    Raises:
        HostError: no answer to any probe.
        UnreadableAnswer: something answers, and not in the way of an inference server.
    """
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    asks = probe_asks(engines, has_api_key=has_api_key)
    deadline = time.monotonic() + limit_s

    def within(ask: Ask) -> Ask:
        return replace(ask, time_limit_s=min(ask.time_limit_s, max(0.0, deadline - time.monotonic())))

    first = await endpoint.send(within(asks[0]))
    if first.status is None and first.problem in (Problem.REFUSED, Problem.UNREACHABLE):
        raise _no_endpoint(first, url)
    rest = await asyncio.gather(*(endpoint.send(within(ask)) for ask in asks[1:]))
    answers = {ask.key: answer for ask, answer in zip(asks, (first, *rest), strict=True)}
    if all(answer.problem is Problem.NOT_ASKED for answer in answers.values()):
        raise _no_endpoint(first, url)
    if all(answer.status is None for answer in answers.values()):
        raise _no_http(first, url, is_forwarded=is_forwarded)
    status = surest(engines, answers)
    if status.engine == "unknown" and not status.models and not any(map(_is_spoken, answers.values())):
        # A gateway may offer nothing but chat: one token of it decides.
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})
        answers[_CHAT] = await endpoint.send(within(Ask(key=_CHAT, path=_CHAT, body=body)))
        if not _is_spoken(answers[_CHAT]):
            raise _no_server(answers.get("/v1/models", first), url)
    return status, answers


def _is_spoken(answer: Answer) -> bool:
    """Whether this may come from an inference server: JSON, a refusal of the key, busy, or not there yet."""
    if answer.status is None or answer.status in (401, 403, 429, 502, 503):
        return answer.status is not None
    return isinstance(json_or_none(answer.body), dict)


def _no_server(answer: Answer, url: str) -> UnreadableAnswer:
    start = " ".join(answer.body[:80].split())
    return UnreadableAnswer(
        f"wanted an OpenAI-compatible endpoint at {url}, found another server: "
        f"`GET {answer.key}` gave HTTP {answer.status}: `{start}`",
        text=answer.body,
        hint="is this the engine's port, and does its address have a path in front of /v1?",
    )


def _no_http(answer: Answer, url: str, *, is_forwarded: bool) -> HostError:
    said = answer.detail or str(answer.problem)
    if is_forwarded:
        return HostError(
            f"no HTTP answer from {url} through ssh: {said}",
            hint="does the engine listen there? `ss -ltnp` on its machine shows; and is it http or https?",
        )
    return HostError(
        f"something listens at {url} but gives no HTTP answer: {said}",
        hint="is this the engine's port, and http or https?",
    )


def _no_endpoint(answer: Answer, url: str) -> HostError:
    """Why nothing answers at the URL, with what to do about it."""
    said = answer.detail or str(answer.problem)
    if answer.problem is Problem.REFUSED:
        hint = (
            "the engine still loads, has ended, or listens on another port: `ss -ltnp` on its machine shows; "
            "if only on its own loopback: `bringup verify http://127.0.0.1:PORT --host HOST`"
        )
    elif "CERTIFICATE_VERIFY_FAILED" in said:
        hint = "name the CA's certificate with --cacert FILE, or go without the proof with --insecure"
    elif answer.problem is Problem.NOT_ASKED:
        hint = "the recording holds no answers: record it again"
    else:
        hint = (
            "check the name, the scheme (http or https) and the way there; through ssh: "
            "`bringup verify http://127.0.0.1:PORT --host HOST`"
        )
    return HostError(f"no endpoint answered at {url}: {said}", hint=hint)
