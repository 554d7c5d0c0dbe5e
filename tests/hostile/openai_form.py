"""Requests and answers in the form of the OpenAI API, as vLLM reads and writes them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from capable_model import CONTEXT_TOKENS, MODEL, Reply, Talk, logprob_of, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def wants_stream(self) -> bool:
        """Whether an event stream is asked for."""
        return b'"stream": true' in self.body or b'"stream":true' in self.body

    @property
    def is_generation(self) -> bool:
        """Whether tokens are asked for."""
        return self.path.endswith("/completions")


class BadRequestError(Exception):
    """A request that a sound engine refuses."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.status = message, status


@dataclass(slots=True)
class Load:
    """What the engine is busy with."""

    active: int = 0  # generations that hold a slot
    waiting: int = 0
    leaked: int = 0  # slots that nobody gave back
    requests: int = 0  # generations so far
    generated: int = 0  # tokens


def models_list(model: str) -> dict:
    """`/v1/models` as vLLM gives it."""
    return {
        "object": "list",
        "data": [
            {
                "id": model,
                "object": "model",
                "created": 1790000000,
                "owned_by": "vllm",
                "root": f"/models/{model}",
                "parent": None,
                "max_model_len": CONTEXT_TOKENS,
                "permission": [],
            }
        ],
    }


def metrics_page(load: Load, model: str) -> str:
    """`/metrics` in the names of vLLM."""
    labels = f'engine="0",model_name="{model}"'
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} {float(load.active)}",
        "# TYPE vllm:num_requests_waiting gauge",
        f"vllm:num_requests_waiting{{{labels}}} {float(load.waiting)}",
        "# TYPE vllm:kv_cache_usage_perc gauge",
        f"vllm:kv_cache_usage_perc{{{labels}}} {load.active / 100}",
        "# TYPE vllm:generation_tokens_total counter",
        f"vllm:generation_tokens_total{{{labels}}} {float(load.generated)}",
        "# TYPE vllm:cache_config_info gauge",
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",gpu_memory_utilization="0.9",'  # noqa: ISC004
        'engine="0",kv_cache_size_tokens="131072",num_gpu_blocks="8192"} 1.0',
    ]
    return "\n".join(lines) + "\n"


def talk_of(request: Request, *, unknown_model_is_fine: bool = False) -> Talk:
    """The request as the model sees it.

    Raises:
        BadRequestError: a sound engine would refuse it.
    """
    body = _json_of(request.body)
    if not unknown_model_is_fine and body.get("model", MODEL) != MODEL:
        raise BadRequestError(f"The model `{body.get('model')}` does not exist.", 404)
    messages = tuple(_messages(body, is_chat="/chat/" in request.path))
    used = 4 + sum(3 + len(tokens_of(text)) for _, text in messages)
    if used >= CONTEXT_TOKENS:
        raise BadRequestError(
            f"This model's maximum context length is {CONTEXT_TOKENS} tokens. However, your request has "
            f"{used} input tokens. Please reduce the length of the input messages."
        )
    _check_numbers(body)
    wanted = body.get("max_completion_tokens", body.get("max_tokens"))
    if wanted is not None and used + wanted > CONTEXT_TOKENS:
        raise BadRequestError(
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context "
            f"length is {CONTEXT_TOKENS} tokens and your request has {used} input tokens."
        )
    stop = body.get("stop") or ()
    choice = body.get("tool_choice", "auto")
    named = choice.get("function", {}).get("name", "") if isinstance(choice, dict) else ""
    return Talk(
        messages=messages,
        max_tokens=CONTEXT_TOKENS - used if wanted is None else wanted,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        schema=_schema(body),
        tools=() if choice == "none" else tuple(body.get("tools") or ()),
        must_call=named or ("" if choice == "required" else None),
        body=body,
    )


def _json_of(raw: bytes) -> dict:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("1 validation error: the body should be a valid dictionary")
    return body


def _messages(body: dict, *, is_chat: bool) -> Iterator[tuple[str, str]]:
    said = body.get("messages") if is_chat else [{"role": "user", "content": body.get("prompt")}]
    if not isinstance(said, list) or not said:
        raise BadRequestError("1 validation error: `messages` should be a non-empty list")
    for message in said:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequestError("1 validation error: a message needs a `role`")
        text = _text_of(message)
        if "\0" in text:
            raise BadRequestError("NUL characters are not allowed in a prompt")
        yield message["role"], text


def _text_of(message: dict) -> str:
    content = message.get("content")
    if content is None and message.get("role") == "assistant":
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequestError("1 validation error: `content` should be a string or a list of parts")
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise BadRequestError(f"{MODEL} is not a multimodal model")
        parts.append(str(part.get("text", "")))
    return "\n".join(parts)


def _check_numbers(body: dict) -> None:
    for name, low, high in (
        ("max_tokens", 1, None),
        ("max_completion_tokens", 1, None),
        ("temperature", 0, 2),
        ("top_p", 0, 1),
        ("top_logprobs", 0, 20),
        ("n", 1, 1),
    ):
        value = body.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_whole = name in ("temperature", "top_p") or isinstance(value, int)
        if not is_number or not is_whole or value < low or (high is not None and value > high):
            raise BadRequestError(f"1 validation error: `{name}` may not be {value!r}")
    for name, kind in (("stream", bool), ("tools", list), ("stop", str | list), ("response_format", dict)):
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise BadRequestError(f"1 validation error: `{name}` has the wrong type")


def _schema(body: dict) -> dict | None:
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        schema = (wanted.get("json_schema") or {}).get("schema")
        if not isinstance(schema, dict):
            raise BadRequestError("`response_format.json_schema.schema` is missing")
        return schema
    if wanted.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    guided = body.get("guided_json")
    return guided if isinstance(guided, dict) else None


def _usage(reply: Reply) -> dict:
    count = len(reply.tokens) + (0 if reply.finish_reason == "length" else 1)  # the end-of-turn token counts
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": count,
        "total_tokens": reply.prompt_tokens + count,
    }


def _logprob_row(token: str, logprob: float, talk: Talk) -> dict:
    wanted = talk.body.get("top_logprobs") or 0
    rest = math.log(max(1e-6, 1 - math.exp(logprob)))  # what the alternatives share, halving it each time
    others = [(token, logprob), *((f"{token}{mark}", rest - 0.7 * (n + 1)) for n, mark in enumerate("abcde"))]
    others.sort(key=lambda one: -one[1])
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode("utf-8", "replace")),
        "top_logprobs": [{"token": one, "logprob": value} for one, value in others[:wanted]],
    }


def _logprobs(reply: Reply, talk: Talk, *, is_chat: bool) -> dict | None:
    wanted = talk.body.get("logprobs")
    if not wanted and wanted != 0:
        return None
    if is_chat:
        rows = zip(reply.tokens, reply.logprobs, strict=False)
        return {"content": [_logprob_row(token, logprob, talk) for token, logprob in rows]}
    echoed = tokens_of(talk.last) if talk.body.get("echo") else []
    tokens = [*echoed, *reply.tokens]
    values: list[float | None] = [*map(logprob_of, echoed), *reply.logprobs]
    if echoed:
        values[0] = None
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "text_offset": [0] * len(tokens),
        "top_logprobs": None,
    }


def whole_body(reply: Reply, talk: Talk, model: str, *, is_chat: bool) -> dict:
    """The body of an answer that is not streamed."""
    choice: dict = {
        "index": 0,
        "logprobs": _logprobs(reply, talk, is_chat=is_chat),
        "finish_reason": reply.finish_reason,
    }
    if is_chat:
        message: dict = {
            "role": "assistant",
            "content": reply.text,
            "reasoning_content": reply.reasoning or None,
        }
        if reply.calls:
            message["content"] = None
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": one.name, "arguments": one.arguments},
                }
                for n, one in enumerate(reply.calls)
            ]
        choice["message"] = message
    else:
        choice["text"] = (talk.last if talk.body.get("echo") else "") + reply.text
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": 1790000000,
        "model": model,
        "choices": [choice],
        "usage": _usage(reply),
    }


def stream_events(reply: Reply, talk: Talk, model: str, *, is_chat: bool) -> Iterator[dict]:
    """The events of a streamed answer, one token each."""

    def event(choice: dict | None, usage: dict | None = None) -> dict:
        value: dict = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": 1790000000,
            "model": model,
            "choices": []
            if choice is None
            else [{"index": 0, "logprobs": None, "finish_reason": None} | choice],
        }
        return value if usage is None else value | {"usage": usage}

    def piece(text: str, field_name: str) -> dict:
        return {"delta": {field_name: text}} if is_chat else {"text": text}

    if is_chat:
        yield event({"delta": {"role": "assistant", "content": ""}})
    for token in tokens_of(reply.reasoning):
        yield event(piece(token, "reasoning_content"))
    rows = (_logprobs(reply, talk, is_chat=is_chat) or {}).get("content", [])
    for place, token in enumerate(tokens_of(reply.text) if reply.reasoning else reply.tokens):
        if reply.calls:
            break
        logprobs = {"logprobs": {"content": [rows[place]]}} if place < len(rows) else {}
        yield event(piece(token, "content") | logprobs)
    for number, call in enumerate(reply.calls):
        start = {"index": number, "id": f"call_{number}", "type": "function"}
        yield event({"delta": {"tool_calls": [start | {"function": {"name": call.name, "arguments": ""}}]}})
        for token in tokens_of(call.arguments):
            yield event({"delta": {"tool_calls": [{"index": number, "function": {"arguments": token}}]}})
    yield event((({"delta": {}}) if is_chat else {"text": ""}) | {"finish_reason": reply.finish_reason})
    if (talk.body.get("stream_options") or {}).get("include_usage"):
        yield event(None, _usage(reply))


def tokenized(body: bytes) -> tuple[int, object]:
    try:
        value = json.loads(body)
    except ValueError:
        return 400, {"error": {"message": "not JSON", "type": "BadRequestError", "code": 400}}
    text = value.get("prompt") or "\n".join(_text_of(one) for one in value.get("messages", []))
    count = len(tokens_of(text))
    return 200, {"count": count, "max_model_len": CONTEXT_TOKENS, "tokens": list(range(count))}
