"""One cell of nvidia-smi's output to a value, or to a typed absence that keeps the driver's words.

The driver has at least a dozen ways to say "no value": `[N/A]`, `N/A`, `[Not Supported]`, `Not Supported`,
`[Unknown Error]`, `[GPU requires reset]`, `[Insufficient Permissions]`, `[Function Not Found]`,
`[Requested functionality has been deprecated]`, `ERR!`, `Not available in WDDM driver model` and nothing at
all. A number is read from a number with a unit of its kind and from nothing else.

Source: recorded answers and the strings of the binaries.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bringup.units import GIB, KIB, MIB
from bringup.values.host import Absent, Gpu

_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]*)", re.ASCII)
_WHOLE = re.compile(r"\d+", re.ASCII)
_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)
_UUID = re.compile(
    r"(?:GPU-|MIG-|MIG-GPU-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?:/\d+/\d+)?", re.ASCII
)
_SIZES = {"": MIB, "MiB": MIB, "GiB": GIB, "KiB": KIB, "B": 1}  # `nounits` leaves MiB out

# Words that stand where a text value should be. Whatever else is in square brackets is no value either.
_NO_VALUE = frozenset(
    {
        "n/a",
        "err!",
        "not supported",
        "unknown error",
        "gpu requires reset",
        "insufficient permissions",
        "no permission",
        "function not found",
        "requested functionality has been deprecated",
        "not available in wddm driver model",
        "not available",
        "not found",
        "gpu is lost",
        "-",
    }
)

Value = int | float | str


def absence(text: str) -> Absent | None:
    """The driver's words when `text` says that there is no value.

    >>> absence("[N/A]"), absence("Disabled")
    (Absent(said='[N/A]'), None)
    """
    words = text.strip()
    if not words:
        return Absent(said="(empty)")
    if (
        words.lower() in _NO_VALUE
        or (words.startswith("[") and words.endswith("]"))
        or set(words) <= set("?-. ")
    ):
        return Absent(said=words)
    return None


def _said(text: str) -> Absent:
    return Absent(said=text.strip() or "(empty)")


def _quantity(text: str, units: Mapping[str, float]) -> float | Absent:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        return _said(text)
    return float(match["number"]) * units[match["unit"]]


def size(text: str) -> int | Absent:
    """Bytes; a plain number counts MiB.

    >>> size("97887 MiB"), size("97887"), size("Not Supported"), size("97887 M")
    (102641958912, 102641958912, Absent(said='Not Supported'), Absent(said='97887 M'))
    """
    found = _quantity(text, _SIZES)
    return found if isinstance(found, Absent) else round(found)


def capacity(text: str) -> int | Absent:
    """Bytes of a whole memory: 0 is a driver's way of not knowing."""
    found = size(text)
    return found if isinstance(found, Absent) or found > 0 else _said(text)


def share(text: str) -> float | Absent:
    """A percentage as a share, 0 to 1.

    >>> share("7 %"), share("[N/A]")
    (0.07, Absent(said='[N/A]'))
    """
    found = _quantity(text, {"%": 1.0, "": 1.0})
    if isinstance(found, Absent) or found > 100:
        return _said(text)
    return found / 100


def watts(text: str) -> float | Absent:
    """Watts."""
    return _quantity(text, {"W": 1.0, "": 1.0})


def celsius(text: str) -> float | Absent:
    """Degrees Celsius."""
    return _quantity(text, {"C": 1.0, "": 1.0})


def margin(text: str) -> float | Absent:
    """Degrees Celsius that are left; below zero when there are none.

    >>> margin("59"), margin("-2 C"), margin("N/A")
    (59.0, -2.0, Absent(said='N/A'))
    """
    words = text.strip()
    found = celsius(words.removeprefix("-"))
    return found if isinstance(found, Absent) or not words.startswith("-") else -found


def seconds(text: str) -> float | Absent:
    """Seconds out of microseconds.

    >>> seconds("182086 us")
    0.182086
    """
    found = _quantity(text, {"us": 1.0, "": 1.0})
    return found if isinstance(found, Absent) else found / 1e6


def megahertz(text: str) -> float | Absent:
    """MHz."""
    return _quantity(text, {"MHz": 1.0, "": 1.0})


def count(text: str) -> int | Absent:
    """A whole number; a link width may carry its `x`.

    >>> count("16x"), count("4"), count("0x10")
    (16, 4, Absent(said='0x10'))
    """
    words = text.strip().removesuffix("x")
    return int(words) if _WHOLE.fullmatch(words) else _said(text)


def mask(text: str) -> int | Absent:
    """A bit mask written in hexadecimal."""
    words = text.strip()
    return int(words, 16) if re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", words, re.ASCII) else _said(text)


def word(text: str) -> str | Absent:
    """A text value."""
    return absence(text) or text.strip()


def uuid(text: str) -> str | Absent:
    """A GPU's UUID, whole; on Jetson it has no `GPU-` before it."""
    words = text.strip()
    return words if _UUID.fullmatch(words) else _said(text)


def state(text: str) -> str | Absent:
    """A performance state, "P0" to "P15"."""
    words = text.strip()
    return words if re.fullmatch(r"P(?:1[0-5]|\d)", words, re.ASCII) else _said(text)


def version(text: str) -> str | Absent:
    """A dotted number; what R610 glues behind it is dropped.

    >>> version("610.43.02 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]")
    '610.43.02'
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)+)(?:\s+\[.*\])?", text.strip(), re.ASCII)
    return match[1] if match else _said(text)


def bus_id(text: str) -> str | None:
    """The kernel's way to write a PCI address: lower case, four-digit domain where it fits.

    >>> bus_id("00000000:06:00.0"), bus_id("0000000F:01:00.0"), bus_id("3E3F8E05:00:00.0"), bus_id("[N/A]")
    ('0000:06:00.0', '000f:01:00.0', '3e3f8e05:00:00.0', None)
    """
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}"


def address(text: str) -> str | Absent:
    """A normalised PCI address."""
    return bus_id(text) or _said(text)


Reader = Callable[[str], Value | Absent]

READERS: Mapping[str, Reader] = {
    "index": count,
    "uuid": uuid,
    "bus_id": address,
    "name": word,
    "driver_version": version,
    "compute_capability": version,
    "memory_total": capacity,
    "memory_reserved": size,
    "memory_used": size,
    "memory_free": size,
    "utilization": share,
    "memory_utilization": share,
    "power": watts,
    "power_limit": watts,
    "power_limit_default": watts,
    "power_limit_min": watts,
    "power_limit_max": watts,
    "temperature": celsius,
    "memory_temperature": celsius,
    "temperature_margin": margin,
    "performance_state": state,
    "clock_sm": megahertz,
    "clock_memory": megahertz,
    "clock_sm_max": megahertz,
    "clock_memory_max": megahertz,
    "clocks_event_reasons": mask,
    "slowed_by_heat": seconds,
    "slowed_by_hardware_heat": seconds,
    "slowed_by_power_brake": seconds,
    "slowed_by_power_cap": seconds,
    "pcie_generation": count,
    "pcie_generation_max": count,
    "pcie_generation_card": count,
    "pcie_generation_host": count,
    "pcie_width": count,
    "pcie_width_max": count,
    "ecc_mode": word,
    "ecc_mode_pending": word,
    "ecc_uncorrected": count,
    "ecc_uncorrected_ever": count,
    "ecc_corrected": count,
    "remapped_rows_pending": word,
    "remapped_rows_failure": word,
    "remapped_rows": count,
    "retired_pages_pending": word,
    "mig_mode": word,
    "mig_mode_pending": word,
    "persistence_mode": word,
    "serial": word,
    "vbios": word,
    "minor": count,
    "recovery_action": word,
    "reset_required": word,
    "drain_recommended": word,
    "compute_mode": word,
    "fabric_state": word,
    "fabric_status": word,
}


def gpu_of(cells: Mapping[str, tuple[str, ...]], **extra: Any) -> Gpu:
    """The GPU whose fields were told in these texts; of several texts for a field the first value counts.

    `said` keeps the words of the first text of a field that has no value in any of its texts.
    """
    known: dict[str, Any] = {"index": None}
    said: dict[str, str] = {}
    for name, texts in cells.items():
        answers = [READERS[name](text) for text in texts]
        values = [answer for answer in answers if not isinstance(answer, Absent)]
        absent = [answer for answer in answers if isinstance(answer, Absent)]
        if values:
            known[name] = values[0]
        elif absent:
            said[name] = absent[0].said
    return Gpu(**known, **extra, said=said)
