"""Shared memory between ranks: too small, not registered with CUDA, or not seen by the other rank.

Seen in: NCCL 2.7 to 2.29 `include/shm.h` and `misc/shmutils.cc` (three messages that end in the same "Error
while creating shared memory segment"), Ray `services.py` on the size of /dev/shm, glibc's SIGBUS on a full
tmpfs.
"""

import re

from bringup.parse.case_facts import tensor_parallel_size
from bringup.rules import Match, Rule, Sign, match_of
from bringup.units import GIB, bytes_text
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix

_FULL = re.compile(
    r"posix_fallocate(?:\(\))? failed ?: No space left|failed to extend \S*/dev/shm/\S+"
    r"|/dev/shm/\S*nccl\S*.*No space left on device"
    r"|nccl-shm\S*.*No space left|No space left on device.*/dev/shm|/dev/shm.*No space left on device"
)
_CREATE = re.compile(r"Error while creating shared memory segment (?:\S*nccl\S*)(?: \(size (?P<size>\d+)\))?")
_CUDA = re.compile(
    r"shm(?:utils)?\.(?:cc|h):\d+ NCCL WARN Cuda failure|shmutils\S* .*Cuda failure '?invalid argument"
)
_ATTACH = re.compile(
    r"(?:Error|error) while attaching to shared memory segment|shmutils.*(?:attach|open).*No such file"
    r"|shared memory segment \S*nccl\S*.*No such file or directory|Error: failed to open /dev/shm/nccl"
)
_HAS = re.compile(r"/dev/shm has only (?P<bytes>\d+) bytes available")  # noqa: S108 named, not used
_BUS = re.compile(
    r"SIGBUS|Bus error \(core dumped\)|^Bus error|(?:exit|status|code)\D{0,12}\b135\b|exitcode: -7"
    r"|exit code:? -7"
    r"|received signal 7\b|out of shared memory|insufficient shared memory \(shm\)|signal: 7|\(signal 7"
    r"|Fatal Python error: Bus error|unable to allocate shared memory\(shm\)"
    r"|unable to (?:write to|open) (?:file|shared memory object) </torch_\S*: No space left"
)
_COUNTER = re.compile(r"@\s+0x(?P<hex>[0-9a-f]{8,16})\b")
_MAPPED = re.compile(r"\.safetensors|\.gguf|safe_open|load_file")
# NCCL asks for about 10 MB per channel and rank pair; engines add rings of their own for messages.
PER_RANK = 2 * GIB  # guess: generous, tmpfs takes only what is used
LEAST = 16 * GIB


def _size(case: Case) -> str:
    """A size that is enough for all ranks, as docker takes it."""
    ranks = tensor_parallel_size(case) or 1
    return f"{max(LEAST, ranks * PER_RANK) // GIB}g"


def _has(case: Case) -> str:
    told = case.first(_HAS)
    if told:
        return f"{bytes_text(int(told[1]['bytes']))} free"
    total = case.host.facts.shm_total if case.host else None
    return bytes_text(total) if total else "64m (docker's default)"


def _grow(case: Case, _found: re.Match[str] | None = None) -> tuple[Fix, ...]:
    """More shared memory, however the engine runs."""
    size, has = _size(case), _has(case)
    return (
        Fix(
            type="flag",
            name="docker --shm-size",
            old=has,
            new=size,
            cost="none: memory is taken as it is used",
        ),
        Fix(type="flag", name="docker --ipc", new="host", cost="shares the host's IPC namespace"),
        Fix(
            type="file",
            name="pod volume /dev/shm",
            new=f"tmpfs: emptyDir medium Memory, sizeLimit {size}i",
            old=has,
        ),
    )


_SHM = Sign(
    kind="nccl.shm",
    pattern=re.compile(_FULL.pattern + "|" + _CREATE.pattern),
    beside=re.compile(_HAS.pattern + "|" + _CREATE.pattern),
    unless=re.compile(_CUDA.pattern + "|" + _ATTACH.pattern),
    sure=0.96,
    summary="/dev/shm is too small for NCCL's segments",  # noqa: S108 named, not used
    explanation="`No space left` means the shared-memory file system here, not a disk. Socket errors of "
    "other ranks follow.",
    fixes=_grow,
    next_measurement="df -h /dev/shm  # inside the container",
)
_REGISTER = Sign(
    kind="nccl.shm_cuda",
    pattern=_CUDA,
    beside=_CREATE,
    sure=0.96,
    summary="NCCL has its segment in /dev/shm, but CUDA does not register it",
    explanation="The line before `Error while creating shared memory segment` says it: a CUDA failure, not "
    "`No space left`.",
    fixes=(
        Fix(
            type="env",
            name="NCCL_SHM_DISABLE",
            new="1",
            kind="workaround",
            cost="traffic over sockets where P2P is not there",
        ),
        Fix(
            type="kernel-param",
            name="nvidia_uvm.uvm_disable_hmm",
            new="1",
            cost="no pageable GPU access to plain memory",
        ),
    ),
    next_measurement="NCCL_DEBUG=INFO, then the line before the failure; cat /proc/cmdline; ulimit -l",
)
_OTHER = Sign(
    kind="nccl.shm_attach",
    pattern=_ATTACH,
    unless=_FULL,
    sure=0.95,
    summary="a rank does not see the segment that another made in /dev/shm",
    explanation="The ranks live in different IPC namespaces (containers), or something removed the file. "
    "With iommu=pt and HMM on, NCCL 2.26 and newer fail so as well.",
    fixes=(
        Fix(
            type="flag",
            name="docker --ipc",
            new="host",
            cost="or `container:NAME`: one namespace for all ranks",
        ),
        Fix(
            type="env",
            name="NCCL_SHM_DISABLE",
            new="1",
            kind="workaround",
            cost="slower where P2P is not there",
        ),
        Fix(type="env", name="NCCL_CUMEM_HOST_ENABLE", new="0", kind="workaround", cost="none known"),
        Fix(
            type="kernel-param",
            name="nvidia_uvm.uvm_disable_hmm",
            new="1",
            cost="no pageable GPU access to plain memory",
        ),
    ),
    next_measurement="readlink /proc/PID/ns/ipc of each rank; ls -l /dev/shm",
)


def _says_shm(line: CaseLine) -> bool:
    """Whether the address at which a process died is text of a segment's name.

    A write to a full /dev/shm goes astray: the bytes of "/nccl-..." stand in the program counter.
    """
    found = _COUNTER.search(line.text)
    if not found:
        return False
    digits = found["hex"]
    text = bytes.fromhex("0" * (len(digits) % 2) + digits)[::-1]
    return b"nccl" in text or b"/shm" in text or b"/psm_" in text


def _bus(case: Case) -> tuple[Match, ...]:
    lines = [line for line, _ in case.matches(_BUS)]
    if not lines:
        return ()
    counters = [line for line, _ in case.matches(_COUNTER) if line.number >= lines[0].number]
    named = [line for line in counters if _says_shm(line)]
    of_file = case.first(_MAPPED) is not None and not named
    return (
        Match(
            kind="host.shm_full",
            sure=0.96 if named else 0.4 if of_file else 0.85,
            lines=(*named, *lines, *counters[:2])[:6],
            summary="shared memory of the processes is full: a write found no page"
            + (", the address holds the name of NCCL's segment" if named else ""),
            explanation="A mapping of /dev/shm that is full kills its writer without an error text. The same "
            "signal comes from "
            "a model file that is shorter than its header says: compare sizes if shared memory is large "
            "enough.",
            fixes=_grow(case),
            next_measurement="df -h /dev/shm; then sizes of the model's files against the hub",
        ),
    )


def _probe(case: Case) -> tuple[Match, ...]:
    """Shared memory of the host that is too small for the ranks of this start, though nothing says so yet."""
    ranks = tensor_parallel_size(case) or 1
    facts = case.host.facts if case.host else None
    small = facts is not None and facts.shm_total is not None and facts.shm_total < GIB and ranks > 1
    if not small or case.is_ready or facts is None:
        return ()
    return (
        Match(
            kind="nccl.shm",
            sure=0.55,
            lines=(),
            summary=f"/dev/shm holds {facts.shm_total} bytes, too few for {ranks} ranks",  # noqa: S108 named, not used
            fixes=_grow(case),
            probes=(("df /dev/shm", f"{facts.shm_total} bytes, {facts.shm_available} free"),),
        ),
    )


def read(case: Case) -> tuple[Match, ...]:
    """Which of the failures of shared memory this is."""
    said = tuple(match for sign in (_REGISTER, _OTHER, _SHM) if (match := match_of(sign, case)))
    return (*said, *_bus(case), *(() if said else _probe(case)))


RULE = Rule(
    kinds=("nccl.shm", "nccl.shm_cuda", "nccl.shm_attach", "host.shm_full"),
    title="shared memory between ranks",
    literals=(
        "posix_fallocate",
        "failed to extend",
        "/dev/shm",  # noqa: S108 named, not used
        "nccl-shm",
        "shared memory segment",
        "shmutils",
        "shm.h:",
        "SIGBUS",
        "Bus error",
        "PC: @",
        "code 135",
        "code: 135",
        "(135)",
        "status=135",
        "code -7",
        "code: -7",
        "exitcode: -7",
        "signal 7",
        "signal: 7",
        "out of shared memory",
        "allocate shared memory(shm)",
        "</torch_",
        "insufficient shared memory",
    ),
    read=read,
    meaning="Ranks of one machine pass data through files in /dev/shm; one of them could not be made, used "
    "or found.",
    told_apart="`posix_fallocate`/`failed to extend`: too small. A CUDA failure one line before: "
    "registration. "
    "`attaching ... No such file`: another namespace. SIGBUS with NCCL's name in the program counter: too "
    "small as well; "
    "with a .safetensors or .gguf mapped: perhaps a truncated file.",
    cure="A shm size for all ranks; NCCL_SHM_DISABLE=1 where CUDA refuses it; one IPC namespace.",
    source="NCCL include/shm.h, misc/shmutils.cc (ncclShmOpen); ray/_private/services.py; NVIDIA/nccl issue "
    "2190",
)
