"""`bringup verify` of an endpoint that only its own host can reach, over a real sshd."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bringup.errors import EXIT_HOST
from server import HostileServer

_SOURCE = Path(__file__).parents[3] / "src"


async def bringup(config: str, *arguments: str) -> tuple[int | None, str, str]:
    """Exit code, standard output and standard error of the command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bringup", "verify", "--quick", "--quiet", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(_SOURCE), "BRINGUP_SSH_CONFIG": config},
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, out.decode(), err.decode()


def test_the_hosts_own_loopback_is_reached_and_its_machine_is_read(sshd, tmp_path):
    recording = tmp_path / "run.json.gz"

    async def run():
        async with HostileServer.with_fault("healthy") as server:
            return await bringup(
                sshd.config, server.url, "--host", "box", "--json", "--record", str(recording)
            )

    code, out, err = asyncio.run(run())
    assert err == ""
    report = json.loads(out)
    assert {one["id"]: one["severity"] for one in report["findings"]}["fact"] == "ok"
    assert report["facts"]["host"]["host"] == "box"
    assert report["facts"]["host"]["facts"]["kernel"]
    assert report["facts"]["host"]["engines"][0]["pid"] == os.getpid()  # this process serves it
    assert code == report["exit_code"]
    replayed = asyncio.run(bringup("/dev/null", "--from", str(recording), "--json"))
    assert replayed == (code, out, "")


@pytest.mark.parametrize("arguments", [("http://127.0.0.1:9",), ()])
def test_a_host_that_refuses_the_key_is_an_error_with_a_hint(sshd, arguments):
    (sshd.folder / "authorized_keys").write_text("")
    code, out, err = asyncio.run(bringup(sshd.config, *arguments, "--host", "box"))
    assert (code, out) == (EXIT_HOST, "")
    assert err.startswith("error: cannot connect to `box`")
    assert "hint: " in err
    assert "Traceback" not in err


def test_a_closed_port_behind_the_host_is_told_as_such(sshd):
    code, _, err = asyncio.run(bringup(sshd.config, "http://127.0.0.1:9", "--host", "box"))
    assert code == EXIT_HOST
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert sshd.connections() == []  # nothing stays connected
