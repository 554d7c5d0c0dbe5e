"""One file per GPU maker: its questions and the pure readers of what they print."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bringup.values.host import CommandResult, Gpu, GpuDriver, GpuLink, GpuProcess, Question
from bringup.values.load import GpuMoment


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one vendor's tools said."""

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    links: tuple[GpuLink, ...] = ()
    driver: GpuDriver | None = None
    state: str | None = None  # why there are no rows, in words: "no NVIDIA driver on this host"
    missing: tuple[str, ...] = field(default=())  # what could not be seen and why
    is_absent: bool = False  # this maker has no card here: `state` matters only where no other has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Questions of one GPU maker and their reader."""

    name: str
    questions: tuple[Question, ...]
    read: Callable[[Mapping[str, CommandResult]], GpuReading]
    trace: Question | None = None  # a few seconds of readings; None: this maker's tool has no loop
    read_trace: Callable[[CommandResult, float], Mapping[int, tuple[GpuMoment, ...]]] | None = (
        None  # by GPU index; the second argument is when the answer began, seconds
    )
