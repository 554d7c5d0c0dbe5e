"""`nvidia-smi -L`, `nvlink -s` and `--version`: short lists, a line per thing.

Source: recorded answers of nvidia-smi.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_values import version
from bringup.values.host import Absent, Gpu, GpuInstance

_GPU = re.compile(
    r"GPU (?P<index>\d+): (?P<name>(?!.*\(UUID: [^)]*$)\S.*?)(?:\s*\(UUID: (?P<uuid>[^()\s]+)\))?", re.ASCII
)
_MIG = re.compile(r"MIG (?P<profile>\S+)\s+Device\s+(?P<device>\d+): \(UUID: (?P<uuid>[^()\s]+)\)", re.ASCII)
_LINK = re.compile(r"Link (?P<link>\d+): (?:(?P<rate>\d+(?:\.\d+)?) GB/s|<inactive>)", re.ASCII)
_VERSION = re.compile(r"(?:KMD version|DRIVER version|Driver Version)\s*: (?P<text>.*)", re.IGNORECASE)


def read_list(text: str) -> tuple[Gpu, ...]:
    """GPUs of `-L` with their MIG devices. On Jetson a UUID has no `GPU-` before it.

    Raises:
        UnreadableAnswer: no line names a GPU.
    """
    gpus: list[Gpu] = []
    for line in text.split("\n"):
        card = _GPU.fullmatch(line.strip())
        part = _MIG.fullmatch(line.strip())
        if card:
            gpus.append(Gpu(index=int(card["index"]), name=card["name"], uuid=card["uuid"]))
        elif part and gpus:
            instance = GpuInstance(
                gpu_index=gpus[-1].index,
                device=int(part["device"]),
                uuid=part["uuid"],
                profile=part["profile"],
            )
            gpus[-1] = replace(gpus[-1], instances=(*gpus[-1].instances, instance))
    if not gpus:
        raise UnreadableAnswer("no GPU in the list of nvidia-smi -L", text=text)
    return tuple(gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinks:
    """The NVLinks of one GPU. `said` holds what stands in their place: MIG mode, no NVLink, all inactive."""

    gpu_index: int
    uuid: str | None = None
    rates: dict[int, float | None] = field(
        default_factory=dict[int, "float | None"]
    )  # bytes/s, None: inactive
    said: str | None = None


def read_nvlinks(text: str) -> tuple[NvLinks, ...]:
    """Links by GPU; a card without NVLink has none. An empty answer is a host without NVLink."""
    found: list[NvLinks] = []
    for line in (raw.strip() for raw in text.split("\n")):
        card = _GPU.fullmatch(line)
        link = _LINK.fullmatch(line)
        if card:
            found.append(NvLinks(gpu_index=int(card["index"]), uuid=card["uuid"]))
        elif link and found:
            rate = float(link["rate"]) * 1e9 if link["rate"] else None
            found[-1] = replace(found[-1], rates={**found[-1].rates, int(link["link"]): rate})
        elif line and found and not line.startswith("Link "):
            found[-1] = replace(found[-1], said=found[-1].said or line)
    return tuple(found)


def read_driver_version(text: str) -> str | None:
    """The driver's version in `--version` or at the head of `-q`, whatever R610 has glued to it."""
    return _first_version(text.split("\n"))


def _first_version(lines: Sequence[str]) -> str | None:
    for match in filter(None, (_VERSION.fullmatch(line.strip()) for line in lines)):
        found = version(match["text"])
        if not isinstance(found, Absent):
            return found
    return None
