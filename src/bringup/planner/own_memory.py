"""The memory that is the engine's to use where the card's figures are not: a part of it, or the host's.

A card that MIG cuts tells its whole memory, and the engine has one instance of it. A card without memory of
its own tells none: its processes' figures and the kernel's stand for it.

Source: nvidia-smi of an H100 with MIG (R590); of a GB10 (R580: `[N/A]` for total, used and free, a figure for
each process); vLLM takes what the kernel calls available for free memory there.
"""

from dataclasses import replace

from bringup.planner.carriers import engine_pids, visible_names
from bringup.units import mib
from bringup.values.engine import EngineSpec
from bringup.values.gpu_group import is_sick
from bringup.values.host import EngineProcess, Gpu, GpuInstance, HostSnapshot

_EMPTY = mib(64)  # an instance that nobody uses holds 9 to 17 MiB


def with_own_memory(
    host: HostSnapshot, process: EngineProcess | None, spec: EngineSpec | None
) -> HostSnapshot:
    """The host with the engine's own figures of memory in the place of the card's, where they can be told."""
    gpus = tuple(_own(host, gpu, process, spec) for gpu in host.gpus)
    parts = [gpu for gpu in gpus if gpu.part]
    own = engine_pids(process)
    # What the driver lists on a card that is cut may be in any of its instances.
    rows = (row for row in host.processes if row.pid in own or not any(row.is_on(gpu) for gpu in parts))
    return replace(host, gpus=gpus, processes=tuple(rows))


def why_no_part(gpu: Gpu, process: EngineProcess | None, spec: EngineSpec | None) -> str:
    """Why the engine's instance of a card that MIG cuts, or its size, is not known; empty where both are."""
    if gpu.mig_mode != "Enabled" or gpu.part:
        return ""
    if not any(one.memory_total is not None for one in gpu.instances):
        return f"{gpu.label} is cut by MIG, and the sizes of its instances were not told"
    if _instance(gpu, process, spec) is None:
        return f"{gpu.label} is cut by MIG, and it cannot be told which of its instances the engine has"
    return f"{gpu.label} is cut by MIG, and how much of the engine's instance is in use was not told"


def process_bytes(host: HostSnapshot, gpu: Gpu) -> int | None:
    """Bytes that processes hold there, as the driver tells of each; None where it tells of none."""
    rows = [row.memory_used for row in host.processes if row.is_on(gpu) and row.memory_used is not None]
    return sum(rows) if rows else None


def _own(host: HostSnapshot, gpu: Gpu, process: EngineProcess | None, spec: EngineSpec | None) -> Gpu:
    if gpu.mig_mode == "Enabled":
        return _part(gpu, _instance(gpu, process, spec))
    total, available = host.facts.memory_total, host.facts.memory_available
    if total is None or available is None or available > total or not _tells_none(gpu):
        return gpu
    if process_bytes(host, gpu) is None or sum(map(_tells_none, host.gpus)) > 1:
        return gpu
    return replace(
        gpu,
        memory_total=total,
        memory_used=total - available,
        memory_free=available,
        memory_reserved=None,
        shares_host_memory=True,
    )


def _tells_none(gpu: Gpu) -> bool:
    """Whether the driver says that it has no figures, and not that something is wrong."""
    words = (gpu.said.get("memory_total"), gpu.said.get("memory_used"))
    return (
        gpu.memory_total is None
        and gpu.memory_used is None
        and all(word is not None and not is_sick(word) for word in words)
    )


def _part(gpu: Gpu, instance: GpuInstance | None) -> Gpu:
    if instance is None or instance.memory_total is None or instance.memory_used is None:
        return gpu
    return replace(
        gpu,
        part=f"MIG {instance.profile or instance.device}",
        memory_total=instance.memory_total,
        memory_used=instance.memory_used,
        memory_free=instance.memory_total - instance.memory_used,
        memory_reserved=None,
    )


def _instance(gpu: Gpu, process: EngineProcess | None, spec: EngineSpec | None) -> GpuInstance | None:
    """The engine's instance: the one its environment names, else the only one that is in use."""
    names = [name for name in visible_names(process, spec) or () if name.lower().startswith("mig-")]
    if names:
        named = [one for one in gpu.instances for name in names if one.is_named(name)]
        return named[0] if len(named) == len(names) == 1 else None
    used = {
        one.gpu_instance: one
        for one in gpu.instances
        if one.memory_used is not None and one.memory_used > _EMPTY
    }
    return next(iter(used.values())) if len(used) == 1 else None
