"""What `amd-smi list`, `static`, `metric` and `process` say with `--json`, to GPUs and their processes.

The shape changes with every release: up to ROCm 6.4 a list of cards, from 7.0 an object with that list in
`gpu_data`; plain numbers in 6.0, `{"value": 300, "unit": "W"}` later; the power limit in `power`,
`current_power`, `socket_power` and, from 7.2, in `ppt0`; clocks in `gfx` and then in `gfx_0`, one per
accelerator die. What a release does not know is `"N/A"`, or the whole part is.

Source: `amdsmi_cli/amdsmi_commands.py` of ROCm 6.0.0, 6.1.0 and 6.2.4, the changelog of amd_smi_lib to 7.2,
outputs of 6.3 to 7.14 in public reports.
"""

import re
from collections.abc import Iterator, Mapping

from bringup.parse.gpu_figures import (
    BYTES,
    CELSIUS,
    COUNT,
    LANES,
    MEBIBYTES,
    MEGAHERTZ,
    WATT_LIMIT,
    WATTS,
    Told,
    capacity,
    generation,
    measure,
    share,
    speed_generation,
    told_gpu,
    whole,
    word,
)
from bringup.parse.json_documents import json_documents
from bringup.parse.json_value import Json, at, list_at
from bringup.parse.nvidia_values import bus_id
from bringup.values.host import Absent, Gpu, GpuProcess

_KERNEL = re.compile(r"Linux ?version ?([\w.+-]+)", re.ASCII)
_MOST_DIES = 16
_ECC_WORDS = {"ENABLED": "Enabled", "DISABLED": "Disabled"}


def read_amd_smi(listing: str, static: str, metric: str) -> tuple[Gpu, ...]:
    """The GPUs that three answers of amd-smi tell of; any of them may be empty."""
    answers = tuple(_by_index(text) for text in (listing, static, metric))
    indices = sorted({index for answer in answers for index in answer})
    return tuple(_gpu(index, *(answer.get(index) for answer in answers)) for index in indices)


def _by_index(text: str) -> dict[int, Json]:
    """Each card's part of an answer; the first one counts."""
    cards: dict[int, Json] = {}
    for document in json_documents(text):
        for row in _rows(document):
            index = whole(at(row, "gpu"), COUNT)
            if isinstance(index, int):
                cards.setdefault(index, row)
    return cards


def _rows(document: Json) -> Iterator[Json]:
    """The cards of one document: a list of them, an object that holds the list, or a single card."""
    if isinstance(document, list):
        yield from document
    elif list_at(document, "gpu_data"):
        yield from list_at(document, "gpu_data")
    else:
        yield document


def _gpu(index: int, listing: Json, static: Json, metric: Json) -> Gpu:
    fields = {
        **_identity(listing, static),
        **_memory(static, metric),
        **_power(static, metric),
        **_link(static, metric),
        **_errors(static, metric),
    }
    return told_gpu(fields, vendor="amd", index=index)


def _identity(listing: Json, static: Json) -> Mapping[str, tuple[Told, ...]]:
    return {
        "uuid": (word(at(listing, "uuid")), word(at(static, "uuid"))),
        "bus_id": (_address(at(listing, "bdf")), _address(at(static, "bus", "bdf"))),
        "name": (word(at(static, "asic", "market_name")), word(at(static, "board", "product_name"))),
        "driver_version": (
            _driver(at(static, "driver", "version")),
            _driver(at(static, "driver", "driver_version")),
        ),
        "vbios": (word(at(static, "ifwi", "version")), word(at(static, "vbios", "version"))),
        "serial": (word(at(static, "board", "product_serial")),),
    }


def _address(value: Json) -> str | Absent | None:
    found = word(value)
    return found if not isinstance(found, str) else bus_id(found) or Absent(said=found)


def _driver(value: Json) -> Told:
    """Its version; the one that comes with the kernel gives the kernel's whole banner without the spaces."""
    found = word(value)
    match = _KERNEL.match(found) if isinstance(found, str) else None
    return match[1] if match else found


def _memory(static: Json, metric: Json) -> Mapping[str, tuple[Told, ...]]:
    return {
        "memory_total": (
            capacity(at(metric, "mem_usage", "total_vram"), MEBIBYTES),
            capacity(at(metric, "fb_usage", "vram_total"), MEBIBYTES),
            capacity(at(static, "vram", "size"), MEBIBYTES),
            capacity(at(static, "vram", "vram_size_mb"), MEBIBYTES),
        ),
        "memory_used": (
            whole(at(metric, "mem_usage", "used_vram"), MEBIBYTES),
            whole(at(metric, "fb_usage", "vram_used"), MEBIBYTES),
        ),
        "memory_free": (whole(at(metric, "mem_usage", "free_vram"), MEBIBYTES),),
    }


def _power(static: Json, metric: Json) -> Mapping[str, tuple[Told, ...]]:
    draws = ("socket_power", "current_power", "current_socket_power", "average_socket_power")
    limits = (("ppt0", "socket_power_limit"), ("socket_power",), ("current_power",), ("power",))
    return {
        "utilization": (share(at(metric, "usage", "gfx_activity")), share(at(metric, "usage", "gfx_usage"))),
        "memory_utilization": (share(at(metric, "usage", "umc_activity")),),
        "power": tuple(measure(at(metric, "power", name), WATTS) for name in draws),
        "power_limit": tuple(measure(at(static, "limit", *path), WATT_LIMIT) for path in limits),
        # A card whose edge has no sensor (Instinct MI300) tells the hottest point alone.
        "temperature": tuple(
            measure(at(metric, "temperature", name), CELSIUS) for name in ("edge", "hotspot", "junction")
        ),
        "hotspot_temperature": tuple(
            measure(at(metric, "temperature", name), CELSIUS) for name in ("hotspot", "junction")
        ),
        "memory_temperature": tuple(
            measure(at(metric, "temperature", name), CELSIUS) for name in ("mem", "vram")
        ),
        "clock_sm": _clock(at(metric, "clock"), "gfx"),
        "clock_memory": _clock(at(metric, "clock"), "mem"),
    }


def _clock(clocks: Json, name: str) -> tuple[Told, ...]:
    """The fastest die's clock; the words that stand there when none has one."""
    told: list[Told] = []
    for key in (name, *(f"{name}_{die}" for die in range(_MOST_DIES))):
        told += [measure(at(clocks, key, field), MEGAHERTZ) for field in ("clk", "cur_clk")]
    running = [clock for clock in told if isinstance(clock, float)]
    return (max(running),) if running else tuple(told)


def _link(static: Json, metric: Json) -> Mapping[str, tuple[Told, ...]]:
    link, bus = at(metric, "pcie"), at(static, "bus")
    return {
        "pcie_generation": tuple(speed_generation(at(link, name)) for name in ("speed", "current_speed")),
        "pcie_generation_max": (
            generation(at(bus, "pcie_interface_version")),
            speed_generation(at(bus, "max_pcie_speed")),
        ),
        "pcie_width": tuple(whole(at(link, name), LANES) for name in ("width", "current_lanes")),
        "pcie_width_max": tuple(whole(at(bus, name), LANES) for name in ("max_pcie_width", "max_pcie_lanes")),
    }


def _errors(static: Json, metric: Json) -> Mapping[str, tuple[Told, ...]]:
    counts = ("total_uncorrectable_count", "total_uncorrectable", "uncorrectable")
    return {
        "ecc_mode": (_ecc(at(static, "ras", "ecc_block_state")),),
        "ecc_uncorrected": tuple(whole(at(metric, "ecc", name), COUNT) for name in counts),
    }


def _ecc(states: Json) -> Told:
    """Whether the memory's controller corrects errors, in the words that nvidia-smi has for it."""
    if isinstance(states, list):
        states = {name: at(row, "status") for row in states if isinstance(name := at(row, "block"), str)}
    found = word(states if isinstance(states, str) else at(states, "UMC"))
    return _ECC_WORDS.get(found, found) if isinstance(found, str) else found


def read_amd_processes(text: str, gpus: tuple[Gpu, ...]) -> tuple[GpuProcess, ...]:
    """The processes on each card, with their video memory."""
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    return tuple(
        process
        for index, row in sorted(_by_index(text).items())
        for entry in (*list_at(row, "process_list"), *list_at(row, "processes"))
        if (process := _process(at(entry, "process_info") or entry, index, uuids.get(index))) is not None
    )


def _process(info: Json, index: int, uuid: str | None) -> GpuProcess | None:
    """One process; None for the words "No running processes detected" and whatever else has no number."""
    pid = whole(at(info, "pid"), COUNT)
    if not isinstance(pid, int):
        return None
    texts = [at(info, "memory_usage", "vram_mem"), at(info, "vram_mem"), at(info, "mem_usage")]
    sizes = [whole(text, BYTES) for text in texts if text is not None]
    name = word(at(info, "name"))
    return GpuProcess(
        pid=pid,
        gpu_uuid=uuid,
        gpu_index=index,
        name=name if isinstance(name, str) else None,
        memory_used=sizes[0] if sizes and isinstance(sizes[0], int) else None,
        vendor="amd",
    )
