"""Versions of the NVIDIA driver's parts and of the CUDA libraries that running programs have in memory.

Source: `nvidia-smi --version` (drivers 525 to 610), /proc/driver/nvidia/version, modinfo(8), proc(5) `maps`.
"""

import re

from bringup.parse.nvidia_frame import module_version
from bringup.parse.sections import first_line, read_sections
from bringup.values.host import GpuDriver, MappedLibrary

_LINE = re.compile(r"(?P<key>[A-Za-z -]+?)\s*:\s*(?P<value>\d+(?:\.\d+)+)(?:\s.*)?", re.ASCII)
_MAPPED = re.compile(
    r"/proc/(?P<pid>\d+)/maps:/\S*/(?P<name>libcudart|libcuda(?=[.]))[^/.]*\.so\.(?P<version>\d+(?:\.\d+)*)",
    re.ASCII,
)
_RELEASE = re.compile(r"\d{3}\.\d+(?:\.\d+)?", re.ASCII)


def read_driver(text: str) -> GpuDriver | None:
    r"""What the driver's parts say of their versions; None when nothing does.

    >>> read_driver("@@ installed\n595.58.03\n@@ tool\nNVML version        : 590.48\n")
    GpuDriver(module=None, is_open=None, installed='595.58.03', library='590.48', cuda=None, mapped=())
    """
    sections = read_sections(text)
    module = sections.get("module", "")
    told = _told(sections.get("tool", ""))
    installed = first_line(sections.get("installed")) or ""
    found = GpuDriver(
        module=module_version(first_line(module) or ""),
        is_open="Open Kernel Module" in module if module else None,
        installed=installed if _RELEASE.fullmatch(installed) else None,
        library=told.get("nvml version") or told.get("nvml library version"),
        cuda=told.get("cuda umd version") or told.get("cuda version"),
        mapped=_mapped(sections.get("mapped", "")),
    )
    return None if found == GpuDriver() else found


def _told(text: str) -> dict[str, str]:
    """Versions by the words before them, in lower case."""
    matches = filter(None, (_LINE.fullmatch(line.strip()) for line in text.split("\n")))
    return {match["key"].strip().lower(): match["value"] for match in matches}


def _mapped(text: str) -> tuple[MappedLibrary, ...]:
    matches = filter(None, (_MAPPED.fullmatch(line.strip()) for line in text.split("\n")))
    return tuple(
        MappedLibrary(pid=int(match["pid"]), name=match["name"], version=match["version"])
        for match in matches
    )
