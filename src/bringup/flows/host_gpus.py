"""The GPUs of a host, as its driver reports them, for a plan."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from bringup import registry
from bringup.errors import HostError, UsageError
from bringup.parse.gpu_name import CatalogueCard, read_gpus
from bringup.transport import Runner
from bringup.transport.local import LocalRunner
from bringup.transport.recording import load
from bringup.transport.replay import ReplayRunner
from bringup.transport.ssh import SshRunner
from bringup.units import in_mib
from bringup.values.host import Gpu
from bringup.values.plan import Gpus
from bringup.vendors import GpuReading, Vendor

_THIS_MACHINE = ("local", "localhost")


def host_gpus(host: str, catalogue: Sequence[CatalogueCard]) -> Gpus:
    """The GPUs of an OpenSSH destination, or of this machine for `local`.

    Raises:
        HostError: the host could not be asked, or has no GPUs.
        UsageError: its GPUs differ.
    """
    return asyncio.run(_asked(LocalRunner() if host in _THIS_MACHINE else SshRunner(host), catalogue))


def recorded_gpus(path: Path, catalogue: Sequence[CatalogueCard]) -> Gpus:
    """The GPUs of the host in a recording.

    Raises:
        UsageError: the file is no recording, or its GPUs differ.
        HostError: there are no GPUs in it.
    """
    return asyncio.run(_asked(ReplayRunner(load(path)), catalogue))


async def _asked(runner: Runner, catalogue: Sequence[CatalogueCard]) -> Gpus:
    vendors = cast("dict[str, Vendor]", registry.load("bringup.vendors", "VENDOR"))
    try:
        results = await runner.ask([question for one in vendors.values() for question in one.questions])
    finally:
        await runner.close()
    readings = [vendor.read(results) for vendor in vendors.values()]
    gpus = _most_memory(readings)
    unread = [reading.state for reading in readings if reading.state and not reading.is_absent]
    if unread or not gpus:
        states = "; ".join(reading.state for reading in readings if reading.state) or "no GPUs are seen"
        raise HostError(f"{runner.host}: {states}", hint='name them: `--gpus "4x RTX PRO 6000 Blackwell"`')
    return gpus_as_seen(gpus, catalogue, host=runner.host)


def _most_memory(readings: Sequence[GpuReading]) -> tuple[Gpu, ...]:
    """The cards of the maker that has the most memory: a processor's own graphics do not stand in the way."""
    return max(
        (reading.gpus for reading in readings),
        key=lambda gpus: (sum(gpu.memory_total or 0 for gpu in gpus), len(gpus)),
        default=(),
    )


def gpus_as_seen(gpus: Sequence[Gpu], catalogue: Sequence[CatalogueCard], *, host: str) -> Gpus:
    """Cards as the driver reports them: what others hold is that of the fullest.

    Raises:
        UsageError: they differ, or the driver says no size.
    """
    names = {gpu.name or "unknown" for gpu in gpus}
    sizes = {gpu.memory_total for gpu in gpus}
    if len(names) > 1 or len(sizes) > 1:
        raise UsageError(
            f"{host} has GPUs of several kinds: {', '.join(sorted(names))}",
            hint='name those to use: `--gpus "4x RTX PRO 6000 Blackwell"`',
        )
    total = gpus[0].memory_total
    if total is None:
        raise UsageError(
            f"the driver of {host} says no memory size",
            hint="give it with `--gpus` and `--gpu-memory-mib`",
        )
    reserved = max((gpu.memory_reserved or 0 for gpu in gpus), default=0)
    used = max((gpu.memory_used or 0 for gpu in gpus), default=0)
    found = read_gpus(
        f"{len(gpus)}x {names.pop()}",
        catalogue,
        memory_mib=in_mib(total),
        cuda_mib=in_mib(total - reserved) if reserved else None,
        used_mib=in_mib(used),
    )
    capability = gpus[0].compute_capability or found.card.compute_capability
    return replace(found, card=replace(found.card, compute_capability=capability, source=f"seen on {host}"))
