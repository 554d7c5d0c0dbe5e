"""Verifies a running model: identify, exercise, look at the machine again, judge, report."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from bringup import __version__, registry
from bringup.checks import Check
from bringup.engines import Engine, spec_of
from bringup.errors import UsageError
from bringup.flows.exercise import Exercise, Observed, Sandbox, Step
from bringup.flows.identify import identify
from bringup.flows.load import LoadSampler
from bringup.flows.queue import at_work
from bringup.flows.snapshot import Sources, ask_host, read_snapshot, sources
from bringup.machine import Target
from bringup.machine.engine_log import KEY as ENGINE_LOG
from bringup.machine.engine_log import MOST_BYTES as MOST_LOG_BYTES
from bringup.parse.gpu_name import power_limit_of
from bringup.parse.model_catalogue import parameters_of
from bringup.parse.model_size import parameters_in_name
from bringup.parse.redact import redact_argv
from bringup.report.build import Judged, build_report
from bringup.transport import Endpoint, Runner
from bringup.transport.catalogue import load_cards, load_known_bugs, load_models
from bringup.values.account import Account
from bringup.values.deployment import Ability, Deployment, Depth, Wanted
from bringup.values.engine import EngineSpec, EngineStatus, ServedModel
from bringup.values.exchange import Answer
from bringup.values.host import CommandResult, HostSnapshot
from bringup.values.recording import Recording
from bringup.values.report import Report

BUDGET_S = {Depth.QUICK: 60.0, Depth.DEFAULT: 600.0, Depth.FULL: 1800.0}
_MODEL_PLACES = ("HF_HUB_CACHE", "HF_HOME", "HOME")
LOAD_S = 240.0  # more, for the burst
_SMALL = 1.0e9  # parameters; see values.deployment.Ability
_CAPABLE = 7.0e9


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What is to be verified and how thoroughly."""

    url: str  # normalised
    depth: Depth = Depth.DEFAULT
    wanted: Wanted = field(default_factory=Wanted)
    has_api_key: bool = False
    is_tls: bool = False
    only: tuple[str, ...] = ()  # check names; empty: all
    skip: tuple[str, ...] = ()
    budget_s: float | None = None  # seconds for all requests together
    price_per_kwh: float | None = None  # of electricity, in whatever currency
    spec: EngineSpec | None = None  # of the engine's command line, when the user gave it
    target: Target = field(default_factory=Target)
    log_text: str | None = None  # of the engine's start, where the user gave a file
    keeps_interrupted: bool = False  # what was observed when it is cancelled is judged and returned


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a verification reaches: a host (or none), an endpoint, a sandbox; live or replayed."""

    runner: Runner | None
    runner_load: Runner | None = None  # in a replay: the host while the burst ran
    runner_after: Runner | None = None  # None: the same one answers after the exercises; in a replay nobody
    endpoint: Endpoint
    sandbox: Sandbox
    taken_at: float | None = None  # of the recording that is replayed
    looked_at: Mapping[str, float] = field(default_factory=dict[str, float])  # the same
    duration_s: float | None = None
    is_replay: bool = False
    is_forwarded: bool = False  # the endpoint is reached through a port of ssh, which always looks open


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The report and everything it rests on."""

    report: Report
    recording: Recording
    is_interrupted: bool = False  # it was cancelled on the way


async def verify(
    request: VerifyRequest, world: World, *, on_step: Callable[[Step], None] = lambda _step: None
) -> Verification:
    """The verification of one endpoint.

    Raises:
        HostError: nothing answers at the URL, or the host could not be asked.
        UsageError: an unknown check.
    """
    begun = time.monotonic()
    taken_at = time.time() if world.taken_at is None else world.taken_at
    checks = _chosen_checks(request)
    asked, target = sources(), _target(request)
    on_step(Step(check="identify", title="identifying the engine", done=0, total=len(checks)))
    budget_s = request.budget_s or BUDGET_S[request.depth] + (LOAD_S if request.wanted.load else 0.0)
    looking = asyncio.create_task(_look(world, "before", asked, target))
    try:
        engine, probes = await identify(
            world.endpoint,
            url=request.url,
            is_forwarded=world.is_forwarded,
            has_api_key=request.has_api_key,
            limit_s=budget_s,
        )
        before = await looking
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    deployment = _deployment(request, engine, _read(before, asked, world))
    sampler = _sampler(deployment, asked, world)
    exercise = Exercise(
        deployment,
        world.endpoint,
        world.sandbox,
        budget_s=budget_s - (time.monotonic() - begun),
        on_step=on_step,
        gives_up=not world.is_replay,
    )
    exercise.beside = {"load": sampler}
    exercise.at_work = lambda: at_work(sampler.engine, world.endpoint)
    observed, is_interrupted = await _exercised(exercise, checks, request)
    observed.answers.setdefault("under_load", {}).update(sampler.answers)
    target = _with_model(target, deployment)
    looks_again = not is_interrupted and _changes_may_show(deployment)
    after = await _look(world, "after", asked, target) if looks_again else None
    if after is not None and request.log_text is not None:
        given = CommandResult(key=ENGINE_LOG, status=0, stdout=request.log_text[:MOST_LOG_BYTES])
        after.results[ENGINE_LOG] = given
    trace = sampler.trace() if request.wanted.load else None
    deployment = _with_account(replace(deployment, host_after=_read(after, asked, world), load=trace))
    duration_s = time.monotonic() - begun if world.duration_s is None else world.duration_s
    report = build_report(
        deployment,
        judge(deployment, checks, observed),
        taken_at=taken_at,
        duration_s=duration_s,
        tool_version=__version__,
    )
    looks = {"before": before, "after": after, "load": _Look(results=sampler.results, taken_at=taken_at)}
    recording = _recording(request, world, report, probes, observed, looks)
    return Verification(report=report, recording=recording, is_interrupted=is_interrupted)


async def _exercised(
    exercise: Exercise, checks: Mapping[str, Check], request: VerifyRequest
) -> tuple[Observed, bool]:
    """What was observed, and whether it is only a part because somebody had enough."""
    try:
        return await exercise.run(checks), False
    except asyncio.CancelledError:
        if not request.keeps_interrupted:
            raise
        return exercise.observed, True


def _sampler(deployment: Deployment, asked: Sources, world: World) -> LoadSampler:
    """What looks at GPUs and engine while the burst runs."""
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    has_gpus = deployment.host is not None and bool(deployment.host.gpus)
    runner = world.runner_load if world.is_replay else world.runner
    return LoadSampler(
        engine=engines.get(deployment.engine.engine),
        vendors=asked.vendors,
        endpoint=world.endpoint,
        runner=runner if has_gpus else None,
        is_replay=world.is_replay,
    )


def _with_model(target: Target, deployment: Deployment) -> Target:
    """The target with the model that the process behind the port runs: its files say what it is made of."""
    process = deployment.process
    # A path that the endpoint tells is looked for only where its process is seen, beside it.
    told = deployment.engine.flags.get("model_path") if process else None
    name = (deployment.spec.model if deployment.spec else None) or told
    environment = process.environment if process else {}
    places = tuple((key, environment[key]) for key in _MODEL_PLACES if key in environment)
    unit = process.unit.name if process is not None and process.unit is not None else None
    maker, _, container = (process.container or "").partition(":") if process is not None else ("", "", "")
    return replace(
        target,
        model=name,
        model_places=places,
        model_reader=process.pid if process else None,
        log_unit=target.unit or unit,
        log_container=target.container or (container if maker in ("docker", "podman") else None),
    )


def _with_account(deployment: Deployment) -> Deployment:
    """The deployment with the account of its GPUs, or of the host's memory where no GPU carries it."""
    if deployment.host is None or not (deployment.host.gpus or deployment.process):
        return deployment
    # The rules of memory are loaded only where there is memory to account for.
    from bringup.flows.account import deployment_account, processor_account  # noqa: PLC0415 - see above
    from bringup.flows.running_model import running_model, sees_pictures  # noqa: PLC0415 - see above

    model, why = running_model(deployment)
    deployment = replace(deployment, has_encoder=model is not None and sees_pictures(model))
    of_host = processor_account(deployment, model)
    if of_host is not None:  # GPUs that are there are none of its matter
        return replace(deployment, account=Account(gpus=(), host=of_host))
    return replace(deployment, account=deployment_account(deployment, model, why_no_model=why))


def _changes_may_show(deployment: Deployment) -> bool:
    """Whether a second look at the host can show what the exercises did: to GPUs, or to the engine's process.

    In a hurry the process alone is not worth the time: that the engine answers is seen without it.
    """
    if deployment.host is None:
        return False
    has_process = deployment.process is not None and deployment.depth is not Depth.QUICK
    return bool(deployment.host.gpus) or has_process


def engine_spec(argv: Sequence[str]) -> EngineSpec:
    """What an engine's command line wants.

    Raises:
        UsageError: not the command of a known engine.
    """
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    spec = spec_of(engines, argv)
    if spec is None:
        known = ", ".join(engine.display_name for engine in engines.values() if engine.read_command)
        raise UsageError(
            f"`{' '.join(redact_argv(argv))}` starts no engine that is known here", hint=f"known are: {known}"
        )
    return spec


def judge(deployment: Deployment, checks: Mapping[str, Check], observed: Observed) -> tuple[Judged, ...]:
    """What every check concludes."""
    return tuple(
        Judged(
            name=name,
            title=check.title,
            section=check.section,
            shows_model=check.shows_model,
            judgement=check.judge(deployment, observed.replies_of(name, with_everyone=check.reads_all)),
        )
        for name, check in checks.items()
    )


def _target(request: VerifyRequest) -> Target:
    """What the host is asked about: with the folders that the engine's command line names."""
    spec = request.spec
    named = (
        (("model", spec.model), ("download folder", spec.flags.get("--download-dir")))
        if spec is not None
        else ()
    )
    folders = tuple((purpose, path) for purpose, path in named if path and path.startswith(("/", "~")))
    return replace(request.target, folders=(*request.target.folders, *folders))


def _chosen_checks(request: VerifyRequest) -> dict[str, Check]:
    every = cast("dict[str, Check]", registry.load("bringup.checks", "CHECK"))
    for name in (*request.only, *request.skip):
        if name not in every:
            raise UsageError(f"there is no check `{name}`", hint=f"the checks are: {', '.join(every)}")
    return {
        name: check
        for name, check in every.items()
        if name not in request.skip
        and (name in request.only if request.only else check.depth <= request.depth)
        and (check.phase != "load" or request.wanted.load)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Raw answers of the host at one moment."""

    results: dict[str, CommandResult]
    taken_at: float  # Unix time at which the questions left, seconds


async def _look(world: World, moment: str, asked: Sources, target: Target) -> _Look | None:
    """What the host says at one moment, "before" or "after" the exercises; None without a host."""
    is_other = moment == "after" and (world.runner_after is not None or world.is_replay)
    runner = world.runner_after if is_other else world.runner
    if runner is None:
        return None
    taken_at = world.looked_at.get(moment, time.time())
    results = await ask_host(runner, asked, target, is_first=moment == "before")
    return _Look(results=results, taken_at=taken_at)


def _read(look: _Look | None, asked: Sources, world: World) -> HostSnapshot | None:
    if look is None or world.runner is None:
        return None
    return read_snapshot(look.results, asked, host=world.runner.host, taken_at=look.taken_at)


def _deployment(request: VerifyRequest, engine: EngineStatus, host: HostSnapshot | None) -> Deployment:
    spec = request.spec or _running_spec(request, host)
    model = _model(request, engine)
    parameters = parameters_of_model(model)
    return Deployment(
        url=request.url,
        engine=engine,
        model=replace(model, parameters=parameters),
        ability=ability_of(parameters),
        depth=request.depth,
        wanted=_wanted(request),
        spec=spec,
        host=host,
        has_api_key=request.has_api_key,
        is_tls=request.is_tls,
        known_bugs=load_known_bugs(),
        card_power=_card_power(host),
        price_per_kwh=request.price_per_kwh,
    )


def _card_power(host: HostSnapshot | None) -> dict[str, float]:
    """Power limits of the host's kinds of cards, as the catalogue has them."""
    names = {gpu.name for gpu in host.gpus if gpu.name} if host is not None else set[str]()
    catalogue = load_cards() if names else ()
    found = {name: power_limit_of(name, catalogue) for name in sorted(names)}
    return {name: watts for name, watts in found.items() if watts is not None}


def _running_spec(request: VerifyRequest, host: HostSnapshot | None) -> EngineSpec | None:
    """What the command line of the process behind the port wants."""
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    process = host.engine_on(request.target.port) if host is not None else None
    return spec_of(engines, process.argv) if process is not None else None


def _wanted(request: VerifyRequest) -> Wanted:
    """What the user says should be true: the options first, then the command line given after `--`."""
    wanted, spec = request.wanted, request.spec
    if spec is None:
        return wanted
    return replace(
        wanted,
        model=wanted.model or next(iter(spec.served_names), spec.model),
        context_tokens=wanted.context_tokens or spec.context_tokens,
    )


def parameters_of_model(model: ServedModel) -> int | None:
    """How large the model is: as the engine, its name or the catalogue says; None otherwise."""
    names = (model.id, model.root) if model.root else (model.id,)
    known = model.parameters or next(filter(None, map(parameters_in_name, names)), None)
    if known is not None:
        return known
    catalogue = load_models()
    return next(filter(None, (parameters_of(name, catalogue) for name in names)), None)


def ability_of(parameters: int | None) -> Ability:
    """What a model of so many parameters is expected to manage."""
    if parameters is None:
        return Ability.UNKNOWN
    if parameters < _SMALL:
        return Ability.TINY
    return Ability.SMALL if parameters < _CAPABLE else Ability.CAPABLE


def _model(request: VerifyRequest, engine: EngineStatus) -> ServedModel:
    """The model to exercise: the wanted one, else the first that is no adapter.

    A wanted model that is not served is a finding, and what runs instead is worth exercising.
    """
    wanted = _wanted(request).model
    for model in engine.models:
        if wanted is not None and wanted in (model.id, model.root):
            return model
    whole = [model for model in engine.models if not model.is_adapter]
    return next(iter(whole or engine.models), ServedModel(id=wanted or "default"))


def _recording(
    request: VerifyRequest,
    world: World,
    report: Report,
    probes: dict[str, Answer],
    observed: Observed,
    looks: Mapping[str, _Look | None],
) -> Recording:
    return Recording(
        tool_version=__version__,
        taken_at=report.taken_at,
        duration_s=report.duration_s,
        host=world.runner.host if world.runner is not None else "",
        url=request.url,
        options={
            "depth": request.depth.name.lower(),
            "model": request.wanted.model,
            "context_tokens": request.wanted.context_tokens,
            "engine_command": list(redact_argv(request.spec.argv)) if request.spec else [],
            "port": request.target.port,
            "long_context_tokens": request.wanted.long_context_tokens,
            "gpus": list(request.wanted.gpus),
            "load": request.wanted.load,
            "need_context": request.wanted.need_context,
            "need_concurrency": request.wanted.need_concurrency,
            "has_api_key": request.has_api_key,
            "is_tls": request.is_tls,
            "price_per_kwh": request.price_per_kwh,
            "only": list(request.only),
            "skip": list(request.skip),
        },
        snapshots={moment: look.results for moment, look in looks.items() if look and look.results},
        looked_at={moment: look.taken_at for moment, look in looks.items() if look and look.results},
        probes=probes,
        answers=observed.answers,
        programs=observed.programs,
    )
