"""Generators, the mock server and the sampling beside them, as a benchmark runs them."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pytest
from mock_server import mock_server
from recorded_nvml import recorded_nvml

from bringup import registry
from bringup.engines import Engine
from bringup.flows.bench_beside import Beside
from bringup.load.fleet import shares
from bringup.load.local_fleet import local_fleet
from bringup.load.task import Task
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.values.bench import LoadRequest, Prices, Rung

TOKENS, PAUSE_S = 40, 0.005


@dataclass(frozen=True)
class Chats:
    """The same chat again and again."""

    words: str = "the same chat"

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        body = json.dumps({"messages": [], "stream": True, "stream_options": {"include_usage": True}})
        for index in range(generator, 1_000_000, generators):
            yield LoadRequest(index=index, body=body.encode(), output_tokens=TOKENS)

    def next_turn(self, request: LoadRequest, answer: str) -> None:
        return None


def test_counters_and_joules_are_those_of_each_rung(tmp_path, monkeypatch):
    recorded_nvml(tmp_path, monkeypatch)
    engines = cast("dict[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    options = ("--ttft-us", "20000", "--itl-us", str(round(PAUSE_S * 1e6)), "--tokens", str(TOKENS))
    with mock_server(tmp_path, *options) as port:
        target = target_of(f"http://127.0.0.1:{port}")
        fleet = local_fleet(2)

        async def run():
            endpoint = HttpEndpoint(target, environment_proxies=False)
            measured = []
            engine = engines["openai_compatible"]
            beside = Beside(endpoint=endpoint, engine=engine, is_here=True, has_driver=True, border_s=20.0)
            async with beside:
                for streams in (2, 8):
                    task = Task(target=target, workload=Chats(), streams=streams, requests=3 * streams)
                    async with beside.rung() as rung:
                        runs = await fleet.run(shares(task, fleet.size))
                        rung.timed_by(runs)
                    records = [record for one in runs for record in one.records]
                    good = sum(record.error is None for record in records)
                    tokens = sum(record.output_tokens or 0 for record in records)
                    measured.append((rung, Rung(requests=len(records), good=good, output_tokens=tokens)))
            await endpoint.close()
            await fleet.close()
            return [(rung, beside.measured(rung, ours, Prices(per_kwh=0.36))) for rung, ours in measured]

        for (span, rung), streams in zip(asyncio.run(run()), (2, 8), strict=True):
            assert rung.good == 3 * streams
            assert rung.output_tokens == 3 * streams * TOKENS
            assert (rung.engine.requests, rung.engine.is_shared) == (3 * streams, False)
            seconds = (span.ended - span.started) / 1e9
            assert seconds >= 3 * (0.02 + (TOKENS - 1) * PAUSE_S)  # three requests one after the other
            assert rung.gpu.joules == pytest.approx(250.0 * seconds, abs=0.6)
            assert rung.joules_per_token == rung.gpu.joules / rung.output_tokens
            assert rung.cost_per_million_tokens == pytest.approx(0.1 * rung.joules_per_token)
