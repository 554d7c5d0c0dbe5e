"""The ledger of a start as it was and with a proposed flag, where the log tells enough to plan both.

Nobody is asked: a model that is neither here nor in the catalogue gives no ledger, and it is said why.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bringup.errors import BringupError
from bringup.flows.model_source import find_here
from bringup.parse.gguf_log import model_in_log
from bringup.parse.oom import read_out_of_memory
from bringup.planner.fitting import MARGIN, cuts_that_fit, share_in_use, share_with_room
from bringup.planner.workspace import context_memory
from bringup.report.changed_line import changed_command
from bringup.units import GIB, MIB, bytes_text, in_mib
from bringup.values.case import Case
from bringup.values.diagnosis import BeforeAfter, LedgerRow
from bringup.values.finding import Finding, Fix
from bringup.values.model import ModelSpec
from bringup.values.plan import LayoutPlan
from bringup.values.setting_names import flag_of, value_of

_FAMILIES = ("mem.", "shard.")
_CAPACITY = re.compile(r"total capac(?:i)?ty of ([\d.]+) (GiB|MiB)")
_PLANNED = {
    "mem.kv_none",
    "mem.kv_too_small",
    "mem.weights_oom",
    "mem.runtime_oom",
}  # kinds whose cures a plan tells better
_MOST_GPUS = 64
_STEP = 256  # tokens: llama.cpp's contexts are whole steps
_MOST_TRIED = 8  # times as many GPUs as now
_MOST_SHARE = 0.97  # of a GPU that an engine can have without failing later
# What starts an engine whose arguments a log shows and whose rules the planner knows.
_PROGRAMS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "llama_cpp": ("llama-server", "-m"),
    "tensorrt_llm": ("trtllm-serve",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cannot(Exception):  # noqa: N818 - never leaves this module
    """Why nothing can be planned."""

    why: str


def before_and_after(finding: Finding, case: Case) -> BeforeAfter | None:
    """Both ledgers for the finding's first flag, or why there are none; None: it is not about memory."""
    if not finding.id.startswith(_FAMILIES):
        return None
    fix = next((one for one in finding.fixes if one.type == "flag" and one.new is not None), None)
    if fix is None:
        return None
    try:
        case = _with_logged_pool(_with_command(case), fix)
        before = planned(case, case.argv, _cuts(case))
        after = planned(case, changed_command(case, fix), _cuts(case, fix))
    except _Cannot as reason:
        return BeforeAfter(change=fix, reason=reason.why)
    except BringupError as error:
        return BeforeAfter(change=fix, reason=error.message)
    return BeforeAfter(
        change=fix,
        rows=tuple(_rows(before, after)),
        tokens=(before.kv.tokens, after.kv.tokens),
        fits=(before.fits, after.fits),
    )


def with_planned_values(finding: Finding, case: Case) -> Finding:
    """The finding with GPUs, lengths and shares by the planner's account where the log itself tells none."""
    if finding.id not in _PLANNED or case.engine not in _PROGRAMS:
        return finding
    if case.engine == "llama_cpp":
        return _with_llama_values(finding, case)
    length, share, cut = (flag_of(case.engine, one) for one in ("context", "memory_share", "tensor_parallel"))
    if finding.id == "mem.kv_too_small" and any(fix.name == length for fix in finding.fixes):
        return finding  # the log tells what fits
    try:
        case = _with_command(case)
        plan = planned(case, case.argv, _cuts(case))
        if finding.id == "mem.runtime_oom":
            return _with_room_for_a_step(finding, plan, share)
        values = {cut: _fewest_gpus(case, cut)} if finding.id != "mem.kv_too_small" else {}
    except (_Cannot, BringupError):
        return finding
    values[length] = _length(plan, case)
    if finding.id == "mem.kv_none":
        values[share] = _share(plan)
    fixes = [replace(fix, **_new_value(fix, values.get(fix.name))) for fix in finding.fixes]
    if finding.id == "mem.kv_too_small" and length and values[length]:
        fixes.insert(0, Fix(type="flag", name=length, new=values[length], cost="shorter requests"))
    return replace(finding, fixes=tuple(fixes))


def _with_room_for_a_step(finding: Finding, plan: LayoutPlan, share: str | None) -> Finding:
    """The finding with a share that leaves what was missing, what a whole step takes, and a margin."""
    told = next(
        (one for line in finding.evidence if (one := read_out_of_memory(line.text)).requested is not None),
        None,
    )
    if plan.share is None or told is None or told.requested is None:
        return finding
    missing = max(0, told.requested - (told.free or 0))
    step = sum(one.bytes for one in plan.upcoming)
    new = share_with_room(plan.share.value, missing + step + MARGIN, round(plan.share.base))
    cost = f"a smaller KV cache; room for the {bytes_text(missing)} that were missing"
    cost += f", {bytes_text(step)} of a whole step" if step else ""
    cost += f" and {bytes_text(MARGIN)} more"
    fixes = [
        replace(fix, new=f"{min(new, _as_number(fix.new, new)):g}", cost=cost) if fix.name == share else fix
        for fix in finding.fixes
    ]
    return replace(finding, fixes=tuple(fixes))


def _as_number(text: str | None, otherwise: float) -> float:
    try:
        return float(text or "")
    except ValueError:
        return otherwise


def _with_llama_values(finding: Finding, case: Case) -> Finding:
    """The finding with the most layers and the longest context that the planner finds room for."""
    try:
        case = _with_command(case)
        values = {"--n-gpu-layers": _most_layers(case), "--ctx-size": _longest(case)}
    except (_Cannot, BringupError):
        return finding
    fixes = [replace(fix, new=values.get(fix.name) or fix.new) for fix in finding.fixes]
    return replace(finding, fixes=tuple(fixes))


def _most_layers(case: Case) -> str | None:
    """The most layers that leave room on the GPUs, fewer than now; None: all fit by this account, or none."""
    flag = "--n-gpu-layers"
    now = _number(value_of(case, flag)) or (case.shape.layers or 0) + 1
    return _largest(case, flag, now - 1, step=1)


def _longest(case: Case) -> str | None:
    """The longest context that leaves room, shorter than now."""
    flag = "--ctx-size"
    now = _number(value_of(case, flag)) or case.shape.max_positions or 0
    return _largest(case, flag, now // _STEP - 1, step=_STEP)


def _largest(case: Case, flag: str, limit: int, *, step: int) -> str | None:
    """The largest value of a flag, in steps, with which half a GiB stays free."""

    def holds(count: int) -> bool:
        fix = Fix(type="flag", name=flag, new=str(count * step))
        plan = planned(case, changed_command(case, fix), _cuts(case))
        return all(line.bytes >= MARGIN for line in plan.ledger if line.name == "free")

    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return str(low * step) if low > 0 else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _new_value(fix: Fix, value: str | None) -> dict[str, str]:
    if value is None or value == fix.new:
        return {}
    return {"new": value, "cost": f"{value} GPUs" if fix.cost.endswith("GPUs") else fix.cost}


def _fewest_gpus(case: Case, flag: str | None) -> str | None:
    """The smallest number of GPUs above the present that each layer can be cut over and that is enough."""
    now = value_of(case, flag)
    present = int(now) if now and now.isdecimal() else 1
    for size in reversed(cuts_that_fit(case.shape, _MOST_TRIED * present)):
        fix = Fix(type="flag", name=flag or "", new=str(size))
        if size > present and planned(case, changed_command(case, fix), _cuts(case, fix)).fits:
            return str(size)
    return None


def _length(plan: LayoutPlan, case: Case) -> str | None:
    """The longest request that the planned cache holds, where that is shorter than what is asked for."""
    fits = plan.kv.longest_context
    asked = value_of(case, flag_of(case.engine, "context"))
    asked_tokens = int(asked) if asked and asked.isdecimal() else plan.context
    if plan.kv.fits or not fits or (asked_tokens and fits >= asked_tokens):
        return None
    return str(fits)


def _share(plan: LayoutPlan) -> str | None:
    """The share that leaves a cache for one request of the longest length; None: none that can be had."""
    if plan.share is None or plan.kv.fits:
        return None
    missing = plan.kv.needed_bytes - plan.kv.available_bytes
    wanted = plan.share.value + missing / plan.share.base
    hundredths = -int(-wanted * 100 // 1)
    return f"{hundredths / 100:g}" if plan.share.value < wanted <= _MOST_SHARE else None


def _with_command(case: Case) -> Case:
    """The case with a command line, made of the arguments that the engine says it has where none is shown.

    Raises:
        _Cannot: what of engine, model and arguments is not told.
    """
    program = _PROGRAMS.get(case.engine or "")
    if program is None:
        raise _Cannot(
            why=f"what {case.engine or 'an engine that is not told'} shows of its arguments does not do"
        )
    if not case.model:
        raise _Cannot(why="the log does not name the model")
    if not _is_known(case):
        raise _Cannot(why=f"`{case.model}` is neither in the catalogue nor on this machine")
    share = share_in_use(case.facts) if case.engine == "sglang" else None
    flag = flag_of(case.engine, "memory_share")
    if share is not None and flag and value_of(case, flag) is None:
        case = replace(
            case,
            flags={**case.flags, flag: f"{share:g}"},
            argv=(*case.argv, flag, f"{share:g}") if case.argv else (),
        )
    if case.argv:
        return case
    if not case.flags:
        raise _Cannot(why="the log does not show the engine's arguments")
    return replace(case, argv=(*program, case.model, *_words(case.flags.items())))


def _is_known(case: Case) -> bool:
    """Whether the model is known here, or by what the log prints of its file."""
    here = case.model is not None and find_here(case.model, is_this_machine=case.host is None) is not None
    return here or _printed(case) is not None


def _printed(case: Case) -> ModelSpec | None:
    """The model as llama.cpp prints the metadata of its file."""
    if case.engine != "llama_cpp" or not case.model:
        return None
    return model_in_log((line.text for line in case.lines), name=case.model)


def _with_logged_pool(case: Case, fix: Fix) -> Case:
    """The case with the cache that its own log tells, where the fix leaves that as large as it is."""
    pools = [rank.kv_pool for rank in case.facts.ranks if rank.kv_pool] if case.facts else []
    same = {flag_of("vllm", "context"), flag_of("vllm", "kv_dtype")}
    if case.engine != "vllm" or fix.name not in same or not pools or min(pools) <= 0:
        return case
    return replace(case, argv=(*case.argv, "--kv-cache-memory-bytes", str(min(pools))))


def _words(flags: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, value in flags:
        if name in ("--model", "-m", "--model-path", "--model-tag") or value.lower() in ("false", "none", ""):
            continue
        yield from (name,) if value.lower() == "true" else (name, value)


def planned(case: Case, argv: tuple[str, ...], gpus: int) -> LayoutPlan:
    """The account of one GPU under a command.

    Raises:
        _Cannot: neither the GPU nor its memory is told, or no layout can be planned.
        BringupError: the planner cannot.
    """
    from bringup.flows.plan import PlanRequest, task_of  # noqa: PLC0415 - loads the planner

    total, name = _memory(case), case.gpus[0].removeprefix("NVIDIA ") if case.gpus else None
    if not total and not name:
        raise _Cannot(why="the log tells neither the GPU nor its memory")
    request = PlanRequest(
        argv=argv,
        gpus=f"{gpus}x {'unknown' if total else name}",
        cuda_memory_mib=round(in_mib(total)) if total else None,
        engine_version=case.version,
        model=case.model,
    )
    here = case.model is not None and find_here(case.model, is_this_machine=case.host is None)
    memory, task = task_of(request, known=None if here else _printed(case))
    if case.engine == "llama_cpp":  # its compute buffers are no formula's
        task = replace(task, measured=case.facts)
    layouts = memory.plan(task).layouts
    if not layouts:
        raise _Cannot(why="no layout of the command can be planned")
    return layouts[0]


def _memory(case: Case) -> int:
    """Bytes of one GPU as CUDA sees it, where the log says it."""
    ranks = case.facts.ranks if case.facts else ()
    seen = max((rank.total or 0 for rank in ranks), default=0) or _capacity(case)
    free = max((rank.free_at_start or 0 for rank in ranks), default=0)
    # What was free once the process had its own context there.
    return seen or (free + context_memory().bytes if free else 0)


def _cuts(case: Case, fix: Fix | None = None) -> int:
    """GPUs that the command takes, with the fix in it."""
    if case.engine == "llama_cpp":
        seen = [rank for rank in case.facts.ranks if rank.free_at_start] if case.facts else []
        return min(_MOST_GPUS, max(1, len(seen) or len(case.gpus)))
    product = 1
    settings = [flag_of(case.engine, setting) for setting in ("tensor_parallel", "pipeline_parallel")]
    if case.engine == "vllm":
        settings.append("--data-parallel-size")
    for flag in settings:
        value = fix.new if fix is not None and fix.name == flag else value_of(case, flag)
        product *= int(value) if value and value.isdecimal() and 0 < int(value) <= _MOST_GPUS else 1
    return min(_MOST_GPUS, product)


def _capacity(case: Case) -> int:
    found = case.first(_CAPACITY)
    if found is None:
        return 0
    value = float(found[1][1])
    return round(value * (GIB if found[1][2] == "GiB" else MIB))


def _rows(before: LayoutPlan, after: LayoutPlan) -> Iterable[LedgerRow]:
    old, new = ({line.name: line.bytes for line in one.ledger} for one in (before, after))
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) or new.get(name):
            yield LedgerRow(name=name, before=old.get(name), after=new.get(name))
    then, now = ({one.name: one.bytes for one in plan.upcoming} for plan in (before, after))
    for name in dict.fromkeys((*then, *now)):
        yield LedgerRow(name=name, before=then.get(name), after=now.get(name), is_later=True)
