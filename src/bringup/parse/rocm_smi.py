"""What `rocm-smi --json` says, to GPUs and their processes: the tool before amd-smi.

One object: `card0` and so on, each with the labels of the printed table as keys, and `system`. Every value is
text. The labels drift between releases in their letters' case and in words: power was "Average Graphics
Package Power" until MI300 brought "Current Socket Graphics Package Power".

Source: `rocm_smi.py` of rocm_smi_lib, outputs of ROCm 3.3 to 7.0 in public reports.
"""

import re
from collections.abc import Mapping
from typing import cast

from bringup.parse.gpu_figures import (
    BYTES,
    CELSIUS,
    LANES,
    MEGAHERTZ,
    WATT_LIMIT,
    WATTS,
    Told,
    capacity,
    measure,
    share,
    speed_generation,
    told_gpu,
    whole,
    word,
)
from bringup.parse.json_documents import json_documents
from bringup.parse.json_value import Json
from bringup.parse.nvidia_values import bus_id
from bringup.values.host import Absent, Gpu, GpuProcess

_CARD = re.compile(r"card(\d{1,4})", re.ASCII)
_PID = re.compile(r"PID(\d{1,10})", re.ASCII)
_LINK = re.compile(r"(\d+(?:\.\d+)?) ?GT/s,? x(\d+)", re.ASCII)
_PROCESS_COLUMNS = 4  # behind the name: GPUs, video memory, bytes moved, share of the compute units


def read_rocm_smi(text: str) -> tuple[Gpu, ...]:
    """The GPUs of an answer."""
    parts = _parts(text)
    driver = word(_labels(parts.get("system")).get("driver version"))
    cards = {int(match[1]): part for name, part in parts.items() if (match := _CARD.fullmatch(name))}
    return tuple(_gpu(index, _labels(part), driver) for index, part in sorted(cards.items()))


def _parts(text: str) -> dict[str, Json]:
    """The parts of all documents; of two with one name the first counts."""
    parts: dict[str, Json] = {}
    for document in json_documents(text):
        if isinstance(document, dict):
            parts = document | parts
    return parts


def _labels(part: Json) -> dict[str, Json]:
    """A card's values by label in small letters, without the colon that some end with."""
    if not isinstance(part, dict):
        return {}
    return {label.strip().lower().removesuffix(":"): value for label, value in part.items()}


def _gpu(index: int, labels: Mapping[str, Json], driver: Told) -> Gpu:
    speed, width = _link(labels)
    temperatures = {
        sensor: _told(labels, *(f"temperature (sensor {name}) (c)" for name in names))
        for sensor, names in {"edge": ("edge",), "hot": ("junction",), "mem": ("memory", "mem")}.items()
    }
    degrees = {sensor: tuple(measure(one, CELSIUS) for one in told) for sensor, told in temperatures.items()}
    fields: dict[str, tuple[Told, ...]] = {
        "uuid": tuple(word(one) for one in _told(labels, "unique id")),
        "bus_id": tuple(_address(one) for one in _told(labels, "pci bus")),
        "name": tuple(_name(one) for one in _told(labels, "device name", "card series", "card model")),
        "driver_version": (driver,),
        "vbios": tuple(word(one) for one in _told(labels, "vbios version")),
        "serial": tuple(word(one) for one in _told(labels, "serial number")),
        "memory_total": tuple(capacity(one, BYTES) for one in _told(labels, "vram total memory (b)")),
        "memory_used": tuple(whole(one, BYTES) for one in _told(labels, "vram total used memory (b)")),
        "utilization": tuple(share(one) for one in _told(labels, "gpu use (%)")),
        "memory_utilization": tuple(
            share(one) for one in _told(labels, "gpu memory read/write activity (%)")
        ),
        "power": tuple(
            measure(one, WATTS)
            for one in _told(
                labels,
                "current socket graphics package power (w)",
                "average graphics package power (w)",
                "average power (w)",
            )
        ),
        "power_limit": tuple(
            measure(one, WATT_LIMIT)
            for one in _told(labels, "max graphics package power (w)", "max power (w)")
        ),
        "temperature": (*degrees["edge"], *degrees["hot"]),
        "hotspot_temperature": degrees["hot"],
        "memory_temperature": degrees["mem"],
        "clock_sm": tuple(measure(one, MEGAHERTZ) for one in _told(labels, "sclk clock speed")),
        "clock_memory": tuple(measure(one, MEGAHERTZ) for one in _told(labels, "mclk clock speed")),
        "pcie_generation": (speed,),
        "pcie_width": (width,),
    }
    return told_gpu(fields, vendor="amd", index=index)


def _told(labels: Mapping[str, Json], *names: str) -> tuple[Json, ...]:
    """What stands under the first of these labels, then under the next."""
    return tuple(labels[name] for name in names if name in labels)


def _address(value: Json) -> Told:
    found = word(value)
    return found if not isinstance(found, str) else bus_id(found) or Absent(said=found)


def _name(value: Json) -> Told:
    """A name that says something: some cards have their number on the bus there."""
    found = word(value)
    return Absent(said=found) if isinstance(found, str) and found.startswith("0x") else found


def _link(labels: Mapping[str, Json]) -> tuple[Told, Told]:
    """Generation and lanes, from "1 (16.0GT/s x16)" or "8.0GT/s, x16 619Mhz"."""
    for told in _told(labels, "pcie clock level", "pcie clock speed"):
        match = _LINK.search(told) if isinstance(told, str) else None
        if match:
            return speed_generation(match[1]), whole(match[2], LANES)
    return None, None


def read_rocm_processes(text: str, gpus: tuple[Gpu, ...]) -> tuple[GpuProcess, ...]:
    """The processes that hold AMD GPUs. The tool says on how many, not on which: known where there is one."""
    only = gpus[0] if len(gpus) == 1 else None
    system = _parts(text).get("system")
    labels = cast("dict[str, Json]", system) if isinstance(system, dict) else {}
    return tuple(
        _process(int(match[1]), told, only)
        for label, told in labels.items()
        if (match := _PID.fullmatch(label)) and isinstance(told, str)
    )


def _process(pid: int, told: str, only: Gpu | None) -> GpuProcess:
    columns = told.rsplit(",", _PROCESS_COLUMNS)
    is_whole = len(columns) == _PROCESS_COLUMNS + 1
    name = word(columns[0]) if is_whole else None
    used = whole(columns[2], BYTES) if is_whole else None
    return GpuProcess(
        pid=pid,
        gpu_uuid=only.uuid if only else None,
        gpu_index=only.index if only else None,
        name=name if isinstance(name, str) else None,
        memory_used=used if isinstance(used, int) else None,
        vendor="amd",
    )
