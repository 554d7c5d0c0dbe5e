"""What vLLM of a version makes of a command line on a card: the settings that decide memory.

Defaults that changed stand in tables, newest first; the first row that is not newer than the version holds.
Source: vLLM 0.8.5 to 0.32.0, `engine/arg_utils.py` (`get_batch_defaults`), `config/cache.py`,
`config/model.py` (`_get_and_verify_max_len`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bringup.engines.vllm.flags import count, settings_at, switch
from bringup.parse.command_line import whole_number
from bringup.parse.flag_values import finite_number
from bringup.parse.json_value import Json, float_at, int_at, json_or_none, text_at
from bringup.planner.encoder_tensors import has_encoder
from bringup.planner.kv_versions import Version
from bringup.planner.vllm_figures import default_utilization
from bringup.units import GIB
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Layout

_NO_LIMIT = 1 << 62
# Methods that take drafts from the text. Source: vLLM 0.33.0 `config/speculative.py`, `SpeculativeMethod`.
_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix", "[ngram]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How much one step may hold."""

    tokens: int  # max_num_batched_tokens
    sequences: int  # max_num_seqs


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefault:
    """The batch of `vllm serve` on cards of at least `memory` bytes."""

    since: Version
    memory: int
    batch: Batch
    excluded: tuple[str, ...] = ()  # words in the card's name


_LARGE = Batch(tokens=8192, sequences=1024)
# Of a GB10 the driver's library says no size, so that it counts as small until the name is asked for (0.33).
# Seen: 2048 on 0.13, and 2496 on 0.25.1, which is 2048 raised for one image.
_BATCHES = (
    BatchDefault(since=(0, 28, 0), memory=160 * GIB, batch=Batch(tokens=16384, sequences=1024)),
    BatchDefault(since=(0, 9, 0), memory=70 * GIB, batch=_LARGE, excluded=("a100", "gb10")),
    BatchDefault(since=(0, 8, 0), memory=70 * GIB, batch=_LARGE, excluded=("gb10",)),
    BatchDefault(since=(0, 0, 0), memory=0, batch=Batch(tokens=2048, sequences=256)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding as asked for."""

    method: str | None
    model: str | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the memory rules ask about a command line, decided."""

    version: Version
    max_model_len: int
    is_length_fitted: bool  # `--max-model-len auto`
    model_length: int  # what the model's config allows
    allows_longer: bool
    batch: Batch
    is_batch_default: bool  # max_num_seqs was not given
    utilization: float
    is_utilization_given: bool
    kv_cache_memory_bytes: int | None
    blocks_given: int | None  # `--num-gpu-blocks-override`
    kv_cache_dtype: str
    is_eager: bool
    charges_graphs: bool  # the switch of the environment, where the version has one
    has_prefix_caching: bool | None
    has_async_scheduling: bool | None
    has_hybrid_manager: bool
    has_v2_runner: bool
    has_custom_all_reduce: bool
    has_vision: bool
    has_chunked_prefill: bool
    speculation: Speculation | None
    loads_mtp: bool  # the model's own drafting layers


def settings_of(spec: EngineSpec, version: Version, model: ModelSpec, card: Card) -> Settings:
    """The settings of `spec`, flags first, then the version's defaults for this card and model."""
    flags, environment = spec.flags, spec.environment
    length = default_length(model)
    asked = flags.get("--max-model-len")
    is_fitted = asked in ("auto", "-1")
    max_model_len = count(asked) or length
    speculation = _speculation(flags)
    batch, is_default = _batch(flags, version, card, max_model_len)
    share = finite_number(flags.get("--gpu-memory-utilization"))
    return Settings(
        version=version,
        max_model_len=max_model_len,
        is_length_fitted=is_fitted,
        model_length=length,
        batch=batch,
        is_batch_default=is_default,
        utilization=default_utilization(version) if share is None else share,
        is_utilization_given="--gpu-memory-utilization" in flags,
        allows_longer=environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1",
        blocks_given=whole_number(flags.get("--num-gpu-blocks-override")),
        kv_cache_memory_bytes=count(flags.get("--kv-cache-memory-bytes")),
        kv_cache_dtype=flags.get("--kv-cache-dtype", "auto"),
        is_eager=_is_eager(flags),
        charges_graphs=_charges_graphs(environment, version),
        has_prefix_caching=switch(flags, "--enable-prefix-caching"),
        has_async_scheduling=switch(flags, "--async-scheduling"),
        has_hybrid_manager=switch(flags, "--disable-hybrid-kv-cache-manager") is not True,
        has_v2_runner=_has_v2_runner(environment, version),
        has_custom_all_reduce=switch(flags, "--disable-custom-all-reduce") is not True,
        has_vision=_has_vision(flags, model),
        has_chunked_prefill=switch(flags, "--enable-chunked-prefill") is not False,
        speculation=speculation,
        loads_mtp=_loads_mtp(speculation),
    )


def config_changes(spec: EngineSpec) -> dict[str, Json]:
    """Fields of the model's config that the command line sets; `--rope-scaling` is of versions up to 0.11."""
    rope = json_or_none(spec.flags.get("--rope-scaling", ""))
    return {
        **({"rope_scaling": rope} if rope is not None else {}),
        **settings_at(spec.flags, "--hf-overrides"),
    }


def layout_of(spec: EngineSpec) -> Layout:
    """The layout that the command line asks for."""
    flags = spec.flags

    def size(name: str) -> int:
        return whole_number(flags.get(name)) or 1

    return Layout(
        tensor_parallel=size("--tensor-parallel-size"),
        pipeline_parallel=size("--pipeline-parallel-size"),
        data_parallel=size("--data-parallel-size"),
        decode_context_parallel=size("--decode-context-parallel-size"),
        has_expert_parallel=switch(flags, "--enable-expert-parallel") is True,
    )


def stage_partition(spec: EngineSpec, layers: int, layout: Layout) -> tuple[int, ...] | None:
    """Layers of each pipeline stage by the environment; empty where it says nothing, None where it cannot be.

    Source: vLLM 0.33.0 `distributed/utils.py`, `get_pp_indices`.
    """
    asked = spec.environment.get("VLLM_PP_LAYER_PARTITION", "")
    if not asked or layout.pipeline_parallel == 1:
        return ()
    parts = [whole_number(part.strip()) for part in asked.split(",")]
    counts = tuple(part for part in parts if part is not None)
    is_whole = len(counts) == len(parts) == layout.pipeline_parallel and sum(counts) == layers
    return counts if is_whole else None


def default_batch(version: Version, card: Card) -> Batch:
    """The batch of `vllm serve` where it is not given."""
    newest: dict[int, BatchDefault] = {}
    for row in _BATCHES:
        if version >= row.since:
            newest.setdefault(row.memory, row)
    name = card.name.lower()
    fitting = [
        row
        for row in newest.values()
        if card.cuda_total >= row.memory and not any(word in name for word in row.excluded)
    ]
    return max(fitting, key=lambda row: row.memory).batch


def default_length(model: ModelSpec) -> int:
    """The longest request of the model by its config, in tokens: positions times the factor of its rope.

    Source: vLLM 0.33.0 `config/model.py`, `_get_and_verify_max_len`; llama3, longrope and su ropes count
    their factor in already, Gemma 3's config does too.
    """
    positions = model.max_position or 2048
    scaling = model.config.get("rope_scaling") or model.config.get("rope_parameters")
    rope = cast("dict[str, Json]", scaling) if isinstance(scaling, dict) else None
    kind = text_at(rope, "rope_type") or text_at(rope, "type")
    factor = float_at(rope, "factor")
    if kind in (None, "default", "su", "longrope", "llama3", "mrope") or factor is None:
        return positions
    if "gemma3" in model.model_type:
        return positions
    if kind == "yarn":
        positions = int_at(rope, "original_max_position_embeddings") or positions
    return int(positions * factor)


def _batch(flags: Mapping[str, str], version: Version, card: Card, max_model_len: int) -> tuple[Batch, bool]:
    """The batch, and whether the number of sequences is the version's own choice."""
    default = default_batch(version, card)
    tokens = count(flags.get("--max-num-batched-tokens"))
    sequences = count(flags.get("--max-num-seqs"))
    doubled = 2 if flags.get("--performance-mode") == "throughput" else 1
    chosen = sequences or default.sequences * doubled
    if tokens is None:
        tokens = default.tokens * doubled
        if switch(flags, "--enable-chunked-prefill") is False:
            tokens = max(tokens, max_model_len)
        tokens = min(tokens, chosen * max_model_len)
    return Batch(tokens=tokens, sequences=sequences or min(chosen, tokens)), sequences is None


def _is_eager(flags: Mapping[str, str]) -> bool:
    """Whether no CUDA graphs are made."""
    if switch(flags, "--enforce-eager") or flags.get("--optimization-level") == "0":
        return True
    compilation = settings_at(flags, "--compilation-config")
    return str(compilation.get("cudagraph_mode", "")).upper() in ("NONE", "0") or (
        compilation.get("level") == 0 or compilation.get("mode") == 0
    )


def _charges_graphs(environment: Mapping[str, str], version: Version) -> bool:
    """Whether the graphs' estimate is taken off the cache: on since 0.20, to be asked for in 0.19."""
    value = environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    if value is not None and version >= (0, 19, 0):
        return value != "0"
    return version >= (0, 20, 0)


def _has_v2_runner(environment: Mapping[str, str], version: Version) -> bool:
    value = environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return value not in (None, "0") if value is not None else version >= (0, 30, 0)


def _has_vision(flags: Mapping[str, str], model: ModelSpec) -> bool:
    """Whether the encoder for images or sound is loaded and profiled."""
    if not has_encoder(model) or switch(flags, "--language-model-only"):
        return False
    limits = settings_at(flags, "--limit-mm-per-prompt")
    return not limits or any(value != 0 for value in limits.values())


def _speculation(flags: Mapping[str, str]) -> Speculation | None:
    asked = settings_at(flags, "--speculative-config")
    method = text_at(asked, "method") or flags.get("--spec-method")
    model = text_at(asked, "model") or flags.get("--spec-model") or flags.get("--speculative-model")
    tokens = int_at(asked, "num_speculative_tokens") or whole_number(
        flags.get("--spec-tokens") or flags.get("--num-speculative-tokens")
    )
    if method is None and model is None and tokens is None:
        return None
    return Speculation(method=method, model=model, tokens=tokens or 1)


def draft_name(spec: EngineSpec) -> str | None:
    """The draft model of its own that the command loads; None where the model itself or its text drafts."""
    speculation = _speculation(spec.flags)
    if speculation is None or (speculation.method or "") in _WITHOUT_MODEL:
        return None
    return None if speculation.model == spec.model else speculation.model


def _loads_mtp(speculation: Speculation | None) -> bool:
    """Whether drafting is done by layers of the model itself: `mtp`, `deepseek_mtp`, `qwen3_next_mtp`."""
    return speculation is not None and "mtp" in (speculation.method or "")
