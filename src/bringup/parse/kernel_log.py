"""Lines of the kernel's log, as `dmesg` or the journal print them, to records with the time on the wall.

Source: dmesg(1) (`--time-format iso`), journalctl(1) (`-o short-unix`), `kernel/printk/printk.c`.
"""

import re
from datetime import datetime

from bringup.values.host import KernelLine

_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[,.](\d{1,9})([+-]\d\d:?\d\d|Z) ?(.*)", re.ASCII)
_UNIX = re.compile(r"([0-9]{9,11}\.[0-9]{1,9}) \S+ kernel: ?(.*)")
_BOOT = re.compile(r"(?:<[0-9]{1,3}>)?\[ *([0-9]{1,10}\.[0-9]{1,9})\](?:\[ *[TC][0-9]+\])? ?(.*)")


def read_kernel_lines(text: str, *, boot: float | None) -> tuple[KernelLine, ...]:
    r"""Every line that begins with "line ", in order; `boot` is the Unix time of the boot.

    >>> read_kernel_lines("first x\nline [   12.500000] NVRM: Xid\n", boot=1000.0)
    (KernelLine(at=1012.5, text='NVRM: Xid'),)
    """
    rows = (row.removeprefix("line ") for row in text.split("\n") if row.startswith("line "))
    return tuple(_line(row, boot) for row in rows)


def read_start(text: str, *, boot: float | None) -> float | None:
    r"""Unix time of the oldest line that the log still has; None when it does not say.

    >>> read_start("first 2026-11-30T12:48:33,250000+01:00 x\n", boot=None)
    1796039313.25
    """
    first = next((row for row in text.split("\n") if row.startswith("first ")), None)
    return _line(first.removeprefix("first "), boot).at if first else None


def _line(row: str, boot: float | None) -> KernelLine:
    if match := _ISO.fullmatch(row):
        zone = "+00:00" if match[3] == "Z" else match[3]
        fraction = float(f"0.{match[2]}")
        return KernelLine(at=_unix(f"{match[1]}{zone}", fraction), text=match[4])
    if match := _UNIX.fullmatch(row):
        return KernelLine(at=float(match[1]), text=match[2])
    if match := _BOOT.fullmatch(row):
        return KernelLine(at=None if boot is None else boot + float(match[1]), text=match[2])
    return KernelLine(at=None, text=row)


def _unix(stamp: str, fraction: float) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp() + fraction
    except (ValueError, OverflowError):  # month 13 of a garbled line
        return None
