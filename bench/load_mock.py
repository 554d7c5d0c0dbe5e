"""The server of the load benches: a mock in C that knows when it did what, and the C client beside it.

Both are single files of C, compiled by the bench itself. The mock writes down for each request when its last
byte was read, when the first token and when the last token were handed to the kernel: that is the truth that
the clients are held against, not the schedule that was asked for.
"""

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "shared" / "tools"  # beside the checkout
_MOST_DESCRIPTORS = 16_384  # MAXFD of the mock
_START_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the server is told to do. An interval of 0: as fast as the socket takes it."""

    ttft_us: int = 50_000
    itl_us: int = 20_000
    events_per_write: int = 1  # only without an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the server did, from its own log: means over the requests counted."""

    requests: int
    tokens: int
    ttft_s: float
    itl_s: float | None  # None: no request had two tokens
    busy_s: float  # time during which at least one request was with it
    most_streams: int
    late_us: float  # how late it was against its own schedule, mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The compiled programs."""

    mock: Path
    raw: Path


def build(folder: Path, sources: Path = SOURCES) -> Programs:
    """The two programs, compiled into `folder`. Ends the bench, with what is missing, if it cannot."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("no C compiler: this bench needs gcc to build the mock server and the C client")
    built: list[Path] = []
    for name in ("mockllm", "rawclient"):
        source = sources / f"{name}.c"
        if not source.is_file():
            sys.exit(f"no {name}.c in {sources}: name the folder that has it with --sources")
        subprocess.run([compiler, "-O2", "-o", folder / name, source], check=True)
        built.append(folder / name)
    return Programs(mock=built[0], raw=built[1])


def raise_descriptor_limit() -> int:
    """The limit of open files, raised as far as allowed: a stream is one on each side."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """How server and clients stand against what else runs on the machine."""

    nice: int = 0
    real_time: bool = False  # before all else on their cores; a client's processes take turns badly then

    @property
    def words(self) -> str:
        """As the page says it."""
        if self.real_time:
            return "server and clients at real-time priority"
        return f"server and clients at nice {self.nice}"

    def take(self) -> None:
        """Give this process the niceness; what it starts inherits it and does not wait its turn."""
        os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        favour(os.getpid())


def favour(pid: int) -> None:
    """Give the session of a process this one's niceness.

    Linux shares the processor among sessions first, where it groups them (autogroup, sched(7)): without this
    a client in a session of its own gets no more than any other session.
    """
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")


def placed(argv: Sequence[str], *, core: int | None, rank: Rank) -> list[str]:
    """The command, run on one core and at a priority.

    >>> placed(["mock"], core=0, rank=Rank(nice=-19))
    ['taskset', '-c', '0', 'mock']
    >>> placed(["mock"], core=None, rank=Rank(real_time=True))
    ['chrt', '--fifo', '10', 'mock']
    """
    pin = [] if core is None else ["taskset", "-c", str(core)]
    return [*(["chrt", "--fifo", "10"] if rank.real_time else []), *pin, *argv]


class Mock:
    """A running mock server. `url` is for clients; the rest is its own log."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def reset(self) -> None:
        """Empty the log."""
        self._ask("__reset")

    def truth(self, requests: int) -> Truth | None:
        """The last `requests` of the log: a client's warm-up does not count. None if none finished."""
        stats = json.loads(self._ask("__stats"))
        return read_truth(self._ask("__dump"), requests, stats["max_streams"], stats["late_us"]["mean"])

    def _ask(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=30) as answer:
            return answer.read().decode()


def read_truth(dump: str, requests: int, most_streams: int, late_us: float) -> Truth | None:
    r"""What the log says of its last requests by arrival.

    >>> log = "arrival_ns,first_ns,last_ns,tokens\n0,5000,9000,3\n10000,15000,25000,3\n"
    >>> found = read_truth(log, 1, 1, 0.0)
    >>> found.ttft_s, found.itl_s, found.tokens
    (5e-06, 5e-06, 3)
    """
    every = sorted(tuple(int(part) for part in line.split(",")) for line in dump.split()[1:])
    rows = every[-requests:]
    if not rows:
        return None
    gaps = [(last - first) / (tokens - 1) for _, first, last, tokens in rows if tokens > 1]
    busy, until = 0, 0
    for arrived, _, last, _ in rows:
        busy += max(0, last - max(arrived, until))
        until = max(until, last)
    return Truth(
        requests=len(rows),
        tokens=sum(row[3] for row in rows),
        ttft_s=sum(first - arrived for arrived, first, _, _ in rows) / len(rows) / 1e9,
        itl_s=sum(gaps) / len(gaps) / 1e9 if gaps else None,
        busy_s=busy / 1e9,
        most_streams=most_streams,
        late_us=late_us,
    )


@contextlib.contextmanager
def running(program: Path, pace: Pace, *, core: int | None, rank: Rank) -> Iterator[Mock]:
    """The mock at that pace, while it runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [str(program), "--port", str(port), "--ttft-us", str(pace.ttft_us), "--itl-us", str(pace.itl_us)]
    argv += ["--batch", str(pace.events_per_write)]
    process = subprocess.Popen(placed(argv, core=core, rank=rank), stderr=subprocess.DEVNULL)
    mock = Mock(port)
    try:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                mock.reset()
                break
            time.sleep(0.01)
        yield mock
    finally:
        process.terminate()
        process.wait()


def machine() -> dict[str, object]:
    """What the figures were taken on, without naming the machine."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model,
        "kernel": ".".join(os.uname().release.split(".")[:2]),
        "python": sys.version.split()[0],
    }
