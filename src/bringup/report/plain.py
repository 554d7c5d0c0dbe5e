"""Records as dictionaries, under their names in JSON."""

import dataclasses
from collections.abc import Sequence
from enum import Enum
from typing import Any, cast

from bringup.values.finding import Fix

# Fields of records whose unit the wire format must name.
_WIRE_NAMES = {
    "memory_total": "memory_total_bytes",
    "memory_reserved": "memory_reserved_bytes",
    "memory_used": "memory_used_bytes",
    "memory_free": "memory_free_bytes",
    "memory_available": "memory_available_bytes",
    "swap_total": "swap_total_bytes",
    "swap_free": "swap_free_bytes",
    "shm_total": "shm_total_bytes",
    "shm_available": "shm_available_bytes",
    "memory_limit": "memory_limit_bytes",
    "resident": "resident_bytes",
    "swapped": "swapped_bytes",
    "locked": "locked_bytes",
    "swapped_in": "swapped_in_bytes",
    "at": "at_s",
    "kernel_log_since": "kernel_log_since_s",
    "size": "size_bytes",
    "available": "available_bytes",
    "power": "power_w",
    "power_limit": "power_limit_w",
    "power_limit_default": "power_limit_default_w",
    "power_limit_min": "power_limit_min_w",
    "power_limit_max": "power_limit_max_w",
    "temperature": "temperature_c",
    "memory_temperature": "memory_temperature_c",
    "hotspot_temperature": "hotspot_temperature_c",
    "temperature_margin": "temperature_margin_c",
    "clock_sm": "clock_sm_mhz",
    "clock_memory": "clock_memory_mhz",
    "clock_sm_max": "clock_sm_max_mhz",
    "clock_memory_max": "clock_memory_max_mhz",
    "slowed_by_heat": "slowed_by_heat_s",
    "slowed_by_hardware_heat": "slowed_by_hardware_heat_s",
    "slowed_by_power_brake": "slowed_by_power_brake_s",
    "slowed_by_power_cap": "slowed_by_power_cap_s",
    "rate": "rate_bytes_per_s",
    "begins_at": "begins_at_s",
    "uptime": "uptime_s",
    "taken_at": "taken_at_s",
    "started_at": "started_at_s",
}


def plain_record(record: object) -> dict[str, object]:
    """The fields of a record under their names in JSON."""
    fields = dataclasses.fields(cast("Any", record))
    plain: dict[str, object] = {field.name: _plain(getattr(record, field.name)) for field in fields}
    if isinstance(record, Fix):
        plain["from"], plain["to"] = plain.pop("old"), plain.pop("new")
    return {_WIRE_NAMES.get(name, name): value for name, value in plain.items()}


def _plain(value: object) -> object:
    """`value` as dictionaries, lists and scalars."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return plain_record(value)
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in cast("dict[object, object]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in cast("Sequence[object]", value)]
    return value
