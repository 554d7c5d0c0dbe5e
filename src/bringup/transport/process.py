"""A child process that never outlives us: own session, ended by its pid, its output in a file."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import EngineError

_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp
_GRACE_S = 5.0  # seconds between asking a process to end and ending it


@dataclass(slots=True)
class Child:
    """A started program. Its standard input is a pipe that we hold open as long as we live."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group."""
        return self.popen.pid

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    def owns_port(self, port: int) -> bool | None:
        """Whether it holds the socket that listens on `port`; None where that cannot be seen."""
        processes = Path("/proc") / str(self.pid)
        try:
            rows = [line.split() for line in (processes / "net/tcp").read_text().splitlines()[1:]]
            held = {link.readlink().name for link in (processes / "fd").iterdir()}
        except OSError:
            return None
        listening = [row for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]
        return any(f"socket:[{row[9]}]" in held for row in listening) if listening else None

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of what it printed."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    async def stop(self) -> None:
        """Ends it and everything in its process group, politely first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
            for _ in range(int(_GRACE_S / 0.05)):
                if self.popen.poll() is not None:
                    break
                await asyncio.sleep(0.05)
            if self.popen.poll() is not None:
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # children that outlived their leader
        if self.popen.stdin is not None:
            self.popen.stdin.close()


def start(argv: tuple[str, ...], *, log: Path, environment: Mapping[str, str] | None = None) -> Child:
    """The started program, in a session of its own so that Ctrl-C reaches us alone and we end it.

    Raises:
        EngineError: it could not be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        try:
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"could not start `{argv[0]}`: {error.strerror}") from None
    return Child(popen=popen, log=log)


def free_port() -> int:
    """A loopback port that nothing uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
