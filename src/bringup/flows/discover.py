"""Finds the endpoint when the user named none: the engine that runs on the machine."""

from typing import cast

from bringup import registry
from bringup.errors import HostError, UsageError
from bringup.machine import Subject, Target
from bringup.transport import Runner
from bringup.values.host import EngineProcess, HostSnapshot


async def running_engine_port(runner: Runner) -> int:
    """The port of the one engine that listens on the runner's host.

    Raises:
        HostError: none was seen.
        UsageError: several were; they are listed.
    """
    subject = cast("dict[str, Subject]", registry.load("bringup.machine", "SUBJECT"))["process"]
    results = await runner.ask(subject.questions(Target()))
    snapshot = subject.read(HostSnapshot(taken_at=0.0, host=runner.host), results)
    found = {process.port: process for process in snapshot.engines if process.port is not None}
    if not found:
        missing = f" ({'; '.join(snapshot.missing)})" if snapshot.missing else ""
        raise HostError(
            f"no running engine was seen on {_place(runner)}{missing}",
            hint="name its endpoint: bringup verify http://HOST:PORT",
        )
    if len(found) > 1:
        listed = "\n".join(f"  {_line(process)}" for _, process in sorted(found.items()))
        raise UsageError(
            f"{len(found)} engines run on {_place(runner)}:\n{listed}", hint="name one: bringup verify :PORT"
        )
    return next(iter(found))


def _place(runner: Runner) -> str:
    return "this machine" if runner.host == "local" else runner.host


def _line(process: EngineProcess) -> str:
    return f":{process.port}  pid {process.pid}  {' '.join(process.argv)[:100]}"
