"""The account of a running deployment: who carries it, what the rules of its engine predict, what is seen."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from bringup.engines import EngineMemory
from bringup.errors import BringupError
from bringup.flows.host_gpus import gpus_as_seen
from bringup.flows.start_log import start_in
from bringup.parse.command_line import whole_number
from bringup.parse.engine_process import is_engine
from bringup.planner.account import Predicted, Told, account_of, told_by, told_in_log
from bringup.planner.carriers import Carriers, engine_pids, engine_rows, find_carriers
from bringup.planner.host_account import host_account, is_on_processor
from bringup.planner.own_memory import process_bytes, why_no_part, with_own_memory
from bringup.transport.catalogue import load_cards
from bringup.values.account import Account, HostAccount
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineSpec
from bringup.values.host import EngineProcess, Gpu, HostSnapshot
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, HostTask, PlanTask

# What would let a plan be made, by what was lacking.
_COMMAND = "verify on the engine's machine or with --host, or give the engine's command after `--`"
_MODEL = (
    "let this login read the model's config.json on the engine's host, or give the engine's command with the "
    "model's name on the hub after `--`"
)
_INSTANCE = (
    "start the engine with CUDA_VISIBLE_DEVICES=MIG-.. (`nvidia-smi -L` names them), and verify as one who "
    "may read its environment"
)
_SIZES = "verify anew: the sizes of instances are in the table of `nvidia-smi`, which was not read here"
_COMPARE = "keep a recording (--record) and compare with it later: a leak shows as growth"


def deployment_account(
    deployment: Deployment, model: ModelSpec | None, *, why_no_model: str = ""
) -> Account | None:
    """The account of the host as it is after the exercises, or before them where it was not looked at again.

    None where no GPU was seen.
    """
    host = _latest(deployment)
    if host is None or not host.gpus:
        return None
    process = host.engine_on(deployment.port)
    spec = deployment.spec
    host = with_own_memory(host, process, spec)
    carriers = find_carriers(
        host, process, spec, wanted=deployment.wanted.gpus, count=gpu_count(deployment.engine.engine, spec)
    )
    planned = _plan(deployment, host, carriers, model, why_no_model)
    told = told_by(deployment.engine.kv, planned.plan)
    return account_of(
        host,
        process,
        carriers,
        replace(planned, told=told, told_of_rank=_log_of(host)),
        is_engine_name=lambda name: is_engine((name,)),
    )


def _log_of(host: HostSnapshot) -> dict[int, dict[str, Told]]:
    """What the engine's own start-up log says of each rank; nothing where none can be read."""
    if host.engine_log is None:
        return {}
    try:
        return told_in_log(start_in(host.engine_log, source="the engine's log").start)
    except BringupError:
        return {}


def processor_account(deployment: Deployment, model: ModelSpec | None) -> HostAccount | None:
    """The account of the host's memory; None where a GPU carries the model, or that is not known.

    It is of the moment before the exercises: then the engine told its counters, which some lines follow.
    """
    host, process = deployment.host, deployment.process
    engine, spec = deployment.engine, deployment.spec
    if host is None or process is None or not is_on_processor(host, process, engine, spec):
        return None
    memory = _memory(engine.engine)
    if memory is None or memory.on_host is None:
        why = f"the memory rules of {engine.display_name} on a processor are not known"
        return host_account(host, process, None, why_no_plan=why)
    task = HostTask(
        engine=engine,
        process=process,
        spec=spec if spec is not None and spec.engine == engine.engine else None,
        model=model,
        files=(deployment.host_after or host).model_files,
        weights_bytes=deployment.model.weights_bytes,
        resident=process.resident,
    )
    try:
        planned = memory.on_host(task)
    except BringupError:
        return None
    # What lacks for a plan says nothing of the deployment: a recording may be older than the question.
    return host_account(host, process, planned) if planned is not None else None


def _latest(deployment: Deployment) -> HostSnapshot | None:
    after = deployment.host_after
    return after if after is not None and after.gpus else deployment.host


def gpu_count(engine: str, spec: EngineSpec | None) -> int | None:
    """GPUs that the command line asks for; None where it takes all that it sees, or is not known."""
    if spec is None or engine == "llama_cpp":
        return None
    sizes = (
        ("--tensor-parallel-size", "--tp-size", "--tp_size"),
        ("--pipeline-parallel-size", "--pp-size", "--pp_size"),
    )
    count = 1
    for names in sizes:
        count *= next((size for name in names if (size := whole_number(spec.flags.get(name)))), 1)
    if engine == "vllm":
        count *= whole_number(spec.flags.get("--data-parallel-size")) or 1
    return count


def _plan(
    deployment: Deployment,
    host: HostSnapshot,
    carriers: Carriers,
    model: ModelSpec | None,
    why_no_model: str,
) -> Predicted:
    """The plan of the engine's own command on the GPUs that carry it."""
    spec, engine = deployment.spec, deployment.engine
    memory = _memory(engine.engine)
    process = host.engine_on(deployment.port)
    lacking = _lacking(deployment, carriers, memory, process)
    if lacking is not None:
        return lacking
    if model is None or memory is None or spec is None:
        return Predicted(why_no_plan=why_no_model or "the model's config was not found", cure=_MODEL)
    try:
        gpus = _gpus(host, carriers.gpus, engine_pids(process))
        task = PlanTask(
            spec=replace(spec, model=spec.model or model.name),
            version=engine.version,
            model=model,
            gpus=gpus,
        )
        planned = [Predicted(task=task, plan=memory.plan(task).layouts[0])]
        if gpus.used_by_others:  # which may have come after the engine's start
            alone = replace(task, gpus=replace(gpus, used_by_others=0))
            planned.append(Predicted(task=alone, plan=memory.plan(alone).layouts[0]))
    except BringupError as error:
        return Predicted(why_no_plan=error.message, cure=error.hint or _COMPARE)
    return min(planned, key=lambda one: _distance(one, engine.kv.tokens))


def _lacking(
    deployment: Deployment, carriers: Carriers, memory: EngineMemory | None, process: EngineProcess | None
) -> Predicted | None:
    """What a plan lacks beside the model, and what would give it."""
    spec, engine = deployment.spec, deployment.engine
    if memory is None:
        why = f"the memory rules of {engine.display_name} are not known"
        return Predicted(why_no_plan=why, cure=_COMPARE)
    if spec is None or spec.engine != engine.engine:
        return Predicted(why_no_plan="the engine's command line is not known", cure=_COMMAND)
    if not carriers.gpus:
        return Predicted(why_no_plan="no GPU holds the model", cure="name the GPUs that do with --gpus")
    why = next(filter(None, (why_no_part(gpu, process, spec) for gpu in carriers.gpus)), "")
    return Predicted(why_no_plan=why, cure=_SIZES if why.endswith("told") else _INSTANCE) if why else None


def _distance(planned: Predicted, tokens: int | None) -> int:
    """How far a plan is from the cache that the engine says it has, tokens."""
    if planned.plan is None or tokens is None:
        return 0
    return abs(planned.plan.kv.tokens * planned.plan.layout.caches - tokens)


def _gpus(host: HostSnapshot, cards: Sequence[Gpu], own: frozenset[int]) -> Gpus:
    """The cards that carry the model as a plan takes them, with what others hold on the fullest."""
    seen = gpus_as_seen(cards, load_cards(), host=host.host)
    held = [
        sum(row.memory_used or 0 for row in host.processes if row.is_on(gpu))
        - sum(row.memory_used or 0 for row in engine_rows(host, gpu, own))
        for gpu in cards
    ]
    on_host = [
        (gpu.memory_used or 0) - (process_bytes(host, gpu) or 0) for gpu in cards if gpu.shares_host_memory
    ]
    return replace(seen, used_by_others=max(0, max(held, default=0) + max(on_host, default=0)))


def _memory(engine: str) -> EngineMemory | None:
    name = f"bringup.engines.{engine}.memory"
    try:
        return cast("EngineMemory", importlib.import_module(name).MEMORY)
    except ModuleNotFoundError as error:
        if error.name not in (name, f"bringup.engines.{engine}"):
            raise
        return None
