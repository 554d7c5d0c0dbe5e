"""Runs by itself, as `python -I -S sandbox_guard.py`: shuts itself in, then runs a program.

Four processes, so that nothing that the program does can pass for a result:

* the *guard* was started by `sandbox.py`; it enters new user, mount, process, network, IPC and host-name
  namespaces,
* a *mapper* outside of them writes the id maps and ends,
* the *warden* is process 1 in there: it swaps the file system for an empty one with the interpreter's
  libraries, read-only, watches the clock and alone holds the way out,
* the *worker* drops every right, proves that it is shut in, and runs the program.

The worker sends lines to the warden. Results count only with a token that the warden hands out once the
source has run, and only in order; anything else on that line is a problem, never a result. Anything that
cannot be set up ends in `unavailable`, and then no line of the program has run. Standard library only.
"""

import contextlib
import ctypes
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# linux/sched.h, sys/mount.h, sys/prctl.h: the same numbers on every architecture
CLONE_FLAGS = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 28, 38
SECUREBITS_LOCKED = 0x2F  # no rights for being root, no keeping them, and no way to unset that
CAPABILITY_VERSION_3 = 0x20080522

NOBODY = 65534
ADDRESS_SPACE = (
    512 * 1024 * 1024
)  # guess: bytes; an interpreter takes 30 MB, a model's function no more than that
FILE_SIZE = 1024 * 1024  # bytes
SCRATCH = "scratch"  # not /tmp: an interpreter may lie below that
SCRATCH_SIZE = "4m"
OPEN_FILES = 24
LINE_LIMIT = 64 * 1024  # bytes of one line from the worker
TOTAL_LIMIT = 512 * 1024  # bytes of all lines from the worker
REPR_LIMIT = 4000  # characters of one result

libc = ctypes.CDLL(None, use_errno=True)


class Job(NamedTuple):
    """What is to be run."""

    source: str
    calls: list[str]
    time_limit_s: float


class Unavailable(Exception):  # noqa: N818 - a state of this machine, not an error of the program
    """Isolation is not to be had here, in words."""


def call(what: str, name: str, *arguments: object) -> None:
    """Call a C function that answers 0 for success.

    Raises:
        Unavailable: it failed.
    """
    if getattr(libc, name)(*arguments) != 0:
        raise Unavailable(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount, or change a mount."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    call(f"mount {target}", "mount", *encoded, ctypes.c_ulong(flags), options.encode())


# ---- the guard: namespaces and id maps


def id_maps() -> tuple[str, str]:
    """Lines for uid_map and gid_map. A root user's program becomes `nobody`, others stay who they are.

    Root inside keeps a way to the interpreter (it may lie in root's home) until the file system is swapped.
    """
    if os.geteuid() == 0 and is_mapped(NOBODY):
        both = f"0 0 1\n{NOBODY} {NOBODY} 1\n"
        return both, both
    return f"{NOBODY} {os.geteuid()} 1\n", f"{NOBODY} {os.getegid()} 1\n"


def is_mapped(user: int) -> bool:
    """Whether `user` exists in the user namespace that we are in: a container may have one user only."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    return any(first <= user < first + count for first, count in ranges)


def write_maps(pid: int) -> str:
    """Write the id maps of process `pid`; what went wrong in words, empty when nothing did."""
    try:
        users, groups = id_maps()
        Path(f"/proc/{pid}/setgroups").write_text("deny", encoding="ascii")
        Path(f"/proc/{pid}/uid_map").write_text(users, encoding="ascii")
        Path(f"/proc/{pid}/gid_map").write_text(groups, encoding="ascii")
    except OSError as error:
        return f"user namespace: id map refused ({error.strerror})"
    return ""


def enter_namespaces() -> None:
    """Be in new namespaces of every kind that matters; the next child is process 1 of them."""
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):  # in a container with one user there are none to drop
            os.setgroups([])
    ready_read, ready_write = os.pipe()
    told_read, told_write = os.pipe()
    guard = os.getpid()
    mapper = os.fork()
    if mapper == 0:
        os.close(ready_write)
        if os.read(ready_read, 1):  # nothing comes when the guard gave up
            os.write(told_write, write_maps(guard).encode())
        os._exit(0)
    os.close(told_write)
    try:
        call("new namespaces", "unshare", CLONE_FLAGS)
        os.write(ready_write, b"x")
    finally:
        os.close(ready_write)
        trouble = os.read(told_read, 1000).decode()
        os.waitpid(mapper, 0)
    if trouble:
        raise Unavailable(trouble)
    with contextlib.suppress(OSError):  # a second wall: /proc/sys is read-only in many containers
        Path("/proc/sys/user/max_user_namespaces").write_text("0", encoding="ascii")


# ---- the warden: the file system


def library_folders() -> list[Path]:
    """Folders that the interpreter loads modules and shared libraries from. No programs, no settings."""
    prefix = Path(sys.base_prefix)
    wanted = [
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("platstdlib")),
        *(prefix / name for name in ("lib", "lib64")),
        *(Path(name) for name in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store")),
    ]
    return list(dict.fromkeys(folder for folder in wanted if folder.is_dir()))


def bind_read_only(source: Path, root: Path) -> None:
    """Show `source` at the same path below `root`, not writable."""
    target = root / source.relative_to("/")
    if target.is_dir() and any(target.iterdir()):
        return  # shown already, inside one of the others
    target.mkdir(parents=True, exist_ok=True)
    mount(str(source), str(target), None, MS_BIND | MS_REC)
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # locked ones must be repeated
    mount(None, str(target), None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def swap_file_system() -> None:
    """Leave nothing in sight but libraries and an empty folder to work in."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = Path.cwd()  # private and empty: made by sandbox.py
    mount("tmpfs", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for folder in sorted({folder.resolve() for folder in library_folders()}):
        bind_read_only(folder, root)
    for link in (Path("/lib"), Path("/lib64")):
        if link.is_symlink():
            (root / link.name).symlink_to(link.readlink())
    scratch = root / SCRATCH
    scratch.mkdir()
    mount(
        "tmpfs",
        str(scratch),
        "tmpfs",
        MS_NOSUID | MS_NODEV | MS_NOEXEC,
        f"size={SCRATCH_SIZE},nr_inodes=256,mode=777",
    )
    os.chdir(root)
    if libc.pivot_root(b".", b".") == 0:
        call("leave the old file system", "umount2", b".", MNT_DETACH)
    else:  # a root file system that cannot be pivoted, as in an initramfs
        mount(".", "/", None, MS_MOVE)
        call("chroot", "chroot", b".")
    os.chdir("/")
    mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(f"/{SCRATCH}")


# ---- the worker: no rights, and proof of it


def drop_rights() -> None:
    """Nobody, with no capability and no way to get one."""
    call("no new privileges", "prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last one that this kernel knows
    call("secure bits", "prctl", PR_SET_SECUREBITS, SECUREBITS_LOCKED, 0, 0, 0)
    if os.geteuid() == 0:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capabilities", "capset", header, nothing)


def set_limits(time_limit_s: float) -> None:
    """Bounds that the kernel keeps."""
    cpu = math.ceil(time_limit_s) + 1
    for kind, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, ADDRESS_SPACE),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def prove() -> None:
    """Try what must not work.

    Raises:
        Unavailable: something worked.
    """
    try:
        child = os.fork()
    except OSError:
        pass
    else:
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        raise Unavailable("the limit on processes is not kept here")
    if {name for _, name in socket.if_nameindex()} - {"lo"}:
        raise Unavailable("the network is still in sight")
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.settimeout(0.2)
        probe.connect(("127.0.0.1", 9))
        raise Unavailable("a connection came about")
    for place in (Path("/"), Path(os.__file__).parent):
        with contextlib.suppress(OSError):
            (place / "probe").touch()
            raise Unavailable(f"{place} is writable")
    shown = {path.parts[1] for path in library_folders()} | {"lib", "lib64", SCRATCH}
    if strangers := {place.name for place in Path("/").iterdir()} - shown:
        raise Unavailable(f"folders of the host are still in sight: {', '.join(sorted(strangers))}")


def told(error: BaseException) -> str:
    """An exception on one line."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the program's own exception may do anything
        text = "?"
    return f"{type(error).__name__}: {text}"[:300]


def work(source: str, results: int, orders: int) -> None:
    """Run the program, then answer calls until there are none left."""
    keep = (
        repr,
        eval,
        json.dumps,
        json.loads,
        os.write,
        os.read,
        told,
    )  # before the program can replace them
    represent, evaluate, dump, parse, write, read, tell = keep
    names: dict[str, object] = {"__name__": "program"}
    try:
        exec(compile(source, "<program>", "exec"), names)  # noqa: S102 - what the sandbox is for
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        write(
            results, dump({"problem": tell(error), "memory": isinstance(error, MemoryError)}).encode() + b"\n"
        )
        return
    write(results, b"ready\n")
    order = parse(read(orders, LINE_LIMIT))
    for expression in order["calls"]:
        memory = False
        try:
            said = represent(evaluate(expression, names))[:REPR_LIMIT]
        except BaseException as error:  # noqa: BLE001 - the check reads it
            memory = isinstance(error, MemoryError)
            said = f"!{tell(error)}"
        write(results, dump([order["token"], said, memory]).encode() + b"\n")


def worker(job: Job, results: int, orders: int) -> None:
    """The last process: whatever happens, it only ends. Never returns."""
    status = 0
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.environ.clear()
        drop_rights()
        set_limits(job.time_limit_s)
        prove()
        os.write(results, b"shut in\n")
        work(job.source, results, orders)
    except Unavailable as error:
        os.write(results, json.dumps({"unavailable": str(error)}).encode() + b"\n")
    except BaseException:  # noqa: BLE001 - out of memory while reporting, and the like
        status = 70
    os._exit(status)


# ---- the warden: the clock and the only way out


class Watch:
    """What the worker has said so far."""

    def __init__(self, calls: list[str], order: Callable[[bytes], object]) -> None:
        """Nothing yet."""
        self.calls = calls
        self.order = order
        self.token = os.urandom(16).hex()
        self.is_shut_in = False
        self.is_ready = False
        self.outcome: dict[str, object] = {"results": [], "problem": ""}
        self.results: list[str] = []

    def take(self, line: bytes) -> None:
        """Take one line in."""
        if not self.is_shut_in:
            self._before(line)
        elif line == b"ready" and not self.is_ready:
            self.is_ready = True
            self.order(json.dumps({"token": self.token, "calls": self.calls}).encode())
        else:
            self._after(line)

    def _before(self, line: bytes) -> None:
        if line == b"shut in":
            self.is_shut_in = True
        else:
            self.outcome = json.loads(line)

    def _after(self, line: bytes) -> None:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and not self.is_ready:
            self.problem("memory limit" if value.get("memory") else str(value.get("problem")))
        elif isinstance(value, list) and value[:1] == [self.token] and len(self.results) < len(self.calls):
            self.results.append(str(value[1]))
            if value[2]:
                self.problem("memory limit")
        else:
            self.problem("the program wrote where only results are written")

    def problem(self, text: str) -> None:
        """Keep the first problem."""
        self.outcome["problem"] = self.outcome.get("problem") or text

    @property
    def is_whole(self) -> bool:
        """Whether every call was answered."""
        return len(self.results) == len(self.calls) and self.is_ready


def watch(process: int, results: int, seen: Watch, time_limit_s: float) -> None:
    """Read what the worker says until it ends or its time is over; then it is dead."""
    ends = time.monotonic() + time_limit_s
    rest = b""
    total = 0
    while (left := ends - time.monotonic()) > 0:
        if not select.select([results], [], [], left)[0]:
            continue
        piece = os.read(results, LINE_LIMIT)
        total += len(piece)
        if not piece:
            break
        if total > TOTAL_LIMIT:
            seen.problem("output limit")
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            seen.take(line)
    else:
        seen.problem("time limit")
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if not seen.is_whole and seen.is_shut_in:
        ended = f"exit status {code if code >= 0 else 128 - code}"
        seen.problem("memory limit" if code == 70 else f"{ended} before every call was answered")


def warden(job: Job) -> None:
    """Process 1: sets the place up, starts the worker, reports. Never returns."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        swap_file_system()
        results_read, results_write = os.pipe()
        orders_read, orders_write = os.pipe()
        started = time.monotonic()
        process = os.fork()
        if process == 0:
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            for number in (nowhere, results_read, orders_write):
                os.close(number)
            worker(job, results_write, orders_read)
        os.close(results_write)
        os.close(orders_read)
        seen = Watch(job.calls, lambda data: os.write(orders_write, data))
        with contextlib.suppress(BrokenPipeError):
            watch(process, results_read, seen, job.time_limit_s)
        report(seen.outcome | {"results": seen.results, "elapsed_s": time.monotonic() - started})
    except (Unavailable, OSError, ValueError) as error:
        report({"unavailable": str(error)})
    os._exit(0)


def report(outcome: dict[str, object]) -> None:
    """Say it to sandbox.py."""
    sys.stdout.write(json.dumps(outcome))
    sys.stdout.flush()


def main() -> None:
    """Read the job, run it shut in, say what it did."""
    job = Job(**json.loads(sys.stdin.buffer.read()))
    try:
        enter_namespaces()
        process = os.fork()
    except (Unavailable, OSError) as error:
        report({"unavailable": str(error)})
        return
    if process == 0:
        warden(job)
    os.waitpid(process, 0)


if __name__ == "__main__":
    main()
