"""What a snapshot costs over a slow link: one round trip, however many questions it asks.

Starts its own sshd on loopback (own keys, own port), reaches it through a ProxyCommand that delays both ways,
and times rounds of 1 and of 30 questions, and 30 rounds of one question for comparison. How many times the
network is crossed is read from the difference between a slow and a fast link, so the machine's own load falls
out. ssh itself takes two round trips for any command: one opens the channel, one runs the command.

usage: python bench/round_trip.py [round trip time in seconds, default 0.1] [repeats, default 5]
"""

import asyncio
import atexit
import getpass
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from bringup.transport.ssh import SshRunner
from bringup.values.host import Question

MANY = 30
RUN_FOLDER = Path("/run/sshd")  # sshd wants it, empty, when started by root


def main() -> None:
    round_trip_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(prefix="round-trip-") as name:
        folder = Path(name)
        port, sshd = start_sshd(folder)
        try:
            links = {delay_s: client_config(folder, port, delay_s) for delay_s in (0.0, round_trip_s)}
            show(asyncio.run(measure(links, repeats)), round_trip_s)
        finally:
            sshd.terminate()
            sshd.wait()


async def measure(links: dict[float, Path], repeats: int) -> dict[tuple[str, float], float]:
    """Median seconds by (what, round trip time of the link)."""
    times: dict[tuple[str, float], list[float]] = {}
    for _ in range(repeats):
        for delay_s, config in links.items():
            for what, seconds in (await one_visit(config)).items():
                times.setdefault((what, delay_s), []).append(seconds)
    return {key: statistics.median(values) for key, values in times.items()}


async def one_visit(config: Path) -> dict[str, float]:
    runner = SshRunner("box", config_file=str(config), connect_limit_s=30.0)
    try:
        began = time.perf_counter()
        await runner.ask(questions(1))
        first = time.perf_counter() - began
        one = await timed_round(runner, 1)
        many = await timed_round(runner, MANY)
        began = time.perf_counter()
        for _ in range(MANY):
            await runner.ask(questions(1))
        apart = time.perf_counter() - began
    finally:
        await runner.close()
    return {
        "connect + 1 question": first,
        "1 question": one,
        f"{MANY} questions": many,
        f"{MANY} x 1 question": apart,
    }


async def timed_round(runner: SshRunner, count: int) -> float:
    began = time.perf_counter()
    results = await runner.ask(questions(count))
    seconds = time.perf_counter() - began
    if any(result.status != 0 for result in results.values()):
        sys.exit("not every question was answered")
    return seconds


def questions(count: int) -> Sequence[Question]:
    return [Question(key=str(number), argv=("cat", "/proc/loadavg")) for number in range(count)]


def show(medians: dict[tuple[str, float], float], round_trip_s: float) -> None:
    print(f"{'':22}{'fast link':>12}{f'{round_trip_s * 1000:g} ms link':>14}{'round trips':>14}")
    extra = {}
    for what in dict.fromkeys(name for name, _ in medians):
        fast, slow = medians[what, 0.0], medians[what, round_trip_s]
        extra[what] = (slow - fast) / round_trip_s
        print(f"{what:22}{fast * 1000:9.0f} ms{slow * 1000:11.0f} ms{extra[what]:14.1f}")
    one, many, apart = "1 question", f"{MANY} questions", f"{MANY} x 1 question"
    print(f"{MANY} questions in one round : 1 question     = {extra[many] / extra[one]:.2f} (round trips)")
    print(f"{MANY} rounds : {MANY} questions in one round = {extra[apart] / extra[many]:.1f} (round trips)")
    ratio = medians[apart, round_trip_s] / medians[many, round_trip_s]
    print(f"{MANY} rounds : {MANY} questions in one round = {ratio:.1f} (seconds on the slow link)")


def start_sshd(folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        sys.exit("no sshd here (Debian: apt-get install openssh-server)")
    if os.geteuid() == 0 and not RUN_FOLDER.exists():
        RUN_FOLDER.mkdir()
        atexit.register(RUN_FOLDER.rmdir)
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nAuthorizedKeysFile {folder}/user_key.pub\nPermitRootLogin yes\n"
    )
    process = subprocess.Popen([program, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")])
    while "Server listening" not in ((folder / "log").read_text() if (folder / "log").exists() else ""):
        if process.poll() is not None:
            sys.exit(f"sshd did not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)
    return port, process


def client_config(folder: Path, port: int, round_trip_s: float) -> Path:
    path = folder / f"client-{round_trip_s}"
    delay = f"{sys.executable} {Path(__file__).parent / 'delay_link.py'} %h %p {round_trip_s / 2}"
    path.write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking accept-new\n  ProxyCommand {delay}\n"
    )
    return path


if __name__ == "__main__":
    main()
