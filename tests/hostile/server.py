"""A small OpenAI-compatible server that is healthy, or sick in exactly one way.

In a test: `async with HostileServer(fault="endless") as server: ... server.url`. By hand:
`python tests/hostile/server.py --fault endless --port 8000`, then point `bringup verify` at it.
`--list` names the faults. The answers come from `capable_model.py`, the faults from `faults.py`.
"""

import argparse
import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Self

from capable_model import CONTEXT_TOKENS, MODEL, Reply, Talk, logprob_of, speak, tokens_of
from faults import FAULTS, Fault

_MAX_BODY = 64_000_000
_SLOTS = 16
_REASONS = {200: "OK", 301: "Moved", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized"}


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


@dataclass(slots=True)
class Exchange:
    """One request with the ways to answer it, well or badly."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: "HostileServer"
    keeps_open: bool = True
    number: int = 0  # of this generation

    @property
    def is_gone(self) -> bool:
        """The client hung up."""
        return self.reader.at_eof() or self.writer.is_closing() or self.reader.exception() is not None

    async def raw(self, data: bytes) -> None:
        """Bytes as they are, whatever the fault does to writing."""
        self.writer.write(data)
        await self.writer.drain()

    async def write(self, data: bytes) -> None:
        """Bytes the way the fault writes them."""
        if self.request.is_generation and self.server.fault.write is not None:
            await self.server.fault.write(self, data)
        else:
            await self.raw(data)

    async def respond(
        self, status: int, body: bytes, kind: str = "application/json", headers: tuple[str, ...] = ()
    ) -> None:
        """A whole answer."""
        fault = self.server.fault
        if self.request.is_generation and fault.body is not None:
            body, more = fault.body(body)
            headers += more
        head = [
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
            f"content-length: {len(body)}",
            f"content-type: {fault.content_type or kind if self.request.is_generation else kind}",
            "server: uvicorn",
            *headers,
        ]
        await self.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    async def json(self, status: int, value: object, headers: tuple[str, ...] = ()) -> None:
        """A whole answer in JSON."""
        await self.respond(status, json.dumps(value).encode("utf-8", "surrogatepass"), headers=headers)

    async def error(self, status: int, message: str) -> None:
        """An error in vLLM's form."""
        kind = "NotFoundError" if status == 404 else "BadRequestError"
        await self.json(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})

    async def start_stream(self, headers: tuple[str, ...] = ()) -> None:
        """The head of an event stream."""
        kind = self.server.fault.content_type or "text/event-stream; charset=utf-8"
        more = "".join(f"{line}\r\n" for line in headers)
        await self.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nserver: uvicorn\r\n{more}"
            "transfer-encoding: chunked\r\n\r\n".encode("latin-1")
        )

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """Breaks the connection off."""
        self.keeps_open = False
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Says nothing until the client goes or the server stops."""
        self.keeps_open = False
        while not self.is_gone:
            await asyncio.sleep(0.02)

    def talk(self) -> Talk:
        """The request as the model sees it.

        Raises:
            BadRequestError: a sound engine would refuse it.
        """
        return talk_of(self.request, unknown_model_is_fine="model" in self.server.fault.ignores)


@dataclass(slots=True)
class HostileServer:
    """The server on a loopback port, up between `async with` and its end."""

    fault: Fault
    api_key: str | None = None
    port: int = 0  # 0: a free one
    token_s: float = 0.0005  # seconds between tokens
    model: str = MODEL
    load: Load = field(default_factory=Load)
    _server: asyncio.Server | None = None
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SLOTS))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def with_fault(cls, name: str, **options: object) -> Self:
        """The server with the fault of that name ("healthy": none)."""
        return cls(fault=FAULTS[name], **options)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.die()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def die(self) -> None:
        """Stops listening and drops every connection, as a crashed process does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        me = asyncio.current_task()
        for task in self._tasks:
            if task is not me:
                task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while (request := await _read_request(reader)) is not None:
                    exchange = Exchange(request=request, reader=reader, writer=writer, server=self)
                    await self._serve(exchange)
                    if not exchange.keeps_open or self._server is None:
                        break
        finally:
            self._tasks.discard(task)
            if self._server is None:
                writer.transport.abort()
            writer.close()

    async def _serve(self, exchange: Exchange) -> None:
        request, fault = exchange.request, self.fault
        if fault.takes_over is not None and await fault.takes_over(exchange):
            return
        if self._lacks_key(request):
            await exchange.json(401, {"error": "Unauthorized"})
            return
        if request.is_generation:
            await self._generate(exchange)
            return
        await _answer_get(exchange)

    def _lacks_key(self, request: Request) -> bool:
        if self.api_key is None or "key" in self.fault.ignores:
            return False
        is_open = request.path == "/health" or (
            request.path == "/metrics" and "metrics key" in self.fault.ignores
        )
        return not is_open and request.headers.get("authorization") != f"Bearer {self.api_key}"

    async def _generate(self, exchange: Exchange) -> None:
        if exchange.request.method != "POST":
            await exchange.json(405, {"detail": "Method Not Allowed"}, headers=("allow: POST",))
            return
        try:
            talk = exchange.talk()
        except BadRequestError as error:
            await exchange.error(error.status, error.message)
            return
        async with self._slot(exchange):
            self.load.requests += 1
            exchange.number = self.load.requests
            if self.fault.generates is not None and await self.fault.generates(exchange, talk):
                return
            alter = self.fault.text
            reply = speak(
                talk,
                ignores=self.fault.ignores,
                alter=None if alter is None else lambda text: alter(text, exchange),
            )
            if self.fault.reply is not None:
                reply = self.fault.reply(reply, exchange)
            if exchange.request.wants_stream:
                await self._stream(exchange, talk, reply)
            else:
                await self._whole(exchange, talk, reply)

    @contextlib.asynccontextmanager
    async def _slot(self, exchange: Exchange) -> AsyncIterator[None]:
        self.load.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.load.waiting -= 1
        self.load.active += 1
        try:
            yield
        finally:
            if exchange.is_gone and "cancel" in self.fault.ignores:
                self.load.leaked += 1  # nobody noticed that the client went: it generates on for nobody
            else:
                self.load.active -= 1
                self._slots.release()

    async def _whole(self, exchange: Exchange, talk: Talk, reply: Reply) -> None:
        for _ in reply.tokens:
            if exchange.is_gone:
                exchange.keeps_open = False
                return
            if self.token_s:
                break
        await asyncio.sleep(self.token_s * len(reply.tokens))
        self.load.generated += len(reply.tokens)
        value = whole_body(reply, talk, self.model, is_chat="/chat/" in exchange.request.path)
        if self.fault.payload is not None:
            value = self.fault.payload(value, exchange)
        await exchange.json(200, value)

    async def _stream(self, exchange: Exchange, talk: Talk, reply: Reply) -> None:
        events = stream_events(reply, talk, self.model, is_chat="/chat/" in exchange.request.path)
        if self.fault.payload is not None:
            events = (self.fault.payload(event, exchange) for event in events)
        frames: Iterator[bytes] = (
            b"data: " + json.dumps(event).encode("utf-8", "surrogatepass") + b"\n\n" for event in events
        )
        frames = _with_done(frames)
        if self.fault.frames is not None:
            frames = self.fault.frames(frames)
        await exchange.start_stream()
        try:
            await self._send_frames(exchange, frames)
        except ConnectionError:
            exchange.keeps_open = False

    async def _send_frames(self, exchange: Exchange, frames: Iterator[bytes]) -> None:
        begun, due, held = time.monotonic(), 0, []
        for frame in frames:
            due += 1
            await asyncio.sleep(max(0.0, begun + due * self.token_s - time.monotonic()))
            if exchange.is_gone:
                exchange.keeps_open = False
                return
            self.load.generated += 1
            if "buffering" in self.fault.ignores:
                held.append(frame)
            else:
                await exchange.chunk(frame)
        if held:
            await exchange.chunk(b"".join(held))
        await exchange.write(b"0\r\n\r\n")


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    size = int(headers.get("content-length", "0"))
    body = await reader.readexactly(min(size, _MAX_BODY))
    return Request(method=method, path=rest.partition(" ")[0].partition("?")[0], headers=headers, body=body)


async def _answer_get(exchange: Exchange) -> None:
    server, path = exchange.server, exchange.request.path
    if path == "/health":
        await exchange.respond(200, b"")
    elif path == "/version":
        await exchange.json(200, {"version": "0.32.0"})
    elif path == "/v1/models":
        await exchange.json(200, models_list(server.model))
    elif path == "/metrics":
        text = metrics_page(server.load, server.model)
        await exchange.respond(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")
    elif path == "/tokenize" and exchange.request.method == "POST":
        await exchange.json(*_tokenized(exchange.request.body))
    else:
        await exchange.json(404, {"detail": "Not Found"})


def _tokenized(body: bytes) -> tuple[int, object]:
    try:
        value = json.loads(body)
    except ValueError:
        return 400, {"error": {"message": "not JSON", "type": "BadRequestError", "code": 400}}
    text = value.get("prompt") or "\n".join(_text_of(one) for one in value.get("messages", []))
    count = len(tokens_of(text))
    return 200, {"count": count, "max_model_len": CONTEXT_TOKENS, "tokens": list(range(count))}


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
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
        'gpu_memory_utilization="0.9",kv_cache_size_tokens="131072",num_gpu_blocks="8192"} 1.0',
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
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length is "
            f"{CONTEXT_TOKENS} tokens and your request has {used} input tokens."
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


def _with_done(frames: Iterator[bytes]) -> Iterator[bytes]:
    yield from frames
    yield b"data: [DONE]\n\n"


async def _serve_for_people(server: HostileServer, about: str) -> None:
    async with server:
        print(f"{server.url}  {about}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", default="healthy", choices=sorted(FAULTS), metavar="NAME")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key")
    parser.add_argument("--list", action="store_true", help="names of the faults")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:24} {fault.about}" for name, fault in FAULTS.items()))
        return
    server = HostileServer.with_fault(options.fault, port=options.port, api_key=options.api_key)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_for_people(server, FAULTS[options.fault].about))


if __name__ == "__main__":
    main()
