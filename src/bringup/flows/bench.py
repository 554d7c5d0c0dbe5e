"""Measures how fast a server is: ask who it is, test the instrument, warm up, load after load, judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from bringup import __version__, registry
from bringup.flows.bench_answers import KnownAnswers
from bringup.flows.bench_beside import Beside, BesideRung
from bringup.flows.bench_limits import usable_cores
from bringup.flows.bench_request import RUNG_S, BenchRequest
from bringup.flows.bench_search import Found, found_of, load_of, next_load
from bringup.flows.bench_server import Server, ask_server
from bringup.flows.bench_watch import Progress, RungWatch
from bringup.flows.bench_workload import Prompts, prompts_for
from bringup.load.fleet import Fleet, shares
from bringup.load.page import Wish
from bringup.load.task import Task
from bringup.stats.findings import Judge
from bringup.stats.load_words import load_words
from bringup.stats.rung import rung_of
from bringup.stats.step import Answer
from bringup.transport import Endpoint, Runner
from bringup.values.bench import BenchResult, BenchRun, GeneratorRun, Prices, Rung, RungResult, SelfTest
from bringup.values.finding import WORST_FIRST, Finding
from bringup.workload import Workload

if TYPE_CHECKING:  # a machine without GPUs loads none of this
    from bringup.vendors import Vendor

_STREAMS_PER_GENERATOR = 256
_MOST_OPEN = 4096  # connections of an open loop
_WARM_STREAMS = 4
_MOST_DURATION_S = 120.0
_ARRIVALS = 50.0  # that an open loop without a bound waits for
_MOST_LOADS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWorld:
    """What a bench reaches beside the load: the endpoint for questions, the engine's machine."""

    endpoint: Endpoint
    runner: Runner | None = None
    is_here: bool = False
    vendors: Mapping[str, Vendor] = field(default_factory=dict[str, "Vendor"])
    gpus: frozenset[int] | None = None  # indices of those that carry the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told how far it is."""

    on_step: Callable[[str], None] = lambda _text: None
    on_progress: Callable[[Progress], None] = lambda _progress: None
    on_rung: Callable[[BenchResult], None] = lambda _result: None  # after every load, with all so far


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run. `interrupt` ends it early and keeps what was measured."""

    request: BenchRequest
    fleet: Fleet
    world: BenchWorld
    hooks: Hooks = field(default_factory=Hooks)
    prices: Prices = field(default_factory=Prices)
    before: tuple[RungResult, ...] = ()  # of a run that is resumed
    _results: list[RungResult] = field(default_factory=list[RungResult])
    _windows: list[BesideRung | None] = field(default_factory=list["BesideRung | None"])
    _is_interrupted: bool = False
    _task: asyncio.Task[BenchResult] | None = None
    _is_measuring: bool = False
    _asking: asyncio.Task[None] | None = None
    _ignores_end: bool = False
    _answers: KnownAnswers = field(default_factory=KnownAnswers)
    _begun: float = field(default_factory=time.monotonic)

    def interrupt(self) -> None:
        """Stop launching and hang up; before anything is measured, stop altogether."""
        self._is_interrupted = True
        self.fleet.ask(Wish.CUT)
        pending = self._asking if self._is_measuring else self._task
        if pending is not None:
            pending.cancel()

    async def run(self) -> BenchResult:
        """The whole run.

        Raises:
            HostError: nothing answers at the URL.
            UnreadableAnswer: something answers that serves no model.
        """
        self._task = asyncio.current_task()
        request, world = self.request, self.world
        self._results, self._windows = list(self.before), [None] * len(self.before)
        self.hooks.on_step("asking the server who it is")
        server, test = await self._begin()
        self._ignores_end = server.ignores_end
        prompts = await prompts_for(request, server, world.endpoint)
        self._is_measuring = True
        await self._warm_up(prompts)
        beside = Beside(
            endpoint=world.endpoint,
            engine=server.engine,
            runner=world.runner,
            vendors=world.vendors,
            is_here=world.is_here,
            gpus=world.gpus,
        )
        async with beside:
            end = await self._loads(prompts, test, beside)
        return await self._finished(prompts, test, beside, end)

    async def _begin(self) -> tuple[Server, SelfTest]:
        """Who answers, and what the instrument measures of itself: at once where there are cores for both."""
        testing = asyncio.create_task(self.fleet.test())
        await asyncio.sleep(0)  # the generators are told before this process is busy
        try:
            if usable_cores() <= self.fleet.size:
                await testing
            server = await ask_server(self.world.endpoint, url=self.request.url, model=self.request.model)
            return server, await testing
        finally:
            testing.cancel()

    async def _loads(self, prompts: Prompts, test: SelfTest, beside: Beside) -> Answer:
        """Every load, one after the other; how the search for them ended."""
        while len(self._results) < _MOST_LOADS:
            step = next_load(self.request, self._results)
            if isinstance(step, Answer):
                return step
            if self._is_interrupted:
                return Answer(load=None, why="interrupted", is_settled=False)
            if self._is_late():
                why = f"{self.request.budget_s:g} s were over (--budget)"
                return Answer(load=None, why=why, is_settled=False)
            await self._load(step.load, prompts, beside)
            self.hooks.on_rung(self._so_far(prompts, test, beside))
        return Answer(load=None, why=f"{_MOST_LOADS} loads were tried", is_settled=False)

    def _is_late(self) -> bool:
        is_search = self.request.loads.is_auto
        return is_search and bool(self._results) and time.monotonic() - self._begun > self.request.budget_s

    async def _load(self, load: float, prompts: Prompts, beside: Beside) -> None:
        """One load, measured and kept."""
        request = self.request
        streams = None if request.loads.is_rate else int(load)
        rate = load if request.loads.is_rate and not request.loads.is_trace else None
        workload = prompts.workload(len(self._results) + 1, rate=rate)
        requests, duration_s, ends_itself = _bounds(request, rate)
        task = Task(
            target=request.target,
            workload=workload,
            path=prompts.path,
            streams=streams,
            most_open=_MOST_OPEN,
            requests=requests,
            duration_s=duration_s,
            request_limit_s=request.request_limit_s,
            fresh_connections=request.fresh_connections,
            keep_gaps=request.keeps_gaps,
        )
        watch = RungWatch(
            fleet=self.fleet,
            title=load_words(Rung(concurrency=streams, rate=rate)),
            streams=streams,
            requests=requests,
            duration_s=duration_s,
            ends_itself=ends_itself,
            on_progress=self.hooks.on_progress,
        )
        async with beside.rung() as window:
            runs = await watch.run(self.fleet.run(shares(task, self._generators(load))))
            window.timed_by(runs)
        self._keep(runs, workload, streams=streams, rate=rate, why=watch.stopped_because)
        self._windows.append(window)

    def _generators(self, load: float) -> int:
        if self.request.loads.is_rate:
            return self.fleet.size
        return max(1, min(self.fleet.size, -int(-load // _STREAMS_PER_GENERATOR)))

    def _keep(
        self,
        runs: tuple[GeneratorRun, ...],
        workload: Workload,
        *,
        streams: int | None,
        rate: float | None,
        why: str,
    ) -> None:
        rung = rung_of(
            runs, concurrency=streams, rate=rate, slo=self.request.slo, ignores_eos=self._ignores_end
        )
        rung = self._answers.judged(rung, runs, workload)
        if self._is_interrupted:
            why = "interrupted"
        cut = next((run.cut for run in runs if run.cut and run.cut != "stopped"), "")
        self._results.append(RungResult(rung=replace(rung, stopped_because=why or cut), runs=runs))

    async def _warm_up(self, prompts: Prompts) -> None:
        """A few requests in no figure: caches, graphs and connections come to life."""
        request = self.request
        count = request.warm_up_requests if not self._is_interrupted else 0
        if not count:
            return
        self.hooks.on_step(f"warming up with {count} requests")
        task = Task(
            target=request.target,
            workload=prompts.workload(0),
            path=prompts.path,
            streams=min(_WARM_STREAMS, count),
            requests=count,
            request_limit_s=request.request_limit_s,
        )
        await self.fleet.run(shares(task, 1))

    def _so_far(self, prompts: Prompts, test: SelfTest, beside: Beside) -> BenchResult:
        """What is known now; what is sampled beside it may still grow."""
        results = self._measured(beside)
        run = self._run(prompts, test, results)
        return BenchResult(run=replace(run, is_complete=False), results=results)

    async def _finished(self, prompts: Prompts, test: SelfTest, beside: Beside, end: Answer) -> BenchResult:
        results = self._measured(beside)
        found = Found() if self._is_interrupted else found_of(self.request, results, end)
        run = replace(
            self._run(prompts, test, results),
            slo_best=found.slo_best,
            slo_why=found.slo_why,
            saturation=found.saturation,
            saturation_why=found.saturation_why,
            is_complete=not self._is_interrupted,
            notes=(*prompts.server.notes, *_notes(self.request, results, end)),
        )
        if not self._is_interrupted:
            again = self._answers.ask_again(
                self.world.endpoint, prompts.path, limit_s=self.request.request_limit_s
            )
            self._asking = asyncio.create_task(again)
            await asyncio.wait([self._asking])
            if not self._asking.cancelled():
                self._asking.result()
        findings = worst_first(self._answers.instead_of(findings_of(run, results)))
        return BenchResult(run=replace(run, findings=findings), results=results)

    def _measured(self, beside: Beside) -> tuple[RungResult, ...]:
        return tuple(
            result
            if window is None
            else replace(result, rung=beside.measured(window, result.rung, self.prices))
            for result, window in zip(self._results, self._windows, strict=True)
        )

    def _run(self, prompts: Prompts, test: SelfTest, results: Sequence[RungResult]) -> BenchRun:
        request, server = self.request, prompts.server
        return BenchRun(
            url=request.url,
            model=server.model,
            engine=server.name,
            engine_version=server.status.version,
            started_at=request.started_at,
            bringup_version=__version__,
            workload=prompts.workload(0).words,
            load=request.loads.words,
            seed=request.seed,
            generators=self.fleet.size,
            warm_up=request.warm_up_requests,
            self_test=test,
            slo=request.slo,
            rungs=tuple(result.rung for result in results),
            duration_s=time.monotonic() - self._begun,
            asked=request.asked,
        )


def findings_of(run: BenchRun, results: Sequence[RungResult]) -> tuple[Finding, ...]:
    """What is to be said of the run."""
    judges = cast("dict[str, Judge]", registry.load("bringup.stats.findings", "JUDGE"))
    return tuple(finding for judge in judges.values() for finding in judge.judge(run, results))


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings in the order in which they matter."""
    return tuple(sorted(findings, key=lambda finding: WORST_FIRST.index(finding.severity)))


def _bounds(request: BenchRequest, rate: float | None) -> tuple[int | None, float | None, bool]:
    """Requests, seconds, and whether a load ends by itself: the user's bounds, else our own."""
    # A trace is sent to its end: where that is, the file says.
    if request.requests is not None or request.duration_s is not None or request.loads.is_trace:
        return request.requests, request.duration_s, False
    if rate is None:
        return None, RUNG_S, True
    return None, min(_MOST_DURATION_S, max(RUNG_S, _ARRIVALS / rate)), False


def _notes(request: BenchRequest, results: Sequence[RungResult], end: Answer) -> list[str]:
    """What was decided for the user, in words."""
    notes: list[str] = []
    if request.requests is None and request.duration_s is None and not request.loads.is_trace:
        bound = f"for at most {RUNG_S:g} s, or until its token rate was known to 2 %"
        if request.loads.is_rate:
            bound = f"for {RUNG_S:g} to {_MOST_DURATION_S:g} s"
        notes.append(f"Each load ran {bound}: --requests or --duration bound it otherwise.")
    if request.loads.is_auto and results:
        last = load_of(results[-1].rung)
        notes.append(f"The search ended at {last:g}: {end.why}.")
    if not request.warm_up_requests:
        notes.append("Nothing was warmed up before the first load.")
    return notes
