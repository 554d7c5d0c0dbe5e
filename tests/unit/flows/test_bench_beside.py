import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from mock_server import mock_server
from recorded_nvml import recorded_nvml

from bringup import registry
from bringup.engines import Engine
from bringup.errors import HostError
from bringup.flows.bench_beside import Beside, engine_gpus
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.units import MIB
from bringup.values.bench import Prices, Rung
from bringup.values.exchange import Ask
from bringup.values.host import CommandResult, EngineProcess, Gpu, GpuProcess, HostSnapshot
from bringup.vendors.nvidia import VENDOR as NVIDIA

ENGINES = cast("dict[str, Engine]", registry.load("bringup.engines", "ENGINE"))
PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 0
vllm:generation_tokens_total{{engine="0"}} {output}
vllm:prompt_tokens_total{{engine="0"}} {input}
vllm:request_success_total{{engine="0",finished_reason="stop"}} {requests}
vllm:request_success_total{{engine="0",finished_reason="length"}} 0
vllm:prefix_cache_queries_total{{engine="0"}} {input}
vllm:prefix_cache_hits_total{{engine="0"}} 0
vllm:num_preemptions_total{{engine="0"}} 0
vllm:kv_cache_usage_perc{{engine="0"}} 0.5
"""
OURS = Rung(requests=3, good=3, input_tokens=30, output_tokens=300, most_open=1)


@dataclass
class Server:
    """Serves a metrics page that the test turns as it likes; keeps the paths it was asked for."""

    output: int = 1000
    running: int = 0
    status: str = "200 OK"
    filler: str = ""
    instead: bytes | None = None  # sent in place of an answer, then the connection is closed
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    pages: dict[str, Callable[[], str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answered: int = 0
    connections: list = field(default_factory=list)

    def page(self) -> str:
        requests, taken = self.output // 100, self.output // 10
        return self.filler + PAGE.format(
            running=self.running, output=self.output, input=taken, requests=requests
        )

    async def serve(self, reader, writer):
        self.connections.append((asyncio.current_task(), writer))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
                self.asked.append(path)
                await self.gate.wait()
                if self.instead is not None:
                    writer.write(self.instead)
                    break
                status = self.status
                if self.pages and path not in self.pages:
                    status = "404 Not Found"
                body = self.pages.get(path, self.page)() if status == "200 OK" else "{}"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                self.answered += 1
        writer.close()


@asynccontextmanager
async def served(**changes):
    server = Server(**changes)
    server.gate.set()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    endpoint = HttpEndpoint(target_of(f"http://127.0.0.1:{port}"), environment_proxies=False)
    try:
        yield server, endpoint
    finally:
        server.gate.set()
        await endpoint.close()
        listening.close()
        for serving, writer in server.connections:
            await asyncio.wait({serving})
            writer.transport.abort()
        await asyncio.sleep(0)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.005)


def beside_of(endpoint, *, engine="vllm", **others):
    known = ENGINES[engine] if isinstance(engine, str) else engine
    told = {"interval_s": 0.03, "border_s": 20.0, "engine": known} | others
    return Beside(endpoint=endpoint, **told)


def test_every_rung_has_the_difference_of_its_own():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint) as beside:
            rungs = []
            for tokens in (300, 700):
                async with beside.rung() as rung:
                    server.running, seen = 4, server.answered
                    await until(lambda seen=seen: server.answered > seen + 2)
                    server.running, server.output = 0, server.output + tokens
                rungs.append(rung)
                server.output += 5000  # between the rungs, of whom it may be
        return beside, rungs

    beside, (first, second) = asyncio.run(run())
    delta = beside.engine_delta(first, OURS)
    assert (delta.requests, delta.input_tokens, delta.output_tokens) == (3.0, 30.0, 300.0)
    assert (delta.most_running, delta.most_kv_used_share) == (4.0, 0.5)
    assert (delta.is_shared, delta.cache_hit_rate, delta.preemptions) == (False, 0.0, 0.0)
    assert delta.remarks == ()
    assert beside.engine_delta(second).output_tokens == 700.0
    series = beside.trace(first).engine
    assert series[0].at < 0 < series[-1].at  # from the reading before the rung on, from its start
    assert len(series) >= 3


def test_an_engine_that_still_works_at_the_border_is_looked_at_again():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint) as beside:
            async with beside.rung() as rung:
                server.running, server.output, seen = 1, 1290, server.answered

                async def finish():
                    await until(lambda: server.answered > seen + 2)
                    server.running, server.output = 0, 1300

                finishing = asyncio.create_task(finish())
            await finishing
        return beside.engine_delta(rung, OURS)

    assert asyncio.run(run()).output_tokens == 300.0


def test_a_page_that_never_comes_holds_nothing_back():
    async def run():
        async with served() as (server, endpoint):
            server.gate.clear()
            async with beside_of(endpoint, border_s=0.03) as beside:
                async with beside.rung() as rung:
                    pass
                async with beside.rung():
                    pass
            assert server.answered == 0
        return beside.engine_delta(rung, OURS), beside.trace(rung)

    delta, trace = asyncio.run(run())
    assert trace.lapses == ()  # a wait to the reading's own limit would have left one
    assert (delta.output_tokens, delta.is_shared) == (None, None)
    assert delta.remarks == ("no reading of the engine's counters came back",)


def test_a_page_that_comes_late_is_not_taken_for_a_quiet_one():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint, border_s=0.03) as beside:
            await until(lambda: server.answered)
            async with beside.rung() as rung:
                server.gate.clear()
                server.output += 300
            async with beside.rung():  # the reading after the first rung is under way
                server.output += 700
                seen = server.answered
                server.gate.set()
                await until(lambda: server.answered > seen)
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert delta.output_tokens is None
    assert delta.remarks[0].startswith(
        "no reading of the engine's counters fell into the quiet after the rung"
    )


def test_a_reading_from_before_the_warm_up_is_not_the_rungs():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint, border_s=0.03) as beside:
            await until(lambda: server.answered)
            server.gate.clear()
            server.output += 700  # the warm-up
            async with beside.rung() as rung:
                server.output += 300
            server.gate.set()
            await until(lambda: server.answered > 3)
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert delta.output_tokens is None
    assert delta.remarks[0].startswith(
        "no reading of the engine's counters fell into the quiet before the rung"
    )


def test_a_server_that_is_not_up_yet_is_asked_again():
    async def run():
        async with (
            served(status="503 Service Unavailable") as (server, endpoint),
            beside_of(endpoint) as beside,
        ):
            await until(lambda: server.answered > 1)
            server.status = "200 OK"
            await until(lambda: server.answered > 3)
            async with beside.rung() as rung:
                server.output += 300
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert (delta.output_tokens, delta.remarks) == (300.0, ())


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "vLLM shows no counters (HTTP 404)"),
        ("sglang", "SGLang shows no counters (HTTP 404): it shows them with `--enable-metrics`"),
        ("openai_compatible", "unknown OpenAI-compatible server shows no counters (HTTP 404)"),
    ],
)
def test_a_missing_page_is_said_and_not_asked_for_again(engine, words):
    async def run():
        async with served(status="404 Not Found") as (server, endpoint):
            async with beside_of(endpoint, engine=engine) as beside, beside.rung() as rung:
                await asyncio.sleep(0.2)
            return beside.engine_delta(rung, OURS), server.asked

    delta, asked = asyncio.run(run())
    assert delta.remarks[0] == words
    assert delta.is_shared is None
    assert len(asked) <= 2  # both at once: the first look, and that of the border


def test_an_engine_without_known_counters_is_not_asked():
    async def run():
        async with served() as (server, endpoint):
            async with beside_of(endpoint, engine="ollama") as beside, beside.rung() as rung:
                pass
            return beside.engine_delta(rung), server.asked

    delta, asked = asyncio.run(run())
    assert (delta.remarks, asked) == (("the engine's counters are not known here",), [])


def test_a_page_of_a_megabyte_is_read_like_any_other():
    filler = "".join(
        f'vllm:request_prompt_tokens_bucket{{engine="{n}",le="1.0",model_name="some-model"}} 17\n'
        for n in range(12_000)
    )
    assert len(filler) > 900_000

    async def run():
        async with served(filler=filler) as (server, endpoint):
            async with beside_of(endpoint) as beside, beside.rung() as rung:
                server.output += 300
            return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert (delta.output_tokens, delta.remarks) == (300.0, ())


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "500 Internal Server Error"},
        {"status": "404 Not Found"},
        {"instead": b""},
        {"instead": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nvllm:generation_tokens_total 7"},
        {"instead": b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\xff\xfe{}<>\x00\x01"},
        {"instead": b"\x00\x01\x02 no HTTP\r\n\r\n"},
    ],
    ids=["error", "gone", "closed", "cut", "garbage", "no HTTP"],
)
def test_a_page_that_breaks_in_mid_run_costs_a_remark(broken):
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint) as beside:
            await until(lambda: server.answered)
            async with beside.rung() as rung:
                whole = {name: getattr(server, name) for name in broken}
                for name, value in broken.items():
                    setattr(server, name, value)
                seen = len(server.asked)
                await until(lambda: len(server.asked) > seen + 2)
                for name, value in whole.items():
                    setattr(server, name, value)
                server.output += 300
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert (delta.output_tokens, delta.is_shared, delta.is_restarted) == (300.0, False, False)
    (remark,) = delta.remarks
    assert "readings of the engine's counters failed" in remark


def test_a_server_that_goes_away_is_no_error():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint) as beside, beside.rung() as rung:
            with socket.socket() as probe:  # nothing listens there any more
                probe.bind(("127.0.0.1", 0))
                endpoint.target = replace(endpoint.target, port=probe.getsockname()[1])
            server.instead = b""
            await until(lambda: any("refused" in one.words.lower() for one in beside.trace(rung).lapses))
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert delta.output_tokens is None
    assert "the quiet after the rung" in delta.remarks[0]


def test_a_restart_in_mid_run_is_seen():
    async def run():
        async with served() as (server, endpoint), beside_of(endpoint) as beside, beside.rung() as rung:
            server.output, seen = 3, server.answered
            await until(lambda: server.answered > seen + 2)
            server.output = 50_000
        return beside.engine_delta(rung, OURS)

    delta = asyncio.run(run())
    assert (delta.is_restarted, delta.output_tokens) == (True, None)


def test_llama_cpp_without_metrics_tells_at_least_what_runs():
    slots = json.dumps([{"id": 0, "n_ctx": 2048, "is_processing": True}, {"id": 1, "is_processing": False}])

    async def run():
        async with served(pages={"/slots": lambda: slots}) as (server, endpoint):
            engine = replace(ENGINES["llama_cpp"], identify=sure_of_llama_cpp)
            async with beside_of(endpoint, engine=engine, border_s=0.03) as beside, beside.rung() as rung:
                seen = server.answered
                await until(lambda: server.answered > seen + 2)
        return beside.engine_delta(rung, OURS), server.asked

    delta, asked = asyncio.run(run())
    assert delta.most_running == 1.0
    assert delta.output_tokens is None
    assert delta.remarks[0] == "llama.cpp shows only what runs: it shows its counters with `--metrics`"
    assert asked.count("/metrics") <= 2


def sure_of_llama_cpp(answers):
    """llama.cpp names itself in a header that this server does not send."""
    named = {path: replace(one, headers=(("server", "llama.cpp"),)) for path, one in answers.items()}
    return ENGINES["llama_cpp"].identify(named)


@dataclass
class RecordedRunner:
    """A host whose nvidia-smi gives one recorded piece after the other."""

    text: str
    host: str = "gpubox"
    way_s: float = 0.02
    fails: bool = False
    pieces: int = 0

    async def ask(self, questions):
        if self.fails:
            raise HostError("ssh: gpubox went away")
        self.pieces += 1
        await asyncio.sleep(0.02)
        (question,) = questions
        now = time.time()
        result = CommandResult(key=question.key, status=0, stdout=self.text, received_at=now, elapsed_s=3.0)
        return {
            question.key: result,
            "transport.clock": CommandResult(key="transport.clock", status=0, elapsed_s=self.way_s),
        }

    async def close(self):
        pass


ROWS = "@at 500.00\n@fields index,memory.used,power.draw,utilization.gpu\n" + "".join(
    f"@at {500.3 + number / 5:.2f}\n0, 90000, 300.00, 99\n1, 3, 80.00, 0\n" for number in range(14)
)


def gpu_use_of(**others):
    async def run():
        async with served() as (_, endpoint):
            beside = beside_of(endpoint, vendors={"nvidia": NVIDIA}, **others)
            async with beside:
                async with beside.rung() as rung:
                    pass
                now = time.monotonic_ns()  # the recorded piece is that of the three seconds until now
                rung.started, rung.ended = now - 2_000_000_000, now - 1_000_000_000
            return beside.measured(rung, OURS, Prices(per_kwh=0.36))

    return asyncio.run(run())


def test_the_makers_tool_on_the_engines_host_is_read_in_pieces():
    rung = gpu_use_of(runner=RecordedRunner(ROWS))
    use = rung.gpu
    assert use.joules == pytest.approx(300.0)
    assert (use.indices, use.peak_memory) == ((0,), (90_000 * MIB,))
    assert use.source.startswith("nvidia-smi on gpubox power, ")
    assert use.remarks == ("which GPUs are the engine's is not known: those at work count (0)",)
    assert rung.joules_per_token == pytest.approx(1.0)
    assert rung.cost_per_million_tokens == pytest.approx(0.1)


def test_a_long_way_to_the_host_is_said():
    use = gpu_use_of(runner=RecordedRunner(ROWS, way_s=0.31), gpus=frozenset({0, 1})).gpu
    assert use.joules == pytest.approx(380.0)
    assert use.remarks == ("the readings' times are good to 0.31 s: the way to the host",)


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        (RecordedRunner("@absent\n"), "no GPU seen: joules not measured"),
        (None, "the engine's machine is not this one, and none was named with --host"),
        (
            RecordedRunner(ROWS, fails=True),
            "the host could not be asked about its GPUs: ssh: gpubox went away",
        ),
    ],
)
def test_without_a_gpu_it_says_so(runner, words):
    rung = gpu_use_of(runner=runner)
    assert words in rung.gpu.remarks
    assert (rung.gpu.gpus, rung.gpu.joules, rung.joules_per_token) == (0, None, None)
    assert rung.cost_per_million_tokens is None
    if isinstance(runner, RecordedRunner):
        assert runner.pieces <= 1


def with_nvml(**others):
    async def run():
        async with served() as (_, endpoint):
            async with (
                beside_of(endpoint, is_here=True, has_driver=True, **others) as beside,
                beside.rung() as rung,
            ):
                await asyncio.sleep(0.3)
            return beside, rung

    return asyncio.run(run())


def test_nvml_counts_the_energy_of_exactly_the_rung(tmp_path, monkeypatch):
    recorded_nvml(tmp_path, monkeypatch)
    beside, rung = with_nvml()
    use = beside.gpu_use(rung)
    seconds = (rung.ended - rung.started) / 1e9
    assert use.joules == pytest.approx(250.0 * seconds, abs=0.6)  # the counter has steps of a quarter joule
    assert use.source == "NVML energy counter"
    assert use.indices == (0,)  # card 1 does nothing
    assert use.peak_memory == (101_425_604_608,)
    assert use.throttled == ("GPU 0: power limit (100 % of the time)",)
    both = replace_gpus(beside, {0, 1}).gpu_use(rung)
    assert both.joules == pytest.approx(350.0 * seconds, abs=0.6)
    assert both.source.startswith("NVML power, ")


def replace_gpus(beside, indices):
    beside.gpus = frozenset(indices)
    return beside


def test_a_machine_without_a_driver_says_so(tmp_path, monkeypatch):
    recorded_nvml(tmp_path, monkeypatch, mode="none")
    beside, rung = with_nvml()
    remarks = beside.gpu_use(rung).remarks
    assert remarks[:2] == ("no GPU seen: joules not measured", "NVML: Driver Not Loaded")


def test_a_driver_that_hangs_is_left_behind(tmp_path, monkeypatch):
    recorded_nvml(tmp_path, monkeypatch, mode="hang")
    beside, rung = with_nvml(border_s=0.1)
    assert beside.gpu_use(rung).joules is None
    pid = beside._nvml._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_machine_without_nvidias_driver_starts_nothing():
    async def run():
        async with served() as (_, endpoint):
            runner = RecordedRunner(ROWS)
            beside = beside_of(
                endpoint, is_here=True, has_driver=False, runner=runner, vendors={"nvidia": NVIDIA}
            )
            async with beside, beside.rung() as rung:
                pass
            return beside.gpu_use(rung), runner.pieces

    use, pieces = asyncio.run(run())
    assert (use.remarks, pieces) == (("no GPU seen: joules not measured",), 0)


def test_gpus_whose_maker_has_no_row_of_readings_are_named():
    host = HostSnapshot(taken_at=0.0, host="gpubox", gpus=(Gpu(index=0, vendor="amd"),))
    use = gpu_use_of(runner=RecordedRunner("@absent\n"), host=host).gpu
    assert use.remarks == (
        "GPUs of AMD cannot be read beside a load",
        "no GPU seen: joules not measured",
    )


def test_nvidias_gpus_are_readable_by_more_than_one_way():
    host = HostSnapshot(taken_at=0.0, host="gpubox", gpus=(Gpu(index=0),))
    assert Beside(endpoint=None, host=host)._of_other_makers() == ()


def test_the_engines_gpus_are_those_that_its_process_holds():
    cards = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(4))
    engine = EngineProcess(pid=10, port=8000, children=(11, 12))
    held = tuple(GpuProcess(pid=pid, gpu_uuid=f"GPU-{index}") for pid, index in ((11, 2), (12, 3), (99, 0)))
    host = HostSnapshot(taken_at=0.0, host="local", gpus=cards, engines=(engine,), processes=held)
    assert engine_gpus(host, 8000) == {2, 3}
    assert engine_gpus(host, 8001) is None
    assert engine_gpus(replace(host, processes=()), 8000) is None  # not told is not none
    assert engine_gpus(None, 8000) is None


def test_an_interrupted_rung_leaves_what_was_seen():
    async def run():
        seen = {}

        async def bench(endpoint, server):
            async with beside_of(endpoint) as beside:
                seen["beside"] = beside
                async with beside.rung() as rung:
                    seen["rung"], begun = rung, server.answered
                    server.running = 2
                    await until(lambda: server.answered > begun + 2)
                    seen["busy"].set()
                    await asyncio.Event().wait()

        async with served() as (server, endpoint):
            seen["busy"] = asyncio.Event()
            running = asyncio.create_task(bench(endpoint, server))
            await seen["busy"].wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        return seen["beside"].measured(seen["rung"], OURS)

    rung = asyncio.run(run())
    assert rung.engine.most_running == 2.0
    assert rung.engine.output_tokens is None
    assert "the quiet after the rung" in rung.engine.remarks[0]


@pytest.fixture(scope="module")
def mock_port(tmp_path_factory):
    options = ("--ttft-us", "1000", "--itl-us", "500", "--tokens", "20")
    with mock_server(tmp_path_factory.mktemp("mock"), *options) as port:
        yield port


def test_the_mock_servers_counter_tells_every_request(mock_port):
    async def run():
        endpoint = HttpEndpoint(target_of(f"http://127.0.0.1:{mock_port}"), environment_proxies=False)
        body = json.dumps({"model": "mock-model", "messages": [], "stream": True})
        async with beside_of(endpoint, engine="openai_compatible") as beside:
            rungs = []
            for number in (1, 7, 40):
                async with beside.rung() as rung:
                    asks = [Ask(key=str(one), body=body) for one in range(number)]
                    answers = await asyncio.gather(*(endpoint.send(ask) for ask in asks))
                    assert all(answer.status == 200 for answer in answers)
                rungs.append(rung)
        await endpoint.close()
        return [
            beside.engine_delta(rung, Rung(requests=n, good=n))
            for rung, n in zip(rungs, (1, 7, 40), strict=True)
        ]

    deltas = asyncio.run(run())
    assert [delta.requests for delta in deltas] == [1.0, 7.0, 40.0]
    assert [delta.is_shared for delta in deltas] == [False] * 3
    assert {delta.remarks for delta in deltas} == {()}
