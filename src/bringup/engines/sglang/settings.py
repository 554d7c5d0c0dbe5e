"""What SGLang of a version makes of a command line on a card: the settings that decide memory.

Source: SGLang 0.5.23 with 0.5.12, 0.5.9 and 0.5.5, `server_args.py` and `arg_groups/*_hook.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from bringup.engines.sglang.fraction import (
    AFTER_0_5_9,
    AFTER_0_5_12,
    Reserve,
    automatic_fraction,
    decode_sizes,
    prefill_sizes,
    tier_of,
    vision_config,
)
from bringup.parse.command_line import whole_number
from bringup.parse.flag_values import finite_number
from bringup.parse.json_value import Json, float_at, json_or_none, text_at
from bringup.planner.encoder_tensors import has_encoder
from bringup.planner.kv_versions import Version
from bringup.values.engine import EngineSpec
from bringup.values.model import Mixer, ModelSpec
from bringup.values.plan import Card, Layout

_MAX_PREFILL_TOKENS = 16384
# Pages that a back end forces.
_PAGES = {
    "trtllm_mha": 64, "trtllm_mla": 64, "cutedsl_mla": 64, "flashmla": 64, "fa4": 128,
}  # fmt: skip
_SPARSE_PAGE = 64
_RUNNING_WITH_DRAFTS = 48  # Source: SGLang 0.5.23 `arg_groups/speculative_hook.py`
# Multimodal models whose prefill is recorded all the same.
_RECORDED_MULTIMODAL = ("qwen3_5", "qwen3_5_moe", "kimi_k25", "minimax_m3")
_STATES_PER_REQUEST = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the memory rules ask about a command line, decided."""

    version: Version
    layout: Layout
    attention_data_parallel: int
    expert_groups: int
    context: int  # tokens of the longest request
    model_length: int  # what the model's config allows
    fraction: float  # mem_fraction_static
    fraction_words: str
    is_fraction_given: bool
    chunk: int | None  # chunked_prefill_size; None: off
    max_prefill_tokens: int
    decode_batch: int  # largest batch of decode graphs; 0: no graphs
    prefill_sizes: int
    page_tokens: int
    has_radix_cache: bool
    states_per_request: int
    wanted_running: int | None  # --max-running-requests, of one data-parallel rank
    has_vision: bool
    speculative: str | None
    draft_tokens: int
    draft_layers: int
    flags: Mapping[str, str] = field(default_factory=dict[str, str])


def settings_of(spec: EngineSpec, version: Version, model: ModelSpec, card: Card) -> Settings:
    """The settings of `spec`, flags first, then the version's defaults for this card and model."""
    flags = spec.flags
    layout, copies = layout_of(spec)
    tier = tier_of(card, version)
    ranks = layout.tensor_parallel
    chunk = _chunk(flags, tier.chunk)
    method = flags.get("--speculative-algorithm", "").upper() or None
    wanted = whole_number(flags.get("--max-running-requests")) or (_RUNNING_WITH_DRAFTS if method else None)
    default_batch = tier.decode_of_many if ranks >= 4 else tier.decode
    decode = _decode_batch(flags, version, default_batch, wanted)
    vision = vision_config(model) if _serves_images(flags, model) else None
    recorded = _prefill_sizes(flags, version, model, chunk, layout, copies)
    is_latent = any(layer.mixer is Mixer.MLA for layer in model.layers)
    reserve = Reserve(
        version=version,
        ranks=ranks * layout.pipeline_parallel,
        chunk=chunk,
        max_prefill_tokens=whole_number(flags.get("--max-prefill-tokens")) or _MAX_PREFILL_TOKENS,
        # Up to 0.5.12 the room is kept even where no graphs are recorded.
        decode_batch=decode or (default_batch if version < AFTER_0_5_12 else 0),
        attention_data_parallel=copies,
        prefill_sizes=recorded,
        is_latent=is_latent,
        has_deepep=flags.get("--moe-a2a-backend") == "deepep" or "--enable-deepep-moe" in flags,
        speculative=method,
        vision=vision,
    )
    automatic, words = automatic_fraction(card, reserve)
    given = finite_number(flags.get("--mem-fraction-static"))
    length = default_length(model)
    return Settings(
        version=version,
        layout=layout,
        attention_data_parallel=copies,
        expert_groups=whole_number(flags.get("--expert-parallel-size")) or 1,
        context=spec.context_tokens or length,
        model_length=length,
        fraction=automatic if given is None else given,
        fraction_words=f"{words} = {automatic:.4f}" if given is None else f"--mem-fraction-static {given:g}",
        is_fraction_given=given is not None,
        chunk=chunk,
        max_prefill_tokens=reserve.max_prefill_tokens,
        decode_batch=decode,
        prefill_sizes=recorded,
        page_tokens=_page(flags, model, card),
        has_radix_cache="--disable-radix-cache" not in flags,
        states_per_request=_states_per_request(flags, version),
        wanted_running=max(1, wanted // copies) if wanted else None,
        has_vision=_serves_images(flags, model),
        speculative=method,
        draft_tokens=_draft_tokens(flags, method),
        draft_layers=_draft_layers(flags, method, model),
        flags=flags,
    )


def config_changes(spec: EngineSpec) -> dict[str, Json]:
    """Fields of the model's config that the command line sets."""
    changes = json_or_none(spec.flags.get("--json-model-override-args", ""))
    return dict(changes) if isinstance(changes, dict) else {}


def layout_of(spec: EngineSpec) -> tuple[Layout, int]:
    """The layout that the command line asks for, and the replicas of attention inside it."""
    flags = spec.flags

    def size(name: str) -> int:
        return whole_number(flags.get(name)) or 1

    replicas = size("--data-parallel-size")
    is_inside = "--enable-dp-attention" in flags
    inside = max(size("--attention-data-parallel-size"), replicas if is_inside else 1)
    return (
        Layout(
            tensor_parallel=size("--tensor-parallel-size"),
            pipeline_parallel=size("--pipeline-parallel-size"),
            data_parallel=1 if is_inside else replicas,
            has_expert_parallel=size("--expert-parallel-size") > 1,
            attention_data_parallel=inside,
        ),
        inside,
    )


def default_length(model: ModelSpec) -> int:
    """The longest request of the model by its config, in tokens.

    Source: SGLang 0.5.23 `utils/hf_transformers/config.py`, `get_context_length`: a factor that is counted in
    already (an original length beside it, llama3) is not counted again.
    """
    positions = model.max_position or 2048
    found = model.config.get("rope_scaling")
    rope = cast("dict[str, Json]", found) if isinstance(found, dict) else {}
    factor = float_at(rope, "factor")
    if factor is None or "original_max_position_embeddings" in rope:
        return positions
    if (text_at(rope, "rope_type") or text_at(rope, "type")) in ("llama3", "mrope", "default"):
        return positions
    return int(positions * factor)


def graph_count(settings: Settings, running: int) -> int:
    """Decode graphs that are recorded: no batch is larger than the requests that may run.

    Source: SGLang 0.5.23 `runner/base_cuda_graph_runner.py`, `get_batch_sizes_to_capture`.
    """
    return decode_sizes(min(settings.decode_batch, running))


def _chunk(flags: Mapping[str, str], default: int) -> int | None:
    given = flags.get("--chunked-prefill-size")
    if given is None:
        return default
    return whole_number(given)  # -1: off


def _decode_batch(flags: Mapping[str, str], version: Version, default: int, wanted: int | None) -> int:
    is_off = "--disable-cuda-graph" in flags or "--disable-decode-cuda-graph" in flags
    if is_off or flags.get("--cuda-graph-backend-decode") == "disabled":
        return 0
    listed = [int(word) for word in flags.get("--cuda-graph-bs-decode", "").split() if word.isdigit()]
    if listed:
        return max(listed)
    given = whole_number(flags.get("--cuda-graph-max-bs-decode"))
    if given is not None:
        return given
    return min(default, wanted) if wanted and version >= AFTER_0_5_12 else default


def _prefill_sizes(
    flags: Mapping[str, str],
    version: Version,
    model: ModelSpec,
    chunk: int | None,
    layout: Layout,
    copies: int,
) -> int:
    """Sizes of prefill graphs; 0 where there are none. On by default from 0.5.12 on, with exceptions.

    Source: SGLang 0.5.12 and 0.5.23; 0.5.9 had them off.
    """
    if version < AFTER_0_5_9 or chunk is None or layout.pipeline_parallel > 1:
        return 0
    if flags.keys() & {"--disable-prefill-cuda-graph", "--disable-cuda-graph"}:
        return 0
    if any(layer.mixer is Mixer.KDA for layer in model.layers) or model.model_type == "deepseek_v4":
        return 0
    is_old = version < AFTER_0_5_12
    is_multimodal = has_encoder(model)
    if is_multimodal and (is_old or model.model_type not in _RECORDED_MULTIMODAL):
        return 0
    if is_old and (copies > 1 or "--enable-lora" in flags or "--enable-torch-compile" in flags):
        return 0
    largest = whole_number(flags.get("--cuda-graph-max-bs-prefill")) or chunk
    return prefill_sizes(largest)


def _serves_images(flags: Mapping[str, str], model: ModelSpec) -> bool:
    is_off = flags.keys() & {"--language-only", "--language-model-only"}
    return has_encoder(model) and not is_off


def _page(flags: Mapping[str, str], model: ModelSpec, card: Card) -> int:
    """Tokens of a page: what the back end forces, else what is asked for, else one."""
    if any(layer.attention is not None and layer.attention.index_heads for layer in model.layers):
        return _SPARSE_PAGE
    backend = flags.get("--attention-backend")
    is_data_center_blackwell = (card.compute_capability or "").startswith("10.")
    if backend is None and is_data_center_blackwell:
        backend = "trtllm_mha"
    asked = whole_number(flags.get("--page-size"))
    forced = _PAGES.get(backend or "", 1)
    return asked if asked and asked >= forced else forced


def _states_per_request(flags: Mapping[str, str], version: Version) -> int:
    """Slots of recurrent state that one running request takes: its own, and those that the cache keeps."""
    if "--disable-radix-cache" in flags:
        return 1
    strategy = flags.get("--mamba-radix-cache-strategy", "auto")
    if strategy == "auto":
        strategy = "extra_buffer" if version >= AFTER_0_5_12 else "no_buffer"
    count = _STATES_PER_REQUEST.get(strategy, 3)
    has_overlap = "--disable-overlap-schedule" not in flags
    return count if has_overlap or strategy != "extra_buffer" else count - 1


def draft_name(spec: EngineSpec) -> str | None:
    """The draft model of its own that the command loads; None where the model itself or its text drafts."""
    name = spec.flags.get("--speculative-draft-model-path")
    has_method = spec.flags.get("--speculative-algorithm", "").upper() not in ("", "NGRAM")
    return name if has_method and name != spec.model else None


def _draft_tokens(flags: Mapping[str, str], method: str | None) -> int:
    if method is None:
        return 0
    steps = whole_number(flags.get("--speculative-num-steps"))
    return whole_number(flags.get("--speculative-num-draft-tokens")) or (steps + 1 if steps else 4)


def _draft_layers(flags: Mapping[str, str], method: str | None, model: ModelSpec) -> int:
    """Drafting layers with a cache: the model's own, or the one layer of an EAGLE model."""
    if method is None or method in ("NGRAM", "STANDALONE"):
        return 0
    if flags.get("--speculative-draft-model-path") not in (None, model.name):
        return 1
    return len(model.mtp_layers)
