"""vLLM's start-up log: what it loaded, what it measured, what it left for the cache.

Source: vLLM 0.6 to 0.33, `v1/worker/gpu_worker.py`, `v1/worker/gpu_model_runner.py`,
`v1/core/kv_cache_utils.py`, `entrypoints/utils.py`. "GB" and "GiB" both mean 2^30 bytes in all of them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from bringup.engines import StartLogReader
from bringup.engines.vllm.start_arguments import spec_of_lines
from bringup.parse.log_facts import (
    Facts,
    Keep,
    gather,
    literals_of,
    phases_of,
    rank_starts,
    shape,
    with_seconds,
)
from bringup.parse.log_line import LogLine
from bringup.parse.redact import redact
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.values.start_log import Phase, RankStart, StartLog, rank_fact

# Source: vLLM 0.27.1 to 0.33.0, `gpu_worker.py`: vllm #57936.
_COUNTS_GRAPHS_IN_PEAK = (0, 27, 0)
_SIZE = r"-?\d+(?:\.\d+)?"
_SHAPES = (
    shape("Initializing ", r"Initializing an? (?:V\d )?LLM engine \(v(?P<version__text>\d[^)\s]*)\)"),
    shape("█  version ", r"█  version (?P<version__text>\d\S*)"),
    shape("API server version ", r"API server version (?P<version__text>\d\S*)"),
    shape("with config: ", r"with config: .*?\bmax_seq_len=(?P<context_tokens__n>\d+)"),
    shape("with config: ", r"with config: .*?\bdevice_config=(?P<device__text>\w+)"),
    shape("CPU KV cache size: ", r"(?P<device__text>CPU) KV cache size"),
    shape("with config: ", r"with config: .*?\bmodel='(?P<model__text>[^']+)'"),
    shape(
        "odel loading took ",
        rf"odel loading took (?P<weights__gib>{_SIZE}) GiB(?: memory)? and "
        r"(?P<load_seconds__s>[\d.]+) seconds",
    ),
    shape("Loading model weights took ", rf"Loading model weights took (?P<weights__gib>{_SIZE}) GB"),
    # The old breakdown, in one line or in four.
    shape(
        "total_gpu_memory (",
        rf"total_gpu_memory \((?P<total__gib>{_SIZE})GiB\) x gpu_memory_utilization \([\d.]+\) = "
        rf"(?P<requested__gib>{_SIZE})GiB",
    ),
    shape("model weights take ", rf"model weights take (?P<weights__gib>{_SIZE})GiB"),
    shape("non_torch_memory takes ", rf"non_torch_memory takes (?P<outside__gib>{_SIZE})GiB"),
    shape(
        "PyTorch activation peak memory takes ",
        rf"PyTorch activation peak memory takes (?P<activations__gib>{_SIZE})GiB",
    ),
    shape("reserved for KV Cache is ", rf"reserved for KV Cache is (?P<kv_pool__gib>{_SIZE})GiB"),
    shape("blocks: ", r"# (?!CPU)\w+ blocks: (?P<blocks__n>\d+)"),
    # The current one, at level DEBUG.
    shape(
        "torch peak memory increase: ",
        rf"torch peak memory increase: (?P<activations__gib>{_SIZE})GiB; non-torch forward increase memory: "
        rf"(?P<outside__gib>{_SIZE})GiB",
    ),
    shape("Available KV cache memory: ", rf"Available KV cache memory: (?P<kv_pool__gib>{_SIZE}) GiB"),
    shape(
        "reserved ", rf"Initial free memory {_SIZE} GiB, reserved (?P<kv_pool__gib>{_SIZE}) GiB memory for KV"
    ),
    shape("Explicitly set (", rf"Explicitly set \((?P<kv_pool__gib>{_SIZE})/{_SIZE}\) GiB for KV cache"),
    shape("KV cache size: ", r"KV cache size: (?P<kv_tokens__n>[\d,]+) tokens", Keep.LEAST),
    shape(
        "Maximum concurrency for ",
        r"Maximum concurrency for (?P<concurrency_tokens__n>[\d,]+) tokens per request: "
        r"(?P<max_concurrency__x>[\d.,]+)x",
        Keep.LEAST,
    ),
    shape(
        "Setting attention block size to ", r"Setting attention block size to (?P<block_tokens__n>\d+) tokens"
    ),
    shape("Setting kv cache block size to ", r"Setting kv cache block size to (?P<block_tokens__n>\d+) "),
    shape(
        "Estimated CUDA graph memory: ",
        rf"Estimated CUDA graph memory: (?P<graphs_estimated__gib>{_SIZE}) GiB",
    ),
    shape(
        "Graph capturing finished in ",
        rf"Graph capturing finished in (?P<graph_seconds__s>[\d.]+) secs?, took (?P<graphs__gib>{_SIZE}) GiB",
    ),
    shape(
        "Free memory on device",
        rf"Free memory on device (?:cuda:\d+ )?"
        rf"\((?P<free_at_start__gib>{_SIZE})/(?P<total__gib>{_SIZE}) GiB\) on startup"
        rf"(?:\. Desired GPU memory utilization is \([\d.]+, (?P<requested__gib>{_SIZE}) GiB\))?",
    ),
    shape(
        "Actual usage is ",
        rf"Actual usage is {_SIZE} GiB for weight, (?P<activations__gib>{_SIZE}) GiB for peak activation, "
        rf"(?P<outside__gib>{_SIZE}) GiB for non-torch memory, and {_SIZE} GiB for CUDAGraph",
    ),
    shape(
        "Actual usage is ",
        rf"Actual usage is (?P<consumed__gib>{_SIZE}) GiB for consumed memory[^,]*, "
        rf"(?P<activations__gib>{_SIZE}) GiB for peak activation",
    ),
    shape(
        "Auto-fit max_model_len: ", r"Auto-fit max_model_len: reduced from \d+ to (?P<fitted_tokens__n>\d+)"
    ),
    shape("init engine (profile", r"init engine \(profile[^)]*\) took (?P<engine_seconds__s>[\d.]+) s"),
    shape("Memory profiling takes ", r"Memory profiling takes (?P<profile_seconds__s>[\d.]+) seconds"),
    shape(
        "profiling/warmup run ", r"profiling/warmup run (?:together )?took (?P<profile_seconds__s>[\d.]+) s"
    ),
)
_MARKS = {
    Phase.ARGUMENTS: ("non-default args:", "API server version ", "█  version ", "args: Namespace("),
    Phase.DEVICE: ("LLM engine (v",),
    Phase.COMMUNICATORS: ("world_size=", "vLLM is using nccl", " in world size "),
    Phase.WEIGHTS: (
        "Starting to load model ",
        "Loading safetensors checkpoint shards",
        "oading weights took ",
    ),
    Phase.PROFILE: (
        "Using cache directory: ",
        "Warming up model for the compilation",
        "Dynamo bytecode transform",
        "Encoder cache will be initialized",
        "Memory profiling takes ",
        "torch.compile took ",
        "torch.compile takes ",
        "profiling/warmup run ",
        "Profiling CUDA graph memory",
    ),
    Phase.KV_CACHE: ("Available KV cache memory: ", "KV cache size: ", "GPU blocks: ", "CPU blocks: "),
    Phase.GRAPHS: ("Capturing CUDA graph", "Capturing cudagraphs", "Graph capturing finished"),
    Phase.WARM_UP: ("init engine (profile",),
    Phase.HTTP_UP: ("Starting vLLM server on ", "Starting vLLM API server"),
    Phase.SERVING: ("Application startup complete",),
}
_BEGINS = (
    ("banner", "█  version ", re.compile(r"█  version \S")),
    ("arguments", "args: ", re.compile(r"non-default args: |args: Namespace\(")),
    ("engine", "LLM engine (v", re.compile(r"Initializing an? (?:V\d )?LLM engine \(v")),
)
_OWN = (
    "LLM engine (v",
    "non-default args: ",
    "vLLM API server version",
    "Starting vLLM ",
    "odel loading took ",
    "GPU KV cache size: ",
    "CPU KV cache size: ",
    "Loading model weights took ",
    "Available KV cache memory: ",
    "# GPU blocks: ",
    "# cuda blocks: ",
    "torch.compile took ",
    "torch.compile takes ",
)
# Of lines that say what it was started with (`start_arguments`).
_FURTHER = ("args: Namespace(", "with config: ", "max_num_batched_tokens=")


def recognise(line: LogLine) -> bool:
    """Whether only vLLM writes such a line."""
    return any(words in line.text for words in _OWN)


def begins(line: LogLine) -> str | None:
    """The mark of a new start on this line."""
    text = line.text
    return next((name for name, words, pattern in _BEGINS if words in text and pattern.search(text)), None)


def read(lines: Sequence[LogLine]) -> StartLog:
    """One start of vLLM."""
    facts = gather(lines, _SHAPES)
    spec = spec_of_lines(lines)
    phases = phases_of(lines, _MARKS)
    ranks = _without_frontend(rank_starts(facts))
    if (read_version(facts.text("version")) or NEWEST) >= _COUNTS_GRAPHS_IN_PEAK:
        ranks = tuple(_without_graphs(rank, facts) for rank in ranks)
    model = (spec.model if spec else None) or facts.text("model")
    return StartLog(
        engine="vllm",
        version=facts.text("version"),
        spec=spec,
        model=redact(model) if model else None,
        device=(facts.text("device") or "").lower() or None,
        first_line=lines[0].number,
        last_line=lines[-1].number,
        ranks=ranks,
        kv_tokens=facts.number("kv_tokens"),
        max_concurrency=facts.ratio("max_concurrency"),
        concurrency_tokens=facts.number("concurrency_tokens"),
        blocks=facts.number("blocks"),
        block_tokens=facts.number("block_tokens"),
        context_tokens=facts.number("fitted_tokens") or facts.number("context_tokens"),
        phases=with_seconds(phases, _told(facts, ranks)),
        is_ready=any(phase.name is Phase.SERVING for phase in phases),
        cites=facts.cites,
    )


def _told(facts: Facts, ranks: tuple[RankStart, ...]) -> dict[Phase, float | None]:
    """Seconds that the engine states; of ranks the slowest."""

    def slowest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return {
        Phase.WEIGHTS: slowest([rank.load_seconds for rank in ranks]),
        Phase.PROFILE: facts.ratio("profile_seconds"),
        Phase.GRAPHS: slowest([rank.graph_seconds for rank in ranks]),
    }


def _without_frontend(ranks: tuple[RankStart, ...]) -> tuple[RankStart, ...]:
    """Ranks as workers name them; what the engine's core says under no name is the first's.

    Since 0.11 the core prints what is left for the cache once, in older ones each worker does.
    """
    named = [rank for rank in ranks if rank.label]
    lone = next((rank for rank in ranks if not rank.label), None)
    if lone is None or not named or lone.weights is not None:
        return ranks
    first = named[0]
    told = {name: getattr(first, name) for name in ("kv_pool", "activations", "outside", "graphs")}
    missing = {name: getattr(lone, name) for name, value in told.items() if value is None}
    return (replace(first, **missing), *named[1:])


def _without_graphs(rank: RankStart, facts: Facts) -> RankStart:
    """The rank whose "peak activation" has the estimate of its graphs in it, without that."""
    cite = facts.cites.get(rank_fact("activations", rank.label))
    if cite is None or rank.activations is None or "consumed memory" not in cite.text:
        return rank
    graphs = rank.graphs_estimated
    if graphs is None:
        return rank
    return replace(rank, activations=max(0, rank.activations - graphs))


START_LOG = StartLogReader(
    recognise=recognise, begins=begins, read=read, literals=literals_of(_SHAPES, _MARKS, (*_OWN, *_FURTHER))
)
