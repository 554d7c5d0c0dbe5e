"""What an out-of-memory text of a GPU runtime says: how much was asked for, how much was there, who held it.

Source: PyTorch 1.13 to 2.11 `c10/cuda/CUDACachingAllocator.cpp` (`OOM` text; 2.1 spells "capacty"), its HIP
and XPU twins, and ggml `ggml-cuda.cu` ("allocating N MiB on device D: cudaMalloc failed").
"""

import re
from dataclasses import dataclass

from bringup.units import GIB, KIB, MIB, TIB

LITERALS = (
    "CUDA out of",  # where a paste was cut off
    "out of memory",
    "OutOfMemoryError",
    "OUT_OF_MEMORY",
    "OUT_OF_DEVICE_MEMORY",
    "failed to allocate",
    "unable to allocate",
    "Device memory allocation",
    "Not enough memory to handle",
    "exceed allowed memory",
)

_UNITS = {"bytes": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "KB": KIB, "MB": MIB, "GB": GIB}
_SIZE = r"(?P<{0}>\d[\d.]*) (?P<{0}_unit>bytes|[KMGT]i?B|B)"
_FIELDS = tuple(
    (name, re.compile(pattern.format(_SIZE.format("size"))))
    for name, pattern in (
        ("requested", r"Tried to allocate {0}"),
        ("requested", r"(?i:allocating) {0} on device"),
        ("total", r"total capac(?:i)?ty (?:of )?{0}"),
        ("total", r"{0} total capacity"),
        ("free", r"of which {0} is free"),
        ("free", r"only {0} free"),
        ("free", r"; {0} free;"),
        ("in_use", r"this process has {0} memory in use"),
        ("allowed", r"{0} allowed"),
        ("allocated", r"allocated memory {0} is allocated by PyTorch"),
        ("allocated", r"{0} already allocated"),
        ("graph_pools", r"with {0} allocated in private pools"),
        ("unallocated", r"and {0} is reserved by PyTorch but unallocated"),
        ("reserved", r"{0} reserved in total by PyTorch"),
    )
)
_PROCESS = re.compile(r"(?i:process) (?P<pid>\d+) has " + _SIZE.format("size") + r" memory in use")
_DEVICE = re.compile(r"(?:GPU |on device )(?P<gpu>\d+)\b")
_SAYS_SO = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|GPU|cudaMalloc|hipMalloc)[^.]{0,60}out of memory"
    r"|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|ErrorOutOfDeviceMemory"
    r"|(?:unable|failed) to allocate (?:\w+ (?:\w+ )?buffer|buffer for (?:kv|rs) cache|compute)"
    r"|Device memory allocation of size \d+ failed"
    r"|UR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST|RESOURCES)_?\w*|\): out of memory$"
    r"|(?:CUDA|HIP|XPU) out of(?: m\w*)?$|Not enough memory to handle \d+ (?:\w+ )?tokens"
    r"|exceed allowed memory",
    re.IGNORECASE,
)
# Names of settings that hold "OutOfMemoryError" in healthy logs, and texts that only give advice.
# Ray's exception of the same name is about the memory of the host.
_NOT_IT = re.compile(
    r"If you are running out of memory|to avoid out of memory|may (?:run|cause|lead)|ray\.exceptions"
    r"|^\s*(?:except|raise|import|from) ",
    re.IGNORECASE,
)
_OWN_SHARE = 0.9  # a process that holds about what this allocator says it holds is this one


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """One failed allocation. Sizes are bytes; `None` = the text does not say."""

    gpu: int | None = None
    requested: int | None = None
    total: int | None = None
    free: int | None = None
    in_use: int | None = None  # by this process, what is not PyTorch's included
    allowed: int | None = None  # limit set for this process
    allocated: int | None = None  # by PyTorch
    graph_pools: int | None = None  # of that for recorded graphs
    unallocated: int | None = None  # reserved by PyTorch, not handed out
    processes: tuple[tuple[int, int], ...] = ()  # (pid, bytes) that hold memory of this GPU

    @property
    def others(self) -> tuple[tuple[int, int], ...]:
        """The processes that are not this one, which is the one that holds what PyTorch says it holds.

        In containers CUDA cannot tell which of the processes asked, and names each by its number.
        """
        if self.in_use is not None:
            return self.processes
        own = (self.allocated or 0) + (self.unallocated or 0)
        mine = min(
            (row for row in self.processes if row[1] >= _OWN_SHARE * own),
            key=lambda row: abs(row[1] - own),
            default=None,
        )
        return tuple(row for row in self.processes if row != mine)

    @property
    def held_by_others(self) -> int:
        """Bytes that other processes hold on this GPU, as far as the text tells."""
        return sum(size for _, size in self.others)

    @property
    def is_fragmented(self) -> bool:
        """Whether what PyTorch holds back would have been enough: only then its allocator's settings help."""
        return bool(self.requested and self.unallocated and self.unallocated > self.requested)

    @property
    def fits_in_free(self) -> bool:
        """Whether more was free than asked for: a limit, another device or a race, not a full GPU."""
        return bool(self.requested and self.free and self.free > self.requested)


def is_out_of_memory(text: str) -> bool:
    """Whether this line says that GPU memory ran out, not that it might.

    >>> is_out_of_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    True
    >>> is_out_of_memory("If you are running out of memory, consider decreasing the utilization")
    False
    """
    return _SAYS_SO.search(text) is not None and ("Tried to allocate" in text or _NOT_IT.search(text) is None)


def read_out_of_memory(text: str) -> OutOfMemory:
    """The figures of one out-of-memory text.

    >>> one = read_out_of_memory(
    ...     "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 79.15 GiB of "
    ...     "which 512.00 MiB is free. Process 7 has 20.00 GiB memory in use. Including non-PyTorch memory, "
    ...     "this process has 58.00 GiB memory in use."
    ... )
    >>> one.gpu, one.requested == 1536 * MIB, one.held_by_others == 20 * GIB
    (3, True, True)
    """
    sizes: dict[str, int] = {}
    for name, pattern in _FIELDS:
        found = pattern.search(text)
        if found is not None:
            sizes.setdefault(name, _bytes(found))
    reserved = sizes.pop("reserved", None)
    if reserved is not None and "allocated" in sizes:
        sizes["unallocated"] = reserved - sizes["allocated"]
    device = _DEVICE.search(text)
    return OutOfMemory(
        gpu=int(device["gpu"]) if device else None,
        processes=tuple((int(row["pid"]), _bytes(row)) for row in _PROCESS.finditer(text)),
        **sizes,
    )


def _bytes(found: re.Match[str]) -> int:
    return round(float(found["size"].rstrip(".")) * _UNITS[found["size_unit"]])
