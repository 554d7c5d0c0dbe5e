"""The account of the GPUs for a reader: one bar per GPU, and the ledger beside what was observed."""

from collections.abc import Sequence

from bringup.units import GIB, in_mib, mib, mib_text
from bringup.values.account import Account, AccountLine, GpuAccount, HostAccount, Role, Source
from bringup.values.gpu_words import gpus_text
from bringup.values.report import Bar, Cell, Segment, Table

NAMES = {
    "weights": "weights",
    "kv_pool": "KV cache",
    "state_pool": "states",
    "request_table": "work space",
    "working": "work space",
    "prompt_cache": "kept prompts",
    "program": "program",
    "engine": "engine",
    "other_engine": "another engine",
    "other_process": "another process",
    "other_programs": "others",
    "rest": "unnamed",
    "reserved": "reserved",
    "free": "free",
}
_LONG = {
    "working": "work space: contexts, buffers, graphs, activations",
    "program": "program: code, libraries, threads, work space",
    "other_programs": "the rest of the host",
    "request_table": "table of requests",
    "state_pool": "recurrent states",
    "reserved": "reserved by the driver",
    "rest": "held by someone unseen",
}
_COLUMNS = ("what", "MiB", "by rule", "between", "known from")
_ROUNDED = mib(32)  # figures of the driver are rounded apart
_SAME = 200  # MiB: GPUs whose lines differ by less are told once


def bars(account: Account) -> tuple[Bar, ...]:
    """One bar per GPU whose driver tells what is used, and one of the host where its processor works."""
    found = tuple(_bar(one) for one in account.gpus if one.lines)
    return (*found, _host_bar(account.host)) if account.host else found


def _host_bar(host: HostAccount) -> Bar:
    return Bar(
        label="limit" if host.is_limited else "host",
        segments=tuple(Segment(name=NAMES.get(line.name, line.name), size=line.bytes) for line in host.lines),
        note=f"{in_mib(host.resident):,.0f} MiB",
    )


def _bar(one: GpuAccount) -> Bar:
    gpu = one.gpu
    sizes: dict[str, int] = {}
    for line in one.lines:
        name = NAMES.get(line.name, line.name)
        sizes[name] = sizes.get(name, 0) + max(0, line.bytes)
    watts = "" if gpu.power is None else f"{gpu.power:.0f} W"
    used = f"{in_mib(gpu.memory_used or 0):,.0f} MiB"
    return Bar(
        label=gpu.label,
        segments=tuple(Segment(name=name, size=size) for name, size in sizes.items()),
        note="  ".join(part for part in (used, watts) if part),
    )


def ledger_tables(account: Account) -> tuple[Table, ...]:
    """The lines of the GPUs that carry the model, predicted beside observed; like GPUs together."""
    groups: list[list[GpuAccount]] = []
    for one in account.gpus:
        if one.role is not Role.MODEL or not one.lines:
            continue
        like = next((group for group in groups if _is_like(group[0], one)), None)
        if like is None:
            groups.append([one])
        else:
            like.append(one)
    tables = tuple(_table(group) for group in groups)
    return (*tables, _host_table(account.host)) if account.host else tables


def _host_table(host: HostAccount) -> Table:
    """The host's memory, predicted beside held."""
    plan = host.plan
    engine = (
        "the engine",
        round(in_mib(host.resident)),
        f"{in_mib(plan.bytes):,.0f}" if plan else "",
        f"{in_mib(plan.low):,.0f} and {in_mib(plan.high):,.0f}" if plan else "",
        "kernel",
    )
    together = (
        "together",
        round(in_mib(host.memory_total)),
        "",
        "",
        "its limit" if host.is_limited else "kernel",
    )
    return Table(
        title="Memory of the host",
        columns=_COLUMNS,
        rows=(*(_row(line) for line in host.lines), engine, together),
        note=_explained(host.unexplained)
        if plan
        else f"{host.why_no_plan[:1].upper()}{host.why_no_plan[1:]}.",
    )


def _is_like(one: GpuAccount, other: GpuAccount) -> bool:
    mine, theirs = ({line.name: line.bytes for line in each.lines} for each in (one, other))
    return mine.keys() == theirs.keys() and all(
        abs(in_mib(mine[name] - theirs[name])) <= _SAME for name in mine
    )


def _table(group: Sequence[GpuAccount]) -> Table:
    first = group[0]
    rows = [_row(line) for line in first.lines]
    whose = "kernel" if first.gpu.shares_host_memory else "driver"
    rows.append(("together", round(in_mib(first.gpu.memory_total or 0)), "", "", whose))
    return Table(
        title=f"Memory of {gpus_text([one.gpu for one in group])}",
        columns=_COLUMNS,
        rows=tuple(rows),
        note=_explained(first.unexplained)
        if first.unexplained
        else _outside(first) or _explained(first.unexplained),
    )


def _outside(one: GpuAccount) -> str:
    """The lines that lie beyond what the rules allow, although their sum may be explained; empty: none."""
    off = [
        f"{NAMES.get(line.name, line.name)} by {mib_text(max(line.bytes - line.high, line.low - line.bytes))}"
        for line in one.lines
        if line.low is not None
        and line.high is not None
        and not line.low - _ROUNDED <= line.bytes <= line.high + _ROUNDED
    ]
    return f"Outside of what the rules allow: {', '.join(off)}." if off else ""


def _row(line: AccountLine) -> tuple[Cell, ...]:
    return (
        _LONG.get(line.name, NAMES.get(line.name, line.name)),
        round(in_mib(line.bytes)),
        "" if line.predicted is None else f"{in_mib(line.predicted):,.0f}",
        _bounds(line),
        _source(line),
    )


def _bounds(line: AccountLine) -> str:
    if line.low is None or line.high is None or line.low == line.high:
        return ""
    return f"{in_mib(line.low):,.0f} and {in_mib(line.high):,.0f}"


def _source(line: AccountLine) -> str:
    words = {Source.METRICS: "the engine", Source.LOG: "its log", Source.REST: "what is left of the sum"}
    return words.get(line.source, line.source.value)


def _explained(size: int | None) -> str:
    if size is None:
        return ""
    if size == 0:
        return "Nothing is unexplained: every line lies within its bounds."
    way = "more" if size > 0 else "less"
    return f"Unexplained: {mib_text(abs(size))} {way} than the rules allow."


def legend(account: Account) -> str:
    """What the parts of the first GPU that carries the model are, in GiB."""
    one = next((each for each in account.carriers if each.lines), None)
    if one is None:
        return ""
    bar = _bar(one)
    return ", ".join(f"{part.name} {part.size / GIB:.1f} GiB" for part in bar.segments if part.size)
