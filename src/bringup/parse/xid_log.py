"""Errors of GPUs in the kernel log: NVIDIA's Xid lines, from dmesg or from the journal.

Source: NVIDIA's list of Xid errors, lines of `dmesg` in public reports, journalctl(1) `short-monotonic`.
"""

import re
from collections.abc import Mapping

from bringup.parse.sections import first_line, read_sections
from bringup.values.host import GpuError, KernelLog

_STAMP = re.compile(r"(?:<\d+>)?\[\s*(\d+\.\d+)\]")
_XID = re.compile(
    r"NVRM: (?:GPU at \S+: )?Xid \((?:PCI:)?"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.\d)?\): "
    r"(?P<code>\d{1,4}),?\s*(?P<text>.*)",
    re.ASCII,
)
_PID = re.compile(r"\bpid=(\d+)", re.ASCII)


def read_kernel_log(text: str) -> KernelLog | None:
    r"""The Xids since the boot, or why they are not known; None when nobody would have written any.

    >>> text = "@@ dmesg\nfirst [ 0.00] Linux\n[ 9.5] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off\n"
    >>> read_kernel_log(text).errors[0].bus_id
    '0000:06:00.0'
    """
    sections = read_sections(text)
    if "dmesg" not in sections:
        return None
    name = _fuller(sections)
    begin = first_line(sections.get(name, "")) or ""
    if not begin.startswith("first "):
        refused = first_line(sections.get("refused")) or "neither dmesg nor the journal shows the kernel log"
        return KernelLog(refused=refused)
    lines = sections[name].split("\n")[1:]
    uptime = re.match(r"(\d+\.\d+)", sections.get("uptime", ""))
    return KernelLog(
        errors=read_errors("\n".join(lines)),
        begins_at=_stamp(begin.removeprefix("first ")),
        uptime=float(uptime[1]) if uptime else None,
    )


def _fuller(sections: Mapping[str, str]) -> str:
    """The log that reaches further back: the journal is asked only where dmesg may lack the beginning."""
    return "journal" if sections.get("journal", "").startswith("first ") else "dmesg"


def read_errors(text: str) -> tuple[GpuError, ...]:
    r"""Xids of these lines, in their order.

    >>> read_errors("[ 12.5] NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=python\n")
    (GpuError(code=109, text='pid=1797828, name=python', bus_id='0000:cb:00.0', at=12.5, pid=1797828),)
    """
    found: list[GpuError] = []
    for line in text.split("\n"):
        match = _XID.search(line)
        if match is None:
            continue
        pid = _PID.search(match["text"])
        domain, bus, device = match["bus"].lower().split(":")
        found.append(
            GpuError(
                code=int(match["code"]),
                text=match["text"].strip(),
                bus_id=f"{int(domain, 16):04x}:{bus}:{device}.0",
                at=_stamp(line),
                pid=int(pid[1]) if pid else None,
            )
        )
    return tuple(found)


def _stamp(line: str) -> float | None:
    match = _STAMP.match(line.strip())
    return float(match[1]) if match else None
