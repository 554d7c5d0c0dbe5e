"""A plan: command line, model and GPUs in, layouts with their ledgers out."""

import importlib
import pkgutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import cast

import bringup.engines
from bringup.engines import EngineMemory
from bringup.errors import BringupError, UsageError
from bringup.flows.model_source import find_model
from bringup.parse.flag_file import read_flag_file
from bringup.parse.gpu_name import read_gpus
from bringup.transport.catalogue import load_cards
from bringup.transport.model_files import read_text
from bringup.units import mib
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, Plan, PlanTask, Variants
from bringup.values.start_log import StartLog

_DEFAULT_ENGINE = "vllm"
# As they are written on the command line, by their folder's name.
ENGINES = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama_cpp", "tensorrt-llm": "tensorrt_llm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the user gave."""

    model: str | None = None
    argv: tuple[str, ...] = ()
    gpus: str | None = None
    host: str | None = None  # whose GPUs are taken
    recording: Path | None = None  # of such a host
    gpu_memory_mib: int | None = None
    cuda_memory_mib: int | None = None
    gpu_used_mib: int = 0
    config_file: Path | None = None
    engine_version: str | None = None
    context: int | None = None
    concurrency: int | None = None
    engine: str | None = None  # one of `ENGINES`; None: the command's, else by the model
    compares_variants: bool = False  # published forms of the model side by side
    variants: tuple[str, ...] = ()  # folders, files and hub ids to put beside
    measured: Path | None = None  # log of an earlier start, whose figures replace estimates


def plan(request: PlanRequest) -> Plan:
    """The plan for what the user gave.

    Raises:
        UsageError: the command, the model or the GPUs cannot be understood.
    """
    memory, task = task_of(request)
    found = memory.plan(task)
    found = replace(found, findings=task.model.findings + found.findings)
    if not request.compares_variants:
        return found
    return replace(found, variants=_variants(request, task, found))


def task_of(
    request: PlanRequest, *, prefers_model: bool = False, known: ModelSpec | None = None
) -> tuple[EngineMemory, PlanTask]:
    """What is to be planned, and by whose rules. `prefers_model`: MODEL goes before the command's own.

    `known` is the model where it has been read already, whatever it is called.

    Raises:
        UsageError: the command, the model or the GPUs cannot be understood.
    """
    memory, spec = engine_of(request)
    name = request.model or spec.model if prefers_model else spec.model or request.model
    changes = memory.config_changes(spec) if memory.config_changes else None
    model = known or find_model(name, config_file=request.config_file, changes=changes)
    _refuse_without_heads(model)
    if not request.argv and request.engine is None and model.source.endswith(".gguf"):
        memory, spec = _memory("llama_cpp"), replace(spec, engine="llama_cpp")
    gpus = _gpus(request)
    draft, fault = _draft(memory, spec)
    task = PlanTask(
        measured=_measured(request.measured),
        spec=replace(spec, model=spec.model or model.name),
        version=request.engine_version,
        model=model,
        gpus=gpus,
        context=request.context,
        concurrency=request.concurrency,
        draft=draft,
        draft_fault=fault,
    )
    return memory, task


def _refuse_without_heads(model: ModelSpec) -> None:
    """A config that gives the sizes of no layer's attention or state says nothing of weights or cache."""
    if all(layer.attention is None and layer.state is None for layer in model.layers):
        raise UsageError(
            f"the config of `{model.name}` gives no attention heads ({model.source})",
            hint="give the model's whole config.json with `--model-config FILE`",
        )


def _measured(path: Path | None) -> StartLog | None:
    if path is None:
        return None
    from bringup.flows.start_log import find_start  # noqa: PLC0415 - loaded when a log is given

    return find_start(path).start


def _variants(request: PlanRequest, task: PlanTask, found: Plan) -> Variants:
    """Published forms of the same model under the same command, or each under the best layout."""
    from bringup.flows.variants import Asked, compare, engine_for  # noqa: PLC0415 - loaded when it is asked for

    def plan_model(model: ModelSpec, name: str) -> Plan:
        engine = engine_for(model, task.spec.engine)
        same = engine == task.spec.engine
        spec = _renamed(task.spec, name) if same else EngineSpec(engine=engine, model=name)
        version = request.engine_version if same else None
        return _memory(engine).plan(replace(task, spec=spec, version=version, model=model))

    name = task.spec.model or task.model.name
    return compare(Asked(model=task.model, name=name, given=request.variants), found, plan_model)


def _renamed(spec: EngineSpec, name: str) -> EngineSpec:
    """The same command for another model."""
    argv = tuple(name if word == spec.model else word for word in spec.argv)
    return replace(spec, model=name, argv=argv)


def _draft(memory: EngineMemory, spec: EngineSpec) -> tuple[ModelSpec | None, str | None]:
    """The draft model that the command loads beside the model, or why its config cannot be had."""
    name = memory.draft(spec) if memory.draft else None
    if not name:
        return None, None
    try:
        return find_model(name), None
    except BringupError as error:
        return None, error.message


def engine_of(request: PlanRequest) -> tuple[EngineMemory, EngineSpec]:
    """The memory rules of the engine that the command starts, and what it wants.

    Only engines are imported whose name is in the command; the others after them.
    """
    wanted = ENGINES.get(request.engine or "")
    if not request.argv:
        name = wanted or _DEFAULT_ENGINE
        return _memory(name), EngineSpec(engine=name, model=request.model)
    text = " ".join(request.argv).lower()
    names = [info.name for info in pkgutil.iter_modules(bringup.engines.__path__)]
    for name in sorted(names, key=lambda name: name.replace("_", "") not in text):
        flags = _part(name, "flags")
        if flags is None:
            continue
        spec = cast("EngineSpec | None", flags.read_command(request.argv))
        if spec is not None:
            if wanted not in (None, name):
                raise UsageError(
                    f"`--engine {request.engine}`, but `{request.argv[0]}` starts another engine",
                    hint="leave `--engine` out: the command says which it is",
                )
            return _memory(name), _with_file(spec, flags)
    raise UsageError(
        f"`{' '.join(request.argv)}` starts no known engine",
        hint="after `--` comes the engine's own command line, `vllm serve MODEL ...`",
    )


def _memory(name: str) -> EngineMemory:
    module = _part(name, "memory")
    if module is None:
        raise UsageError(f"the memory rules of `{name}` are not known yet")
    return cast("EngineMemory", module.MEMORY)


def _part(engine: str, name: str) -> ModuleType | None:
    """A module of an engine's folder; None when that engine has none of this name."""
    full = f"bringup.engines.{engine}.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        return None


def _with_file(spec: EngineSpec, flags: ModuleType) -> EngineSpec:
    """The command with the settings of its `--config FILE`."""
    name = spec.flags.get("--config")
    if not name or not hasattr(flags, "with_settings"):
        return spec
    settings = read_flag_file(read_text(Path(name)), source=name)
    return cast("EngineSpec", flags.with_settings(spec, settings))


def _gpus(request: PlanRequest) -> Gpus:
    given = [name for name in ("gpus", "host", "recording") if getattr(request, name) is not None]
    if len(given) != 1:
        raise UsageError(
            "which GPUs?" if not given else "one of `--gpus`, `--host` and `--from` says which GPUs",
            hint='`--gpus "4x RTX PRO 6000 Blackwell"`, or `--host USER@HOST`, `local` for this machine',
        )
    if request.gpus is None:
        return _seen_gpus(request)
    return read_gpus(
        request.gpus,
        load_cards(),
        memory_mib=request.gpu_memory_mib,
        cuda_mib=request.cuda_memory_mib,
        used_mib=request.gpu_used_mib,
    )


def _seen_gpus(request: PlanRequest) -> Gpus:
    """The GPUs of a host, with what the command line says better."""
    from bringup.flows.host_gpus import host_gpus, recorded_gpus  # noqa: PLC0415 - loaded when a host is asked

    if request.recording is not None:
        seen = recorded_gpus(request.recording, load_cards())
    else:
        seen = host_gpus(request.host or "local", load_cards())
    if request.cuda_memory_mib is not None:
        card = replace(seen.card, cuda_total=mib(request.cuda_memory_mib), is_cuda_total_measured=True)
        seen = replace(seen, card=card)
    return replace(seen, used_by_others=mib(request.gpu_used_mib)) if request.gpu_used_mib else seen
