"""How an engine of some version holds weights: data, so that a version is a row and not a branch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from bringup.planner.kv_versions import Version, read_version
from bringup.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Multiples that a kernel wants of one expert's sizes."""

    intermediate: int = 1
    hidden: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOffload:
    """Whole layers in host memory: the last `count` of every `group`, fetched `ahead` layers early.

    Source: vLLM 0.17 `config/offload.py`, `PrefetchOffloadConfig`; SGLang 0.5.12 `utils/offloader.py`.
    """

    group: int
    count: int = 1
    ahead: int = 1

    def away(self, layers: int) -> int:
        """Layers of a stage that are not on the GPU at any time.

        >>> LayerOffload(group=8, count=2).away(62)  # 6, 7, 14, 15, ...: 14, and one is being fetched
        13
        """
        whole = sum(1 for layer in range(layers) if layer % self.group >= self.group - self.count)
        return max(0, whole - self.ahead)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRules:
    """What decides how many bytes a rank holds besides the model and the layout."""

    engine: str = "vllm"
    vocabulary_padding: int = 64  # rows; Source: vLLM 0.33.0 `vocab_parallel_embedding.py`
    split_limit: int | None = None  # bytes: larger blocks of the allocator are not split
    has_rope_table: bool = True  # cosines and sines for every position, once per distinct rope
    rope_element_bytes: int = 2  # SGLang keeps the tables in float32
    attention_data_parallel: int = 1  # SGLang: attention is spread over tp / this many ranks only
    expert_groups: int | None = None  # SGLang's ep size inside tp; None: the layout's own rule
    flattens_expert_parallel: bool = True  # vLLM: experts are spread over tp x dp
    loads_mtp: bool = False  # a speculative method uses the model's own extra layers
    loads_encoder: bool = True  # vision and audio towers
    encoder_is_sharded: bool = True  # False: a full tower on every rank
    replicates_embedding: bool = False  # the whole table on every rank
    stage_layers: tuple[int, ...] = ()  # layers of each pipeline stage; empty: shared evenly
    online_quantization: str | None = None  # "fp8": bf16 weights are quantised while they load
    has_native_fp8: bool = True  # False: FP8 runs through Marlin, with its own layout of scales
    has_native_fp4: bool = True  # False: NVFP4 runs through Marlin
    mxfp4_backend: str = "marlin"
    # DeepSeek-V4's experts of four bits: their scales are loaded as float32 and stay behind when they are
    # repacked to bytes. None: the version is not known.
    has_float_scales: bool | None = False
    pads_fp8_experts: bool = True  # else an expert's shard must be whole scale blocks
    allows_cut_merges: bool = True  # else each of several merged matrices must be whole scale blocks
    keeps_absorbed_latent: bool = True  # MLA: a dequantised copy of kv_b_proj stays
    redundant_experts: int = 0
    offloaded: int = 0  # bytes of each rank that live in host memory
    offload: "LayerOffload | None" = None  # whole layers that live there
    lora_slots: int = 0
    lora_rank: int = 16
    counts_segments: bool = False  # the figure is free memory before minus after, not tensors
    libraries: int = 0  # bytes that appear beside the tensors while they load, where that is counted
    libraries_high: int = 0  # the most that was seen of them
    leftover_layers: int = 0  # expert layers whose blocks from before repacking are still counted


# What one expert's sizes are rounded to before they are allocated.
# Source: vLLM 0.33.0 `fused_moe/oracle/mxfp4.py`, `mxfp4_round_up_hidden_size_and_intermediate_size`.
MXFP4_PADDING: Mapping[str, Padding] = {
    "marlin": Padding(intermediate=128, hidden=256),
    "flashinfer_trtllm": Padding(intermediate=128, hidden=256),
    "flashinfer_cutlass": Padding(intermediate=128, hidden=128),
    "deep_gemm": Padding(intermediate=128, hidden=128),
    "triton": Padding(intermediate=64, hidden=256),  # hidden: from the log of gpt-oss-120b on H100
    "rocm": Padding(intermediate=128, hidden=128),  # 256 on MI350; Source: 0.13 `get_padding_alignment`
    "b12x": Padding(),
    "none": Padding(),
}


@lru_cache(maxsize=256)  # versions times kinds of cards
def vllm_rules(
    version: str | None, *, compute_capability: str | None = None, is_rocm: bool = False
) -> WeightRules:
    """The rules of a vLLM version on a card; the newest known where the version is not known.

    >>> vllm_rules("0.13.0").split_limit is None, vllm_rules("0.32.0").split_limit
    (True, 20971520)
    """
    known = read_version(version)
    rules = WeightRules()
    if known is None or known >= (0, 21, 0):
        # Source: vLLM 0.21.0 `gpu_worker.py`: the split size is limited while weights load.
        rules = replace(rules, split_limit=20 * MIB)
    if known is not None and known < (0, 32, 0):
        rules = replace(rules, pads_fp8_experts=False)  # Source: vLLM 0.32.0 `fp8.py`
    if known is not None and known < (0, 14, 0):
        # guess: with MiMo-V2-Flash, whose keys need it. Source: vLLM 0.32.0 `linear.py`.
        rules = replace(rules, allows_cut_merges=False)
    if is_rocm:
        return _rocm(rules, known)
    rules = replace(rules, **_card(compute_capability))
    is_old_hopper = known is not None and known < (0, 11, 0) and rules.mxfp4_backend == "triton"
    # vLLM 0.10.1 on H100 says in its log that it falls back to Marlin; 0.14.1 does not.
    return replace(rules, mxfp4_backend="marlin") if is_old_hopper else rules


def _rocm(rules: WeightRules, known: Version | None) -> WeightRules:
    """AMD: older versions count free memory before minus after, newer ones the allocator's blocks.

    Source: vLLM 0.32.0 `platforms/rocm.py`, `get_current_memory_usage`. guess: changed at 0.20; what comes
    on top of the allocator's segments was 12 to 54 MiB in starts of 0.11 and 0.13 on a Radeon AI PRO R9700.
    """
    rules = replace(rules, mxfp4_backend="rocm")
    if known is None or known >= (0, 20, 0):
        return rules
    # The cache is not emptied before counting: two layers of MXFP4 experts, at TP1 as at TP2.
    return replace(
        rules, counts_segments=True, libraries=36 * MIB, libraries_high=150 * MIB, leftover_layers=2
    )


# guess: the first version whose Marlin method makes byte scales itself. The images for Hopper from before it
# leave that to the FP8 method, which makes float32 ones.
# Source: SGLang `quantization/mxfp4_marlin_moe.py`, `create_weights`; `marlin_utils_fp4.py`.
_BYTE_SCALES: Version = (0, 5, 13)


def sglang_rules(*, compute_capability: str | None = None, version: str | None = None) -> WeightRules:
    """The rules of SGLang on a card. Source: SGLang 0.5.23, weights per rank.

    >>> sglang_rules(compute_capability="9.0").has_float_scales is None
    True
    >>> sglang_rules(compute_capability="10.0").has_float_scales
    False
    """
    rules = WeightRules(
        engine="sglang",
        flattens_expert_parallel=False,
        rope_element_bytes=4,
        counts_segments=True,
        # Logged minus predicted in public starts on NVIDIA cards: 5 to 150 MiB; 480 on an MI355X.
        libraries=90 * MIB,
        libraries_high=500 * MIB,
        pads_fp8_experts=False,
        allows_cut_merges=False,
    )
    if compute_capability in _UNIFIED:
        # "Free" is the host's available memory there: up to 0.25 GiB beside the segments on a DGX Spark.
        rules = replace(rules, libraries=250 * MIB, libraries_high=GIB)
    rules = replace(rules, **_card(compute_capability))
    if rules.has_native_fp4:
        return rules
    known = read_version(version)
    return replace(rules, has_float_scales=None if known is None else known < _BYTE_SCALES)


# Memory shared with the host: Jetson Orin, Jetson Thor, DGX Spark. Source: NVIDIA's list of CUDA GPUs.
_UNIFIED = ("8.7", "11.0", "12.1")


def _card(compute_capability: str | None) -> dict[str, object]:
    """What the card can compute in: FP8 from 8.9 on, FP4 from 10.0 on, Triton's MXFP4 on 9.0."""
    if compute_capability is None:
        return {}
    number = tuple(int(part) for part in compute_capability.split("."))
    backend = {9: "triton", 10: "flashinfer_trtllm"}.get(number[0], "marlin")
    return {
        "has_native_fp8": number >= (8, 9),
        "has_native_fp4": number >= (10, 0),
        "mxfp4_backend": backend,
    }
