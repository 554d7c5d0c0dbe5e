"""What the kernel's amdgpu driver says of its cards in `/sys/class/drm`, to GPUs.

Each card has a section named like its PCI address, with lines `FILE VALUE`; sensors of `hwmon` stand there
under their own names. The link of the card's own function is not asked: cards with a switch in front of it
show the link inside the card there. `pp_dpm_pcie` has the one to the slot, the line with a star.

Source: `Documentation/gpu/amdgpu/driver-misc.rst` and `thermal.rst`,
`Documentation/hwmon/sysfs-interface.rst` of the kernel.
"""

import re
from collections.abc import Mapping

from bringup.parse.gpu_figures import (
    BYTES,
    CELSIUS,
    LANES,
    MEGAHERTZ,
    WATT_LIMIT,
    WATTS,
    Kind,
    Told,
    capacity,
    measure,
    share,
    speed_generation,
    told_gpu,
    whole,
    word,
)
from bringup.parse.nvidia_values import bus_id
from bringup.parse.sections import read_sections
from bringup.values.host import Absent, Gpu

_LINK = re.compile(r"(\d+(?:\.\d+)?) ?GT/s,? x(\d+).*\*\s*$", re.ASCII)
_MICRO, _MILLI, _MEGA = 1e-6, 1e-3, 1e-6


def read_amdgpu(text: str) -> tuple[Gpu, ...]:
    """The cards that the driver has. Their indices are unknown: the tools count in an order of their own."""
    cards = {address: part for name, part in read_sections(text).items() if (address := bus_id(name))}
    return tuple(_gpu(address, part) for address, part in sorted(cards.items()))


def _gpu(address: str, text: str) -> Gpu:
    lines = [line.partition(" ") for line in text.split("\n")]
    files = {name: value.strip() for name, _, value in lines if value.strip()}
    link = next(
        (match for name, _, value in lines if name == "pp_dpm_pcie" and (match := _LINK.search(value))), None
    )
    sensors = _sensors(files)
    edge, hot, memory = (
        _scaled(sensors.get(f"{name}_input"), CELSIUS, _MILLI) for name in ("edge", "junction", "mem")
    )
    unique = files.get("unique_id")
    fields: dict[str, tuple[Told, ...]] = {
        "bus_id": (address,),
        "uuid": (f"0x{unique}" if unique and re.fullmatch(r"[0-9a-f]{1,16}", unique) else None,),
        "name": (word(files.get("product_name")),),
        "serial": (word(files.get("serial_number")),),
        "vbios": (word(files.get("vbios_version")),),
        "driver_version": (word(files.get("module_version")),),
        "memory_total": (capacity(files.get("mem_info_vram_total"), BYTES),),
        "memory_used": (whole(files.get("mem_info_vram_used"), BYTES),),
        "utilization": (share(files.get("gpu_busy_percent")),),
        "memory_utilization": (share(files.get("mem_busy_percent")),),
        "power": tuple(
            _scaled(files.get(name), WATTS, _MICRO) for name in ("power1_average", "power1_input")
        ),
        "power_limit": (_scaled(files.get("power1_cap"), WATT_LIMIT, _MICRO),),
        "temperature": (edge, hot),
        "hotspot_temperature": (hot,),
        "memory_temperature": (memory,),
        "clock_sm": (_scaled(sensors.get("sclk_input"), MEGAHERTZ, _MEGA),),
        "clock_memory": (_scaled(sensors.get("mclk_input"), MEGAHERTZ, _MEGA),),
        "pcie_generation": (speed_generation(link[1]) if link else None,),
        "pcie_width": (whole(link[2], LANES) if link else None,),
    }
    return told_gpu(fields, vendor="amd", index=None)


def _sensors(files: Mapping[str, str]) -> dict[str, str]:
    """Readings by what their label says they are: `temp2_label junction` names `temp2_input`."""
    named = {name.removesuffix("_label"): value for name, value in files.items() if name.endswith("_label")}
    return {
        f"{label}_input": files[f"{sensor}_input"]
        for sensor, label in named.items()
        if f"{sensor}_input" in files
    }


def _scaled(text: str | None, kind: Kind, factor: float) -> float | Absent | None:
    """A whole number of a small unit in the unit of its kind."""
    found = whole(text, BYTES)
    return measure(found * factor, kind) if isinstance(found, int) else found
