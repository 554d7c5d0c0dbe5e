"""The generator against a real server on this machine that keeps its own record of everything."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from bringup.load.fleet import shares
from bringup.load.local_fleet import local_fleet
from bringup.load.page import Wish
from bringup.load.task import Task
from bringup.transport.http_stream import target_of
from bringup.values.bench import Failed, GeneratorRun, LoadRequest

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


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def run(server: Server | None, task: Task, generators: int = 1, *, during=None) -> tuple[GeneratorRun, ...]:
    fleet = local_fleet(generators)

    async def rung() -> tuple[GeneratorRun, ...]:
        try:
            running = asyncio.create_task(fleet.run(shares(task, generators)))
            if during is not None:
                await during(fleet)
            return await asyncio.wait_for(running, 60)
        finally:
            await fleet.close()

    return asyncio.run(rung())


def task_of(server: Server, plan: Plan, **changes: object) -> Task:
    task = Task(target=target_of(f"http://127.0.0.1:{server.port}"), workload=plan, streams=4, requests=40)
    return replace(task, **changes)


def test_every_request_is_answered_and_timed_after_it_was_sent(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan()))
    assert len(done.records) == len(server.served) == 40
    assert {record.index for record in done.records} == set(range(40))
    assert all(record.error is None for record in done.records)
    assert sum(done.gaps.counts.values()) == 40 * 4
    assert sum(done.token_bins.values()) == 200
    assert done.most_open <= 4
    assert server.most_running <= 4
    assert server.connections == 4
    sent_of = {one.index: one for one in server.served}
    origins = []
    for record in done.records:
        one = sent_of[record.index]
        assert record.first is not None
        assert record.last is not None
        # one clock for both sides: an arrival cannot be before its departure
        origins.append((one.arrived - record.sent, one.sent[0] - record.first, one.sent[-1] - record.last))
        assert record.last - record.first >= 0
    start_at_most = min(arrived for arrived, _, _ in origins)
    start_at_least = max(max(first, last) for _, first, last in origins)
    assert start_at_least <= start_at_most


def test_the_total_of_the_gaps_is_the_time_between_first_and_last(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), keep_gaps=True))
    assert done.gaps.total_ns == sum(record.last - record.first for record in done.records)
    for record in done.records:
        assert record.gaps is not None
        assert sum(record.gaps) == record.last - record.first


def test_several_generators_share_the_requests(server: Server) -> None:
    runs = run(server, task_of(server, Plan(), streams=6), generators=2)
    assert sorted(record.index for one in runs for record in one.records) == list(range(40))
    assert {record.index % 2 for record in runs[0].records} == {0}
    assert sum(one.most_open for one in runs) <= 6


def test_faults_are_counted_by_kind_and_leave_the_others_alone(server: Server) -> None:
    plan = Plan(hows=("", "429", "closes", "never"))
    (done,) = run(server, task_of(server, plan, request_limit_s=0.5))
    kinds = [record.error for record in done.records]
    assert len(kinds) == 40
    assert kinds.count(None) == kinds.count("http 429") == kinds.count(Failed.CLOSED_EARLY) == 10
    assert kinds.count(Failed.TIME_LIMIT) == 10
    assert sum(done.gaps.counts.values()) == 10 * 4
    assert next(record.detail for record in done.records if record.error == "http 429") == "busy"


def test_an_open_loop_counts_from_the_schedule(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(interval_s=0.01), streams=None))
    due = {record.index: record.scheduled for record in done.records}
    assert due == {index: index * 10_000_000 for index in range(40)}
    assert all(record.sent >= record.scheduled for record in done.records if record.scheduled is not None)


def test_an_open_loop_waits_for_a_connection_and_says_so(server: Server) -> None:
    task = task_of(server, Plan(interval_s=0.0, pause=0.01), streams=None, most_open=2, requests=8)
    (done,) = run(server, task)
    assert server.connections == 2
    late = sorted(record.sent - (record.scheduled or 0) for record in done.records)
    assert late[-1] > late[0]
    assert sum(done.send_late.counts.values()) == 8


def test_fresh_connections_tell_what_each_took(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), fresh_connections=True))
    assert server.connections == 40
    assert all(record.connect for record in done.records)


def test_a_conversation_goes_on_with_what_was_answered(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(turns=2, tokens=2)))
    assert len(done.records) == 40
    assert {record.turn for record in done.records} == {0, 1}
    assert {record.text for record in done.records} == {" t0 t1"}


def test_cancelled_requests_are_no_errors(server: Server) -> None:
    plan = Plan(tokens=50, pause=0.01, cancel_after_s=0.05)
    (done,) = run(server, task_of(server, plan, requests=8))
    assert all(record.is_cancelled and record.error is None for record in done.records)
    assert not done.gaps.counts


def test_a_duration_ends_the_sending_and_not_the_answers(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), requests=None, duration_s=0.3))
    assert done.records
    assert all(record.error is None for record in done.records)


def test_a_server_that_is_gone_ends_the_rung(server: Server) -> None:
    server.close()
    (done,) = run(None, task_of(server, Plan(), requests=100_000))
    assert {record.error for record in done.records} <= {Failed.REFUSED, Failed.RESET}
    assert "in a row failed" in done.cut
    assert len(done.records) < 1000


@pytest.mark.parametrize(("wish", "error"), [(Wish.FINISH, None), (Wish.CUT, Failed.STOPPED)])
def test_a_wish_ends_the_rung_with_what_there_is(server: Server, wish: Wish, error: str | None) -> None:
    async def stop(fleet) -> None:
        while fleet.counts().finished < 8:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        fleet.ask(wish)

    (done,) = run(server, task_of(server, Plan(tokens=50), requests=None), during=stop)
    assert len(done.records) >= 8
    assert {record.error for record in done.records[:8]} == {None}
    assert {record.error for record in done.records[8:]} <= {None, error}
    assert done.cut == "stopped"
