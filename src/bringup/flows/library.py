"""Verification for programs: one call, one report. The command line does the same with progress and files."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bringup.flows.reach import reach, replayed
from bringup.flows.verify import VerifyRequest, engine_spec
from bringup.flows.verify import verify as verified
from bringup.machine import Target as HostTarget
from bringup.transport.http_stream import target_of
from bringup.values.deployment import Depth, Wanted
from bringup.values.report import Report


def verify(  # noqa: PLR0913 - all but the URL optional, and named by who calls
    url: str,
    *,
    host: str | None = None,
    api_key: str | None = None,
    depth: Depth = Depth.DEFAULT,
    wanted: Wanted | None = None,
    only: Sequence[str] = (),
    command: Sequence[str] = (),
) -> Report:
    """The report on the model that is served at `url`; not to be called where an event loop already runs.

    `host` is the engine's machine, any OpenSSH destination; `command` the engine's own command line, which
    says what is wanted; `only` names the checks to make, all of the depth when it is empty.

    Raises:
        HostError: nothing answers at the URL, or the host could not be asked.
        UsageError: a URL, command or check that is none.
    """
    target = target_of(url, api_key=api_key)
    request = VerifyRequest(
        url=target.url,
        depth=depth,
        wanted=wanted or Wanted(),
        has_api_key=target.api_key is not None,
        is_tls=target.scheme == "https",
        spec=engine_spec(command) if command else None,
        only=tuple(only),
        target=HostTarget(port=target.port),
    )

    async def run() -> Report:
        async with reach(target, host=host) as world:
            return (await verified(request, world)).report

    return asyncio.run(run())


def replay(recording: Path) -> Report:
    """The report on what a recording holds, without the machine.

    Raises:
        UsageError: the file is no recording.
    """
    request, world = replayed(recording)
    return asyncio.run(verified(request, world)).report
