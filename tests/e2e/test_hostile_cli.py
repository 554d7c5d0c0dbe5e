"""The command itself against sick servers: exit code, JSON, no traceback, replay, and a bounded memory."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup.errors import EXIT_FINDINGS, EXIT_HOST, EXIT_OK
from server import HostileServer

# Prints its own peak of memory, which `ru_maxrss` does not give: that one begins with the parent's.
_MEASURED = """
import sys
from pathlib import Path
from bringup.cli.main import main
try:
    main()
finally:
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(line for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""
_SOURCE = Path(__file__).parents[2] / "src"
MOST_MORE = 60_000_000  # bytes over the peak of a run against the healthy server


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one run of the command gave."""

    code: int | None
    out: str
    err: str

    @property
    def peak(self) -> int:
        """Most bytes that were resident at once."""
        line = next(line for line in self.err.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    @property
    def findings(self) -> dict[str, str]:
        """Severity by id; of several with one id the last."""
        return {one["id"]: one["severity"] for one in json.loads(self.out)["findings"]}


async def bringup(*arguments: str) -> Ran:
    """The command with `arguments`, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _MEASURED, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "PYTHONPATH": str(_SOURCE),
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
        },
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ran(code=process.returncode, out=out.decode(), err=err.decode())


async def verified(fault: str, *options: str) -> Ran:
    async with HostileServer.with_fault(fault) as server:
        return await bringup("verify", server.url, "--json", *options)


@pytest.fixture(scope="module")
def healthy() -> Ran:
    """A whole run against the healthy server, on this machine as its host."""
    return asyncio.run(verified("healthy", "--full"))


def test_a_healthy_server_gets_no_warning(healthy: Ran):
    bad = {name: severity for name, severity in healthy.findings.items() if severity not in ("ok", "note")}
    # whether a program can be shut in, and whether the GPUs can be read, is this machine's affair
    assert set(bad) <= {"code.isolation", "gpu_memory", "idle_gpus"}, bad
    assert set(bad.values()) <= {"unknown"}, bad
    assert healthy.code == (7 if bad else EXIT_OK)


@pytest.mark.parametrize(
    ("fault", "options", "code"),
    [
        ("garbage", ("--full",), EXIT_FINDINGS),
        ("half_characters", ("--full",), EXIT_FINDINGS),
        ("terminal_escapes", ("--full",), EXIT_FINDINGS),
        ("truncated_sse", ("--full",), EXIT_FINDINGS),
        ("never_answers", ("--full", "--budget", "4"), EXIT_FINDINGS),
        ("dies_bad_json", ("--full",), EXIT_FINDINGS),
        ("malformed_everywhere", ("--budget", "4"), EXIT_HOST),
        ("silent_everywhere", ("--budget", "4"), EXIT_HOST),
    ],
)
def test_a_sick_server_never_brings_a_traceback(
    fault: str, options: tuple[str, ...], code: int, tmp_path: Path
):
    file = tmp_path / "run.json.gz"
    ran = asyncio.run(verified(fault, *options, "--record", str(file)))
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    assert "Task exception" not in ran.err
    assert "\x1b" not in ran.out
    if code == EXIT_HOST:
        assert ran.out == ""
        assert "hint:" in ran.err
        return
    again = asyncio.run(bringup("verify", "--from", str(file), "--json"))
    assert again.code == code, again.err
    assert json.loads(again.out) == json.loads(ran.out)


@pytest.mark.parametrize("fault", ["gigabyte_body", "huge_headers", "endless", "deep_json", "bytewise"])
def test_memory_stays_bounded(fault: str, healthy: Ran):
    ran = asyncio.run(verified(fault, "--full"))
    assert "Traceback" not in ran.err
    more = ran.peak - healthy.peak
    print(f"{fault}: {ran.peak / 1e6:.0f} MB at its peak, {more / 1e6:+.0f} MB against the healthy server")
    assert more < MOST_MORE
