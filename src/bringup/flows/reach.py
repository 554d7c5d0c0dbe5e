"""What a verification reaches, live or from a recording: host, endpoint, sandbox."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bringup.errors import UsageError
from bringup.flows.discover import running_engine_port
from bringup.flows.place import is_loopback, is_this_machine
from bringup.flows.verify import VerifyRequest, World, engine_spec
from bringup.machine import Target as HostTarget
from bringup.transport import Runner
from bringup.transport.http_stream import HttpEndpoint, Target
from bringup.transport.local import LocalRunner
from bringup.transport.recording import load
from bringup.transport.replay import ReplayEndpoint, ReplayRunner, ReplaySandbox
from bringup.transport.sandbox import IsolatedSandbox
from bringup.transport.scrubbed import ScrubbedEndpoint
from bringup.transport.ssh import SshRunner
from bringup.values.deployment import Depth, Wanted
from bringup.values.recording import Recording


@asynccontextmanager
async def reach(target: Target, *, host: str | None) -> AsyncIterator[World]:
    """The live world around `target`: its machine is `host`, or this one when the address is ours.

    A loopback address together with a host means the host's loopback: it is reached through a forwarded port.

    Raises:
        HostError: the host could not be reached.
    """
    secrets = (target.api_key,) if target.api_key else ()
    async with AsyncExitStack() as open_things:
        runner: Runner | None = None
        reached = target
        if host is not None:
            ssh = SshRunner(host, secrets=secrets)
            open_things.push_async_callback(ssh.close)
            runner = ssh
            if is_loopback(target.host):
                port = await ssh.forward(target.host, target.port)
                reached = replace(target, host="127.0.0.1", port=port)
        elif is_this_machine(target.host):
            runner = LocalRunner(secrets=secrets)
            open_things.push_async_callback(runner.close)
        endpoint = ScrubbedEndpoint(HttpEndpoint(reached), secrets)
        open_things.push_async_callback(endpoint.close)
        yield World(
            runner=runner,
            endpoint=endpoint,
            sandbox=IsolatedSandbox(),
            is_forwarded=reached is not target,
        )


async def find_port(host: str | None) -> int:
    """The port of the one engine that runs on `host`, or on this machine.

    Raises:
        HostError: the host could not be reached, or no engine was seen there.
        UsageError: several engines run there.
    """
    runner = LocalRunner() if host is None else SshRunner(host)
    try:
        return await running_engine_port(runner)
    finally:
        await runner.close()


def replayed(path: Path) -> tuple[VerifyRequest, World]:
    """The request and the world of a recording.

    Raises:
        UsageError: the file is no recording.
    """
    recording = load(path)
    world = World(
        runner=ReplayRunner(recording) if recording.snapshots else None,
        runner_load=ReplayRunner(recording, "load") if "load" in recording.snapshots else None,
        runner_after=ReplayRunner(recording, "after") if "after" in recording.snapshots else None,
        endpoint=ReplayEndpoint(recording),
        sandbox=ReplaySandbox(recording),
        taken_at=recording.taken_at,
        looked_at=recording.looked_at,
        duration_s=recording.duration_s,
        is_replay=True,
    )
    return _request_of(recording, path), world


def _request_of(recording: Recording, path: Path) -> VerifyRequest:
    options = recording.options

    def text(name: str) -> str | None:
        value = options.get(name)
        return value if isinstance(value, str) else None

    def number(name: str) -> int | None:
        value = options.get(name)
        return value if isinstance(value, int) else None

    def names(name: str) -> tuple[str, ...]:
        value = options.get(name)
        return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()

    depth = (text("depth") or "default").upper()
    if depth not in Depth.__members__:
        raise UsageError(f"{path} was recorded at an unknown depth `{depth.lower()}`")
    return VerifyRequest(
        url=recording.url,
        depth=Depth[depth],
        wanted=Wanted(
            model=text("model"),
            context_tokens=number("context_tokens"),
            long_context_tokens=number("long_context_tokens"),
            gpus=names("gpus"),
            load=options.get("load") is True,
            need_context=number("need_context"),
            need_concurrency=number("need_concurrency"),
        ),
        has_api_key=options.get("has_api_key") is True,
        is_tls=options.get("is_tls") is True,
        price_per_kwh=_price(options.get("price_per_kwh")),
        only=names("only"),
        skip=names("skip"),
        spec=engine_spec(names("engine_command")) if names("engine_command") else None,
        target=HostTarget(port=number("port")),
    )


def _price(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None
