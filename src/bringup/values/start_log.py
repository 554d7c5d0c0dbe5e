"""One start of one engine as its log tells it. `None` = the log does not say."""

from dataclasses import dataclass, field
from enum import StrEnum

from bringup.values.engine import EngineSpec


class Phase(StrEnum):
    """The steps of a start, in their usual order."""

    ARGUMENTS = "arguments"
    DEVICE = "device"
    COMMUNICATORS = "communicators"
    WEIGHTS = "weights"
    PROFILE = "profile"
    KV_CACHE = "kv_cache"
    GRAPHS = "graphs"
    WARM_UP = "warm_up"
    HTTP_UP = "http_up"
    SERVING = "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cite:
    """The line that a fact was read from, secrets taken out."""

    line: int  # 1-based, of the original input
    text: str
    within: int = 0  # bytes: half of the last digit that the line gives, 0 where the figure is exact


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPhase:
    """One step of the start."""

    name: Phase
    first_line: int  # 1-based
    seconds: float | None = None  # as the engine says it, else until the next step's first line


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """What one rank, in llama.cpp one buffer's device, says of its memory. Sizes are bytes."""

    label: str = (
        ""  # "TP0", "DP1 TP0", "PP0 TP1", "rank 2", "CUDA0", "CPU_Mapped"; "" where there is one only
    )
    gpu: int | None = None  # index, where the log names it
    pid: int | None = None
    weights: int | None = None
    load_seconds: float | None = None
    kv_pool: int | None = None  # vLLM: what is left for it, before it is cut into blocks
    state_pool: int | None = None  # recurrent states
    activations: int | None = None  # peak while profiling; llama.cpp: its compute buffer
    outside: int | None = None  # appeared outside the allocator while profiling
    consumed: int | None = None  # weights and `outside` together (vLLM 0.27 and newer)
    graphs: int | None = None
    graphs_estimated: int | None = None  # what the engine took them for before it recorded them
    graph_seconds: float | None = None
    free_at_start: int | None = None  # before weights
    free_after_pools: int | None = None
    free_after: int | None = None  # once it serves
    total: int | None = None  # as CUDA sees it
    requested: int | None = None  # share of `total` that the engine may use


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """One start, from its first to its last line in the file."""

    engine: str  # "vllm", "sglang", "llama_cpp"
    version: str | None = None
    spec: EngineSpec | None = None  # as far as the log shows the arguments
    model: str | None = None
    device: str | None = None  # "cuda", "cpu", ...
    first_line: int = 1
    last_line: int = 1
    ranks: tuple[RankStart, ...] = ()
    kv_tokens: int | None = None
    max_concurrency: float | None = None  # requests of `concurrency_tokens`
    concurrency_tokens: int | None = None
    blocks: int | None = None
    block_tokens: int | None = None
    running: int | None = None  # requests that may run at once
    state_slots: int | None = None
    context_tokens: int | None = None  # longest request
    kv_layers: int | None = None  # that hold a cache, where the log says it
    phases: tuple[StartPhase, ...] = ()
    is_ready: bool = False  # it says that it serves
    cites: dict[str, Cite] = field(default_factory=dict[str, Cite])  # "kv_tokens", "weights@TP0" -> line

    @property
    def most_loaded(self) -> RankStart | None:
        """The rank with the most weights; None when no rank says how many it holds."""
        told = [rank for rank in self.ranks if rank.weights is not None]
        return max(told, key=lambda rank: rank.weights or 0, default=None)

    def cite(self, fact: str, rank: RankStart | None = None) -> Cite | None:
        """The line of a fact, of one rank where it is a rank's."""
        return self.cites.get(rank_fact(fact, rank.label) if rank else fact)


def rank_fact(fact: str, label: str) -> str:
    """The name of one rank's fact among the cites.

    >>> rank_fact("weights", "TP0"), rank_fact("weights", "")
    ('weights@TP0', 'weights')
    """
    return f"{fact}@{label}" if label else fact
