"""`systemctl show` to a `ServiceUnit`.

Source: systemctl(1), systemd.service(5), systemd.time(7).
"""

import re

from bringup.parse.proc import whole_number
from bringup.values.host import ServiceUnit

_SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "month": 2629800.0,
    "y": 31557600.0,
}


def read_time_span(text: str | None) -> float | None:
    """Seconds of a time span as systemd prints it; `inf` for "infinity", None when it is none.

    >>> read_time_span("1min 30s"), read_time_span("100ms"), read_time_span("infinity"), read_time_span("0")
    (90.0, 0.1, inf, 0.0)
    """
    text = (text or "").strip()
    if text == "infinity":
        return float("inf")
    if text == "0":
        return 0.0
    parts = text.split()
    total = 0.0
    for part in parts:
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]+)?)([a-z]+)", part)
        if match is None or match[2] not in _SECONDS:
            return None
        total += float(match[1]) * _SECONDS[match[2]]
    return total if parts else None


def read_unit(name: str, properties: dict[str, str]) -> ServiceUnit:
    """The unit with what systemd says of it; a property that is absent or unreadable stays None."""
    is_known = properties.get("LoadState") != "not-found"
    return ServiceUnit(
        name=name,
        active_state=(properties.get("ActiveState") or None) if is_known else "not-found",
        enabled=properties.get("UnitFileState") or None,
        restarts=whole_number(properties.get("NRestarts")) if is_known else None,
        start_limit_s=read_time_span(properties.get("TimeoutStartUSec")) if is_known else None,
        stop_limit_s=read_time_span(properties.get("TimeoutStopUSec")) if is_known else None,
        restart_policy=(properties.get("Restart") or None) if is_known else None,
        properties=dict(properties),
    )
