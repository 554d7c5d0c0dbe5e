"""A server on this machine that streams by plan and keeps its own record of everything."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from bringup.load.task import Task
from bringup.transport.http_stream import target_of
from bringup.values.bench import LoadRequest

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Served:
    """What the server did with one request."""

    index: int
    arrived: int
    sent: list[int] = field(default_factory=list)  # just before each token's event was written


class Server:
    """Streams tokens by plan, in a thread of its own; `plan` maps a request's body to how it is answered."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.connections = 0
        self.running = self.most_running = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._on_loop(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        self.port = self._server.sockets[0].getsockname()[1]

    def _on_loop(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if b"content-length" in line
                )
                body = json.loads(await reader.readexactly(length))
                self.running += 1
                self.most_running = max(self.most_running, self.running)
                try:
                    await self._answer(body, writer)
                finally:
                    self.running -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict, writer: asyncio.StreamWriter) -> None:
        served = Served(index=body["index"], arrived=time.monotonic_ns())
        self.served.append(served)
        how = body.get("how", "")
        if how == "never":
            await asyncio.sleep(3600)
        if how == "429":
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy")
            await writer.drain()
            return
        writer.write(HEAD)
        while how == "endless":
            writer.write(chunk({"choices": [{"index": 0, "delta": {"content": " e"}}]}) * 1000)
            await writer.drain()
        for number in range(body["max_tokens"]):
            await asyncio.sleep(body.get("pause", 0.002))
            if how == "closes" and number == 3:
                writer.close()
                return
            served.sent.append(time.monotonic_ns())
            writer.write(chunk({"choices": [{"index": 0, "delta": {"content": f" t{number}"}}]}))
            await writer.drain()
        usage = {"prompt_tokens": 5, "completion_tokens": body["max_tokens"]}
        writer.write(chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}))
        writer.write(chunk({"choices": [], "usage": usage}))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


def chunk(event: dict) -> bytes:
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True)
class Plan:
    """Requests by number: `how` of each by turns."""

    hows: tuple[str, ...] = ("",)
    tokens: int = 5
    pause: float = 0.002
    interval_s: float | None = None
    cancel_after_s: float | None = None
    turns: int = 1

    @property
    def words(self) -> str:
        return "a plan"

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        index = generator
        while True:
            yield self.request(index)
            index += generators

    def request(self, index: int, turn: int = 0, said: str = "") -> LoadRequest:
        body = {"index": index, "max_tokens": self.tokens, "how": self.hows[index % len(self.hows)]}
        body |= {"pause": self.pause, "said": said}
        return LoadRequest(
            index=index,
            body=json.dumps(body).encode(),
            output_tokens=self.tokens,
            at_s=None if self.interval_s is None else index * self.interval_s,
            cancel_after_s=self.cancel_after_s,
            conversation=index if self.turns > 1 else None,
            turn=turn,
        )

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        if request.turn + 1 >= self.turns:
            return None
        return self.request(request.index, request.turn + 1, answer)


def task_of(server: Server, plan: Plan, **changes: object) -> Task:
    task = Task(target=target_of(f"http://127.0.0.1:{server.port}"), workload=plan, streams=4, requests=40)
    return replace(task, **changes)
