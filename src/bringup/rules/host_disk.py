"""A disk without room, or without inodes: which one, its path says.

Seen in: errno 28 as Python, Rust (`os error 28`), C++ and Ray's `file_system_monitor.cc` print it;
huggingface_hub `file_download.py` ("Not enough free disk space"), docker's overlay2 and `write
/var/lib/docker/tmp`.
"""

import re

from bringup.rules import Match, Rule
from bringup.units import GIB
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_FULL = re.compile(
    r"[Nn]o space left on device|\[?Errno 28\]?|os error 28|ENOSPC|Disk quota exceeded"
    r"|Not enough (?:free )?disk space|not enough free disk|ephemeral local storage usage exceeds"
    r"|low on resource: ephemeral-storage|FreeDiskSpaceFailed"
)
_RAY = re.compile(r"file_system_monitor\.cc:\d+: (?P<path>\S+) is over (?P<share>\d+)% full")
_SHM = re.compile(r"/dev/shm|</torch_|nccl-|posix_fallocate|shared memory|shm_open|psm_")  # noqa: S108 named, not used
_PATH = re.compile(r"(?:device:? |: |'|\"|on |to |write |open )(?P<path>(?:~|/)[\w./@+~-]+)")
_LINKER = re.compile(r"/ld(?:\.\w+)?: final link failed|collect2")
_OUTPUT = re.compile(r"(?:^|\s)-o (?P<path>/\S+)")  # of a compiler's command line
_WHERE = (  # what a path means, in order; the first that fits
    (
        re.compile(r"huggingface|/hub/|models--|HF_HOME|/data/hf|\.safetensors|\.gguf|\.incomplete|xet"),
        "hub cache",
    ),
    (
        re.compile(r"/var/lib/docker|overlay2?|containerd|buildkit|layerdb|registering layer"),
        "container storage",
    ),
    (
        re.compile(r"/tmp|/var/tmp|TMPDIR|tempfile|inductor|\.cache/(?:vllm|flashinfer|torch|triton)"),  # noqa: S108 named, not used
        "temporary files",
    ),
)
_NEED = re.compile(r"expected file size is: (?P<need>[\d.]+) MB.*only has (?P<free>[\d.]+) MB")
_LOW = 2 * GIB


def _fixes(where: str, path: str | None) -> tuple[Fix, ...]:
    cache = Fix(
        type="env", name="HF_HOME", old=path or "~/.cache/huggingface", new="a folder on a disk with room"
    )
    temporary = Fix(type="env", name="TMPDIR", old=path or "/tmp", new="a folder on a disk with room")  # noqa: S108 the default's name
    larger = Fix(
        type="hardware", name="disk", new="larger, or free it: `df -h` and `df -i` on the path", cost="time"
    )
    volume = Fix(type="file", name="volume /data", old="container layer", new="a host path with room")
    prune = Fix(
        type="service",
        name="docker",
        new="docker system prune, or data-root on another disk",
        cost="unused images go",
    )
    return {
        "container storage": (volume, prune, cache, larger),
        "temporary files": (temporary, cache, larger),
    }.get(where, (cache, larger, volume, temporary))


def read(case: Case) -> tuple[Match, ...]:
    """The disk that is full; what lies in shared memory belongs to another rule."""
    found = [(line, match) for line, match in case.matches(_FULL) if not _SHM.search(line.text)]
    ray = list(case.matches(_RAY))
    if case.says("NCCL WARN.*(?:shm|/dev/shm)"):
        found = []
    if not found and not ray:
        return _probe(case)
    lines = tuple([line for line, _ in found] + [line for line, _ in ray])[:6]
    text = " ".join(line.text for line in lines)
    if _LINKER.search(text):  # it names itself, and not what it was writing
        written = case.first(_OUTPUT)
        text = f"to {written[1]['path']}" if written else ""
    path = ray[0][1]["path"] if ray else (told["path"] if (told := _PATH.search(text)) else None)
    where = next((words for pattern, words in _WHERE if pattern.search(text)), "a disk")
    need = case.first(_NEED)
    short = f": needs {need[1]['need']} MB, has {need[1]['free']} MB" if need else ""
    return (
        Match(
            kind="host.disk_full",
            sure=0.93 if found else 0.75,
            lines=lines,
            summary=f"no room left: {where}" + (f" at {path}" if path else "") + short,
            explanation="The path decides which disk; an empty disk beside it does not help. A file system "
            "can also be out of "
            "inodes with room left.",
            fixes=_fixes(where, path),
            next_measurement=f"df -h {path or '~/.cache /tmp'}; df -i {path or '~/.cache /tmp'}",
            severity=Severity.FAILURE if found else Severity.WARNING,
        ),
    )


def _probe(case: Case) -> tuple[Match, ...]:
    """Disks of the host that are full though the log does not say so."""
    disks = case.host.disks if case.host else ()
    full = [
        disk
        for disk in disks
        if disk.purpose != "shared memory"
        and ((disk.available is not None and disk.available < _LOW) or disk.inodes_free == 0)
    ]
    if not full or case.is_ready:
        return ()
    return (
        Match(
            kind="host.disk_full",
            sure=0.4,
            lines=(),
            summary=f"{full[0].path} ({full[0].purpose}) is nearly full",
            fixes=_fixes(full[0].purpose, full[0].path),
            next_measurement=f"df -h {full[0].path}; df -i {full[0].path}",
            severity=Severity.WARNING,
            probes=tuple(
                ("df", f"{disk.path}: {disk.available} bytes, {disk.inodes_free} inodes free")
                for disk in full
            ),
        ),
    )


RULE = Rule(
    kinds=("host.disk_full",),
    title="a disk is full",
    literals=(
        "No space left",
        "no space left",
        "Errno 28",
        "os error 28",
        "ENOSPC",
        "quota exceeded",
        "free disk space",
        "enough disk space",
        "phemeral local storage",
        "ephemeral-storage",
        "FreeDiskSpaceFailed",
        "not enough free disk",
        "file_system_monitor",
        "NCCL WARN",
        "collect2",
        " -o /",
    ),
    read=read,
    meaning="A file could not be written because its file system has no room or no inodes.",
    told_apart="By the path: /dev/shm is NCCL's or the engine's shared memory (another rule); then the hub's "
    "cache, temporary "
    "files, container storage, or the disk image of a docker machine.",
    cure="HF_HOME or TMPDIR on a disk with room, a volume instead of the container's layer, or a larger "
    "disk.",
    source="errno 28 in CPython, Rust std and glibc; ray src/ray/common/file_system_monitor.cc; "
    "huggingface_hub file_download.py",
)
