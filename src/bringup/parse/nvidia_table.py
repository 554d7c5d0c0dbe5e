"""The plain table of nvidia-smi, as a person pastes it.

Cells are taken by the table's own bars, so the widths of all drivers are read alike, and a line that lost a
bar is not read at all. Names are cut at about 24 characters (flagged), the driver's version is not taken from
the banner (its words changed with R610), and the reserved memory is not shown.

Source: recorded and pasted tables.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_values import absence, capacity, gpu_of, size
from bringup.values.host import Absent, Gpu, GpuInstance, GpuProcess

_FIRST = re.compile(r"(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|WDDM|TCC|MCDM|ERR!)", re.ASCII)
_PLACE = re.compile(r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+(?:On|Off|N/A|ERR!)")
_SENSORS = re.compile(r"\S+\s+(?P<heat>\S+)\s+(?P<state>\S+)\s+(?P<power>\S+)\s*/\s*(?P<limit>\S+)")
_MEMORY = re.compile(r"(?P<used>\d+MiB)\s*/\s*(?P<total>\d+MiB)", re.ASCII)
_LOAD = re.compile(r"(?P<load>\d+%|N/A|ERR!)\s+(?P<mode>\S.*)", re.ASCII)
_LOOSE = re.compile(rf"(?:{_SENSORS.pattern}\s+)?{_MEMORY.pattern}", re.ASCII)
_PROCESS = re.compile(
    r"\|\s*(?P<gpu>\d+)\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<type>[CGM](?:\+[CG])?)\s+"
    r"(?P<name>\S.*?)\s+(?P<used>\d+MiB|N/A)\s*\|",
    re.ASCII,
)
_INSTANCE = re.compile(
    r"\|\s*(?P<gpu>\d+)\s+(?P<instance>\d+)\s+(?P<compute>\d+)\s+(?P<device>\d+)\s*\|\s*"
    r"(?P<used>\d+MiB)\s*/\s*(?P<total>\d+MiB)\s*\|",
    re.ASCII,
)
_MODES = {"On": "Enabled", "Off": "Disabled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the table shows."""

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


def read_table(text: str) -> Table:
    """GPUs and processes of a table or of a part of it.

    Raises:
        UnreadableAnswer: no row of it is whole, as when a paste has lost its line breaks.
    """
    lines = [line.strip() for line in text.split("\n")]
    instances = tuple(_instances(lines))
    blocks = [_gpu(block, instances) for block in _blocks(lines)]
    loose = [gpu for gpu in map(_loose, lines) if gpu is not None]
    has_frame = any(line.startswith("| Processes:") and line.endswith("|") for line in lines)
    if not blocks and not loose and not instances and not has_frame:
        raise UnreadableAnswer("no whole row in the table of nvidia-smi", text=text)
    orphans = {instance.gpu_index for instance in instances} - {gpu.index for gpu in blocks}
    others = [
        Gpu(index=index, instances=tuple(each for each in instances if each.gpu_index == index))
        for index in sorted(index for index in orphans if index is not None)
    ]
    return Table(gpus=(*blocks, *loose, *others), processes=tuple(_processes(lines)))


def _cells(line: str) -> list[str]:
    """The three cells of a row that has all its bars."""
    is_row = line.startswith("|") and line.endswith("|") and len(line) > 1
    cells = [cell.strip() for cell in line[1:-1].split("|")] if is_row else []
    return cells if len(cells) == 3 else []


def _blocks(lines: Sequence[str]) -> Iterator[list[list[str]]]:
    """The two or three rows of each GPU."""
    block: list[list[str]] = []
    for line in lines:
        cells = _cells(line)
        is_first = bool(cells) and bool(_FIRST.fullmatch(cells[0])) and bool(_PLACE.fullmatch(cells[1]))
        if is_first or not cells:
            if block:
                yield block
            block = [cells] if is_first else []
        elif block:
            block.append(cells)
    if block:
        yield block


def _gpu(block: Sequence[Sequence[str]], instances: Sequence[GpuInstance]) -> Gpu:
    first = _FIRST.fullmatch(block[0][0])
    place = _PLACE.fullmatch(block[0][1])
    told: dict[str, str] = {}
    if first and place:
        told = {"index": first["index"], "name": first["name"], "bus_id": place["bus"]}
        if first["mode"] in ("On", "Off"):
            told["persistence_mode"] = _MODES[first["mode"]]
        told.update(_error_correction(block[0][2]))
    if len(block) > 1:
        told.update(_sensors(block[1][0]))
        told.update(_memory(block[1][1]))
        told.update(_load(block[1][2]))
    if len(block) > 2 and not block[2][0] and not block[2][1]:
        told["mig_mode"] = block[2][2]
    index = int(told["index"]) if "index" in told else None
    return gpu_of(
        {name: (text,) for name, text in told.items()},
        name_is_cut=told.get("name", "").endswith("..."),
        instances=tuple(instance for instance in instances if instance.gpu_index == index),
    )


def _error_correction(cell: str) -> dict[str, str]:
    """The cell "Volatile Uncorr. ECC" holds a count, or whether ECC is on."""
    return {"ecc_mode": _MODES[cell]} if cell in _MODES else {"ecc_uncorrected": cell}


def _sensors(cell: str) -> dict[str, str]:
    names = {"heat": "temperature", "state": "performance_state", "power": "power", "limit": "power_limit"}
    match = _SENSORS.fullmatch(cell)
    return {field: match[group] if match else cell for group, field in names.items()}


def _memory(cell: str) -> dict[str, str]:
    match = _MEMORY.fullmatch(cell)
    if match is None:
        return {"memory_used": cell, "memory_total": cell}
    return {"memory_used": match["used"], "memory_total": match["total"]}


def _load(cell: str) -> dict[str, str]:
    match = _LOAD.fullmatch(cell)
    if match is None:
        return {"utilization": cell}
    return {"utilization": match["load"], "compute_mode": match["mode"]}


def _loose(line: str) -> Gpu | None:
    """A row that was quoted without its frame."""
    match = _LOOSE.fullmatch(line)
    if match is None:
        return None
    told = {"memory_used": match["used"], "memory_total": match["total"]}
    if match["heat"]:
        told |= {"temperature": match["heat"], "performance_state": match["state"]}
        told |= {"power": match["power"], "power_limit": match["limit"]}
    return gpu_of({name: (text,) for name, text in told.items()})


def _instances(lines: Sequence[str]) -> Iterator[GpuInstance]:
    for match in filter(None, map(_INSTANCE.match, lines)):
        used, total = size(match["used"]), capacity(match["total"])
        yield GpuInstance(
            gpu_index=int(match["gpu"]),
            gpu_instance=int(match["instance"]),
            compute_instance=int(match["compute"]),
            device=int(match["device"]),
            memory_used=None if isinstance(used, Absent) else used,
            memory_total=None if isinstance(total, Absent) else total,
        )


def _processes(lines: Sequence[str]) -> Iterator[GpuProcess]:
    start = next((place for place, line in enumerate(lines) if line.startswith("| Processes:")), len(lines))
    for match in filter(None, map(_PROCESS.fullmatch, lines[start:])):
        used = size(match["used"])
        yield GpuProcess(
            pid=int(match["pid"]),
            gpu_index=int(match["gpu"]),
            name=None if absence(match["name"]) else match["name"],
            memory_used=None if isinstance(used, Absent) else used,
        )


def instances_memory_used(instances: Sequence[GpuInstance]) -> int | None:
    """Bytes that the MIG devices of one card use: compute instances repeat the figure of their GPU instance.

    None when one of them does not say.
    """
    used = {instance.gpu_instance: instance.memory_used for instance in instances}
    figures = [figure for figure in used.values() if figure is not None]
    return sum(figures) if figures and len(figures) == len(used) else None
