"""A real sshd on loopback with its own keys, port and configuration, and hosts that lack tools."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

RUN_FOLDER = Path("/run/sshd")  # sshd's privilege separation wants it, empty, when it is started by root


def sshd_binary() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def wait_until(condition, what: str, limit_s: float = 20.0) -> None:
    """Wait for something that must come; generous, since it only ends a broken run."""
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up, f"never seen: {what}"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(") ")[2].split()
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(stat.parent.name))
    return found


def make_key(path: Path) -> str:
    """A fresh key pair; the public key's text."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


@dataclass
class Sshd:
    """One sshd and the client configuration that reaches it as `box`."""

    folder: Path
    port: int
    process: subprocess.Popen
    log: Path
    client_options: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """The client's configuration file."""
        path = self.folder / "client_config"
        lines = ["Host box", *(f"  {name} {value}" for name, value in self.client_options.items())]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def connections(self) -> list[int]:
        return children_of(self.process.pid)

    def stop(self) -> None:
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def start_sshd(tmp_path):
    binary = sshd_binary()
    if binary is None or shutil.which("ssh") is None:
        pytest.skip("NOT TESTED: no sshd or no ssh here (Debian: apt-get install openssh-server)")
    made_run_folder = os.geteuid() == 0 and not RUN_FOLDER.exists()
    if made_run_folder:
        RUN_FOLDER.mkdir(mode=0o755)
    started: list[Sshd] = []

    def start(forced_command: str | None = None, banner: str | None = None) -> Sshd:
        folder = tmp_path / f"sshd{len(started)}"
        folder.mkdir()
        host_key, user_key = make_key(folder / "host_key"), make_key(folder / "user_key")
        (folder / "authorized_keys").write_text(user_key + "\n")
        port = free_port()
        lines = [
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "PidFile none",
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "PrintMotd yes",
            "LogLevel VERBOSE",
        ]
        if forced_command is not None:
            (folder / "shell").write_text(forced_command)
            lines.append(f"ForceCommand sh {folder}/shell")
        if banner is not None:
            (folder / "banner").write_text(banner)
            lines.append(f"Banner {folder}/banner")
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        log = folder / "log"
        process = subprocess.Popen(
            [binary, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)], stdin=subprocess.DEVNULL
        )
        options = {
            "HostName": "127.0.0.1",
            "Port": str(port),
            "User": getpass.getuser(),
            "IdentityFile": f"{folder}/user_key",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": f"{folder}/known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        sshd = Sshd(folder, port, process, log, options)
        started.append(sshd)
        wait_until(lambda: log.exists() and "Server listening" in log.read_text(), f"sshd: {log}")
        return sshd

    try:
        yield start
    finally:
        for sshd in started:
            sshd.stop()
        if made_run_folder:
            RUN_FOLDER.rmdir()


@pytest.fixture
def sshd(start_sshd):
    return start_sshd()


@pytest.fixture
def delaying_proxy():
    """A ProxyCommand that delays both directions by so many seconds."""
    program = Path(__file__).parents[3] / "bench" / "delay_link.py"

    def command(delay_s: float) -> str:
        return f"{sys.executable} {program} %h %p {delay_s}"

    return command


@pytest.fixture
def host_shell(tmp_path):
    """The shell of a host whose tools are as named: ("bash", without="timeout")."""

    def make(shell: str, without: str = "") -> tuple[str, ...]:
        program, *arguments = shell.split()
        path = shutil.which(program)
        if path is None:
            pytest.skip(f"NOT TESTED: no {program} here (Debian: apt-get install {program})")
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "sh").write_text(f"#!{path}\n" if not arguments else "")
        (folder / "sh").unlink()
        if arguments:  # busybox: every applet that the script uses
            for name in ("sh", "head", "sleep", "date", "timeout", "setsid"):
                (folder / name).symlink_to(path)
        else:
            (folder / "sh").symlink_to(path)
        for name in without.split():
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_text("#!/bin/sh\nexit 127\n")
            (folder / name).chmod(0o755)
        return ("/usr/bin/env", f"PATH={folder}:{os.environ['PATH']}", str(folder / "sh"))

    return make
