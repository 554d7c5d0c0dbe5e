"""Memory that is neither weights nor cache: what one step needs at its peak, graphs, context, buffers.

Every figure here is an estimate with bounds; a measured one replaces it. Source of the formulas: the tensors
that a forward pass of vLLM 0.33.0 holds at once (`models/*.py`, `fused_moe/modular_kernel.py`,
`v1/worker/gpu_model_runner.py`, `profile_run`), checked against the activation peaks that servers print.
"""

from dataclasses import dataclass
from functools import lru_cache

from bringup.planner.kv_versions import NEWEST, Version
from bringup.planner.layer_kinds import layer_kinds
from bringup.units import GIB, KIB, MIB
from bringup.values.model import Attention, Layer, LinearState, Mixer, Mlp, ModelSpec
from bringup.values.plan import Card, Layout

_ELEMENT = 2  # bytes of an activation: bfloat16 or float16


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes with the bounds that they are likely to lie in, and how they come about."""

    bytes: int
    low: int
    high: int
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """The largest step that the engine tries out before it sizes the cache."""

    tokens: int
    sequences: int


def estimate(size: float, formula: str, *, low: float = 0.7, high: float = 1.4) -> Estimate:
    """`size` with bounds as shares of it."""
    return Estimate(bytes=round(size), low=round(size * low), high=round(size * high), formula=formula)


def exact(size: int, formula: str) -> Estimate:
    """A figure without doubt."""
    return Estimate(bytes=size, low=size, high=size, formula=formula)


@lru_cache(maxsize=1024)  # layouts of a model times steps; every pipeline stage asks
def forward_peak(model: ModelSpec, layout: Layout, step: StepSize) -> Estimate:
    """Bytes that the layers hold at once while one step of `step.tokens` passes: the greediest layer decides.

    Residual and normed input, and beside them either what attention holds (queries, keys, values, its
    output) or what the MLP does (gate and up, their product; of experts the workspaces for every chosen one).
    """
    most = max(
        (_layer_peak(layer, model, layout, step.tokens) for layer in layer_kinds(model)), default=(0, "")
    )
    kept = step.tokens * 4 * model.hidden_size * _ELEMENT
    words = f"{step.tokens:,} tokens x {_ELEMENT} B x 4 x {model.hidden_size:,} + {most[1]}"
    return estimate(kept + most[0], words)


def sampler_peak(rows: int, vocabulary: int, bytes_per_logit: float) -> Estimate:
    """Bytes that choosing the next token of `rows` requests takes: logits and their copies.

    >>> round(sampler_peak(1024, 200_064, 38.5).bytes / GIB, 2)
    7.35
    >>> round(sampler_peak(256, 200_064, 38.5).bytes / GIB, 2)
    1.84
    """
    words = f"{rows:,} requests x {vocabulary:,} logits x {bytes_per_logit:g} B"
    return estimate(rows * vocabulary * bytes_per_logit, words, low=0.9, high=1.1)


def _layer_peak(layer: Layer, model: ModelSpec, layout: Layout, tokens: int) -> tuple[int, str]:
    """Bytes beside the residual, and their formula."""
    tp = layout.tensor_parallel
    parts: list[tuple[int, str]] = []
    if layer.attention is not None and layer.mixer is not Mixer.NONE:
        parts.append(_attention(layer.attention, tp, tokens))
    if layer.state is not None:
        parts.append(_state(layer, layer.state, tp, tokens))
    if layer.mlp is not None:
        # Experts see the tokens of every data parallel engine: they are gathered before.
        gathered = tokens * layout.data_parallel if layer.mlp.experts else tokens
        parts.append(_mlp(layer.mlp, model.hidden_size, tp, gathered))
    return max(parts, default=(0, "nothing"))


def _attention(attention: Attention, tp: int, tokens: int) -> tuple[int, str]:
    heads = max(1, attention.query_heads // tp)
    if attention.kv_lora_rank is not None:
        width = (attention.qk_nope_head_dim or 0) + (attention.qk_rope_head_dim or 0) + attention.v_head_dim
        size = tokens * heads * width * _ELEMENT * 2
        return size, f"attention {tokens:,} x {heads} heads x {width} x {_ELEMENT} B x 2"
    kv_heads = max(1, attention.kv_heads // tp)
    width = (2 * heads + 2 * kv_heads) * attention.head_dim
    return tokens * width * _ELEMENT, f"attention {tokens:,} x {width:,} x {_ELEMENT} B"


def _state(layer: Layer, state: LinearState, tp: int, tokens: int) -> tuple[int, str]:
    """The projections of a recurrent layer and what its kernels make of them: about twice."""
    keys, values = state.key_heads * state.key_head_dim, state.value_heads * state.value_head_dim
    width = (2 * keys + 3 * values or 3 * state.inner_size) // tp
    factor = 2
    size = tokens * width * _ELEMENT * factor
    return size, f"{layer.mixer} {tokens:,} x {width:,} x {_ELEMENT} B x {factor}"


def _mlp(mlp: Mlp, hidden: int, tp: int, tokens: int) -> tuple[int, str]:
    wide = mlp.intermediate_size // tp
    up = 2 * wide if mlp.is_gated else wide
    if mlp.experts is None:
        size = tokens * (up + wide) * _ELEMENT
        return size, f"MLP {tokens:,} x {up + wide:,} x {_ELEMENT} B"
    rows = tokens * mlp.experts_per_token
    inner = mlp.latent_size or hidden
    width = max(wide, inner) + max(up, inner)
    size = rows * width * _ELEMENT + tokens * mlp.experts * 4
    words = f"experts {tokens:,} x {mlp.experts_per_token} x {width:,} x {_ELEMENT} B"
    return size, f"{words} + router {tokens:,} x {mlp.experts} x 4 B"


def latent_workspace(model: ModelSpec, layout: Layout, max_model_len: int) -> Estimate:
    """Bytes that attention over latents keeps beside a step: gathered context, and what is made of it.

    Source: vLLM 0.33.0 `v1/attention/backends/mla/common.py` (64 Ki tokens of context at once) and, of models
    with an indexer, its logits (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB) and a prefill workspace of 5 times the
    longest request, 2 times above 256 Ki.
    """
    attention = next(
        (one.attention for one in model.layers if one.attention and one.attention.kv_lora_rank), None
    )
    if attention is None:
        return exact(0, "no latents")
    latent = (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)
    if attention.index_heads is not None:
        times = 5 if max_model_len <= 256 * KIB else 2
        size = times * max_model_len * latent * _ELEMENT
        return estimate(size + 512 * MIB, f"{times} x {max_model_len:,} x {latent} x 2 B + 512 MiB", high=2)
    heads = max(1, attention.query_heads // layout.tensor_parallel)
    width = (attention.qk_nope_head_dim or 0) + attention.v_head_dim
    size = 64 * KIB * (latent + heads * width) * _ELEMENT
    return estimate(size, f"65,536 x ({latent} + {heads} x {width}) x 2 B", low=0.2, high=1.3)


def encoder_peak(model: ModelSpec, items: int, tokens_per_item: int, vision: "Vision") -> Estimate:
    """Bytes that trying out the image encoder takes, its results included."""
    patches = items * tokens_per_item * vision.patches_per_token
    width = 7 * vision.hidden + 2 * vision.intermediate
    inside = patches * width * _ELEMENT
    results = items * tokens_per_item * model.hidden_size * _ELEMENT
    words = (
        f"{items} images x {tokens_per_item * vision.patches_per_token:,} patches x {width:,} x {_ELEMENT} B"
    )
    return estimate(inside + results, words, low=0.5, high=1.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """The image encoder as far as its memory goes."""

    hidden: int
    intermediate: int
    tokens_per_image: int  # most that one image becomes, in tokens of the language model
    patches_per_token: int


def context_memory() -> Estimate:
    """What a process holds on its GPU before a weight is loaded: CUDA context and libraries.

    One fixed point: a server alone on an RTX PRO 6000 reports 94.41 GiB free of about 95.0 at its start.
    """
    return estimate(512 * MIB, "CUDA context and libraries", low=0.7, high=1.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What of a card decides memory outside the allocator."""

    has_nvlink: bool = False  # NCCL keeps buffers for its switches
    is_amd: bool = False
    is_unified: bool = False  # one memory for processor and GPU


# Jetson Orin, Jetson Thor, DGX Spark. Source: NVIDIA's list of CUDA GPUs.
_UNIFIED = ("8.7", "11.0", "12.1")


def platform_of(card: Card) -> Platform:
    """The platform that a card belongs to, by its compute capability and name."""
    capability, name = card.compute_capability or "", card.name.lower()
    return Platform(
        has_nvlink=capability in ("9.0", "10.0", "10.3") and "pcie" not in name,
        is_amd=capability.startswith("gfx"),
        is_unified=capability in _UNIFIED,
    )


def communication_memory(ranks: int, platform: Platform) -> Estimate:
    """Buffers that NCCL and the all-reduce kernels make at start.

    Seen in versions that charge them: about 2 GiB on four H100 (0.9, vLLM #21348), 0.1 to 0.2 GiB on four
    24 GB cards on PCIe (0.9.2).

    >>> communication_memory(1, Platform()).bytes, round(communication_memory(4, Platform()).bytes / MIB)
    (0, 410)
    """
    if ranks == 1:
        return exact(0, "one GPU")
    if platform.has_nvlink:
        size = 1.6 * GIB  # guess: between what was seen and none
        return Estimate(
            bytes=round(size),
            low=GIB // 2,
            high=round(2.4 * GIB),
            formula="NCCL with NVLink switches 1.6 GiB",
        )
    steps = ranks.bit_length() - 1
    size = (0.2 + 0.1 * steps) * GIB  # guess
    return Estimate(
        bytes=round(size),
        low=round(0.1 * GIB),
        high=round(size + 0.9 * GIB),
        formula=f"NCCL and all-reduce (0.2 + 0.1 x {steps}) GiB",
    )


# GiB on AMD (RDNA4), newest first: what is likely, least and most. Seen with 0.13: 0.53 to 0.85 over seven
# starts. With a build of 0.11.2: 0.66 to 3.66 over seven, their median 1.7; three of them have 1.96 more than
# others of the same command.
_AMD_LATE: tuple[tuple[Version, tuple[float, float, float]], ...] = (
    ((0, 12, 0), (0.7, 0.5, 0.9)),
    ((0, 0, 0), (1.7, 0.5, 3.1)),
)


def late_memory(tensor_parallel: int, platform: Platform, version: Version = NEWEST) -> Estimate:
    """What appears outside the allocator while the model is tried out: kernels, more channels.

    `version`: of vLLM, the only engine whose starts on AMD are known.

    Seen on one NVIDIA GPU: 0.04 to 0.37 GiB over 14 starts, 0.07 and 0.08 where the engine says it; on four
    over PCIe 0.75.
    """
    if platform.is_amd:
        size, low, high = next(sizes for since, sizes in _AMD_LATE if version >= since)
        return Estimate(
            bytes=round(size * GIB),
            low=round(low * GIB),
            high=round(high * GIB),
            formula=f"kernels (ROCm) {size} GiB",
        )
    if platform.is_unified:  # the engine asks the operating system what is free: noisier
        return Estimate(
            bytes=GIB, low=round(0.3 * GIB), high=round(2.2 * GIB), formula="kernels, unified memory, 1 GiB"
        )
    if tensor_parallel == 1:
        return Estimate(
            bytes=round(0.22 * GIB), low=round(0.03 * GIB), high=round(0.45 * GIB), formula="kernels 0.22 GiB"
        )
    return Estimate(
        bytes=round(0.5 * GIB),
        low=round(0.15 * GIB),
        high=round(1.1 * GIB),
        formula="kernels and communication channels 0.5 GiB",
    )


def graph_memory(model: ModelSpec, sequences: int, *, is_eager: bool) -> Estimate:
    """What recorded CUDA graphs keep. guess: 2 MiB per size recorded and 24 layers."""
    if is_eager:
        return exact(0, "no graphs: eager")
    largest = min(2 * sequences, 512)
    sizes = graph_sizes(largest)
    words = f"0.1 GiB + {sizes} sizes x {2 * sizes_unit(model) / MIB:.1f} MiB"
    return estimate(graph_bytes(len(model.layers), largest), words, low=0.3, high=2.5)


def graph_sizes(largest: int) -> int:
    """How many sizes of batches up to `largest` are recorded: 1, 2, 4, then every 8, above 256 every 16."""
    return 3 + min(largest, 248) // 8 + max(0, largest - 256) // 16 + 1


def graph_bytes(layers: int, largest: int) -> float:
    """Bytes that the graphs of batches up to `largest` keep.

    >>> round(graph_bytes(64, 512) / MIB), round(graph_bytes(64, 64) / MIB)
    (714, 246)
    """
    return 0.1 * GIB + graph_sizes(largest) * 2 * round(layers / 32 * 3 * MIB)


def sizes_unit(model: ModelSpec) -> int:
    """Bytes that one graph of this model keeps, half of it."""
    return round(len(model.layers) / 32 * 3 * MIB)
