"""The plan: layouts with their ledgers. Every line says where it comes from and adds up exactly."""

from dataclasses import dataclass
from enum import StrEnum

from bringup.errors import EXIT_FINDINGS, EXIT_NO_FIT, EXIT_OK, EXIT_UNKNOWN
from bringup.values.engine import EngineSpec, EngineStatus
from bringup.values.finding import Finding, Severity, worst
from bringup.values.host import EngineProcess, ModelFiles
from bringup.values.model import ModelSpec
from bringup.values.start_log import StartLog


class Origin(StrEnum):
    """Where a line's bytes come from, best first."""

    MEASURED = "measured"
    HEADERS = "headers"
    CONFIG = "config"
    RULE = "rule"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One part of one GPU's memory. `low` and `high` bound it; equal to `bytes` where it is exact."""

    name: str  # "weights", "kv_pool", "state_pool", "activations", "graphs", "context", "free", ...
    bytes: int
    low: int
    high: int
    origin: Origin
    formula: str  # with the numbers in it, so that it can be checked by hand


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPlan:
    """The cache of one GPU and what it holds."""

    available_bytes: int  # per GPU
    bytes_per_token: float  # per GPU, what the engine's own numbers imply
    tokens: int  # as the engine will print it
    max_concurrency: float  # requests of the longest length
    low_tokens: int
    high_tokens: int
    block_tokens: int | None = None
    blocks: int | None = None
    bytes_per_block: int | None = None
    fixed_bytes_per_request: int = 0  # windows and states
    groups: tuple[int, ...] = ()  # layers per group
    cache_dtype: str | None = None  # what `auto` became
    fits: bool = True  # one request of the longest length fits
    needed_bytes: int = 0  # per GPU, for that one request
    longest_context: int | None = None  # tokens; largest max_model_len up to the wanted one that fits
    refusal: str | None = None  # why the engine would not start, where bytes are not the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One kind of GPU."""

    name: str
    memory_total: int  # bytes, by nvidia-smi
    cuda_total: int  # bytes that CUDA sees; utilisation fractions apply to this
    reserved: int  # bytes the driver keeps
    compute_capability: str | None = None
    architecture: str | None = None  # "Blackwell"
    power_limit: float | None = None  # watts
    formats: tuple[tuple[str, str], ...] = ()  # ("nvfp4", "native")
    source: str = ""
    is_cuda_total_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs that a plan may use."""

    card: Card
    count: int
    used_by_others: int = 0  # bytes on each


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the model is spread, per engine rules."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    decode_context_parallel: int = 1
    has_expert_parallel: bool = False
    attention_data_parallel: int = 1  # replicas of attention inside the tensor parallel ranks
    detail: str = ""  # what else tells it from others: "row split, cache q8_0"

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def caches(self) -> int:
        """Caches that hold requests of their own: a plan counts tokens of one, an engine tells their sum."""
        return max(1, self.data_parallel) * max(1, self.attention_data_parallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """What is to be planned: one model on some GPUs under one engine."""

    spec: EngineSpec  # the command line as it stands, or one that names only the model
    version: str | None  # of the engine; None: the newest whose rules are known
    model: ModelSpec
    gpus: Gpus
    context: int | None = None  # tokens of one request that must fit
    concurrency: int | None = None  # requests of that length that must run at once
    measured: StartLog | None = None  # an earlier start, whose figures replace estimates
    draft: ModelSpec | None = None  # the draft model of its own that the command names
    draft_fault: str | None = None  # why its config cannot be had


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTask:
    """What runs on a host's processor, as far as it is known."""

    engine: EngineStatus
    process: EngineProcess
    spec: EngineSpec | None = None  # the command line, where it is the engine's own
    model: ModelSpec | None = None
    files: ModelFiles | None = None
    weights_bytes: int | None = None  # as the endpoint tells
    resident: int | None = None  # what the processes hold, where rules leave more than one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What an engine on a processor takes of the host's memory."""

    ledger: tuple[LedgerLine, ...]  # "weights", "kv_pool", "program"
    tokens: int | None = None  # that its cache holds
    bytes_per_token: float | None = None
    flag: str = ""  # the setting that decides the size of the cache: "--ctx-size"
    value: str = ""  # of it; empty where it is not given
    growth_bytes: int = 0  # bytes that it may still take by design, beyond its estimates
    growth_words: str = ""  # for what
    growth_flag: str = ""  # what limits it

    def line(self, name: str) -> LedgerLine | None:
        """The line of that name."""
        return next((line for line in self.ledger if line.name == name), None)

    @property
    def bytes(self) -> int:
        """The sum of the lines."""
        return sum(line.bytes for line in self.ledger)

    @property
    def low(self) -> int:
        """The least that is by design."""
        return sum(line.low for line in self.ledger)

    @property
    def high(self) -> int:
        """The most that is by design."""
        return sum(line.high for line in self.ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """An allocation that comes after the pools are taken: it must find room beside them.

    The engine's allocator keeps what it once got, so a server that has been through it needs no more.
    """

    name: str  # "the sampler's warm-up"
    bytes: int  # all of it, per GPU
    low: int
    high: int
    piece: int  # the largest single request of it
    flag: str  # what makes it smaller
    value: int  # of that flag
    default: int | None = None  # what the flag is where it is not given


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The setting that says how much of a GPU the engine takes for itself."""

    flag: str  # "--gpu-memory-utilization"
    value: float
    base: int  # bytes that it is a share of
    reserve: tuple[int, int] | None = None  # bytes that the engine's own guide wants left free at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """What a GPU of one pipeline stage holds: its layers differ from those of the others."""

    layers: tuple[int, ...]  # indices
    weights_bytes: int
    pool_bytes: int  # of KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlan:
    """One layout with its account."""

    layout: Layout
    fits: bool
    weights_bytes: int  # per GPU, the rank with most
    kv: KvPlan
    smi_used_low: int  # bytes, what nvidia-smi will show
    smi_used_high: int
    ledger: tuple[LedgerLine, ...]  # of the GPU that decides
    findings: tuple[Finding, ...] = ()
    command: tuple[str, ...] = ()
    context: int = 0  # tokens of the request that is asked about
    requests: float = 0.0  # of that length, at once, over the whole deployment
    upcoming: tuple[Upcoming, ...] = ()  # largest first
    share: Share | None = None
    stages: tuple[StageShare, ...] = ()  # in order; empty where one stage has all layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What fewer or more GPUs than the answer takes would give."""

    side: str  # "smaller", "larger"
    layout: Layout
    fits: bool
    context: int = 0  # tokens of the request that is asked about
    requests: float = 0.0  # of that length, at once
    tokens: int = 0  # of cache
    reason: str = ""  # why it does not do; empty where it fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A published form of the model in some number format, planned like the others."""

    name: str
    found_in: str  # "asked for", "named", "hub cache", "catalogue", "hub"
    weights_format: str  # "bf16", "fp8 block", "nvfp4", "int4 group (awq)", "Q4_K"
    runs: str | None = None  # how the card runs the format: "native", "weight-only (Marlin)"; None: not known
    engine: str = ""
    origin: str = ""  # of the sizes: "headers", "config", "catalogue"
    best: LayoutPlan | None = None  # None: not planned
    reason: str = ""  # why it does not fit or could not be planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """Published forms of one model side by side, and who could not be asked for more."""

    found: tuple[Variant, ...]
    not_asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All layouts looked at, best first; the first is the answer."""

    model: str
    engine: str
    engine_version: str
    gpus: Gpus
    layouts: tuple[LayoutPlan, ...]
    rejected: tuple[tuple[Layout, str], ...] = ()  # (layout, why)
    neighbours: tuple[Neighbour, ...] = ()  # of the first layout, where layouts were looked at
    variants: Variants | None = None  # where they were asked for
    findings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the first layout fits."""
        return bool(self.layouts) and self.layouts[0].fits

    @property
    def exit_code(self) -> int:
        """6 where nothing fits, otherwise what the worst finding says."""
        if not self.fits:
            return EXIT_NO_FIT
        severity = worst(self.findings + self.layouts[0].findings)
        return {
            Severity.WARNING: EXIT_FINDINGS,
            Severity.FAILURE: EXIT_FINDINGS,
            Severity.UNKNOWN: EXIT_UNKNOWN,
        }.get(severity, EXIT_OK)
