"""The account of a host whose processor carries the model: its memory, predicted beside what is held.

The kernel tells how much the engine's processes hold and how much can still be had; weights and cache are
told by the engine or by its rules; what is left of the sum is the program, whose bounds are measured.
"""

from dataclasses import replace

from bringup.units import bytes_text
from bringup.values.account import AccountLine, HostAccount, Source
from bringup.values.engine import EngineSpec, EngineStatus
from bringup.values.host import EngineProcess, HostSnapshot
from bringup.values.plan import HostPlan, LedgerLine, Origin

_PROGRAM = "program"
_TOLERANCE = 0.01  # share of the whole: pages come and go between two looks


def is_on_processor(
    host: HostSnapshot, process: EngineProcess, engine: EngineStatus, spec: EngineSpec | None
) -> bool:
    """Whether the processor carries the model: the engine says so, or there is no GPU that could."""
    if process.gpu_devices:
        return False
    return _says_processor(engine, spec) or (not host.gpus and host.is_without_gpu)


def _says_processor(engine: EngineStatus, spec: EngineSpec | None) -> bool:
    if engine.flags.get("device") == "cpu":
        return True
    flags = spec.flags if spec is not None and spec.engine == engine.engine else {}
    if engine.engine == "llama_cpp":
        return flags.get("--n-gpu-layers") == "0" or flags.get("--device") == "none"
    return flags.get("--device") == "cpu"


def host_account(
    host: HostSnapshot, process: EngineProcess, plan: HostPlan | None, *, why_no_plan: str = ""
) -> HostAccount | None:
    """The account; None where the host does not tell its memory, or not what the engine holds."""
    facts, resident = host.facts, process.resident
    whole, available = facts.memory_total, facts.memory_available
    if whole is None or available is None or resident is None or resident > whole:
        return None
    limit = _limit(host, process)
    is_limited = limit is not None and limit < whole
    total = limit if limit is not None and is_limited else whole
    used = process.group.memory_used if process.group and is_limited else None
    others = max(0, (used or 0) - resident) if is_limited else max(0, whole - available - resident)
    parts, unexplained = _engine_lines(resident, plan)
    seen = [
        _seen("other_programs", others, "used by the rest of the host"),
        _seen("free", max(0, total - resident - others), "can still be had"),
    ]
    return HostAccount(
        memory_total=total,
        is_limited=is_limited,
        resident=resident,
        lines=tuple(line for line in (*parts, *seen) if line.bytes or line.name == "free"),
        plan=plan,
        why_no_plan="" if plan else why_no_plan,
        unexplained=unexplained,
    )


def _limit(host: HostSnapshot, process: EngineProcess) -> int | None:
    """The most that the engine's control group may take, as it or the container of the asker says."""
    own = process.group.memory_limit if process.group else None
    known = [limit for limit in (own, host.facts.memory_limit) if limit is not None]
    return min(known, default=None)


def _engine_lines(resident: int, plan: HostPlan | None) -> tuple[list[AccountLine], int | None]:
    """The engine's part: weights and cache, then what is left of `resident` for the program."""
    if plan is None:
        words = "all that its processes hold"
        return [AccountLine(name="engine", bytes=resident, source=Source.KERNEL, words=words)], None
    program = plan.line(_PROGRAM)
    pools = [_pool(line) for line in plan.ledger if line.name != _PROGRAM and line.bytes]
    if program is not None:
        pools = _fitted(pools, resident, program)
    rest = resident - sum(line.bytes for line in pools)
    if program is None or rest < 0:  # more is planned than is held: pages that nobody wrote yet, or a swap
        pools = _shrunk(pools, resident)
        return pools, min(0, resident - plan.low)
    line = AccountLine(
        name=_PROGRAM,
        bytes=rest,
        source=Source.REST,
        words=program.formula,
        predicted=program.bytes,
        low=program.low,
        high=program.high,
    )
    beyond = resident - plan.high if resident > plan.high else min(0, resident - plan.low)
    return [*pools, line], beyond if abs(beyond) > _TOLERANCE * resident else 0


def _fitted(pools: list[AccountLine], resident: int, program: LedgerLine) -> list[AccountLine]:
    """The lines with those that are only bounded from above made small enough for the program beside them."""
    over = sum(line.bytes for line in pools) + program.low - resident
    found: list[AccountLine] = []
    for line in pools:
        cut = max(0, min(over, line.bytes - (line.bytes if line.low is None else line.low)))
        over -= cut
        found.append(replace(line, bytes=line.bytes - cut) if cut else line)
    return found


def _shrunk(lines: list[AccountLine], resident: int) -> list[AccountLine]:
    """What is held, named as a whole: how much of which line is there cannot be told."""
    predicted = sum(line.predicted or 0 for line in lines)
    words = f"of {bytes_text(predicted)} of weights and cache"
    return [
        AccountLine(name="engine", bytes=resident, source=Source.KERNEL, words=words, predicted=predicted)
    ]


def _pool(line: LedgerLine) -> AccountLine:
    return AccountLine(
        name=line.name,
        bytes=line.bytes,
        source=Source.ESTIMATE if line.origin is Origin.ESTIMATE else Source.RULE,
        words=line.formula,
        predicted=line.bytes,
        low=line.low,
        high=line.high,
    )


def _seen(name: str, size: int, words: str) -> AccountLine:
    return AccountLine(name=name, bytes=size, source=Source.KERNEL, words=words)
