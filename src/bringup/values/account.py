"""The ledger meets the machine: what every GPU holds, as predicted and as observed."""

from dataclasses import dataclass
from enum import StrEnum

from bringup.values.host import Gpu
from bringup.values.plan import HostPlan, LayoutPlan, LedgerLine, PlanTask


class Role(StrEnum):
    """What a GPU does for the deployment."""

    MODEL = "model"  # carries a rank of it
    IDLE = "idle"  # nobody's
    OTHER = "other"  # somebody else's
    UNKNOWN = "unknown"  # it cannot be seen who holds it


class Source(StrEnum):
    """Where a figure of the account is from, most trusted first."""

    DRIVER = "driver"  # nvidia-smi and its like: what is really taken
    KERNEL = "kernel"  # the operating system, of the host's own memory
    LOG = "log"  # the engine's start-up log
    METRICS = "metrics"  # the engine's endpoint
    RULE = "rule"  # the engine's rules, from its flags and the model
    ESTIMATE = "estimate"
    REST = "rest"  # what is left of a sum when all the others are taken off


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLine:
    """One part of one GPU's memory. Those of a GPU add up to its total exactly."""

    name: str  # "weights", "kv_pool", "state_pool", "working", "other_engine", "reserved", "free", ...
    bytes: int
    source: Source
    words: str = ""  # quoted or computed: "blocks 19,728 x 1,048,576 B", "pid 4711 python3"
    predicted: int | None = None  # by the engine's rules; None: they do not say
    low: int | None = None  # bounds of that
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process on a GPU, or what is taken without one being seen."""

    pid: int | None
    name: str
    bytes: int
    is_engine: bool = False  # of the engine under test
    is_other_engine: bool = False
    port: int | None = None  # on which that other engine answers


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAccount:
    """All bytes of one GPU."""

    gpu: Gpu
    role: Role
    rank: int | None = None  # tensor-parallel rank, where the order of the GPUs says it
    lines: tuple[AccountLine, ...] = ()  # empty: the driver told no figures
    holders: tuple[Holder, ...] = ()
    engine_bytes: int | None = None  # held by the engine under test
    bounds: tuple[int, int] | None = None  # what that may be by the plan, bytes
    unexplained: int | None = None  # bytes beyond what the rules allow; below them where negative

    def line(self, name: str) -> AccountLine | None:
        """The line of that name."""
        return next((line for line in self.lines if line.name == name), None)

    @property
    def neighbours(self) -> tuple[Holder, ...]:
        """Other engines that answer on a port of their own: they share the GPU on purpose."""
        return tuple(holder for holder in self.holders if holder.port is not None)

    @property
    def other_bytes(self) -> int:
        """Bytes that others than the engine under test hold."""
        return sum(holder.bytes for holder in self.holders if not holder.is_engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccount:
    """The memory of a host whose processor carries the model."""

    memory_total: int  # bytes of the host, or of the limit that the engine is held to
    is_limited: bool = False  # it is that limit
    resident: int  # bytes that the engine's processes hold
    lines: tuple[AccountLine, ...]  # add up to that
    plan: HostPlan | None = None
    why_no_plan: str = ""  # what was lacking, in words
    unexplained: int | None = None  # bytes beyond what the rules allow; below them where negative

    def line(self, name: str) -> AccountLine | None:
        """The line of that name."""
        return next((line for line in self.lines if line.name == name), None)

    @property
    def left(self) -> int:
        """Bytes that can still be taken before the kernel ends a process."""
        free = self.line("free")
        return free.bytes if free is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Every GPU of the host, and the plan that it is held against."""

    gpus: tuple[GpuAccount, ...]
    host: HostAccount | None = None  # where the processor carries the model
    found_by: str = ""  # how it is known which GPUs carry the model
    plan: LayoutPlan | None = None
    task: PlanTask | None = None
    why_no_plan: str = ""  # what was lacking, in words
    cure: str = ""  # what would give a plan

    @property
    def carriers(self) -> tuple[GpuAccount, ...]:
        """The GPUs that carry the model, by rank."""
        carrying = (one for one in self.gpus if one.role is Role.MODEL)
        return tuple(sorted(carrying, key=lambda one: one.rank if one.rank is not None else 0))

    @property
    def bounds(self) -> tuple[int, int] | None:
        """What the engine alone may hold on the GPU that decides by its plan, bytes."""
        if self.plan is None:
            return None
        others = self.task.gpus.used_by_others if self.task else 0
        return self.plan.smi_used_low - others, self.plan.smi_used_high - others

    def planned(self, name: str) -> LedgerLine | None:
        """A line of the plan's ledger."""
        return next((line for line in self.plan.ledger if line.name == name), None) if self.plan else None
