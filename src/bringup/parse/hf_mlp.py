"""The feed-forward part of one layer of a config: dense, experts, or none."""

from dataclasses import replace

from bringup.parse.hf_families import Family
from bringup.parse.hf_fields import Fields
from bringup.parse.hf_layers import block_words
from bringup.parse.json_value import Json, at, bool_at, float_at
from bringup.values.model import Mlp

_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "active_experts",
)
_EXPERT_SIZE = ("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size")
_DENSE_SIZE = (
    "dense_intermediate_size",
    "intermediate_size_mlp",
    "intermediate_size",
    "ffn_hidden_size",
    "n_inner",
    "decoder_ffn_dim",
    "block_ff_dim",
)


def experts_of(fields: Fields) -> int:
    """Routed experts of the model; 0 for a dense one. DBRX keeps them in `ffn_config`."""
    nested = Fields(given=dict(fields.part("ffn_config")), assumed={})
    found = fields.number(*_EXPERTS) or nested.number("moe_num_experts") or 0
    return found if found > 1 else 0


def read_mlp(fields: Fields, family: Family, model_type: str, index: int) -> Mlp | None:
    """The feed-forward part of layer `index`; None where the layer has none or nothing is known of it."""
    words = block_words(fields)
    if words and model_type == "nemotron_h":
        return _by_word(fields, family, words[index] if index < len(words) else "E")
    if blocks := fields.items("block_configs"):
        return _deci(fields, at(blocks, index))
    if model_type == "longcat_flash":
        return _longcat(fields, family, index)
    if experts_of(fields) and is_moe_layer(fields, index):
        return _moe(fields, family, model_type)
    return _dense(fields, family, model_type, index)


def is_moe_layer(fields: Fields, index: int) -> bool:
    """Whether layer `index` of a model with experts has them."""
    if types := fields.names("mlp_layer_types"):
        return index >= len(types) or types[index] == "sparse"
    if listed := fields.text("moe_layers_enum"):  # Step: "3,4,5"
        return str(index) in listed.replace(" ", "").split(",")
    if index in fields.numbers("mlp_only_layers") or index < fields.count("first_k_dense_replace"):
        return False
    start, end = fields.number("moe_layer_start_index"), fields.number("moe_layer_end_index")  # Ernie
    if (start is not None and index < start) or (end is not None and end >= 0 and index > end):
        return False
    if isinstance(fields.value("moe_layer_freq"), list):
        return bool(fields.per_layer("moe_layer_freq", index))
    return _is_on_step(fields, index)


def _is_on_step(fields: Fields, index: int) -> bool:
    if frequency := fields.number("moe_layer_freq"):  # DeepSeek
        return index % frequency == 0
    if period := fields.number("expert_layer_period"):  # Jamba
        return index % period == fields.count("expert_layer_offset")
    # Qwen (`decoder_sparse_step`), Llama 4 (`interleave_moe_layer_step`), Ernie: the last of each step
    step = fields.number("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or 1
    return (index + 1) % step == 0


def _moe(fields: Fields, family: Family, model_type: str) -> Mlp | None:
    nested = Fields(given=dict(fields.part("ffn_config")), assumed={})
    size = (
        fields.number(*_EXPERT_SIZE) or nested.number("ffn_hidden_size") or fields.number("intermediate_size")
    )
    if not size:
        return None
    return Mlp(
        intermediate_size=size,
        is_gated=family.is_gated,
        has_bias=family.has_mlp_bias or fields.flag("mlp_bias") is True,
        experts=experts_of(fields),
        experts_per_token=fields.number(*_TOP_K) or nested.number("moe_top_k") or 0,
        shared_intermediate_size=_shared_size(fields, model_type, size),
        has_shared_gate=family.has_shared_gate,
        has_correction_bias=_has_correction_bias(fields, family),
        router_dtype=fields.text("moe_router_dtype") or family.router_dtype,
        latent_size=fields.number("moe_latent_size", "routed_expert_hidden_size"),
    )


def _has_correction_bias(fields: Fields, family: Family) -> bool:
    said = fields.flag("use_routing_bias", "use_moe_router_bias", "moe_router_enable_expert_bias")
    if said is not None:
        return said
    # DeepSeek's classes take the bias with `topk_method: noaux_tc` only.
    method = fields.text("topk_method")
    return method == "noaux_tc" if method else family.has_correction_bias


def _shared_size(fields: Fields, model_type: str, expert_size: int) -> int:
    """All shared experts together. Gemma-4 and Llama 4 have a dense MLP beside the experts: the same."""
    if model_type == "gemma4":
        return fields.count("intermediate_size")
    if model_type == "llama4":
        return expert_size
    shared = fields.count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if (each := fields.number("moe_shared_expert_intermediate_size")) is not None:
        return each * max(1, shared)
    sized = fields.number("shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size")
    return sized if sized is not None else shared * expert_size


def _dense(fields: Fields, family: Family, model_type: str, index: int) -> Mlp | None:
    sizes = fields.value("intermediate_size")
    listed = fields.per_layer("intermediate_size", index) if isinstance(sizes, list) else None
    size = listed or fields.number(*_DENSE_SIZE)
    if model_type in ("granitemoehybrid", "granite") and not experts_of(fields):
        size = fields.number("shared_intermediate_size") or size
    if not size:
        return None
    if model_type == "lfm2":
        size = _lfm2_size(fields, size)
    shares = fields.count("num_kv_shared_layers")
    if fields.flag("use_double_wide_mlp") and index >= fields.count("num_hidden_layers") - shares:
        size *= 2  # Gemma-4: the layers that share KV have a wider MLP
    return Mlp(
        intermediate_size=size,
        is_gated=family.is_gated,
        has_bias=fields.flag("mlp_bias", "use_bias") is True or (family.has_mlp_bias and not family.is_gated),
    )


def _lfm2_size(fields: Fields, size: int) -> int:
    """Source: vLLM 0.33.0, `models/lfm2.py`, Lfm2MLP: two thirds, then up to a multiple."""
    if fields.flag("block_auto_adjust_ff_dim") is False:
        return size
    multiple = fields.number("block_multiple_of") or 256
    size = int((fields.share("block_ffn_dim_multiplier") or 1.0) * int(2 * size / 3))
    return multiple * -(-size // multiple)


def _longcat(fields: Fields, family: Family, index: int) -> Mlp | None:
    """LongCat: of the two dense MLPs of a block the first stands beside the experts.

    Source: vLLM 0.33.0, `models/longcat_flash.py`, FlashDecoderLayer.
    """
    dense = fields.count("ffn_hidden_size", "intermediate_size")
    if index % 2:
        return Mlp(intermediate_size=dense) if dense else None
    experts = _moe(fields, family, "longcat_flash")
    return replace(experts, shared_intermediate_size=dense) if experts else None


def _by_word(fields: Fields, family: Family, word: str) -> Mlp | None:
    """Nemotron-H: a layer is either a mixer or a feed-forward part."""
    if word in ("E", "moe"):
        return _moe(fields, family, "nemotron_h")
    size = fields.number("intermediate_size")
    if word in ("-", "mlp") and size:
        return Mlp(intermediate_size=size, is_gated=family.is_gated, has_bias=fields.flag("mlp_bias") is True)
    return None


def _deci(fields: Fields, block: Json) -> Mlp | None:
    """Nemotron-NAS: each block has its own width. Source: vLLM 0.33.0, `models/nemotron_nas.py`."""
    if not isinstance(block, dict) or bool_at(block, "ffn", "no_op"):
        return None
    factor = float_at(block, "ffn", "ffn_mult")
    if factor is None:
        return None
    size = int(2 * factor * fields.count("hidden_size") / 3)
    return Mlp(intermediate_size=256 * -(-size // 256), has_bias=fields.flag("mlp_bias") is True)
