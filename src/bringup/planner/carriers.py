"""Which GPUs carry the model: those meant by flags and environment, and those seen to hold it."""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.values.engine import EngineSpec
from bringup.values.host import EngineProcess, Gpu, GpuProcess, HostSnapshot

_LOADED = 0.05  # guess: share of a card from which it holds more than contexts of idle programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Carriers:
    """The GPUs that carry the model, in the order of their ranks, and how that is known."""

    gpus: tuple[Gpu, ...]
    words: str
    is_seen: bool  # the driver names the engine's processes there; otherwise it is concluded


def visible_names(process: EngineProcess | None, spec: EngineSpec | None) -> tuple[str, ...] | None:
    """What the engine's environment lets it see; None where that is not known or not restricted.

    CUDA stops at the first entry that it does not know, so `-1` or an empty value hide all.

    Source: CUDA C++ Programming Guide, `CUDA_VISIBLE_DEVICES`.
    """
    for environment in (process.environment if process else {}, spec.environment if spec else {}):
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            if name in environment:
                names = [part.strip() for part in environment[name].split(",")]
                stop = next((n for n, part in enumerate(names) if part in ("", "-1")), len(names))
                return tuple(names[:stop])
    return None


def meant(
    host: HostSnapshot, process: EngineProcess | None, spec: EngineSpec | None, *, count: int | None
) -> tuple[Gpu, ...]:
    """The GPUs that the engine's flags and environment choose, in the order of its ranks.

    `count` is the number that the layout needs; None: all that are visible.
    """
    names = visible_names(process, spec)
    seen = list(host.main_gpus)
    if names is not None:
        found = [next(iter(host.gpus_named((name,))), None) for name in names]
        seen = [gpu for gpu in found if gpu is not None]
    flags = spec.flags if spec else {}
    first = _count(flags.get("--base-gpu-id"), 0)
    step = _count(flags.get("--gpu-id-step"), 1) or 1
    chosen = seen[first::step]
    return tuple(chosen if count is None else chosen[:count])


def engine_pids(process: EngineProcess | None) -> frozenset[int]:
    """The process and its children."""
    return frozenset() if process is None else frozenset((process.pid, *process.children))


def engine_rows(host: HostSnapshot, gpu: Gpu, own: frozenset[int]) -> tuple[GpuProcess, ...]:
    """The rows of the driver that are the engine's, on a GPU that carries it.

    Where none of its own is there, it is in another process table (a container): the largest is taken for it.
    """
    rows = [row for row in host.processes if row.memory_used is not None and row.is_on(gpu)]
    mine = tuple(row for row in rows if row.pid in own)
    return mine or tuple(sorted(rows, key=lambda row: -(row.memory_used or 0))[:1])


def find_carriers(
    host: HostSnapshot,
    process: EngineProcess | None,
    spec: EngineSpec | None,
    *,
    wanted: Sequence[str],
    count: int | None,
) -> Carriers:
    """The GPUs that hold the engine: as the driver names its processes, else by what is in use.

    A GPU in which nothing lies carries it only where the user or the number of ranks says so.
    """
    pids = engine_pids(process)
    held = [row for row in host.processes if row.pid in pids]
    expected = host.gpus_named(tuple(wanted)) if wanted else meant(host, process, spec, count=count)
    seen = [gpu for gpu in host.gpus if any(row.is_on(gpu) for row in held)]
    if seen:
        order = {id(gpu): rank for rank, gpu in enumerate(expected)}
        seen.sort(key=lambda gpu: order.get(id(gpu), len(order)))
        return Carriers(gpus=tuple(seen), words="the driver lists the engine's processes there", is_seen=True)
    opened = _opened(host, process)
    if opened:
        return Carriers(gpus=opened, words="the engine's processes have it open", is_seen=True)
    loaded = [gpu for gpu in host.main_gpus if _is_loaded(gpu)]
    if count is None and not wanted:  # what the engine may use is not yet what it uses
        expected = tuple(gpu for gpu in expected if any(gpu is one for one in loaded))
    names = ", ".join(f"{gpu.index}" for gpu in loaded) or "none"
    if expected and all(any(gpu is one for one in loaded) for gpu in expected):
        return Carriers(gpus=tuple(expected), words=f"memory is in use there ({names})", is_seen=False)
    if count is not None and len(loaded) == count:
        return Carriers(gpus=tuple(loaded), words=f"memory is in use on as many ({names})", is_seen=False)
    if expected and any(gpu is one for gpu in expected for one in loaded):
        return Carriers(gpus=tuple(expected), words="flags and environment choose them", is_seen=False)
    return Carriers(gpus=tuple(loaded), words=f"memory is in use there ({names})", is_seen=False)


def _opened(host: HostSnapshot, process: EngineProcess | None) -> tuple[Gpu, ...]:
    """The GPUs whose device files the engine has open, where the drivers tell nothing of their memory."""
    if process is None or any(gpu.memory_used is not None for gpu in host.main_gpus):
        return ()
    files = process.gpu_devices
    return tuple(
        gpu for gpu in host.main_gpus if gpu.minor is not None and f"/dev/nvidia{gpu.minor}" in files
    )


def _is_loaded(gpu: Gpu) -> bool:
    return bool(gpu.memory_total and gpu.memory_used and gpu.memory_used > _LOADED * gpu.memory_total)


def _count(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default
