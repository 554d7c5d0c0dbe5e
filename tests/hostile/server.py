"""A small OpenAI-compatible server that is healthy, or sick in exactly one way.

In a test: `async with HostileServer(fault="endless") as server: ... server.url`. By hand:
`python tests/hostile/server.py --fault endless --port 8000`, then point `bringup verify` at it.
`--list` names the faults. The answers come from `capable_model.py`, the faults from `faults.py`.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Self

from capable_model import MODEL, Reply, Talk, speak
from faults import FAULTS, Fault
from openai_form import (
    BadRequestError,
    Load,
    Request,
    metrics_page,
    models_list,
    stream_events,
    talk_of,
    tokenized,
    whole_body,
)

MAX_BODY = 64_000_000
_SLOTS = 16
_REASONS = {200: "OK", 301: "Moved", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized"}


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
        while not self.is_gone:  # noqa: ASYNC110 - the end of a connection sets no event
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
        if self.fault.token_s is not None:
            self.token_s = self.fault.token_s
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
        begun = time.monotonic()
        held: list[bytes] = []
        for due, frame in enumerate(frames, start=1):
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
    body = await reader.readexactly(min(size, MAX_BODY))
    return Request(method=method, path=rest.partition(" ")[0].partition("?")[0], headers=headers, body=body)


async def _answer_get(exchange: Exchange) -> None:
    server, path = exchange.server, exchange.request.path
    if path == "/health":
        await exchange.respond(200, b"")
    elif path == "/version":
        await exchange.json(200, {"version": "0.32.0"})
    elif path == "/v1/models":
        await exchange.json(200, models_list(server.fault.models or server.model))
    elif path == "/metrics":
        text = metrics_page(server.load, server.model)
        await exchange.respond(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")
    elif path == "/tokenize" and exchange.request.method == "POST":
        await exchange.json(*tokenized(exchange.request.body))
    else:
        await exchange.json(404, {"detail": "Not Found"})


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
