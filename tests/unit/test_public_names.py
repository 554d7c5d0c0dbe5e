"""What `import bringup` offers, and that it costs nothing until it is used."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import bringup
from server import HostileServer

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", dir(bringup))
def test_every_public_name_is_there(name):
    assert getattr(bringup, name) is not None


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute `verif`"):
        _ = bringup.verif


def test_importing_loads_none_of_them():
    code = "import sys, bringup; print([name for name in sys.modules if name.startswith('bringup.')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_verify_is_one_call():
    reports = []

    async def beside_a_server():
        async with HostileServer.with_fault("healthy") as server:
            await asyncio.to_thread(
                lambda: reports.append(bringup.verify(server.url, only=("fact",), depth=bringup.Depth.QUICK))
            )

    asyncio.run(beside_a_server())
    (report,) = reports
    assert (report.verdict, report.exit_code) == ("works", 0)
    assert [finding.id for finding in report.findings] == ["fact"]


def test_replay_is_one_call():
    report = bringup.replay(ROOT / "tests/golden/recordings/demo.json.gz")
    assert report.kind == "verify"
    assert report.findings
