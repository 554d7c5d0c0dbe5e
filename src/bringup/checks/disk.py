"""Room on the disks that the engine writes to: hub cache, temporary files, the root.

Source: compiled kernels and graphs go to `~/.cache` and the temporary folder (torch, Triton, FlashInfer);
logs to the root; weights to the hub cache.
"""

from collections.abc import Iterable, Iterator

from bringup.checks import Check, Replies
from bringup.units import GIB, bytes_text, mib
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.host import Disk

_LITTLE = GIB  # compile caches of one engine version take some hundred MiB
_FEW_INODES = 10_000  # guess: one compile cache makes thousands of files
_MOVED = mib(64)
_EXPECTED = "room for compiled kernels, temporary files and logs"
_NEVER_WRITTEN = frozenset(("squashfs", "iso9660", "erofs", "cramfs", "romfs", "udf"))
_WRITTEN = ("hub cache", "download folder", "temporary", "root")


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Every file system that is nearly full, once."""
    _ = replies
    host = deployment.host_after or deployment.host
    disks = [disk for disk in host.disks if _counts(disk)] if host is not None else []
    if not disks:
        return Judgement(findings=())
    groups = _by_file_system(disks)
    found = [finding for group in groups for finding in _full(group)]
    return Judgement(findings=tuple(found) or tuple(_sound(groups)))


def _counts(disk: Disk) -> bool:
    return disk.purpose in _WRITTEN and disk.file_system not in _NEVER_WRITTEN and disk.available is not None


def _by_file_system(disks: Iterable[Disk]) -> list[list[Disk]]:
    """Folders that share one file system, by its size and room: two equal disks differ in their room."""
    groups: list[list[Disk]] = []
    for disk in disks:
        for group in groups:
            if _is_same(group[0], disk):
                group.append(disk)
                break
        else:
            groups.append([disk])
    return groups


def _is_same(one: Disk, other: Disk) -> bool:
    moved = abs((one.available or 0) - (other.available or 0))  # between two looks at one disk
    return (one.file_system, one.size) == (other.file_system, other.size) and moved < _MOVED


def _full(group: list[Disk]) -> Iterator[Finding]:
    disk = min(group, key=lambda one: one.available or 0)
    names = " and ".join(dict.fromkeys(f"{one.purpose} ({one.path})" for one in group))
    inodes = [one.inodes_free for one in group if one.inodes_free is not None]
    available = disk.available or 0
    is_full = available < min(_LITTLE, _share(disk))
    is_out = bool(inodes) and min(inodes) < _FEW_INODES
    if not is_full and not is_out:
        return
    left = f"{bytes_text(available)} are" if is_full else f"room for {min(inodes)} more files is"
    yield Finding(
        id=f"disk.{group[0].purpose.replace(' ', '_')}",
        severity=Severity.WARNING,
        summary=f"{left} left on the disk of {names}",
        expected=_EXPECTED,
        explanation="compiling kernels, writing logs or loading the next model fails with "
        "`No space left on device`",
        action="delete old caches and logs there, or move the folder: `HF_HOME`, `VLLM_CACHE_ROOT`, `TMPDIR`",
        evidence=(Evidence(source="df", text=f"{disk.path}: {available} of {disk.size} bytes available"),)
        if is_full
        else (Evidence(source="df -i", text=f"{disk.path}: {min(inodes)} inodes free"),),
    )


def _share(disk: Disk) -> float:
    """A tenth of a small disk: a temporary folder of 2 GiB in memory is not full with 1 GiB free."""
    return 0.1 * disk.size if disk.size is not None else _LITTLE


def _sound(groups: list[list[Disk]]) -> Iterator[Finding]:
    least = min((one for group in groups for one in group), key=lambda one: one.available or 0)
    summary = f"at least {bytes_text(least.available or 0)} are free where the engine writes ({least.path})"
    yield Finding(id="disk", severity=Severity.OK, summary=summary, expected=_EXPECTED)


CHECK = Check(
    title="has room on its disks",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
