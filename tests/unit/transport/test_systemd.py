"""Units that a real systemd cannot start, diagnosed from the journal that it wrote of them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import wait_until

ROOT = Path(__file__).parents[3]
SERVE = "echo vllm serve m --port 8000; exec sleep 300"
UNITS = {
    "waits": f"Type=notify\nTimeoutStartSec=2\nExecStart=/bin/sh -c '{SERVE}'",
    "no-program": "ExecStart=/nowhere/bin/vllm serve m",
    "not-in-path": "ExecStart=vllm-that-is-nowhere serve m",
    "no-user": "User=nobody-of-that-name\nExecStart=/bin/true",
    "no-folder": "WorkingDirectory=/nowhere/at/all\nExecStart=/bin/true",
    "no-home": "User=4242\nExecStart=/usr/bin/perl -e 'die qq(KeyError: getpwuid(): uid not found: $<\\n)'",
    "no-start-line": "ExecStrat=/bin/true",
    "no-environment-file": "EnvironmentFile=/nowhere/vllm.env\nExecStart=/bin/true",
}
EXPECTED = dict.fromkeys(UNITS, "systemd.env") | {"waits": "systemd.timeout"}
# tmpfs without a copy of what is there: else podman copies the machine's /tmp.
PLACES = ("/tmp", "/run", "/run/lock", "/var/log/journal")
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--network=none")


def podman(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", "--runtime=runc", *argv], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """`journalctl` and `systemctl` of a systemd that runs, with the units, over this machine's own files."""
    programs = (shutil.which("podman"), shutil.which("runc"), Path("/lib/systemd/systemd").exists())
    if not all(programs) or os.geteuid() != 0:
        pytest.skip(
            "NOT TESTED: no podman, runc or systemd, or not root (Debian: apt-get install podman runc)"
        )
    folder = tmp_path_factory.mktemp("systemd")
    (folder / "units").mkdir()
    for name, service in UNITS.items():
        text = f"[Unit]\nDescription={name}\n[Service]\n{service}\nRestart=on-failure\nRestartSec=1\n"
        (folder / "units" / f"{name}.service").write_text(text)
    (folder / "units" / "all.target").write_text("[Unit]\nWants=systemd-journald.service\n")
    box = f"bringup-systemd-{os.getpid()}"
    mounts = [f"--tmpfs={place}:notmpcopyup" for place in PLACES]
    argv = ["run", "--detach", "--rm", "--name", box, "--systemd=always", *LIMITS, *mounts]
    argv += ["--volume", f"{folder}/units:/etc/systemd/system:ro", "--rootfs", "/:O"]
    try:
        started = podman(*argv, "/lib/systemd/systemd", "--unit=all.target")
        if started.returncode:
            pytest.skip(f"NOT TESTED: no systemd runs in a container here: {started.stderr[-300:]}")
        _let_fail(box)
        for name in ("journalctl", "systemctl"):
            program = folder / "tools" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\nexec podman --runtime=runc exec {box} {name} "$@"\n')
            program.chmod(0o755)
        yield folder / "tools"
    finally:
        podman("kill", box)


def _let_fail(box: str) -> None:
    """Every unit started, and its failure in the journal."""
    wait_until(lambda: podman("exec", box, "systemctl", "is-active", "all.target").returncode == 0, "systemd")
    for name in UNITS:
        podman("exec", box, "systemctl", "start", "--no-block", name)
    told = re.compile(r"([\w-]+)\.service: (?:Failed with result|.*Refusing)")

    def all_failed() -> bool:
        journal = podman("exec", box, "journalctl", "--no-pager", "--quiet").stdout
        return set(UNITS) <= set(told.findall(journal))

    wait_until(all_failed, "a failure of each unit", limit_s=60)


def diagnose(tools: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": path}
    argv = [sys.executable, "-m", "bringup", "diagnose", "--quiet", "--json", *arguments]
    return subprocess.run(argv, capture_output=True, env=environment, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_that_cannot_start_is_told_by_its_journal(tools, unit):
    done = diagnose(tools, "--unit", unit)
    assert done.stdout, done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert (first["id"], first["severity"]) == (EXPECTED[unit], "failure"), first
    assert first["fixes"]
    assert "UNIT" not in first["next_measurement"]
    assert f"{unit}.service" in first["next_measurement"]
