"""What `xpu-smi discovery`, `stats`, `config` and `ps` say with `-j`, to GPUs and their processes.

Up to 1.3, statistics are a list of `{"metrics_type": "XPUM_STATS_POWER", "value": 44.69}` of the device and
one of each tile; from 2.0, an object per kind of figure with `tile_0` and so on in it, and no figure of the
device. Every property is text, "N/A" or "unknown" where there is none: on Arc cards most of them.

Source: `cli/src` of xpumanager 1.3.6, `ial/cmn` of 2.0.0, outputs in public reports.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from bringup.parse.gpu_figures import (
    BYTES,
    CELSIUS,
    COUNT,
    LANES,
    MEBIBYTES,
    MEGAHERTZ,
    PERCENT,
    WATT_LIMIT,
    WATTS,
    Kind,
    Told,
    capacity,
    generation,
    measure,
    told_gpu,
    whole,
    word,
)
from bringup.parse.json_documents import json_documents
from bringup.parse.json_value import Json, at, list_at
from bringup.parse.nvidia_values import bus_id
from bringup.units import KIB
from bringup.values.host import Absent, Gpu, GpuProcess

Numbers = list[float]
_OLD_KILO = 1000  # 1.x divides the bytes of a process by this, 2.0 by 1024
_ECC_WORDS = {"enabled": "Enabled", "disabled": "Disabled"}


def read_xpu_smi(discovery: str, details: str, statistics: str, settings: str) -> tuple[Gpu, ...]:
    """The GPUs that the answers tell of; only the first of them must be there.

    Each of `details`, `statistics` and `settings` holds one document per card.
    """
    devices = _by_index(discovery)
    more, figures, set_to = (_by_index(text) for text in (details, statistics, settings))
    return tuple(
        _gpu(index, devices.get(index), more.get(index), figures.get(index), set_to.get(index))
        for index in sorted(devices.keys() | more.keys())
    )


def _by_index(text: str) -> dict[int, Json]:
    """Each card's part of the documents; the first one counts."""
    cards: dict[int, Json] = {}
    for row in _rows(text):
        for name in ("device_id", "device_index"):
            index = whole(at(row, name), COUNT)
            if isinstance(index, int):
                cards.setdefault(index, row)
    return cards


def _rows(text: str) -> Iterator[Json]:
    for document in json_documents(text):
        if isinstance(document, list):
            yield from document
        elif list_at(document, "device_list"):
            yield from list_at(document, "device_list")
        else:
            yield document


def _gpu(index: int, device: Json, detail: Json, figures: Json, settings: Json) -> Gpu:
    def told(name: str) -> tuple[Json, Json]:
        return at(detail, name), at(device, name)

    fields: dict[str, tuple[Told, ...]] = {
        "uuid": tuple(word(one) for one in told("uuid")),
        "bus_id": tuple(_address(one) for one in told("pci_bdf_address")),
        "name": tuple(word(one) for one in told("device_name")),
        "driver_version": tuple(word(one) for one in told("driver_version")),
        "vbios": tuple(word(one) for one in told("gfx_firmware_version")),
        "serial": tuple(word(one) for one in told("serial_number")),
        "ecc_mode": tuple(_ecc(one) for one in told("memory_ecc_state")),
        "memory_total": (
            *(capacity(one, BYTES) for one in told("memory_physical_size_byte")),
            *(capacity(one, MEBIBYTES) for one in told("memory_physical_size")),
        ),
        "memory_free": _free(detail, figures),
        "pcie_generation_max": tuple(generation(one) for one in told("pcie_generation")),
        "pcie_width_max": tuple(whole(one, LANES) for one in told("pcie_max_link_width")),
        "power_limit": tuple(
            measure(at(settings, name), WATT_LIMIT)
            for name in ("power_limit", "pl_card_sustain", "pl_package_sustain")
        ),
        **_figures(figures),
    }
    return told_gpu(fields, vendor="intel", index=index)


def _address(value: Json) -> Told:
    found = word(value)
    return found if not isinstance(found, str) else bus_id(found) or Absent(said=found)


def _ecc(value: Json) -> Told:
    found = word(value)
    return _ECC_WORDS.get(found.lower(), found) if isinstance(found, str) else found


def _free(detail: Json, figures: Json) -> tuple[Told, ...]:
    """What the details say is free, where nothing says what is used: the two come at different moments."""
    used = _figures(figures)["memory_used"]
    if any(isinstance(one, int | float) for one in used):
        return ()
    return (whole(at(detail, "memory_free_size_byte"), BYTES),)


def _figures(figures: Json) -> Mapping[str, tuple[Told, ...]]:
    """What the card measures: power and memory are sums over its tiles, heat is the hottest one's."""

    def told(old: str, new: tuple[str, str], kind: Kind, join: Callable[[Numbers], float]) -> Told:
        device = _metric(list_at(figures, "device_level"), f"XPUM_STATS_{old}")
        first = measure(device, kind)
        if isinstance(first, float):
            return first
        tiles = [measure(one, kind) for one in (*_old_tiles(figures, old), *_new_tiles(at(figures, *new)))]
        numbers = [one for one in tiles if isinstance(one, float)]
        if numbers and len(numbers) == len(tiles):
            return join(numbers)
        return first or next((one for one in tiles if isinstance(one, Absent)), None)

    used = told("MEMORY_USED", ("memory", "used_mib"), MEBIBYTES, sum)
    busy = told("GPU_UTILIZATION", ("utilization", "gpu_percent"), PERCENT, fmean)
    band = told("MEMORY_BANDWIDTH", ("memory", "bandwidth_percent"), PERCENT, fmean)
    return {
        "memory_used": (round(used) if isinstance(used, float) else used,),
        "utilization": (busy / 100 if isinstance(busy, float) else busy,),
        "memory_utilization": (band / 100 if isinstance(band, float) else band,),
        "power": (told("POWER", ("power", "gpu_power_w"), WATTS, sum),),
        "temperature": (told("GPU_CORE_TEMPERATURE", ("temperature", "gpu_core_celsius"), CELSIUS, max),),
        "memory_temperature": (told("MEMORY_TEMPERATURE", ("temperature", "memory_celsius"), CELSIUS, max),),
        "clock_sm": (told("GPU_FREQUENCY", ("frequency", "gpu_frequency_mhz"), MEGAHERTZ, max),),
    }


def _metric(rows: list[Json], name: str) -> Json:
    """The value of one metric of a list of them; None when it is not in it."""
    return next((at(row, "value") for row in rows if at(row, "metrics_type") == name), None)


def _old_tiles(figures: Json, name: str) -> list[Json]:
    found = [
        _metric(list_at(tile, "data_list"), f"XPUM_STATS_{name}") for tile in list_at(figures, "tile_level")
    ]
    return [one for one in found if one is not None]


def _new_tiles(tiles: Json) -> list[Json]:
    """The current value of each tile; utilisation is a plain number there."""
    if not isinstance(tiles, dict):
        return []
    return [one if (now := at(one, "current")) is None else now for one in tiles.values()]


def read_xpu_processes(text: str, statistics: str, gpus: tuple[Gpu, ...]) -> tuple[GpuProcess, ...]:
    """The processes on each card, with their memory. The tool lists itself: it is left out.

    `statistics` tell the version, and that what a kilobyte of `mem_size` is.
    """
    is_old = any(list_at(row, "device_level") or list_at(row, "tile_level") for row in _rows(statistics))
    kilo = Kind(units={"": _OLD_KILO if is_old else KIB})
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    rows = (
        row
        for document in json_documents(text)
        for name in ("device_util_by_proc_list", "process_list")
        for row in list_at(document, name)
    )
    found = (_process(row, kilo, uuids) for row in rows)
    return tuple(one for one in found if one is not None and one.name not in {"xpu-smi", "xpumcli"})


def _process(row: Json, kilo: Kind, uuids: Mapping[int | None, str | None]) -> GpuProcess | None:
    pid, index = whole(at(row, "process_id"), COUNT), whole(at(row, "device_id"), COUNT)
    if not isinstance(pid, int):
        return None
    name, used = word(at(row, "process_name")), whole(at(row, "mem_size"), kilo)
    card = index if isinstance(index, int) else None
    return GpuProcess(
        pid=pid,
        gpu_uuid=uuids.get(card),
        gpu_index=card,
        name=name if isinstance(name, str) else None,
        memory_used=used if isinstance(used, int) else None,
        vendor="intel",
    )
