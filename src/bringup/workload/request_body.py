"""The JSON bodies of requests, made of ready pieces: a request costs a join, not an encoder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.errors import UsageError
from bringup.parse.json_value import Json, json_or_none

_MARK = "\x01prompt\x01"  # stands where the prompt goes; JSON escapes it
_OURS = ("messages", "prompt", "stream")  # fields without which a bench is none


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyShape:
    """Everything in a body but the prompt and the length of the answer."""

    model: str
    is_chat: bool = True  # False: /v1/completions
    output_field: str = "max_tokens"  # or "max_completion_tokens"
    ignores_end: bool = False  # the engine has `ignore_eos`: answers are as long as asked
    temperature: float | None = 0.0
    seed: int | None = 1
    system: str | None = None  # the same system prompt in every chat
    extra: str = ""  # a JSON object of the user's: joins the body and wins


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPieces:
    """A body cut where the prompt and the output length go: head, prompt, middle, number, tail."""

    head: bytes
    middle: bytes
    tail: bytes


def read_extra(text: str, *, option: str) -> str:
    """The user's further fields of the body, as compact JSON.

    Raises:
        UsageError: no JSON object, or a field that the bench itself must set.

    >>> read_extra('{"top_k": 20}', option="--extra-body")
    '{"top_k":20}'
    """
    value = json_or_none(text)
    if not isinstance(value, dict):
        raise UsageError(
            f"wanted a JSON object, found `{option} {text[:80]}`", hint="such as '{\"top_k\": 20}'"
        )
    for name in _OURS:
        if name in value:
            raise UsageError(f"`{name}` in `{option}` is set by the bench itself", hint="leave it out")
    for name in ("max_tokens", "max_completion_tokens"):
        if name in value:
            raise UsageError(f"`{name}` in `{option}` is the output length", hint="use `--output-tokens`")
    return json.dumps(value, separators=(",", ":"))


def body_pieces(shape: BodyShape) -> BodyPieces:
    """The constant parts of every body of this shape.

    >>> pieces = body_pieces(BodyShape(model="m", is_chat=False, temperature=None, seed=None))
    >>> pieces.head, pieces.tail
    (b'{"model":"m","prompt":"', b'}')
    """
    fields: dict[str, object] = {"model": shape.model}
    if shape.is_chat:
        fields["messages"] = [*_system(shape), {"role": "user", "content": _MARK}]
    else:
        fields["prompt"] = _MARK
    fields |= _settings(shape, {})
    head, middle = _dumped(fields)[:-1].split(json.dumps(_MARK).strip('"').encode())
    return BodyPieces(head=head, middle=middle + f',"{shape.output_field}":'.encode(), tail=b"}")


def _system(shape: BodyShape) -> list[Mapping[str, Json]]:
    return [] if shape.system is None else [{"role": "system", "content": shape.system}]


def _settings(shape: BodyShape, own: Mapping[str, Json]) -> dict[str, object]:
    """The fields beside the prompt and the output length; `own` are the request's, and the user's win."""
    fields: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
    if shape.temperature is not None:
        fields["temperature"] = shape.temperature
    if shape.seed is not None:
        fields["seed"] = shape.seed
    if shape.ignores_end:
        fields["ignore_eos"] = True
    extra = json_or_none(shape.extra) if shape.extra else {}
    return fields | dict(own) | (extra if isinstance(extra, dict) else {})


def _dumped(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode()


def whole_body(pieces: BodyPieces, text: bytes, output_tokens: int) -> bytes:
    """One body; `text` must need no escape in JSON.

    >>> json.loads(whole_body(body_pieces(BodyShape(model="m")), b"one two", 16))["max_tokens"]
    16
    """
    return b"%b%b%b%d%b" % (pieces.head, text, pieces.middle, output_tokens, pieces.tail)


def chat_request_body(
    shape: BodyShape,
    messages: Sequence[Mapping[str, Json]],
    output_tokens: int | None,
    own: Mapping[str, Json] | None = None,
) -> bytes:
    """The body of a request with messages of its own; `own` are fields of this request alone.

    >>> body = json.loads(chat_request_body(BodyShape(model="m"), [{"role": "user", "content": "Hi"}], None))
    >>> body["messages"], "max_tokens" in body
    ([{'role': 'user', 'content': 'Hi'}], False)
    """
    has_system = bool(messages) and messages[0].get("role") in ("system", "developer")
    said = [*messages] if has_system else [*_system(shape), *messages]
    return _whole({"model": shape.model, "messages": said}, shape, output_tokens, own)


def prompt_body(
    shape: BodyShape, prompt: str, output_tokens: int | None, own: Mapping[str, Json] | None = None
) -> bytes:
    """The body of a request with a prompt of its own, as one user message or as a bare text."""
    if shape.is_chat:
        return chat_request_body(shape, [{"role": "user", "content": prompt}], output_tokens, own)
    return _whole({"model": shape.model, "prompt": prompt}, shape, output_tokens, own)


def _whole(
    said: Mapping[str, object], shape: BodyShape, output_tokens: int | None, own: Mapping[str, Json] | None
) -> bytes:
    """The body around `said`; a field that the request's own fields set to None is left out."""
    fields = {**said, **_settings(shape, own or {})}
    if output_tokens is None:
        fields.pop("ignore_eos", None)  # nothing else would end the answer
    else:
        fields[shape.output_field] = output_tokens
    return _dumped({name: value for name, value in fields.items() if value is not None})
