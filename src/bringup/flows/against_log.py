"""A plan of the command that a log shows, beside what the log says."""

from dataclasses import replace
from pathlib import Path

from bringup.errors import UsageError
from bringup.flows.plan import PlanRequest, task_of
from bringup.flows.start_log import FoundStart, find_start
from bringup.planner.start_assumptions import assumptions, may_explain, with_reason
from bringup.planner.start_comparison import compare
from bringup.units import bytes_text, in_mib
from bringup.values.against_log import AgainstLog
from bringup.values.plan import Plan, PlanTask
from bringup.values.start_log import StartLog

_NO_LIMIT_MIB, _MOST_RANKS = 1_000_000, 64
_CLOSE = 0.005  # share by which two cards of one kind may differ


def plan_against_log(request: PlanRequest, path: Path) -> tuple[Plan, AgainstLog]:
    """The plan for the log's own command, version, model and GPUs, and the comparison.

    What the user gives goes before what the log says.

    Raises:
        UsageError: no start in the file, or what it was started with is neither in it nor given.
    """
    found = find_start(path)
    start = found.start
    memory, task = task_of(completed(request, start, path), prefers_model=True)
    plan = memory.plan(task)
    plan = replace(plan, findings=task.model.findings + plan.findings)
    layout = plan.layouts[0]
    lines = compare(layout, plan.gpus, start, task.model)
    for one in assumptions(task, start):
        if any(may_explain(line, one) for line in lines):
            other = memory.plan(one.task)
            lines = with_reason(lines, compare(other.layouts[0], other.gpus, start, task.model), one)
    return plan, AgainstLog(
        source=str(path), start=start, words=found.words, lines=lines, notes=_notes(found, task)
    )


def completed(request: PlanRequest, start: StartLog, path: Path) -> PlanRequest:
    """The request with what the log says where the user gave nothing."""
    argv = request.argv or (start.spec.argv if start.spec else ())
    if not argv:
        raise UsageError(
            f"{path} does not show how the engine was started",
            hint="give the command after `--`, as it was run",
        )
    if start.device == "cpu":
        argv, request = _with_pool(argv, start), _without_gpu(request, start)
    request = replace(request, argv=argv, engine_version=request.engine_version or start.version)
    if request.gpus is None and request.host is None and request.recording is None:
        total = max((rank.total or 0 for rank in start.ranks), default=0)
        if not total:
            raise UsageError(
                f"{path} does not say on which GPUs", hint='`--gpus "4x RTX PRO 6000 Blackwell"`'
            )
        count = max(1, len(start.ranks))
        request = replace(request, gpus=f"{count}x unknown", cuda_memory_mib=round(in_mib(total)))
    return request


def _with_pool(argv: tuple[str, ...], start: StartLog) -> tuple[str, ...]:
    """The command with the pool that vLLM's environment gave it: VLLM_CPU_KVCACHE_SPACE is in no log."""
    pool = max((rank.kv_pool or 0 for rank in start.ranks), default=0)
    if start.engine != "vllm" or not pool or "--kv-cache-memory-bytes" in argv:
        return argv
    return (*argv, "--kv-cache-memory-bytes", str(pool))


def _without_gpu(request: PlanRequest, start: StartLog) -> PlanRequest:
    """The request with cards that limit nothing, where none are named: the engine used the host's memory."""
    if any((request.gpus, request.host, request.recording)):
        return request
    count = 1 if start.engine == "llama_cpp" else _MOST_RANKS  # llama.cpp spreads over all it is given
    return replace(request, gpus=f"{count}x unknown", gpu_memory_mib=_NO_LIMIT_MIB)


def _notes(found: FoundStart, task: PlanTask) -> tuple[str, ...]:
    start, notes = found.start, list[str]()
    if start.device == "cpu":
        notes.append("the engine ran without a GPU: only weights and cache are compared")
    if start.model and task.model.name.rpartition("/")[2].lower() not in start.model.lower():
        notes.append(f"the log's model is `{start.model}`, planned is `{task.model.name}`")
    if not task.model.tensors:
        notes.append("weights are counted from the config: no headers of the log's own files are at hand")
    total = max((rank.total or 0 for rank in start.ranks), default=0)
    card = task.gpus.card
    if total and abs(total - card.cuda_total) > card.cuda_total * _CLOSE:
        seen, planned = bytes_text(total), bytes_text(card.cuda_total)
        notes.append(f"the log's card has {seen}, {card.name} {planned}: give `--cuda-memory-mib`")
    return tuple(notes)
