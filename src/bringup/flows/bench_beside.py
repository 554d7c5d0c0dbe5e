"""What is sampled beside the load of a benchmark: the engine's own counters, and its GPUs.

Nothing here holds the load back: a page that is slow, missing, huge or broken costs a rung a remark, and at
a rung's borders at most a quarter of a second of waiting. The load itself runs in other processes; this one
reads a few times a second, and less often where reading costs much.

    async with Beside(endpoint=endpoint, engine=engine, runner=runner, is_here=True) as beside:
        async with beside.rung() as rung:
            runs = await fleet.run(tasks)
            rung.timed_by(runs)
    figures = beside.measured(rung, figures, Prices(per_kwh=0.3))

All times are `time.monotonic_ns` of this machine. NVML's readings carry it; those of another host are placed
by when its answers came, and are as good as the way there is short, which is said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from bringup.engines import PROBE_BYTES, Engine
from bringup.errors import HostError
from bringup.flows.engine_counters import counter_paths, counters_only, engine_moment
from bringup.flows.gpu_pieces import PIECE_S, gpu_traces, watch_pieces
from bringup.parse.nvml_lines import read_line
from bringup.stats.energy_cost import cost_per_million_tokens, joules_per_token
from bringup.stats.engine_delta import Window, engine_delta
from bringup.stats.gpu_use import gpu_use
from bringup.transport import Endpoint, Runner
from bringup.transport.nvml import NvmlReader, has_driver, is_installed
from bringup.values.bench import EngineDelta, GeneratorRun, GpuUse, Prices, Rung
from bringup.values.exchange import Answer, Ask
from bringup.values.load import EngineMoment, GpuMoment, GpuTrace, Lapse, LoadTrace

if TYPE_CHECKING:  # a machine without GPUs loads none of this
    from bringup.values.host import CommandResult, HostSnapshot
    from bringup.vendors import Vendor

INTERVAL_S = 0.25
_READ_LIMIT_S = 5.0  # a page that takes longer tells of another moment
_SETTLE_S = 0.02  # between two looks at an engine that still has something to do
_MOST_COST = 0.03  # share of a core that reading the counters may take
_MOST_PIECES = 100_000
_CLOSED = (401, 403, 404, 405, 410, 501)  # no counters here, now and later
_NOTABLE_WAY_S = 0.05
_MAKERS = {"amd": "AMD", "intel": "Intel"}
_Timed = TypeVar("_Timed", GpuMoment, EngineMoment, Lapse)


@dataclass(slots=True)
class BesideRung:
    """When one rung ran, `time.monotonic_ns`. Whoever ran it may set `started` and `ended` more exactly."""

    entered: int
    started: int = 0
    ended: int = 0
    left: int = 0

    def timed_by(self, runs: Sequence[GeneratorRun]) -> None:
        """Take the times from the generators, which know them better than who waits for their records.

        Where they tell no common start, the records are taken to have come when the rung ended.
        """
        started = next((run.began_ns for run in runs if run.began_ns is not None), None)
        length = max((run.ended for run in runs), default=0)
        self.started = time.monotonic_ns() - length if started is None else started
        self.ended = self.started + length


@dataclass(slots=True)
class Beside:
    """Samples from entering to leaving it. Never raises for what engine, host or driver do."""

    endpoint: Endpoint
    engine: Engine | None = None
    runner: Runner | None = None  # the engine's machine
    vendors: Mapping[str, Vendor] = field(default_factory=dict[str, "Vendor"])
    is_here: bool = False  # the engine's machine is this one
    gpus: frozenset[int] | None = None  # indices of the engine's GPUs, where they are known
    host: HostSnapshot | None = None  # the engine's machine, where somebody has looked at it
    has_driver: bool = field(default_factory=has_driver)  # NVIDIA's, on this machine
    interval_s: float = INTERVAL_S
    border_s: float = INTERVAL_S  # so long a rung's border waits for a reading at most
    _begun: int = field(default_factory=time.monotonic_ns)
    _moments: list[EngineMoment] = field(default_factory=list[EngineMoment])
    _lapses: list[Lapse] = field(default_factory=list[Lapse])
    _gpu_moments: dict[int, list[GpuMoment]] = field(default_factory=dict[int, list[GpuMoment]])
    _rungs: list[BesideRung] = field(default_factory=list[BesideRung])
    _paths: tuple[str, ...] = ()  # still to be tried; the first that answers stays alone
    _no_counters: str = ""  # why there are none, or not all
    _is_given_up: bool = False
    _cost_s: float = 0.0  # processor time of one reading
    _tool: str = ""  # what reads the GPUs
    _gpu_remarks: list[str] = field(default_factory=list[str])
    _way_s: float = 0.0
    _nvml: NvmlReader | None = None
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _gpus_told: asyncio.Event = field(default_factory=asyncio.Event)  # the first readings, or none will come
    _watching: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _looks: set[asyncio.Task[EngineMoment | None]] = field(
        default_factory=set[asyncio.Task[EngineMoment | None]]
    )

    async def __aenter__(self) -> Self:
        self._begun = time.monotonic_ns()
        self._paths = counter_paths(self.engine)
        if not self._paths:
            self._no_counters, self._is_given_up = "the engine's counters are not known here", True
        self._watching = [
            asyncio.create_task(self._watch_engine()),
            asyncio.create_task(self._watch_gpus()),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ends.set()
        if self._nvml is not None:
            await self._nvml.stop(limit_s=2 * self.border_s)
        # The last piece of the maker's tool holds the last rung's readings.
        patience_s = self.border_s if kind is not None or self._nvml is not None else 2.0 * PIECE_S
        engine, gpus = self._watching
        await asyncio.gather(_ended({engine, *self._looks}, self.border_s), _ended({gpus}, patience_s))
        for task in self._watching:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._gpu_remarks.append(f"the sampling stopped: {error!r}")

    @asynccontextmanager
    async def rung(self) -> AsyncIterator[BesideRung]:
        """One rung: the counters are read while nothing of ours runs, before it and after it.

        Each of the two takes as long as the engine's page, and at most `border_s`.
        """
        rung = BesideRung(entered=time.monotonic_ns())
        await self._border()
        self._rungs.append(rung)
        rung.started = time.monotonic_ns()
        try:
            yield rung
        finally:
            rung.ended = rung.ended or time.monotonic_ns()
            if self._nvml is not None:
                self._nvml.read_now()
        await self._border()
        rung.left = time.monotonic_ns()

    def measured(self, rung: BesideRung, figures: Rung, prices: Prices | None = None) -> Rung:
        """The rung's figures with what was seen beside it; complete once the sampling has ended."""
        gpu, prices = self.gpu_use(rung), prices or Prices()
        return replace(
            figures,
            engine=self.engine_delta(rung, figures),
            gpu=gpu,
            joules_per_token=joules_per_token(joules=gpu.joules, tokens=figures.output_tokens),
            cost_per_million_tokens=cost_per_million_tokens(
                tokens=figures.output_tokens,
                seconds=(rung.ended - rung.started) / 1e9,
                gpus=prices.gpus or gpu.gpus or None,
                joules=gpu.joules,
                per_gpu_hour=prices.per_gpu_hour,
                per_kwh=prices.per_kwh,
            ),
        )

    def engine_delta(self, rung: BesideRung, ours: Rung | None = None) -> EngineDelta:
        """What the engine counted over the rung."""
        later = [one.entered for one in self._rungs if one.entered > rung.entered]
        window = Window(
            started=self._axis(rung.started),
            ended=self._axis(rung.ended),
            idle_from=self._axis(rung.entered),
            **({"idle_until": self._axis(min(later))} if later else {}),
        )
        gauges_lag = self.engine is not None and self.engine.gauges_lag
        delta = engine_delta(
            LoadTrace(engine=tuple(self._moments), lapses=tuple(self._lapses)),
            window,
            ours=ours,
            gauges_lag=gauges_lag,
        )
        words = self._no_counters
        if not words and not self._moments:
            words = "no reading of the engine's counters came back"
        return replace(delta, remarks=(words, *delta.remarks)) if words else delta

    def gpu_use(self, rung: BesideRung) -> GpuUse:
        """What the GPUs took over the rung."""
        use = gpu_use(
            self._traces(),
            started=self._axis(rung.started),
            ended=self._axis(rung.ended),
            indices=self.gpus,
            source=self._tool,
        )
        remarks = (*self._of_other_makers(), *use.remarks, *self._gpu_remarks)
        if self._way_s > _NOTABLE_WAY_S and use.joules is not None:
            remarks += (f"the readings' times are good to {self._way_s:.2f} s: the way to the host",)
        if use.joules is not None and self.is_here and not is_installed():
            remarks += ("with the extra `nvml` the cards' own energy counters are read",)
        return replace(use, remarks=tuple(dict.fromkeys(remarks)))

    def _of_other_makers(self) -> tuple[str, ...]:
        """Whose GPUs are seen on the engine's machine, and cannot be read in a row."""
        makers = {gpu.vendor for gpu in self.host.gpus} if self.host is not None else set[str]()
        readable = {vendor.name for vendor in self.vendors.values() if vendor.trace is not None}
        unread = sorted(_MAKERS.get(maker, maker) for maker in makers - readable - {"nvidia"})
        return (f"GPUs of {' and '.join(unread)} cannot be read beside a load",) if unread else ()

    def trace(self, rung: BesideRung) -> LoadTrace:
        """The series over the rung, from the readings before it to those after it; seconds from its start."""
        begin = self._axis(rung.entered)
        end = self._axis(rung.left or rung.ended or time.monotonic_ns())
        start = self._axis(rung.started)
        return LoadTrace(
            gpus=tuple(
                replace(
                    one,
                    moments=tuple(
                        _moved(moment, start) for moment in one.moments if begin <= moment.at <= end
                    ),
                )
                for one in self._traces()
            ),
            engine=tuple(_moved(one, start) for one in self._moments if begin <= one.at <= end),
            lapses=tuple(_moved(one, start) for one in self._lapses if begin <= one.at <= end),
        )

    def _axis(self, moment: int) -> float:
        """Nanoseconds of the monotonic clock as seconds since the sampling began."""
        return (moment - self._begun) / 1e9

    def _traces(self) -> Sequence[GpuTrace]:
        return [
            GpuTrace(index=index, moments=tuple(moments))
            for index, moments in sorted(self._gpu_moments.items())
        ]

    async def _border(self) -> None:
        """A reading of the counters, repeated while the engine is still at work, within `border_s`."""
        deadline = time.monotonic() + self.border_s
        if self._nvml is not None:
            self._nvml.read_now()
        while (left := deadline - time.monotonic()) > 0 and not self._is_given_up:
            look = asyncio.create_task(self._look())
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
            done, _ = await asyncio.wait({look}, timeout=left)
            moment = look.result() if done else None
            if moment is None or not moment.running or (self.engine is not None and self.engine.gauges_lag):
                break
            await asyncio.sleep(_SETTLE_S)
        if not self._gpus_told.is_set() and (left := deadline - time.monotonic()) > 0:
            waiting = asyncio.create_task(self._gpus_told.wait())
            await asyncio.wait({waiting}, timeout=left)
            waiting.cancel()

    async def _watch_engine(self) -> None:
        """The counters at every interval, and less often where reading them costs much."""
        while not self._is_given_up and not self._ends.is_set():
            begun = time.monotonic()
            await self._look()
            pause = max(self.interval_s - (time.monotonic() - begun), self._cost_s / _MOST_COST)
            await _either(self._ends, pause)

    async def _look(self) -> EngineMoment | None:
        """One reading of the counters, kept; None when it told nothing."""
        begun = time.monotonic_ns()
        words = "no counters of this engine"
        for path in self._paths:
            ask = Ask(
                key=f"beside{path}",
                path=path,
                method="GET",
                time_limit_s=_READ_LIMIT_S,
                max_bytes=PROBE_BYTES,
            )
            at = self._axis(time.monotonic_ns())
            answer = await self.endpoint.send(ask)
            words = _trouble(answer) or words
            moment = self._read(path, answer, at)
            if moment is not None:
                self._keep_to(path)
                self._moments.append(moment)
                return moment
            if answer.status not in _CLOSED:
                break
        else:
            self._gives_up(words)
        took = (time.monotonic_ns() - begun) / 1e9
        self._lapses.append(Lapse(at=self._axis(begun), took=took, words=words))
        return None

    def _keep_to(self, path: str) -> None:
        """The first path that told something is the only one from now on."""
        if path != self._paths[0] and self.engine is not None:
            self._no_counters = (
                f"{self.engine.display_name} shows only what runs: "
                f"it shows its counters with `{self.engine.counters_need}`"
            )
        self._paths = (path,)

    def _read(self, path: str, answer: Answer, at: float) -> EngineMoment | None:
        if self.engine is None or answer.status != 200 or answer.problem is not None:
            return None
        worked = time.thread_time()
        lean = replace(answer, body=counters_only(answer.body), arrivals=())
        moment = engine_moment(self.engine, {path: lean}, at=at)
        self._cost_s = 2.0 * (time.thread_time() - worked)  # receiving costs about as much as reading
        return moment

    def _gives_up(self, words: str) -> None:
        """No path shows counters: nothing more is asked, unless they were there before."""
        if self._moments or self.engine is None:
            return
        need = f": it shows them with `{self.engine.counters_need}`" if self.engine.counters_need else ""
        self._no_counters = f"{self.engine.display_name} shows no counters ({words}){need}"
        self._is_given_up = True

    async def _watch_gpus(self) -> None:
        """NVML here, else the maker's own tool here or on the engine's host."""
        if self.is_here and not self.has_driver:
            self._gpus_told.set()
            return
        try:
            if self.is_here and is_installed():
                await self._watch_nvml()
            if not self._gpu_moments:
                await self._watch_tool()
        except HostError as error:
            self._gpu_remarks.append(f"the host could not be asked about its GPUs: {error}")
        finally:
            self._gpus_told.set()

    async def _watch_nvml(self) -> None:
        self._nvml, self._tool = NvmlReader(take=self._take_line), "NVML"
        await self._nvml.start()
        await self._nvml.ended()
        if self._nvml.why_none:
            self._gpu_remarks.append(f"NVML: {self._nvml.why_none}")

    def _take_line(self, line: str) -> None:
        read = read_line(line, begun_ns=self._begun)
        if read is not None:
            self._gpu_moments.setdefault(read[0], []).append(read[1])
            self._gpus_told.set()

    async def _watch_tool(self) -> None:
        if self.runner is None:
            self._gpu_remarks.append("the engine's machine is not this one, and none was named with --host")
            return
        self._tool = "nvidia-smi" if self.is_here else f"nvidia-smi on {self.runner.host}"
        await watch_pieces(self.runner, self.vendors, self._take_piece, most=_MOST_PIECES)

    def _take_piece(self, told: Mapping[str, CommandResult], way_s: float | None) -> bool:
        """Keeps the readings of one piece; whether there is more to be had."""
        if not self.is_here:
            self._way_s = max(self._way_s, way_s or 0.0)
        now, wall = self._axis(time.monotonic_ns()), time.time()

        def begun_at(result: CommandResult) -> float:
            return now - (wall - (result.received_at or wall)) - (result.elapsed_s or 0.0)

        traces = gpu_traces(self.vendors, told, begun_at)
        for one in traces:
            self._gpu_moments.setdefault(one.index, []).extend(one.moments)
        self._gpus_told.set()
        return bool(traces) and not self._ends.is_set()


def engine_gpus(host: HostSnapshot | None, port: int | None) -> frozenset[int] | None:
    """Indices of the GPUs that the engine on `port` holds, as its host shows it; None where it does not."""
    process = host.engine_on(port) if host is not None else None
    if host is None or process is None:
        return None
    return frozenset(gpu.index for gpu in host.gpus_of(process) if gpu.index is not None) or None


async def _ended(tasks: Collection[asyncio.Task[Any]], patience_s: float) -> None:
    """Waits for the tasks, and cancels those that take longer than there is patience for."""
    _, late = await asyncio.wait(tasks, timeout=patience_s)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Comes back after the time, or when the event happens."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _trouble(answer: Answer) -> str:
    """Why the answer tells no counters, in words; empty where it should."""
    if answer.problem is not None:
        return answer.detail or str(answer.problem)
    return "" if answer.status == 200 else f"HTTP {answer.status}"


def _moved(one: _Timed, start: float) -> _Timed:
    return replace(one, at=one.at - start)
