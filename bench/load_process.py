"""What a client costs: processor time of all its processes, wall time, memory in common-page shares."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.units import KIB
from load_mock import favour

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SAMPLE_S = 0.2
_END_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One run of one command."""

    status: int | None  # None: ended at the time limit
    cpu_s: float  # user and system, of all processes
    wall_s: float
    peak_memory: int | None  # bytes, PSS of all processes; None when it was not sampled
    processes: int  # the most at the same time; 0 when they were not sampled
    stdout: str
    stderr: str


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave behind, so that its time counts too."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def run(
    argv: Sequence[str], *, environment: Mapping[str, str], folder: Path, limit_s: float, sample: bool
) -> Cost:
    """The command, run to its end, and what it cost.

    Processor time is what the kernel adds up for ended children, so orphans are waited for. Nothing else may
    be started and ended by this process meanwhile. The sampling of memory runs beside it only when asked for:
    it takes the locks of the processes it looks at.
    """
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        before, begun = _spent(), time.monotonic()
        process = subprocess.Popen(
            list(argv), stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=dict(environment), cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        sampler = _Sampler(process.pid) if sample else None
        favour(process.pid)
        end = _End(process.pid)
        status, wall = None, 0.0
        try:
            at = end.within(limit_s)
            wall = (time.monotonic() if at is None else at) - begun
            status = None if at is None else process.wait()
        finally:  # when this program is ended, too
            if sampler is not None:
                sampler.stop()
            _end_group(process.pid)
            process.wait()
            _reap()
    return Cost(
        status=status,
        cpu_s=_spent() - before,
        wall_s=wall,
        peak_memory=None if sampler is None else sampler.most,
        processes=0 if sampler is None else sampler.processes,
        stdout=(folder / "stdout").read_text(encoding="utf-8", errors="replace"),
        stderr=(folder / "stderr").read_text(encoding="utf-8", errors="replace"),
    )


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end_group(pid: int) -> None:
    """End what the client left running: the session is its own, so nothing else is in it.

    At real-time priority the end of a process can wait for ever for one that reads its files in /proc and
    never gets the core (seen on Linux 6.18, in `release_task`): such a client loses its priority first.
    """
    for one in set(_tree(pid)):
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(one) != os.SCHED_OTHER:
                os.sched_setscheduler(one, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reap() -> None:
    """Wait for orphans of the client, and end them if they stay. The server is in this very session."""
    patience = time.monotonic() + _END_LIMIT_S
    while orphans := [pid for pid in _children(os.getpid()) if _session(pid) != os.getsid(0)]:
        for pid in orphans:
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                if time.monotonic() > patience:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _session(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(word) for word in (task / "children").read_text(encoding="ascii").split()]
    return found


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _tree(child)


class _End:
    """When a child ended, to the microsecond: `Popen.wait` with a limit looks only twenty times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at: float | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def within(self, limit_s: float) -> float | None:
        """The moment on the monotonic clock; `None` if it did not end."""
        self._thread.join(limit_s)
        return self._at

    def _wait(self) -> None:
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        self._at = time.monotonic()


class _Sampler:
    """The most memory that a process and its descendants had together, looked at five times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.most: int | None = None
        self.processes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)  # of this thread: it must not disturb
        while not self._ended.wait(_SAMPLE_S):
            sizes = [size for size in map(_proportional_size, set(_tree(self._pid))) if size is not None]
            self.processes = max(self.processes, len(sizes))
            if sizes:
                self.most = max(self.most or 0, sum(sizes))


def _proportional_size(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * KIB
    return None
