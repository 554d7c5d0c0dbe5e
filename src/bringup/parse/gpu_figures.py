"""Figures of a GPU as JSON tools write them, to values or to a typed absence that keeps the tool's words.

The same figure comes as a number, as text with its unit (`"300 W"`, `"(1090Mhz)"`), as
`{"value": 300, "unit": "W"}`, as `"N/A"`, and as a number that no card can have (65535 stands for "not
supported" in AMD's tables). A figure is read from a number with a unit of its kind and from nothing else.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bringup.parse.json_value import Json, at
from bringup.parse.nvidia_values import absence
from bringup.units import GIB, KIB, MIB
from bringup.values.host import Absent, Gpu

_NUMBER = re.compile(r"\(?\s*(\d+(?:\.\d+)?)\s*([^\d\s()][^\s()]*)?\s*\)?", re.ASCII)
_LONGEST = 200  # letters of the tool's words that are kept
_NONE_IN_WORDS = frozenset({"none", "unknown", "unsupported", "not supported", "n/a"})
# Speed of a PCI Express lane in GT/s, by generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}

Value = int | float | str
Told = Value | Absent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of figure: what each unit counts, and the bounds outside of which no card is."""

    units: Mapping[str, float] = field(default_factory=dict[str, float])  # "" is a number without a unit
    low: float = 0.0
    high: float = math.inf


# The tools write MB and divide by 1024 twice: amd-smi says 65520 MB of 68702699520 bytes.
_SIZES = {"B": 1, "KB": KIB, "KiB": KIB, "MB": MIB, "MiB": MIB, "GB": GIB, "GiB": GIB}

WATTS = Kind(units={"": 1, "W": 1}, high=10_000)
WATT_LIMIT = Kind(units={"": 1, "W": 1}, low=1, high=10_000)  # graphics in a processor say 0 W
CELSIUS = Kind(units={"": 1, "C": 1, "c": 1, "°C": 1}, high=250)
MEGAHERTZ = Kind(units={"": 1, "MHz": 1, "Mhz": 1}, high=20_000)
PERCENT = Kind(units={"": 1, "%": 1}, high=100)
MEBIBYTES = Kind(units={"": MIB, **_SIZES})
BYTES = Kind(units={"": 1, **_SIZES})
COUNT = Kind(units={"": 1})
LANES = Kind(units={"": 1, "x": 1}, low=1, high=32)
_TRANSFERS = Kind(units={"": 1, "GT/s": 1, "MT/s": 0.001}, high=256)
_GENERATION = Kind(units={"": 1}, low=1, high=9)


def measure(value: Json, kind: Kind) -> float | Absent | None:
    """The figure in the unit of its kind; None when the field is not there at all.

    >>> measure({"value": 300, "unit": "W"}, WATTS), measure("300 W", WATTS), measure("N/A", WATTS)
    (300.0, 300.0, Absent(said='N/A'))
    >>> measure(65535, CELSIUS), measure({"value": "N/A", "unit": "C"}, CELSIUS), measure(None, CELSIUS)
    (Absent(said='65535'), Absent(said='N/A'), None)
    """
    if value is None:
        return None
    unit = ""
    if isinstance(value, dict):
        unit = str(at(value, "unit") or "")
        value = at(value, "value")
    found = _number(value)
    if found is None:
        return _said(value)
    number, own_unit = found
    scale = kind.units.get(own_unit or unit)
    if scale is None or not math.isfinite(number) or not kind.low <= number * scale <= kind.high:
        return _said(value)
    return number * scale


def _number(value: Json) -> tuple[float, str] | None:
    """A number and the unit that is written behind it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value), ""
        except OverflowError:
            return None
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _LONGEST else None
    return (float(match[1]), match[2] or "") if match else None


def _said(value: Json) -> Absent:
    try:
        words = value.strip() if isinstance(value, str) else str(value)
    except ValueError:  # a whole number of more than 4300 digits has no text
        words = "a number too long to read"
    return Absent(said=words[:_LONGEST] or "(empty)")


def whole(value: Json, kind: Kind) -> int | Absent | None:
    """The same as a whole number."""
    found = measure(value, kind)
    return round(found) if isinstance(found, float) else found


def capacity(value: Json, kind: Kind) -> int | Absent | None:
    """Bytes of a whole memory: 0 is a tool's way of not knowing."""
    found = whole(value, kind)
    return _said(value) if found == 0 else found


def share(value: Json) -> float | Absent | None:
    """A percentage as a share, 0 to 1.

    >>> share({"value": 7, "unit": "%"}), share("100"), share("N/A")
    (0.07, 1.0, Absent(said='N/A'))
    """
    found = measure(value, PERCENT)
    return found / 100 if isinstance(found, float) else found


def word(value: Json) -> str | Absent | None:
    """A text value."""
    if value is None:
        return None
    if not isinstance(value, str):
        return _said(value)
    if value.strip().lower() in _NONE_IN_WORDS:
        return _said(value)
    return absence(value) or value.strip()


def generation(value: Json) -> int | Absent | None:
    """The generation of PCI Express, from "Gen 4" or from 4.

    >>> generation("Gen 4"), generation(5), generation("N/A"), generation(0)
    (4, 5, Absent(said='N/A'), Absent(said='0'))
    """
    return whole(value.strip().removeprefix("Gen") if isinstance(value, str) else value, _GENERATION)


def speed_generation(value: Json) -> int | Absent | None:
    """The generation of PCI Express with lanes of this speed.

    >>> speed_generation({"value": 2.5, "unit": "GT/s"}), speed_generation("32.0 GT/s"), speed_generation(7)
    (1, 5, Absent(said='7'))
    """
    found = measure(value, _TRANSFERS)
    if not isinstance(found, float):
        return found
    return _GENERATIONS.get(found) or _said(value)


def told_gpu(fields: Mapping[str, Sequence[Told]], *, vendor: str, index: int | None) -> Gpu:
    """The GPU of which these values were told; of several for a field the first that is one counts.

    `said` keeps the first words of a field that has no value. What is not told to be free is what the others
    leave: amd-smi's own "free" is that difference.
    """
    known: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, told in fields.items():
        values = [value for value in told if value is not None and not isinstance(value, Absent)]
        words = [value.said for value in told if isinstance(value, Absent)]
        if values:
            known[name] = values[0]
        elif words:
            said[name] = words[0]
    total, used = known.get("memory_total"), known.get("memory_used")
    if "memory_free" not in known and total is not None and used is not None and used <= total:
        known["memory_free"] = total - used
        said.pop("memory_free", None)
    return Gpu(index=index, vendor=vendor, **known, said=said)
