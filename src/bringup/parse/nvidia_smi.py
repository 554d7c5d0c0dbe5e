"""nvidia-smi's comma-separated answers: `--query-gpu` and `--query-compute-apps`, with and without header.

Source: recorded answers, and the field names of `--help-query-gpu`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_state import trouble
from bringup.parse.nvidia_values import absence, count, gpu_of, size
from bringup.values.host import Absent, Gpu, GpuProcess

# Field of `Gpu` <- names of `--query-gpu`, the best first.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "index": ("index",),
    "uuid": ("uuid", "gpu_uuid"),
    "bus_id": ("pci.bus_id", "gpu_bus_id"),
    "name": ("name", "gpu_name"),
    "driver_version": ("driver_version",),
    "compute_capability": ("compute_cap",),
    "memory_total": ("memory.total",),
    "memory_reserved": ("memory.reserved",),
    "memory_used": ("memory.used",),
    "memory_free": ("memory.free",),
    "utilization": ("utilization.gpu",),
    "memory_utilization": ("utilization.memory",),
    # From Ampere on `power.draw` is an average over one second; it can be absent while `instant` has a value.
    "power": ("power.draw", "power.draw.average", "power.draw.instant"),
    "power_limit": ("enforced.power.limit",),
    "power_limit_default": ("power.default_limit",),
    "power_limit_min": ("power.min_limit",),
    "power_limit_max": ("power.max_limit",),
    "temperature": ("temperature.gpu",),
    "memory_temperature": ("temperature.memory",),
    "temperature_margin": ("temperature.gpu.tlimit",),
    "performance_state": ("pstate",),
    "clock_sm": ("clocks.sm", "clocks.current.sm"),
    "clock_memory": ("clocks.mem", "clocks.current.memory"),
    "clock_sm_max": ("clocks.max.sm",),
    "clock_memory_max": ("clocks.max.mem", "clocks.max.memory"),
    "clocks_event_reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "slowed_by_heat": ("clocks_event_reasons_counters.sw_thermal_slowdown",),
    "slowed_by_hardware_heat": ("clocks_event_reasons_counters.hw_thermal_slowdown",),
    "slowed_by_power_brake": ("clocks_event_reasons_counters.hw_power_brake_slowdown",),
    "slowed_by_power_cap": ("clocks_event_reasons_counters.sw_power_cap",),
    "pcie_generation": ("pcie.link.gen.current",),
    "pcie_generation_max": ("pcie.link.gen.max",),
    "pcie_generation_card": ("pcie.link.gen.gpumax",),
    "pcie_generation_host": ("pcie.link.gen.hostmax",),
    "pcie_width": ("pcie.link.width.current",),
    "pcie_width_max": ("pcie.link.width.max",),
    "ecc_mode": ("ecc.mode.current",),
    "ecc_mode_pending": ("ecc.mode.pending",),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.total",),
    "ecc_uncorrected_ever": ("ecc.errors.uncorrected.aggregate.total",),
    "ecc_corrected": ("ecc.errors.corrected.volatile.total",),
    "remapped_rows_pending": ("remapped_rows.pending",),
    "remapped_rows_failure": ("remapped_rows.failure",),
    "remapped_rows": ("remapped_rows.uncorrectable",),
    "retired_pages_pending": ("retired_pages.pending",),
    "mig_mode": ("mig.mode.current",),
    "mig_mode_pending": ("mig.mode.pending",),
    "persistence_mode": ("persistence_mode",),
    "serial": ("serial", "gpu_serial"),
    "vbios": ("vbios_version",),
    "recovery_action": ("gpu_recovery_action",),
    "reset_required": ("reset_status.reset_required",),
    "drain_recommended": ("reset_status.drain_and_reset_recommended",),
    "compute_mode": ("compute_mode",),
    "fabric_state": ("fabric.state",),
    "fabric_status": ("fabric.status",),
}

_FREE_TEXT = ("name", "gpu_name", "process_name")  # the only columns whose value could hold ", "
_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_MEMORY_OF_PROCESS = ("used_memory", "used_gpu_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a comma-separated answer by column name, and the lines that are no rows."""

    rows: tuple[dict[str, str], ...] = ()
    messages: tuple[str, ...] = ()


def split_row(line: str, columns: Sequence[str]) -> dict[str, str] | None:
    """Cells of one row by column; None when the line does not have these columns.

    >>> split_row("0, NVIDIA L40S, 46068", ("index", "name", "memory.total"))
    {'index': '0', 'name': 'NVIDIA L40S', 'memory.total': '46068'}
    """
    cells = [cell.strip() for cell in line.split(", ")]
    surplus = len(cells) - len(columns)
    free = [place for place, column in enumerate(columns) if column in _FREE_TEXT]
    if surplus > 0 and len(free) == 1:
        start = free[0]
        cells[start : start + surplus + 1] = [", ".join(cells[start : start + surplus + 1])]
    if len(cells) != len(columns):
        return None
    return dict(zip(columns, cells, strict=True))


def read_rows(text: str, columns: Sequence[str] = ()) -> Rows:
    """Rows of `text`. Without `columns` they are taken from its header line.

    A number at the very end of a text without line end is not believed.

    Raises:
        UnreadableAnswer: neither columns nor a header.
    """
    lines = [line for line in (raw.rstrip("\r") for raw in text.split("\n")) if line.strip()]
    lines = [line for line in lines if not line.startswith("$ ")]
    if not columns and lines:
        columns = _header(lines[0])
        lines = lines[1:]
    if not columns:
        raise UnreadableAnswer("no columns and no header line in the answer of nvidia-smi", text=text)
    found = [(line, None if trouble(line) else split_row(line, columns)) for line in lines]
    if found and found[-1][1] and not text.endswith("\n"):
        found[-1] = (found[-1][0], _without_half_number(found[-1][1], columns[-1]))
    return Rows(
        rows=tuple(row for _, row in found if row is not None),
        messages=tuple(line for line, row in found if row is None),
    )


def _without_half_number(row: dict[str, str], column: str) -> dict[str, str]:
    """The row without its last number: where the line end is missing, the number may have been cut."""
    return {**row, column: "(line end missing)"} if row[column][-1:].isdecimal() else row


def _header(line: str) -> tuple[str, ...]:
    """Column names of a header line, units dropped; empty when it is none."""
    names = tuple(_UNIT.sub("", cell.strip()) for cell in line.split(", "))
    known = {name for names_of_field in COLUMNS.values() for name in names_of_field}
    known.update(("timestamp", "pid", "process_name", *_MEMORY_OF_PROCESS))
    is_header = all(re.fullmatch(r"[A-Za-z_][\w.]*", name, re.ASCII) for name in names)
    return names if is_header and any(name in known for name in names) else ()


def read_gpu(row: Mapping[str, str]) -> Gpu:
    """The GPU of one row of `--query-gpu`."""
    cells = {
        field: tuple(row[name] for name in names if name in row)
        for field, names in COLUMNS.items()
        if any(name in row for name in names)
    }
    return gpu_of(cells)


def read_gpus(text: str, columns: Sequence[str] = ()) -> tuple[Gpu, ...]:
    """GPUs of a `--query-gpu` answer.

    Raises:
        UnreadableAnswer: nothing in it is a row.
    """
    found = read_rows(text, columns)
    if found.messages and not found.rows:
        raise UnreadableAnswer(f"no row in the answer of nvidia-smi: {found.messages[0]!r}", text=text)
    return tuple(read_gpu(row) for row in found.rows)


def read_processes(text: str, columns: Sequence[str] = ()) -> tuple[GpuProcess, ...]:
    """Processes of a `--query-compute-apps` answer. An empty answer does not mean that the cards are idle.

    Raises:
        UnreadableAnswer: nothing in it is a row.
    """
    found = read_rows(text, columns)
    if found.messages and not found.rows:
        raise UnreadableAnswer(f"no row in the answer of nvidia-smi: {found.messages[0]!r}", text=text)
    return tuple(_processes(found.rows))


def _processes(rows: Sequence[Mapping[str, str]]) -> Iterator[GpuProcess]:
    for row in rows:
        pid = count(row.get("pid", ""))
        name = row.get("process_name", "")
        uuid = row.get("gpu_uuid", "")
        used = [size(row[column]) for column in _MEMORY_OF_PROCESS if column in row]
        yield GpuProcess(
            pid=None if isinstance(pid, Absent) else pid,
            gpu_uuid=None if absence(uuid) else uuid,
            name=None if absence(name) else name,
            memory_used=next((value for value in used if not isinstance(value, Absent)), None),
        )
