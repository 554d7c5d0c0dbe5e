"""A real engine as a child process, and what `bringup verify` says of it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bringup import registry
from bringup.engines import Engine
from bringup.errors import EngineError
from bringup.flows.reach import reach
from bringup.flows.ready import wait_until_ready
from bringup.transport.http_stream import target_of
from bringup.transport.process import Child, free_port, start

ROOT = Path(__file__).parents[2]
ENGINES = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
BAD = ("unknown", "warning", "failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started engine that has answered."""

    child: Child
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One verification by the command line, and its recording replayed."""

    exit_code: int
    report: dict[str, Any]
    replayed: dict[str, Any]
    replayed_exit_code: int

    @property
    def engine(self) -> dict[str, Any]:
        return self.report["facts"]["engine"]

    def memory(self) -> tuple[int, int]:
        """Bytes of host memory: as the rules say, and as the engine's processes hold."""
        account = self.report["facts"]["account"]["host"]
        return sum(line["bytes"] for line in account["plan"]["ledger"]), account["resident_bytes"]

    def severities(self) -> dict[str, str]:
        """By finding id."""
        return {finding["id"]: finding["severity"] for finding in self.report["findings"]}

    def bad(self) -> dict[str, str]:
        """Whatever is worse than a note, with its summary."""
        return {row["id"]: row["summary"] for row in self.report["findings"] if row["severity"] in BAD}


@contextmanager
def running(
    argv: Callable[[int], tuple[str, ...]],
    *,
    log: Path,
    engine: str,
    model: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 300.0,
    first_request: bool = True,
) -> Iterator[Running]:
    """The engine of `argv(port)`, ready; ended with all its processes afterwards, its log kept."""
    port = free_port()
    child = start(argv(port), log=log, environment={"HF_HUB_OFFLINE": "1", **(environment or {})})
    try:
        if first_request:
            asyncio.run(_ready(child, port, ENGINES[engine], model, limit_s))
        else:
            asyncio.run(_healthy(child, port, limit_s))
        yield Running(child=child, port=port)
    except EngineError as error:
        raise AssertionError(f"{error.message}\n{child.log_tail(40)}\n(all of it: {log})") from None
    finally:
        asyncio.run(child.stop())


async def _ready(child: Child, port: int, engine: Engine, model: str, limit_s: float) -> None:
    async with reach(target_of(f"http://127.0.0.1:{port}"), host=None) as world:
        await wait_until_ready(
            world.endpoint,
            expected_model=model,
            engine=engine,
            is_alive=child.is_alive,
            limit_s=limit_s,
        )


async def _healthy(child: Child, port: int, limit_s: float) -> None:
    """Only what a load balancer would ask: the first request is left to the verification."""
    from bringup.values.exchange import Ask  # noqa: PLC0415 - for this rare case only

    async with reach(target_of(f"http://127.0.0.1:{port}"), host=None) as world:
        ask = Ask(key="health", path="/health", method="GET", time_limit_s=5.0)
        for _ in range(int(limit_s)):
            if (await world.endpoint.send(ask)).status == 200:
                return
            if not child.is_alive():
                raise EngineError("the engine ended before it was healthy")
            await asyncio.sleep(1.0)
    raise EngineError(f"not healthy after {limit_s:g} s")


def verified(url: str, *options: str, folder: Path) -> Verified:
    """The outcome of `bringup verify URL`, as a user gets it."""
    recording = folder / "recording.json.gz"
    live = bringup("verify", url, "--json", "--quiet", "--record", str(recording), *options)
    again = bringup("verify", "--from", str(recording), "--json")
    return Verified(
        exit_code=live.returncode,
        report=_report(live),
        replayed=_report(again),
        replayed_exit_code=again.returncode,
    )


def calm(log: Path) -> dict[str, Any]:
    """What `bringup diagnose` says of a healthy start: how long it took by phase, and what it holds."""
    done = bringup("diagnose", str(log), "--json", "--quiet")
    report = _report(done)
    assert [one["id"] for one in report["findings"]] == ["healthy"], report["findings"]
    assert done.returncode == 0
    assert report["log"]["phases"][-1]["name"] == "serving"
    assert all((size or 0) >= 0 for size in report["log"]["capacity"].values())
    text = bringup("diagnose", str(log), "--quiet").stdout
    assert text.startswith("nothing broken")
    assert "Start by phase" in text
    assert "Capacity" in text
    return report["log"]


def bringup(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The program, run as a user does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    argv = (sys.executable, "-m", "bringup", *arguments)
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def _report(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, f"no report, exit code {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)
