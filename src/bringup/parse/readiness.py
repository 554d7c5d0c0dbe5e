"""The answers of a starting endpoint to a `Readiness`.

The rule: ready = a connection is accepted, the health endpoint answers 200, the models endpoint lists the
expected model, and one chat completion of one token succeeds. A 200 alone proves nothing: SGLang lists its
models before it has warmed up, vLLM's health does not generate, and a port that another server holds answers
200 while the started process is ending.
"""

from dataclasses import dataclass

from bringup.parse.chat import error_message, read_reply
from bringup.parse.json_value import json_or_none
from bringup.parse.models_list import is_models_list, read_models
from bringup.values.exchange import Answer, Problem
from bringup.values.readiness import Readiness, State

_NO_KEY = (401, 403)
_NOT_YET = (408, 425, 429, 502, 503, 504)
_SHOWN = 3  # model ids named in a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the process and what its endpoint answered. `None` = not asked, or not to be told."""

    expected_model: str | None = None  # None: any model will do
    is_alive: bool | None = None  # the started process runs
    owns_port: bool | None = None  # the port is held by the started process or a child of it
    is_expected_engine: bool | None = None  # the answers are the expected engine's
    health: Answer | None = None
    models: Answer | None = None


def obstacle(seen: Seen) -> Readiness | None:
    """What stands in the way before the chat is asked; None when nothing does."""
    if seen.is_alive is False:
        return Readiness(state=State.DEAD, reason="the started process has ended", is_final=True)
    if seen.owns_port is False and _listens(seen):
        return _squatted("the port is held by a process that was not started here")
    return (
        _unusable(seen.health, "the health endpoint")  # a 404 there is no obstacle: not every server has one
        or _unusable(seen.models, "/v1/models")
        or _other_server(seen)
    )


def judge_chat(answer: Answer) -> Readiness:
    """The verdict over the chat completion of one token."""
    reply = read_reply(answer)
    if answer.status == 200 and answer.problem is None and reply.error is None and not reply.flaws:
        return Readiness(state=State.READY, reason="it generated a token", is_final=True)
    if answer.status in _NO_KEY:
        return _closed(answer)
    if answer.status in _NOT_YET:
        return Readiness(state=State.LOADING, reason=f"the chat answers {_said(answer)}")
    if answer.status == 200:
        said = reply.error or (reply.flaws[0] if reply.flaws else answer.detail)
        return Readiness(state=State.FAILING, reason=f"the chat answers 200 and no completion: {said}")
    is_refused = answer.status is not None and 400 <= answer.status < 500
    return Readiness(
        state=State.FAILING, reason=f"a chat of one token fails: {_said(answer)}", is_final=is_refused
    )


def _unusable(answer: Answer | None, what: str) -> Readiness | None:
    """What keeps an answer from being judged by its content; None when it can be."""
    if answer is None:
        return Readiness(state=State.LOADING, reason=f"{what} is not asked yet")
    if answer.problem is Problem.MALFORMED:
        return _squatted("the port is held by something that does not speak HTTP")
    if answer.status is None:
        is_quiet = answer.problem is Problem.REFUSED
        reason = "nothing listens on the port yet" if is_quiet else f"{what} gives no answer: {_said(answer)}"
        return Readiness(state=State.LOADING, reason=reason)
    if answer.status in _NO_KEY:
        return _closed(answer)
    if answer.status >= 500 or answer.status in _NOT_YET or answer.problem is not None:
        return Readiness(state=State.LOADING, reason=f"{what} answers {_said(answer)}")
    return None


def _other_server(seen: Seen) -> Readiness | None:
    """What in the models list speaks for another server, or for one that has no model yet."""
    body = seen.models.body if seen.models is not None else ""
    if not is_models_list(body):
        return _squatted("/v1/models is no models list: this is another kind of server")
    if seen.is_expected_engine is False:
        return _squatted("the answers are those of another engine")
    ids = [model.id for model in read_models(body)]
    if not ids:
        return Readiness(state=State.LOADING, reason="no model is listed yet")
    if seen.expected_model is not None and seen.expected_model not in ids:
        listed = ", ".join(f"`{name}`" for name in ids[:_SHOWN]) + (", ..." if len(ids) > _SHOWN else "")
        return _squatted(f"it serves {listed} and not `{seen.expected_model}`")
    return None


def _listens(seen: Seen) -> bool:
    return any(answer is not None and answer.status is not None for answer in (seen.health, seen.models))


def _squatted(reason: str) -> Readiness:
    return Readiness(state=State.SQUATTED, reason=reason, is_final=True)


def _closed(answer: Answer) -> Readiness:
    return Readiness(
        state=State.CLOSED,
        reason=f"it answers {_said(answer)}: it needs a key, or another one",
        is_final=True,
    )


def _said(answer: Answer) -> str:
    """Status and the server's own words, or the problem."""
    if answer.status is None:
        return answer.detail or str(answer.problem)
    if answer.problem is not None:
        return f"{answer.status}, not whole ({answer.detail or answer.problem})"
    message = error_message(json_or_none(answer.body))
    return f"{answer.status} ({message[:200]})" if message else str(answer.status)
