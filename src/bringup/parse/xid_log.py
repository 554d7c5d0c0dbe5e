"""Errors of GPUs in the kernel log: NVIDIA's Xid lines.

Source: NVIDIA's list of Xid errors, lines of `dmesg` in public reports.
"""

import re
from collections.abc import Iterable

from bringup.values.host import GpuError, KernelLine

_XID = re.compile(
    r"NVRM: (?:GPU at \S+: )?Xid \((?:PCI:)?"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.\d)?\): "
    r"(?P<code>\d{1,4}),?\s*(?P<text>.*)",
    re.ASCII,
)
_PID = re.compile(r"\bpid=(\d+)", re.ASCII)


def read_errors(lines: Iterable[KernelLine], *, boot: float | None) -> tuple[GpuError, ...]:
    """Xids of these lines, in their order; `boot` is the Unix time of the boot.

    >>> line = KernelLine(at=1012.5, text="NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=python")
    >>> read_errors((line,), boot=1000.0)
    (GpuError(code=109, text='pid=1797828, name=python', bus_id='0000:cb:00.0', at=12.5, pid=1797828),)
    """
    found: list[GpuError] = []
    for line in lines:
        match = _XID.search(line.text)
        if match is None:
            continue
        pid = _PID.search(match["text"])
        domain, bus, device = match["bus"].lower().split(":")
        found.append(
            GpuError(
                code=int(match["code"]),
                text=match["text"].strip(),
                bus_id=f"{int(domain, 16):04x}:{bus}:{device}.0",
                at=since_boot(line.at, boot),
                pid=int(pid[1]) if pid else None,
            )
        )
    return tuple(found)


def since_boot(at: float | None, boot: float | None) -> float | None:
    """Seconds from the boot to a Unix time, to the millisecond; None where either is not known."""
    return None if at is None or boot is None else round(at - boot, 3)
