"""What TensorRT-LLM makes of a command line: the settings that decide memory.

Source: TensorRT-LLM 1.2, `commands/serve.py`, `llmapi/llm_args.py` (`KvCacheConfig`) and
`_torch/pyexecutor/_util.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bringup.parse.command_line import whole_number
from bringup.parse.flag_values import finite_number
from bringup.parse.json_value import Json, bool_at, float_at, int_at, json_or_none, text_at
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Layout

_FRACTION = 0.9
_BATCH = 2048  # max_batch_size
_TOKENS = 8192  # max_num_tokens
_BLOCK = 32  # tokens_per_block
_FLASH_MLA_BLOCK = 64  # forced where latents are read by FlashMLA, on Hopper
_CACHE_TYPES = {"fp8": "fp8", "nvfp4": "nvfp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the memory rules ask about a command line, decided."""

    layout: Layout
    attention_data_parallel: int
    expert_groups: int
    context: int  # max_seq_len
    model_length: int
    batch: int
    step_tokens: int
    fraction: float
    cache_dtype: str
    max_tokens: int | None  # of the cache, where it is limited
    block_tokens: int
    has_block_reuse: bool
    has_chunked_prefill: bool
    has_graphs: bool
    backend: str
    beams: int


def settings_of(spec: EngineSpec, model: ModelSpec, card: Card) -> Settings:
    """The settings of `spec`, the file and flags first, then the program's defaults."""
    flags = spec.flags
    cache = _keys(flags, "kv_cache_config")
    tp, ep = _size(flags, "--tp_size"), _size(flags, "--ep_size")
    has_replicas = flags.get("enable_attention_dp") is not None
    length = model.max_position or 2048
    fraction = float_at(cache, "free_gpu_memory_fraction")
    given = flags.get("--kv_cache_free_gpu_memory_fraction")
    copies = tp if has_replicas else 1
    return Settings(
        layout=Layout(
            tensor_parallel=tp,
            pipeline_parallel=_size(flags, "--pp_size"),
            has_expert_parallel=ep > 1,
            attention_data_parallel=copies,
        ),
        attention_data_parallel=copies,
        expert_groups=ep,
        context=whole_number(flags.get("--max_seq_len")) or length,
        model_length=length,
        batch=whole_number(flags.get("--max_batch_size")) or _BATCH,
        step_tokens=whole_number(flags.get("--max_num_tokens")) or _TOKENS,
        fraction=next((one for one in (fraction, finite_number(given)) if one is not None), _FRACTION),
        cache_dtype=_cache_dtype(flags, cache, model),
        max_tokens=int_at(cache, "max_tokens"),
        block_tokens=int_at(cache, "tokens_per_block") or _block(model, card),
        has_block_reuse=bool_at(cache, "enable_block_reuse") is not False,
        has_chunked_prefill="--enable_chunked_prefill" in flags,
        has_graphs=flags.get("cuda_graph_config", "").lower() not in ("null", "none", "~"),
        backend=flags.get("--backend", "pytorch"),
        beams=whole_number(flags.get("--max_beam_width")) or 1,
    )


def _keys(flags: Mapping[str, str], name: str) -> dict[str, Json]:
    found = json_or_none(flags.get(name, ""))
    return dict(found) if isinstance(found, dict) else {}


def _size(flags: Mapping[str, str], name: str) -> int:
    return whole_number(flags.get(name)) or 1


def _cache_dtype(flags: Mapping[str, str], cache: dict[str, Json], model: ModelSpec) -> str:
    """The format of the cache: asked for, else the checkpoint's, else the model's own."""
    asked = text_at(cache, "dtype") or flags.get("--kv_cache_dtype") or "auto"
    stored = model.quantization.kv_cache if model.quantization is not None else None
    if asked in _CACHE_TYPES:
        return _CACHE_TYPES[asked]
    return model.dtype if asked != "auto" or stored is None else stored


def _block(model: ModelSpec, card: Card) -> int:
    is_latent = any(layer.attention is not None and layer.attention.kv_lora_rank for layer in model.layers)
    return _FLASH_MLA_BLOCK if is_latent and card.compute_capability == "9.0" else _BLOCK
