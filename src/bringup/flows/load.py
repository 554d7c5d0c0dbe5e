"""Looks at GPUs and engine several times a second while a burst of requests runs.

The GPUs are asked in short pieces, so that a slow link never holds more than a few seconds back; the engine's
counters are asked through the endpoint. Live and replayed the same questions have the same keys.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from bringup.engines import Engine
from bringup.flows.engine_counters import engine_moment, without_buckets
from bringup.flows.gpu_pieces import PIECE_S, gpu_traces, watch_pieces
from bringup.transport import Endpoint, Runner
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.host import CommandResult
from bringup.values.load import EngineMoment, GpuTrace, LoadTrace
from bringup.vendors import Vendor

_ENGINE_INTERVAL_S = 0.2
_MOST_PIECES = 400  # twenty minutes
_PROBE_LIMIT_S = 5.0
CHECK = "under_load"  # whose answers the engine's counters are kept beside


@dataclass(slots=True)
class LoadSampler:
    """Samples from entering to leaving it. In a replay everything that was recorded is read on leaving."""

    engine: Engine | None
    vendors: Mapping[str, Vendor]
    endpoint: Endpoint
    runner: Runner | None
    is_replay: bool = False
    results: dict[str, CommandResult] = field(default_factory=dict[str, CommandResult])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _begun: float = 0.0

    async def __aenter__(self) -> Self:
        self._begun = time.time()
        if not self.is_replay:
            self._tasks = [asyncio.create_task(self._watch_gpus()), asyncio.create_task(self._watch_engine())]
            await asyncio.sleep(_ENGINE_INTERVAL_S)  # so that the first readings are those of a quiet engine
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        if self.is_replay:
            await self._watch_gpus()
            await self._watch_engine()
            return
        done, _ = await asyncio.wait(self._tasks)
        for task in done:
            task.result()

    async def _watch_gpus(self) -> None:
        """Pieces of readings, one after the other, until the burst is over."""

        def take(told: Mapping[str, CommandResult], _way_s: float | None) -> bool:
            self.results.update(told)
            return self.is_replay or not self._ends.is_set()

        await watch_pieces(self.runner, self.vendors, take, most=_MOST_PIECES)

    async def _watch_engine(self) -> None:
        """The engine's metrics page, as far as its counters go."""
        path = self.engine.metrics_path if self.engine is not None else None
        if path is None:
            return
        for number in range(int(_MOST_PIECES * PIECE_S / _ENGINE_INTERVAL_S)):
            key = f"metrics {number}"
            ask = Ask(key=f"{CHECK}/{key}", path=path, method="GET", time_limit_s=_PROBE_LIMIT_S)
            answer = await self.endpoint.send(ask)
            if answer.problem is Problem.NOT_ASKED or answer.status != 200:
                return
            self.answers[key] = replace(answer, key=key, body=without_buckets(answer.body), arrivals=())
            if self.is_replay:
                continue
            try:
                await asyncio.wait_for(self._ends.wait(), _ENGINE_INTERVAL_S)
            except TimeoutError:
                continue
            if number and self._is_quiet(key):
                return

    def _is_quiet(self, key: str) -> bool:
        """Whether the engine has nothing more to do: then the last reading was taken."""
        moment = self._moment(self.answers[key], begun=self._begun)
        return not moment or not moment.running or self._begun + _MOST_PIECES * PIECE_S < time.time()

    def trace(self) -> LoadTrace:
        """What was sampled, as series."""
        begun = min((answer.sent_at for answer in self.answers.values()), default=self._begun)
        engine = [self._moment(answer, begun=begun) for answer in self.answers.values()]
        return LoadTrace(
            gpus=self._gpu_traces(begun), engine=tuple(moment for moment in engine if moment is not None)
        )

    def _moment(self, answer: Answer, *, begun: float) -> EngineMoment | None:
        if self.engine is None or self.engine.metrics_path is None:
            return None
        at = round(answer.sent_at - begun, 3)
        return engine_moment(self.engine, {self.engine.metrics_path: answer}, at=at)

    def _gpu_traces(self, begun: float) -> tuple[GpuTrace, ...]:
        def begun_at(result: CommandResult) -> float:
            return (result.received_at or begun) - (result.elapsed_s or 0.0) - begun

        return gpu_traces(self.vendors, self.results, begun_at)
