"""`bringup demo` from the outside: offline, with ports taken, and interrupted at any moment."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
SOURCE = Path(__file__).parents[2] / "src"
MARK = "BRINGUP_TEST_RUN"
USUAL_PORTS = (8000, 8080, 30000)
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens
OFFLINE = {
    "PIP_INDEX_URL": NOWHERE,
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "http_proxy": NOWHERE,
    "https_proxy": NOWHERE,
    "all_proxy": NOWHERE,
    "no_proxy": "",
}


def start_demo(mark: str, folder: Path, *options: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (sys.executable, "-m", "bringup", "demo", "--no-color", "--output", str(folder), *options),
        env={**os.environ, "PYTHONPATH": str(SOURCE), MARK: mark, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left_running(mark: str) -> list[str]:
    """Command lines of the processes that carry the mark, whoever their parent is now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it printed; killed, and the test failed, where it does not end."""
    try:
        return process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def test_works_without_network_and_with_the_usual_ports_taken(weights, tmp_path):
    mark = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        for port in USUAL_PORTS:
            with contextlib.suppress(OSError):  # taken by somebody else: as good
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        process = start_demo(mark, tmp_path, "--quick", **OFFLINE)
        out, err = ended(process)
    assert process.returncode == 0, err
    assert out.startswith("works")
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 0
    assert {"recording.json.gz", "report.md", "junit.xml"} <= {file.name for file in tmp_path.iterdir()}
    assert left_running(mark) == []


@pytest.mark.parametrize("least_s", [0.0, 0.6, 1.5, 3.0, 6.0])
def test_an_interrupt_leaves_nothing_running(weights, tmp_path, least_s):
    mark, moment_s = uuid.uuid4().hex, least_s + random.random() * max(0.5, least_s)
    process = start_demo(mark, tmp_path, "--full")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=moment_s)
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    _, err = ended(process)
    # Python itself may still be starting: then the interrupt ends it with its own words.
    assert "Traceback" not in err or moment_s < 1.5, f"interrupted after {moment_s:.2f} s: {err}"
    assert process.returncode != 0
    assert left_running(mark) == [], f"interrupted after {moment_s:.2f} s"
    print(f"interrupted after {moment_s:.2f} s, ended {time.monotonic() - interrupted:.2f} s later")
