"""What GPUs and engine were seen to do while a burst of requests ran: series, raw, with their times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMoment:
    """One reading of one GPU. `None` = not told."""

    at: float  # seconds since the sampling began
    memory_used: int | None = None  # bytes
    power: float | None = None  # watts
    utilization: float | None = None  # 0..1
    clock_sm: float | None = None  # MHz
    temperature: float | None = None  # degrees Celsius
    pcie_generation: int | None = None
    pcie_width: int | None = None
    clocks_event_reasons: int | None = None  # bit mask
    energy: float | None = None  # joules since the driver was loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTrace:
    """All readings of one GPU, in the order of time."""

    index: int
    moments: tuple[GpuMoment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMoment:
    """One reading of the engine's own counters. `None` = not told."""

    at: float  # when it was asked, seconds since the sampling began
    running: float | None = None  # requests
    waiting: float | None = None
    kv_used_share: float | None = None  # 0..1
    preemptions: float | None = None  # since the engine started
    output_tokens: float | None = None  # since the engine started
    input_tokens: float | None = None  # since the engine started, those from the cache too
    requests: float | None = None  # finished since the engine started
    cache_queries: float | None = None  # tokens looked for in the prefix cache
    cache_hits: float | None = None  # tokens found there
    took: float = 0.0  # seconds until the answer was whole: the counters are of some moment in between


@dataclass(frozen=True, slots=True, kw_only=True)
class Lapse:
    """A look at the engine's counters that told nothing."""

    at: float  # when it was asked, seconds since the sampling began
    took: float  # seconds
    words: str  # "HTTP 503", "not finished within 5 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTrace:
    """Everything that was sampled beside a burst."""

    gpus: tuple[GpuTrace, ...] = ()
    engine: tuple[EngineMoment, ...] = ()
    lapses: tuple[Lapse, ...] = ()
