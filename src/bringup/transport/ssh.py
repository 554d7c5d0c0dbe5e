"""Asks a host through the OpenSSH client, with the user's own configuration, keys, agent and jump hosts.

One master connection behind a private control socket serves every round of questions and every forwarded
port. It is a child of ours and ends with us, however we end.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bringup.errors import HostError, UsageError
from bringup.parse.redact import redact
from bringup.transport.channel import Patience, Round, ask_through, end_process
from bringup.transport.spawn import started
from bringup.transport.ssh_errors import explain
from bringup.values.host import CommandResult, Question

_SOCKET_FOLDER_LIMIT = 50  # a socket's path may have 104 bytes, of which ssh adds 17 for a while
_FORBIDDEN = set("'\"`$;&<>|(){}\\ \t\r\n")
_POLL_S = 0.005
_QUOTE_LIMIT = 300  # characters of what the host said that an error message repeats

# Runs the master so that it ends when our end of its standard input does: also when we are killed.
_MASTER = """
folder=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- &
master=$!
trap 'kill "$master"' TERM HUP INT
( read -r word <&3; kill "$master" ) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$master"
status=$?
kill "$watcher" 2>/dev/null
rmdir "$folder" 2>/dev/null
exit "$status"
"""


class SshRunner:
    """Asks one host over ssh; connects at the first question.

    `config_file` stands in for the user's `~/.ssh/config` (ssh's `-F`); without it the environment variable
    `BRINGUP_SSH_CONFIG` may name one.
    """

    def __init__(
        self,
        destination: str,
        *,
        config_file: str | None = None,
        connect_limit_s: float = 10.0,
        patience: Patience | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self._destination = checked_destination(destination)
        self._config_file = config_file or os.environ.get("BRINGUP_SSH_CONFIG")
        self._connect_limit_s = connect_limit_s
        self._patience = patience or Patience()
        self._secrets = tuple(secrets)
        self._folder: Path | None = None
        self._master: Process | None = None
        self._forwards: dict[tuple[str, int], int] = {}
        self._connecting = asyncio.Lock()
        self._listening: asyncio.Task[str] | None = None

    @property
    def host(self) -> str:
        """The destination as the user wrote it."""
        return self._destination

    async def ask(self, questions: Sequence[Question]) -> Mapping[str, CommandResult]:
        """One result per question, by key, and the host's clock as `transport.clock`.

        When the link breaks half-way, what had arrived is returned and the rest is marked as skipped.

        Raises:
            HostError: no connection, or not one answer came.
        """
        await self._connect()
        try:
            asked = await ask_through(
                self._session(),
                questions,
                patience=self._patience,
                secrets=self._secrets,
                takes_command=True,
            )
        except OSError as error:
            raise HostError(f"cannot run `ssh`: {error.strerror}") from None
        if asked.broken:
            await self._disconnect()  # the next round begins with a fresh connection
        if not asked.is_begun:
            raise self._no_answer(asked)
        return asked.results

    async def forward(self, remote_host: str, remote_port: int) -> int:
        """A local port on 127.0.0.1 that leads to `remote_host:remote_port` as seen from the host.

        Raises:
            HostError: no connection, or the host does not forward.
        """
        await self._connect()
        known = self._forwards.get((remote_host, remote_port))
        if known is not None:
            return known
        said = ""
        for _attempt in range(3):  # another program may take the free port before ssh does
            port = _free_port()
            said = await self._add_forward(port, remote_host, remote_port)
            if not said:
                self._forwards[remote_host, remote_port] = port
                return port
        raise explain(self._destination, said, doing=f"reach {remote_host}:{remote_port} through")

    async def close(self) -> None:
        """End the connection and every forward; remove the socket and its folder."""
        self._forwards.clear()
        await self._disconnect()

    async def _connect(self) -> None:
        async with self._connecting:
            if self._master is not None and self._master.returncode is None:
                return
            await self._disconnect()
            try:
                await self._open_master()
                await self._renew_forwards()
            except BaseException:
                await self._disconnect()
                raise

    async def _renew_forwards(self) -> None:
        for (remote_host, remote_port), port in self._forwards.items():
            if said := await self._add_forward(port, remote_host, remote_port):
                raise explain(self._destination, said, doing=f"reach {remote_host}:{remote_port} through")

    async def _open_master(self) -> None:
        self._folder = _socket_folder()
        argv = ["ssh", "-M", "-N", "-T", *self._options(), "--", self._destination]
        try:
            self._master = await started(
                asyncio.create_subprocess_exec(
                    *("sh", "-c", _MASTER, "sh", str(self._folder), *argv),
                    stdin=PIPE,
                    stdout=DEVNULL,
                    stderr=PIPE,
                    start_new_session=True,
                )
            )
        except OSError as error:
            raise HostError(f"cannot run `ssh`: {error.strerror}") from None
        listening = asyncio.create_task(_stderr_of(self._master))
        # Both name lookup and log-in happen within this; ConnectTimeout bounds only the TCP connection.
        limit_s = 3 * self._connect_limit_s
        try:
            async with asyncio.timeout(limit_s):
                while not self._socket.exists() and not listening.done():
                    await asyncio.wait({listening}, timeout=_POLL_S)
        except TimeoutError:
            said = await self._last_words(listening)
            raise explain(
                self._destination, f"{said}\nssh did not answer within {limit_s:g} s", doing="connect to"
            ) from None
        except BaseException:
            listening.cancel()
            raise
        if listening.done() and not self._socket.exists():
            raise self._no_connection(listening.result())
        self._listening = listening  # keeps the pipe drained for as long as the master lives

    async def _last_words(self, listening: "asyncio.Task[str]") -> str:
        if self._master is not None:
            await end_process(self._master)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(listening, 1.0)
        return ""

    def _no_connection(self, said: str) -> HostError:
        if shutil.which("ssh") is None:
            return HostError(
                "`ssh` is not installed here",
                hint="install the OpenSSH client (`apt install openssh-client`)",
            )
        return explain(self._destination, redact(said, self._secrets), doing="connect to")

    def _no_answer(self, asked: Round) -> HostError:
        if asked.status == 255:  # ssh's own failure; the script itself ends with 0
            return explain(self._destination, asked.noise or asked.broken, doing="ask")
        said = " / ".join(line.strip() for line in asked.noise.splitlines() if line.strip())[:_QUOTE_LIMIT]
        return HostError(
            f"`{self._destination}` let us in but ran no `sh`: {said or asked.broken}",
            hint=f"`ssh {self._destination} 'echo works'` must print `works`: is the account restricted to "
            "one command, or does its shell start another program?",
        )

    async def _disconnect(self) -> None:
        master, self._master = self._master, None
        folder, self._folder = self._folder, None
        try:
            if master is not None:
                await asyncio.shield(end_process(master))
        finally:
            if master is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(master.pid, signal.SIGKILL)  # whatever a ProxyCommand left behind
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _socket(self) -> Path:
        if self._folder is None:
            raise HostError(f"not connected to `{self._destination}`")
        return self._folder / "s"

    def _options(self) -> list[str]:
        options = [
            *("BatchMode=yes", f"ConnectTimeout={max(1, round(self._connect_limit_s))}"),
            *("ServerAliveInterval=5", "ServerAliveCountMax=3", "LogLevel=ERROR"),
            # The user's configuration may say otherwise, for sessions that are not ours.
            *("ControlMaster=yes", "ControlPersist=no", "RemoteCommand=none", "RequestTTY=no"),
            "ClearAllForwardings=yes",
        ]
        config = ["-F", self._config_file] if self._config_file else []
        return [*config, *(part for option in options for part in ("-o", option)), "-S", str(self._socket)]

    def _session(self) -> list[str]:
        """A session through the master, never a connection of its own without the user's settings."""
        return [*self._client(), "-T", "--", self._destination]

    def _client(self) -> list[str]:
        quiet = ["-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
        return ["ssh", "-F", "none", *quiet, "-S", str(self._socket)]

    async def _add_forward(self, port: int, remote_host: str, remote_port: int) -> str:
        """What ssh complained about; empty when the forward stands."""
        to = f"[{remote_host}]" if ":" in remote_host else remote_host
        forward = f"127.0.0.1:{port}:{to}:{remote_port}"
        process = await started(
            asyncio.create_subprocess_exec(
                *(*self._client(), "-O", "forward", "-L", forward, "--", self._destination),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
            )
        )
        _, said = await process.communicate()
        return "" if process.returncode == 0 else said.decode("utf-8", "replace") or "forwarding failed"


def checked_destination(destination: str) -> str:
    """The destination, when ssh can take it for nothing else.

    Raises:
        UsageError: empty, begins with a dash, or holds characters that no host or user name has.
    """
    host = destination.rpartition("@")[2]
    if not destination or destination.startswith("-") or not host or host.startswith("-"):
        raise UsageError(
            f"`{destination}` is not a host", hint="wanted HOST, USER@HOST or ssh://USER@HOST:PORT"
        )
    if _FORBIDDEN.intersection(destination) or not destination.isprintable():
        raise UsageError(
            f"`{destination}` holds characters that no host has",
            hint="wanted HOST or USER@HOST, without options",
        )
    return destination


def _socket_folder() -> Path:
    """A fresh folder of ours alone (mode 0700), with a path short enough for a socket."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _SOCKET_FOLDER_LIMIT else "/tmp"  # noqa: S108 - mkdtemp makes it safe
    return Path(tempfile.mkdtemp(prefix="bringup-", dir=place))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _stderr_of(process: Process) -> str:
    """The last of what a process says on standard error, read until it ends."""
    said = b""
    while process.stderr is not None and (data := await process.stderr.read(65_536)):
        said = (said + data)[-16_000:]
    return said.decode("utf-8", "replace")
