"""What a bench reaches: the endpoint, and the engine's machine where it is this one or was named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from bringup import registry
from bringup.flows.bench import BenchWorld
from bringup.flows.place import is_loopback, is_this_machine
from bringup.transport import Runner
from bringup.transport.http_stream import HttpEndpoint, Target
from bringup.transport.nvml import has_driver
from bringup.transport.scrubbed import ScrubbedEndpoint

if TYPE_CHECKING:  # a machine without GPUs loads none of this
    from bringup.vendors import Vendor


@asynccontextmanager
async def reach_server(
    target: Target, *, host: str | None, gpus: frozenset[int] | None
) -> AsyncIterator[tuple[Target, BenchWorld]]:
    """Where the load goes, and the world beside it.

    A loopback address together with a host means the host's loopback: it is reached through a forwarded port.

    Raises:
        HostError: the host could not be reached.
    """
    secrets = (target.api_key,) if target.api_key else ()
    reached, is_here = target, False
    runner: Runner | None = None
    async with AsyncExitStack() as open_things:
        if host is not None:
            # Only a run that names a host loads what speaks to one.
            from bringup.transport.ssh import SshRunner  # noqa: PLC0415 - see above

            ssh = SshRunner(host, secrets=secrets)
            open_things.push_async_callback(ssh.close)
            runner = ssh
            if is_loopback(target.host):
                port = await ssh.forward(target.host, target.port)
                reached = replace(target, host="127.0.0.1", port=port)
        elif is_this_machine(target.host):
            is_here = True
        if is_here and has_driver():
            from bringup.transport.local import LocalRunner  # noqa: PLC0415 - only where there are GPUs

            runner = LocalRunner(secrets=secrets)
            open_things.push_async_callback(runner.close)
        endpoint = ScrubbedEndpoint(HttpEndpoint(reached), secrets)
        open_things.push_async_callback(endpoint.close)
        yield (
            reached,
            BenchWorld(
                endpoint=endpoint,
                runner=runner,
                vendors=_vendors() if runner is not None else {},
                is_here=is_here,
                gpus=gpus,
            ),
        )


def _vendors() -> Mapping[str, Vendor]:
    return cast("Mapping[str, Vendor]", registry.load("bringup.vendors", "VENDOR"))
