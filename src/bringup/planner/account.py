"""The account of every GPU of a host: what is seen there beside what the engine's rules predict.

Of a GPU that carries the model the driver tells how much is used; weights and pools are told by the engine,
or by its rules; what is left of the sum is working memory, whose bounds the plan gives. Beyond them it is
unexplained, and said so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bringup.planner.carriers import Carriers, engine_pids, engine_rows
from bringup.planner.stages import plan_of_rank, stage_of
from bringup.units import mib
from bringup.values.account import Account, AccountLine, GpuAccount, Holder, Role, Source
from bringup.values.engine import KvCapacity
from bringup.values.host import EngineProcess, Gpu, HostSnapshot
from bringup.values.plan import LayoutPlan, LedgerLine, Origin, PlanTask
from bringup.values.start_log import StartLog

_TENSOR_RANK = re.compile(r"TP(\d+)")
IDLE_BYTES = mib(64)  # a card that nobody uses holds 0 to some MiB (1 to 17 seen), a context some hundreds
_POOLS = ("weights", "state_pool", "kv_pool", "request_table")  # lines that one can know exactly
_TOLERANCE = mib(32)  # total, reserved, used and free are rounded apart; allocations round to 2 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Bytes that the engine itself gives for a line of every rank."""

    bytes: int
    source: Source
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The plan of what runs, what the engine itself says of its lines, or why there is no plan."""

    plan: LayoutPlan | None = None
    task: PlanTask | None = None
    told: Mapping[str, Told] = field(default_factory=dict[str, Told])  # of every rank alike
    told_of_rank: Mapping[int, Mapping[str, Told]] = field(
        default_factory=dict[int, Mapping[str, Told]]
    )  # of one rank, where its own log line says it
    why_no_plan: str = ""
    cure: str = ""  # what would give one


def account_of(
    host: HostSnapshot,
    process: EngineProcess | None,
    carriers: Carriers,
    predicted: Predicted,
    *,
    is_engine_name: Callable[[str], bool],
) -> Account:
    """The account of all GPUs of `host`."""
    ranks = {id(gpu): rank for rank, gpu in enumerate(carriers.gpus)}
    own, main = engine_pids(process), process.pid if process else None
    others = {pid: one.port for one in host.engines if one.pid != main for pid in engine_pids(one)}

    def holders(gpu: Gpu) -> tuple[Holder, ...]:
        mine = engine_rows(host, gpu, own) if id(gpu) in ranks else ()
        return tuple(
            Holder(
                pid=row.pid,
                name=row.name or "a process",
                bytes=row.memory_used,
                is_engine=row.pid in own or row in mine,
                is_other_engine=row.pid not in own
                and row not in mine
                and (row.pid in others or is_engine_name(row.name or "")),
                port=others.get(row.pid) if row.pid and row.pid not in own and row not in mine else None,
            )
            for row in host.processes
            if row.memory_used is not None and row.is_on(gpu)
        )

    def told(rank: int | None) -> Mapping[str, Told]:
        own = predicted.told_of_rank.get(rank) if rank is not None else None
        return {**(own or dict[str, Told]()), **_of_stage(predicted.told, predicted.plan, rank)}

    accounts = tuple(
        _gpu_account(
            gpu,
            ranks.get(id(gpu)),
            holders=holders(gpu),
            plan=plan_of_rank(predicted.plan, ranks.get(id(gpu))) if predicted.plan else None,
            used_by_others=predicted.task.gpus.used_by_others if predicted.task else 0,
            told=told(ranks.get(id(gpu))),
        )
        for gpu in _of_one_maker(host, carriers)
    )
    return Account(
        gpus=accounts,
        found_by=carriers.words,
        plan=predicted.plan,
        task=predicted.task,
        why_no_plan="" if predicted.plan else predicted.why_no_plan,
        cure="" if predicted.plan else predicted.cure,
    )


def _of_stage(told: Mapping[str, Told], plan: LayoutPlan | None, rank: int | None) -> Mapping[str, Told]:
    """What the endpoint tells, of the stage with the largest pool, as it is for this rank's stage."""
    pool = told.get("kv_pool")
    if plan is None or rank is None or pool is None or not plan.stages:
        return told
    largest = max(share.pool_bytes for share in plan.stages)
    mine = plan.stages[stage_of(plan.layout, rank)].pool_bytes
    size = pool.bytes * mine // largest if largest else pool.bytes
    return {**told, "kv_pool": replace(pool, bytes=size)}


def _of_one_maker(host: HostSnapshot, carriers: Carriers) -> tuple[Gpu, ...]:
    """The GPUs that are the engine's or could be: cards of another maker are none of its matter."""
    makers = {gpu.vendor for gpu in carriers.gpus or host.main_gpus}
    return tuple(gpu for gpu in host.gpus if gpu.vendor in makers)


def told_in_log(start: StartLog) -> dict[int, dict[str, Told]]:
    """What the start-up log says of each rank's weights and pools, quoted."""
    found: dict[int, dict[str, Told]] = {}
    for number, rank in enumerate(start.ranks):
        match = _TENSOR_RANK.search(rank.label)
        index = int(match[1]) if match else number
        sizes = {"weights": rank.weights, "kv_pool": rank.kv_pool, "state_pool": rank.state_pool}
        rows = found.setdefault(index, {})
        for name, size in sizes.items():
            cite = start.cite(name, rank)
            if size is not None and cite is not None:
                words = f"line {cite.line}: {cite.text.strip()[:120]}"
                rows[name] = Told(bytes=size, source=Source.LOG, words=words)
    return found


def told_by(kv: KvCapacity, plan: LayoutPlan | None) -> dict[str, Told]:
    """What the endpoint's figures say of the pools: blocks or tokens, at the bytes that the rules give them.

    Both are sums over the caches of a deployment, and a GPU has its part of one of them.
    """
    if plan is None:
        return {}
    block, caches = plan.kv.bytes_per_block, plan.layout.caches
    of = f" / {caches} caches" if caches > 1 else ""
    if kv.blocks and block and kv.block_tokens == plan.kv.block_tokens:
        words = f"{kv.blocks:,} blocks x {block:,} B{of}"
        return {"kv_pool": Told(bytes=kv.blocks * block // caches, source=Source.METRICS, words=words)}
    if kv.tokens and plan.kv.bytes_per_token:
        size = round(kv.tokens * plan.kv.bytes_per_token / caches)
        words = f"{kv.tokens:,} tokens x {plan.kv.bytes_per_token:,.0f} B{of}"
        return {"kv_pool": Told(bytes=size, source=Source.METRICS, words=words)}
    return {}


def _gpu_account(
    gpu: Gpu,
    rank: int | None,
    *,
    holders: tuple[Holder, ...],
    plan: LayoutPlan | None,
    used_by_others: int,
    told: Mapping[str, Told],
) -> GpuAccount:
    total, used = gpu.memory_total, gpu.memory_used
    role = _role(gpu, rank, holders)
    is_of_all = gpu.mig_mode == "Enabled" and not gpu.part  # and the engine has one of the instances
    if total is None or used is None or (is_of_all and role is Role.MODEL):
        return GpuAccount(gpu=gpu, role=role, rank=rank, holders=holders)
    if gpu.shares_host_memory:
        return _on_host_memory(
            gpu, rank, holders=holders, plan=plan, used_by_others=used_by_others, told=told
        )
    reserved = gpu.memory_reserved or 0
    others = tuple(one for one in holders if not one.is_engine)
    taken = sum(one.bytes for one in others)
    driver = [_seen("reserved", reserved, "kept by the driver"), *map(_stranger, others)]
    free = _seen("free", total - reserved - used, "total - reserved - used")
    if role is not Role.MODEL:
        rest = used - taken
        lines = (*driver, _seen("rest", rest, "no process is named for it"), free)
        return GpuAccount(gpu=gpu, role=role, lines=_shown(lines), holders=holders)
    parts, unexplained = _engine_lines(used - taken, plan, told)
    return GpuAccount(
        gpu=gpu,
        role=role,
        rank=rank,
        lines=_shown((*driver, *parts, free)),
        holders=holders,
        engine_bytes=used - taken,
        bounds=_bounds(plan, used_by_others),
        unexplained=unexplained,
    )


def _on_host_memory(
    gpu: Gpu,
    rank: int | None,
    *,
    holders: tuple[Holder, ...],
    plan: LayoutPlan | None,
    used_by_others: int,
    told: Mapping[str, Told],
) -> GpuAccount:
    """The same of a card that shares the host's memory: what no process holds on it is the host's."""
    total, available = gpu.memory_total or 0, gpu.memory_free or 0
    role = _role(gpu, rank, holders)
    others = tuple(one for one in holders if not one.is_engine)
    held = sum(one.bytes for one in holders if one.is_engine)
    taken = held + sum(one.bytes for one in others)
    rest = max(0, total - available - taken)
    parts, unexplained = _engine_lines(held, plan, told) if held else ([], None)
    host = (
        replace(
            _seen("other_programs", rest, "used on the processor, by the engine as well"),
            source=Source.KERNEL,
        ),
        replace(_seen("free", total - taken - rest, "can still be had"), source=Source.KERNEL),
    )
    return GpuAccount(
        gpu=gpu,
        role=role,
        rank=rank,
        lines=_shown((*map(_stranger, others), *parts, *host)),
        holders=holders,
        engine_bytes=held or None,
        bounds=_bounds(plan, used_by_others),
        unexplained=unexplained,
    )


def _stranger(one: Holder) -> AccountLine:
    return _seen("other_engine" if one.is_other_engine else "other_process", one.bytes, _words(one))


def _bounds(plan: LayoutPlan | None, used_by_others: int) -> tuple[int, int] | None:
    """What the engine alone may hold, bytes."""
    return (plan.smi_used_low - used_by_others, plan.smi_used_high - used_by_others) if plan else None


def _engine_lines(
    held: int, plan: LayoutPlan | None, told: Mapping[str, Told]
) -> tuple[list[AccountLine], int | None]:
    """The engine's part of one GPU: weights and pools, then what is left of `held` for its working memory."""
    known = [_known(name, plan, told) for name in _POOLS]
    lines = [line for line in known if line is not None and line.bytes]
    if plan is None or not lines:
        return [*lines, _rest("engine", held - sum(line.bytes for line in lines))], None
    pools = sum(line.bytes for line in lines)
    working = held - pools
    low, high = working_bounds(plan)
    line = AccountLine(
        name="working",
        bytes=working,
        source=Source.REST,
        words="contexts, buffers, graphs, activations that the allocator keeps",
        predicted=(low + high) // 2,
        low=low,
        high=high,
    )
    beyond = working - high if working > high else min(0, working - low)
    return [*lines, line], beyond if abs(beyond) > _TOLERANCE else 0


def working_bounds(plan: LayoutPlan) -> tuple[int, int]:
    """The least and the most that an engine holds beside weights and pools, bytes per GPU."""
    fixed = sum(line.bytes for line in plan.ledger if line.name in (*_POOLS, "other_processes"))
    return plan.smi_used_low - fixed, plan.smi_used_high - fixed


def _known(name: str, plan: LayoutPlan | None, told: Mapping[str, Told]) -> AccountLine | None:
    planned = next((line for line in plan.ledger if line.name == name), None) if plan else None
    said = told.get(name)
    if said is not None:
        return AccountLine(
            name=name,
            bytes=said.bytes,
            source=said.source,
            words=said.words,
            predicted=planned.bytes if planned else None,
            low=planned.low if planned else None,
            high=planned.high if planned else None,
        )
    return _by_rule(planned) if planned else None


def _by_rule(line: LedgerLine) -> AccountLine:
    return AccountLine(
        name=line.name,
        bytes=line.bytes,
        source=Source.ESTIMATE if line.origin is Origin.ESTIMATE else Source.RULE,
        words=line.formula,
        predicted=line.bytes,
        low=line.low,
        high=line.high,
    )


def _role(gpu: Gpu, rank: int | None, holders: tuple[Holder, ...]) -> Role:
    if rank is not None:
        return Role.MODEL
    if gpu.memory_used is None:
        return Role.OTHER if holders else Role.UNKNOWN
    return Role.IDLE if gpu.memory_used <= IDLE_BYTES and not holders else Role.OTHER


def _seen(name: str, size: int, words: str) -> AccountLine:
    return AccountLine(name=name, bytes=size, source=Source.DRIVER, words=words)


def _rest(name: str, size: int) -> AccountLine:
    return AccountLine(name=name, bytes=size, source=Source.REST, words="all that the engine holds")


def _words(holder: Holder) -> str:
    return f"process {holder.pid} {holder.name}" if holder.pid is not None else holder.name


def _shown(lines: Sequence[AccountLine]) -> tuple[AccountLine, ...]:
    """The lines that hold anything; what is free is always told."""
    return tuple(line for line in lines if line.bytes or line.name == "free")
