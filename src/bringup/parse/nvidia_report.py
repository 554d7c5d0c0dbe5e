"""`nvidia-smi -q` (indented text) and `-q -x` (XML, DTD v10 to v13): everything a card says of itself.

Source: recorded reports and the DTDs that their first lines name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element, ParseError, fromstring

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_list import read_driver_version
from bringup.parse.nvidia_values import absence, capacity, count, gpu_of, size, version
from bringup.values.host import Absent, Gpu, GpuInstance, GpuProcess

# Field of `Gpu` <- paths in the text, the best first. A path that ends early covers "Remapped Rows : N/A".
_TEXT_PATHS: Mapping[str, tuple[str, ...]] = {
    "name": ("Product Name",),
    "uuid": ("GPU UUID",),
    "minor": ("Minor Number",),
    "vbios": ("VBIOS Version",),
    "serial": ("Serial Number",),
    "persistence_mode": ("Persistence Mode",),
    "performance_state": ("Performance State",),
    "compute_mode": ("Compute Mode",),
    "recovery_action": ("GPU Recovery Action",),
    "mig_mode": ("MIG Mode/Current", "MIG Mode"),
    "ecc_mode": ("ECC Mode/Current", "ECC Mode", "Ecc Mode/Current"),
    "memory_total": ("FB Memory Usage/Total",),
    "memory_reserved": ("FB Memory Usage/Reserved",),
    "memory_used": ("FB Memory Usage/Used",),
    "memory_free": ("FB Memory Usage/Free",),
    "utilization": ("Utilization/GPU", "Utilization/Gpu"),
    "memory_utilization": ("Utilization/Memory",),
    "temperature": ("Temperature/GPU Current Temp",),
    "memory_temperature": ("Temperature/Memory Current Temp",),
    "power": (
        "GPU Power Readings/Power Draw",
        "GPU Power Readings/Average Power Draw",
        "GPU Power Readings/Instantaneous Power Draw",
        "Power Readings/Power Draw",
    ),
    "power_limit": (
        "GPU Power Readings/Current Power Limit",
        "GPU Power Readings/GPU Ceiling Power Limit/Current Power Limit",  # R610
        "Power Readings/Enforced Power Limit",
    ),
    "power_limit_default": (
        "GPU Power Readings/Default Power Limit",
        "GPU Power Readings/GPU Ceiling Power Limit/Default Power Limit",
        "Power Readings/Default Power Limit",
    ),
    "temperature_margin": ("Temperature/GPU T.Limit Temp",),
    "clock_sm_max": ("Max Clocks/SM",),
    "clock_memory_max": ("Max Clocks/Memory",),
    "pcie_generation_card": ("PCI/GPU Link Info/PCIe Generation/Device Max",),
    "pcie_generation_host": ("PCI/GPU Link Info/PCIe Generation/Host Max",),
    "ecc_mode_pending": ("ECC Mode/Pending", "Ecc Mode/Pending"),
    "mig_mode_pending": ("MIG Mode/Pending",),
    "remapped_rows": ("Remapped Rows/Uncorrectable Error",),
    "fabric_status": ("Fabric/Status",),
    "clock_sm": ("Clocks/SM",),
    "clock_memory": ("Clocks/Memory",),
    "pcie_generation": ("PCI/GPU Link Info/PCIe Generation/Current",),
    "pcie_generation_max": ("PCI/GPU Link Info/PCIe Generation/Max",),
    "pcie_width": ("PCI/GPU Link Info/Link Width/Current",),
    "pcie_width_max": ("PCI/GPU Link Info/Link Width/Max",),
    "remapped_rows_pending": ("Remapped Rows/Pending", "Remapped Rows"),
    "remapped_rows_failure": ("Remapped Rows/Remapping Failure Occurred", "Remapped Rows"),
    "fabric_state": ("Fabric/State",),
}

_XML_PATHS: Mapping[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "minor": ("minor_number",),
    "vbios": ("vbios_version",),
    "serial": ("serial",),
    "persistence_mode": ("persistence_mode",),
    "performance_state": ("performance_state",),
    "compute_mode": ("compute_mode",),
    "recovery_action": ("gpu_recovery_action",),
    "mig_mode": ("mig_mode/current_mig",),
    "ecc_mode": ("ecc_mode/current_ecc",),
    "memory_total": ("fb_memory_usage/total",),
    "memory_reserved": ("fb_memory_usage/reserved",),
    "memory_used": ("fb_memory_usage/used",),
    "memory_free": ("fb_memory_usage/free",),
    "utilization": ("utilization/gpu_util",),
    "memory_utilization": ("utilization/memory_util",),
    "temperature": ("temperature/gpu_temp",),
    "memory_temperature": ("temperature/memory_temp",),
    "power": (
        "gpu_power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
        "power_readings/power_draw",
    ),
    # R535 renamed enforced/power_limit to current/requested_power_limit.
    "power_limit": ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"),
    "power_limit_default": ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    "temperature_margin": ("temperature/gpu_temp_tlimit",),
    "clock_sm_max": ("max_clocks/sm_clock",),
    "clock_memory_max": ("max_clocks/mem_clock",),
    "pcie_generation_card": ("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",),
    "pcie_generation_host": ("pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",),
    "ecc_mode_pending": ("ecc_mode/pending_ecc",),
    "mig_mode_pending": ("mig_mode/pending_mig",),
    "remapped_rows": ("remapped_rows/remapped_row_unc",),
    "fabric_status": ("fabric/status",),
    "clock_sm": ("clocks/sm_clock",),
    "clock_memory": ("clocks/mem_clock",),
    "pcie_generation": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie_generation_max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "pcie_width": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "remapped_rows_pending": ("remapped_rows/remapped_row_pending", "remapped_rows"),
    "remapped_rows_failure": ("remapped_rows/remapped_row_failure", "remapped_rows"),
    "fabric_state": ("fabric/state",),
}

_CARD = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (\d+)\s*$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a full report says."""

    driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str  # names joined by "/"
    text: str


def read_text_report(text: str) -> Report:
    """GPUs and processes of `-q`, or of a part of it.

    Raises:
        UnreadableAnswer: neither a card nor a process is in it.
    """
    lines = text.replace("\r", "").split("\n")[:-1]  # a last line without end may hold half a number
    driver = read_driver_version("\n".join(lines))
    starts = [place for place, line in enumerate(lines) if _CARD.fullmatch(line.strip())]
    attached = _ATTACHED.search(text)
    is_complete = attached is not None and int(attached[1]) == len(starts)
    gpus: list[Gpu] = []
    processes: list[GpuProcess] = []
    for place, (start, stop) in enumerate(pairwise([*starts, len(lines)])):
        entries = list(_entries(lines[start + 1 : stop]))
        gpu = _card(
            entries, lines[start].strip().removeprefix("GPU "), place if is_complete else None, driver
        )
        gpus.append(gpu)
        processes.extend(_text_processes(entries, gpu))
    if not starts:
        processes.extend(_text_processes(list(_entries(lines)), None))
    if not gpus and not processes:
        raise UnreadableAnswer("no GPU in the report of nvidia-smi -q", text=text)
    return Report(driver_version=driver, gpus=tuple(gpus), processes=tuple(processes))


def _entries(lines: Sequence[str]) -> Iterator[_Entry]:
    """Keys with their path by indentation, in the order of the text; a heading has the empty text."""
    above: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        key, colon, text = line.strip().partition(" : ")
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, key.strip()))
        if colon:
            yield _Entry(path="/".join(name for _, name in above), text=text.strip())


def _card(entries: Sequence[_Entry], bus: str, index: int | None, driver: str | None) -> Gpu:
    told = {entry.path: entry.text for entry in entries}
    cells = {"bus_id": (bus,), **_cells(told, _TEXT_PATHS)}
    if index is not None:
        cells["index"] = (str(index),)
    if driver is not None:
        cells["driver_version"] = (driver,)
    return gpu_of(cells, instances=tuple(_text_instances(entries, index)))


def _cells(told: Mapping[str, str], paths: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Texts of each field of `Gpu` whose paths are there."""
    return {
        field: tuple(told[path] for path in places if path in told)
        for field, places in paths.items()
        if any(path in told for path in places)
    }


def _text_instances(entries: Sequence[_Entry], index: int | None) -> Iterator[GpuInstance]:
    groups: list[dict[str, str]] = []
    for entry in entries:
        if entry.path == "MIG Device/Index":
            groups.append({})
        if groups and entry.path.startswith("MIG Device/"):
            groups[-1][entry.path.removeprefix("MIG Device/").removeprefix("Shared ")] = entry.text
    for told in groups:
        yield _instance(
            index,
            (told.get("GPU Instance ID", ""), told.get("Compute Instance ID", ""), told.get("Index", "")),
            used=told.get("FB Memory Usage/Used", ""),
            total=told.get("FB Memory Usage/Total", ""),
        )


def _instance(index: int | None, numbers: tuple[str, str, str], *, used: str, total: str) -> GpuInstance:
    gpu_instance, compute_instance, device = (_number(count(text)) for text in numbers)
    return GpuInstance(
        gpu_index=index,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        device=device,
        memory_used=_number(size(used)),
        memory_total=_number(capacity(total)),
    )


def _number(found: int | Absent) -> int | None:
    return None if isinstance(found, Absent) else found


def _text_processes(entries: Sequence[_Entry], gpu: Gpu | None) -> Iterator[GpuProcess]:
    groups: list[dict[str, str]] = []
    for entry in entries:
        key = entry.path.rsplit("/", 1)[-1]
        if key == "Process ID":
            groups.append({})
        if groups:
            groups[-1].setdefault(key, entry.text)
    for told in groups:
        yield _process(told["Process ID"], told.get("Name", ""), told.get("Used GPU Memory", ""), gpu)


def _process(pid: str, name: str, used: str, gpu: Gpu | None) -> GpuProcess:
    return GpuProcess(
        pid=_number(count(pid)),
        gpu_uuid=None if gpu is None else gpu.uuid,
        gpu_index=None if gpu is None else gpu.index,
        name=None if absence(name) else name,
        memory_used=_number(size(used)),
    )


def read_xml_report(text: str) -> Report:
    """GPUs and processes of `-q -x`.

    Raises:
        UnreadableAnswer: not this XML; without a driver plain text comes instead.
    """
    if "<!ENTITY" in text:
        raise UnreadableAnswer(
            "the report of nvidia-smi -q -x defines entities, which it never does", text=text
        )
    try:
        root = fromstring(text.strip())  # noqa: S314 - entities, the one danger, are refused above
    except (ParseError, ValueError) as error:
        raise UnreadableAnswer(f"the report of nvidia-smi -q -x is not XML: {error}", text=text) from None
    cards = root.findall("gpu")
    if root.tag != "nvidia_smi_log" or not cards:
        raise UnreadableAnswer("no GPU in the report of nvidia-smi -q -x", text=text)
    driver = version(root.findtext("kmd_version") or root.findtext("driver_version") or "")
    told = driver if not isinstance(driver, Absent) else None
    is_complete = (root.findtext("attached_gpus") or "").strip() == str(len(cards))
    gpus: list[Gpu] = []
    processes: list[GpuProcess] = []
    for place, card in enumerate(cards):
        gpu = _xml_card(card, place if is_complete else None, told)
        gpus.append(gpu)
        processes.extend(_xml_processes(card, gpu))
    return Report(driver_version=told, gpus=tuple(gpus), processes=tuple(processes))


def _xml_card(card: Element, index: int | None, driver: str | None) -> Gpu:
    paths = {path for places in _XML_PATHS.values() for path in places}
    found = {path: card.find(path) for path in paths}
    told = {
        path: element.text or ""
        for path, element in found.items()
        if element is not None and not len(element)
    }
    cells = {"bus_id": (card.get("id", ""),), **_cells(told, _XML_PATHS)}
    if index is not None:
        cells["index"] = (str(index),)
    if driver is not None:
        cells["driver_version"] = (driver,)
    instances = tuple(
        _instance(
            index,
            (
                part.findtext("gpu_instance_id") or "",
                part.findtext("compute_instance_id") or "",
                part.findtext("index") or "",
            ),
            used=part.findtext("fb_memory_usage/used") or "",
            total=part.findtext("fb_memory_usage/total") or "",
        )
        for part in card.findall("mig_devices/mig_device")
    )
    return gpu_of(cells, instances=instances)


def _xml_processes(card: Element, gpu: Gpu) -> Iterator[GpuProcess]:
    for process in card.findall("processes/process_info"):
        yield _process(
            process.findtext("pid") or "",
            process.findtext("process_name") or "",
            process.findtext("used_memory") or "",
            gpu,
        )
