"""`df -P -k` and `df -P -i` of one folder, and its line of `/proc/mounts`, to a `Disk`.

Source: df(1p), proc_mounts(5).
"""

import re

from bringup.units import KIB
from bringup.values.host import Disk

# Names of file systems and mount points may hold blanks: the numbers in the middle are the anchor.
_ROW = re.compile(
    r"^(?P<source>\S.*?)[ \t]+(?P<size>[0-9]{1,18}|-)[ \t]+(?P<used>-?[0-9]{1,18}|-)[ \t]+"
    r"(?P<free>-?[0-9]{1,18}|-)[ \t]+(?:-|[0-9]+%)[ \t]+(?P<mount>/.*)$",
)


def read_disk(
    *, purpose: str, path: str, blocks: str, inodes: str = "", kind: str | None = None
) -> Disk | None:
    """The file system under `path`; None when `df` did not say.

    >>> read_disk(purpose="temporary", path="/tmp", kind="ext4", blocks='''
    ... Filesystem 1024-blocks     Used Available Capacity Mounted on
    ... /dev/vda     264212084 26803684  79587228      26% /''').available
    81497321472
    """
    row = _row(blocks)
    size = _count(row["size"]) if row else None
    if row is None or size is None:
        return None
    # A file system without a table of inodes (btrfs, ZFS, some of NFS) says 0 of 0 or a dash: no value.
    table = _row(inodes)
    return Disk(
        path=path,
        purpose=purpose,
        file_system=kind,
        size=size * KIB,
        available=_available(row["free"]),
        inodes_free=_count(table["free"]) if table and _count(table["size"]) else None,
    )


def _available(text: str) -> int | None:
    free = _count(text)
    # Below zero: only root's reserve is left.
    return None if free is None else max(free, 0) * KIB


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


def _row(text: str) -> re.Match[str] | None:
    # A longer line is no answer of df, and the pattern would go over it once per blank.
    rows = (_ROW.fullmatch(line) for line in text.split("\n") if len(line) < 4096)
    return next((row for row in rows if row), None)
