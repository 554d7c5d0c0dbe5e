"""The GPUs of one host: which of them matter to a deployment, and what their drivers do not tell."""

import re
from collections.abc import Iterable

from bringup.units import GIB
from bringup.values.account import Role
from bringup.values.deployment import Deployment
from bringup.values.host import Gpu, HostSnapshot
from bringup.values.load import GpuMoment

_HOLDS = GIB  # guess: a driver, a display and an empty context take less, weights take more
_SICK = ("err!", "requires reset", "unknown error", "gpu is lost", "does not answer")
_VIRTUAL = re.compile(r"GRID .*|.*-\d{1,3}[QCAB]")
_TOOLS = {"nvidia": "nvidia-smi", "amd": "amd-smi", "intel": "xpu-smi"}
BUSY = 0.5  # share of a sample period: above it a card works


def role_of(gpu: Gpu, deployment: Deployment) -> Role:
    """What the card does: as the account of its memory says, else by what lies in it or holds it."""
    is_empty = gpu.memory_used is not None and gpu.memory_used < _HOLDS
    for one in deployment.account.gpus if deployment.account is not None else ():
        if one.role is not Role.UNKNOWN and is_same(one.gpu, gpu):
            # A card that is meant to carry it and is empty does not: which ones are meant is another check's.
            return Role.IDLE if one.role is Role.MODEL and is_empty else one.role
    host = deployment.host
    if gpu.memory_used is not None:
        return Role.IDLE if is_empty else Role.MODEL
    is_held = host is not None and any(process.is_on(gpu) for process in host.processes)
    return Role.MODEL if is_held else Role.IDLE


def meant_gpus(deployment: Deployment) -> tuple[Gpu, ...]:
    """The GPUs that matter to the deployment: those named, else those that carry a model, else all."""
    host = deployment.host
    if host is None:
        return ()
    if deployment.wanted.gpus:
        return host.gpus_named(deployment.wanted.gpus)
    gpus = host.main_gpus
    return tuple(gpu for gpu in gpus if role_of(gpu, deployment) is Role.MODEL) or gpus


def looks_at(gpu: Gpu, deployment: Deployment) -> tuple[Gpu, ...]:
    """The GPU before the exercises and, where it was seen again, after them."""
    after = deployment.host_after
    again = same_gpu(gpu, after) if after is not None else None
    return (gpu,) if again is None else (gpu, again)


def moments_of(gpu: Gpu, deployment: Deployment) -> tuple[GpuMoment, ...]:
    """What the GPU was seen to do while a burst ran; nothing where there was none."""
    traces = deployment.load.gpus if deployment.load is not None else ()
    return next((one.moments for one in traces if one.index == gpu.index), ())


def same_gpu(gpu: Gpu, host: HostSnapshot) -> Gpu | None:
    """The GPU in another snapshot."""
    return next((other for other in host.gpus if is_same(gpu, other)), None)


def is_same(gpu: Gpu, other: Gpu) -> bool:
    """Whether both are one card: by UUID, bus id or index, whichever the first has."""
    if gpu.vendor != other.vendor:
        return False
    for field in ("uuid", "bus_id", "index"):
        value = getattr(gpu, field)
        if value is not None:
            return getattr(other, field) == value
    return False


def withholds(gpu: Gpu, field: str) -> bool:
    """Whether the driver has words instead of a value for `field`, and no other check says so already.

    A sick card is spoken of by its error words, and a slice of a card by what it is.
    """
    words = gpu.said.get(field)
    return getattr(gpu, field) is None and words is not None and not is_sick(words) and not is_virtual(gpu)


def tool_of(gpu: Gpu) -> str:
    """The maker's own tool, which told what is known of the card."""
    return _TOOLS.get(gpu.vendor, gpu.vendor)


def is_sick(words: str) -> bool:
    """Whether the driver's words for "no value" mean that something is wrong, not that there is none.

    >>> is_sick("[GPU requires reset]"), is_sick("ERR!"), is_sick("[N/A]")
    (True, True, False)
    """
    return any(word in words.lower() for word in _SICK)


def is_virtual(gpu: Gpu) -> bool:
    """Whether it is a slice of a card that a hypervisor gives, by its name.

    >>> [is_virtual(Gpu(index=0, name=name)) for name in ("NVIDIA A40-48Q", "GRID T4-16Q", "NVIDIA A40")]
    [True, True, False]
    """
    return gpu.name is not None and _VIRTUAL.fullmatch(gpu.name) is not None


def span_text(values: Iterable[float], unit: str) -> str:
    """Least and greatest of `values`, rounded.

    >>> span_text([81.89, 84.3], "W"), span_text([83.2, 82.9], "W")
    ('82-84 W', '83 W')
    """
    rounded = sorted(round(value) for value in values)
    low, high = rounded[0], rounded[-1]
    separator = " to " if low < 0 else "-"
    return f"{low} {unit}" if low == high else f"{low}{separator}{high} {unit}"
