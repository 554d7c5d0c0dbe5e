"""The attention geometry of one layer of a config.

Source of names and their order: vLLM 0.33.0, `config/model.py`.
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.parse.hf_families import Family
from bringup.parse.hf_fields import Fields
from bringup.parse.json_value import int_at
from bringup.values.model import Attention, Mixer

_QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")
_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_HEAD_DIM = ("head_dim", "hidden_size_per_head", "attention_head_dim")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")


def head_dim(fields: Fields) -> int | None:
    """Elements of one query or key head, 0 and null being no answer; None without hidden size or heads."""
    for name in _HEAD_DIM:
        if size := fields.number(name):
            return size
    hidden, heads = fields.number(*_HIDDEN), fields.number(*_QUERY_HEADS)
    return hidden // heads if hidden and heads else None


def kv_heads(fields: Fields, query_heads: int) -> int:
    """Key and value heads over all ranks."""
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):  # Falcon, StarCoder
        return 1
    nested = int_at(dict(fields.part("attn_config")), "kv_n_heads")  # DBRX
    return fields.number(*_KV_HEADS) or nested or query_heads


def read_attention(
    fields: Fields, family: Family, model_type: str, mixer: Mixer, index: int
) -> Attention | None:
    """Attention of layer `index`; None where the config gives no heads."""
    heads = fields.number(*_QUERY_HEADS)
    if not heads:
        return None
    if mixer is Mixer.MLA:
        read = _compressed_mla if model_type == "deepseek_v4" else _mla
        return read(fields, family, heads, index)
    size = head_dim(fields)
    if not size:
        return None
    plain = Attention(
        query_heads=heads,
        kv_heads=kv_heads(fields, heads),
        head_dim=size,
        v_head_dim=fields.number("v_head_dim") or size,
        window=_window(fields, model_type, mixer),
        has_bias=_has_bias(fields, family),
        has_output_bias=_has_output_bias(fields, family),
        has_output_gate=family.has_output_gate or fields.flag("attn_output_gate") is True,
        has_sinks=family.has_sinks,
        qk_norm=_qk_norm(fields, family, model_type),
    )
    special = _SPECIAL.get(model_type)
    return special(plain, fields, mixer, index) if special else plain


def _qk_norm(fields: Fields, family: Family, model_type: str) -> str | None:
    """GLM-4.5 alone makes it a choice: the large models have it, Air has not."""
    if model_type == "glm4_moe":
        return "head" if fields.flag("use_qk_norm") else None
    return family.qk_norm


def _window(fields: Fields, model_type: str, mixer: Mixer) -> int | None:
    if mixer is Mixer.CHUNKED:
        return fields.number("attention_chunk_size")
    if mixer is not Mixer.SLIDING:
        return None
    window = fields.number("sliding_window", "sliding_window_size")
    # vLLM 0.33.0, `models/commandr.py`: the window of Cohere2 counts the token itself on top.
    return window + 1 if window and model_type == "cohere2" else window


def _has_bias(fields: Fields, family: Family) -> bool:
    if family.has_qkv_bias is not None:
        return family.has_qkv_bias
    return fields.flag("qkv_bias", "attention_bias", "use_qkv_bias", "use_bias", "bias") is True


def _has_output_bias(fields: Fields, family: Family) -> bool:
    if family.has_output_bias is not None:
        return family.has_output_bias
    return fields.flag("attention_bias", "attention_out_bias", "use_bias", "bias") is True


def _mla(fields: Fields, family: Family, heads: int, index: int) -> Attention | None:
    rank, rope = fields.number("kv_lora_rank"), fields.number("qk_rope_head_dim")
    if rank is None or rope is None:
        return None
    nope = fields.number("qk_nope_head_dim") or 0
    has_indexer = fields.number("index_topk") is not None
    # DeepSeek-V2-Lite says null and means it: no low rank for the queries.
    q_rank = (
        None
        if "q_lora_rank" in fields.given and not fields.given["q_lora_rank"]
        else fields.number("q_lora_rank")
    )
    return Attention(
        query_heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        v_head_dim=fields.number("v_head_dim") or nope,
        has_bias=fields.flag("attention_bias") is True,
        has_output_gate=family.has_output_gate,
        q_lora_rank=q_rank,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        index_heads=fields.number("index_n_heads") if has_indexer else None,
        index_head_dim=fields.number("index_head_dim") if has_indexer else None,
        owns_index_cache=has_indexer and _is_full_indexer(fields, index),
    )


def _is_full_indexer(fields: Fields, index: int) -> bool:
    """Whether a layer picks its own tokens rather than taking an earlier layer's choice."""
    layers = fields.number("num_hidden_layers") or 0
    if index >= layers:  # the layers for speculative decoding always do
        return True
    if types := fields.names("indexer_types"):
        return index >= len(types) or types[index] == "full"
    if pattern := fields.text("index_topk_pattern"):
        return index >= len(pattern) or pattern[index] == "F"
    frequency = fields.number("index_topk_freq") or 1
    offset = fields.number("index_skip_topk_offset")
    return max(index - (2 if offset is None else offset) + 1, 0) % frequency == 0


def _compressed_mla(fields: Fields, family: Family, heads: int, index: int) -> Attention | None:
    """DeepSeek-V4: one 512 wide key-value head, a window in each layer, most layers compressed besides."""
    size, rope = fields.number("head_dim") or 0, fields.number("qk_rope_head_dim") or 0
    ratio = fields.per_layer("compress_ratios", index)
    return Attention(
        query_heads=heads,
        kv_heads=1,
        head_dim=size,
        v_head_dim=size,
        window=fields.number("sliding_window"),
        has_sinks=family.has_sinks,
        q_lora_rank=fields.number("q_lora_rank"),
        kv_lora_rank=size,
        qk_nope_head_dim=size - rope,
        qk_rope_head_dim=rope,
        index_heads=fields.number("index_n_heads") if ratio == 4 else None,
        index_head_dim=fields.number("index_head_dim") if ratio == 4 else None,
        owns_index_cache=ratio == 4,
        compress_ratio=ratio or 0,
        o_lora_rank=fields.number("o_lora_rank"),
        o_groups=fields.number("o_groups"),
    )


def _mimo_v2(plain: Attention, fields: Fields, mixer: Mixer, _index: int) -> Attention:
    if mixer is not Mixer.SLIDING:
        return replace(plain, has_sinks=fields.flag("add_full_attention_sink_bias") is True)
    return replace(
        plain,
        query_heads=fields.number("swa_num_attention_heads") or plain.query_heads,
        kv_heads=fields.number("swa_num_key_value_heads") or plain.kv_heads,
        head_dim=fields.number("swa_head_dim") or plain.head_dim,
        v_head_dim=fields.number("swa_v_head_dim") or plain.v_head_dim,
        has_sinks=fields.flag("add_swa_attention_sink_bias") is True,
    )


def _gemma4(plain: Attention, fields: Fields, mixer: Mixer, index: int) -> Attention:
    plain = _shared_tail(plain, fields, mixer, index)
    if mixer is not Mixer.FULL:
        return plain
    size = fields.number("global_head_dim") or plain.head_dim
    return replace(
        plain,
        head_dim=size,
        v_head_dim=size,
        kv_heads=fields.number("num_global_key_value_heads") or plain.kv_heads,
        v_is_k=fields.flag("attention_k_eq_v") is True,
    )


def _shared_tail(plain: Attention, fields: Fields, _mixer: Mixer, index: int) -> Attention:
    """Gemma-3n and 4: the last `num_kv_shared_layers` take the keys and values of an earlier layer."""
    layers, shared = fields.number("num_hidden_layers") or 0, fields.count("num_kv_shared_layers")
    return replace(plain, shares_kv=shared > 0 and index >= layers - shared)


def _minimax_m3(plain: Attention, fields: Fields, _mixer: Mixer, index: int) -> Attention:
    sparse: Mapping[str, object] = fields.part("sparse_attention_config")
    inner = Fields(given=dict(fields.part("sparse_attention_config")), assumed={})
    if not sparse or not inner.per_layer("sparse_attention_freq", index):
        return plain
    return replace(
        plain,
        index_heads=inner.number("sparse_num_index_heads"),
        index_head_dim=inner.number("sparse_index_dim"),
        owns_index_cache=True,
    )


def _qwen4_exp(plain: Attention, fields: Fields, _mixer: Mixer, _index: int) -> Attention:
    """Qwen4-Exp: an index with one key for several tokens. Source: vLLM 0.30.0, `models/qwen4_exp`."""
    return replace(
        plain,
        index_head_dim=fields.number("indexer_head_dim"),
        index_ratio=fields.number("indexer_compress_ratio"),
        owns_index_cache=True,
    )


def _step(plain: Attention, fields: Fields, mixer: Mixer, _index: int) -> Attention:
    """Step: one kind of layer has its own number of heads. Source: vLLM 0.33.0, `models/step3p5.py`."""
    other = Fields(given=dict(fields.part("attention_other_setting")), assumed={})
    if mixer is not Mixer.SLIDING or other.text("attention_type") != "sliding_attention":
        return plain
    size = other.number("head_dim") or plain.head_dim
    return replace(
        plain,
        query_heads=other.number("num_attention_heads") or plain.query_heads,
        kv_heads=other.number("num_attention_groups") or plain.kv_heads,
        head_dim=size,
        v_head_dim=size,
    )


def _laguna(plain: Attention, fields: Fields, _mixer: Mixer, index: int) -> Attention:
    return replace(
        plain, query_heads=fields.per_layer("num_attention_heads_per_layer", index) or plain.query_heads
    )


def _deci(plain: Attention, fields: Fields, _mixer: Mixer, index: int) -> Attention:
    blocks = fields.items("block_configs")
    group = int_at(blocks[index], "attention", "n_heads_in_group") if index < len(blocks) else None
    return replace(plain, kv_heads=plain.query_heads // group) if group else plain


_SPECIAL = {
    "mimo_v2_flash": _mimo_v2,
    "gemma4": _gemma4,
    "gemma3n": _shared_tail,
    "minimax_m3": _minimax_m3,
    "qwen4_exp": _qwen4_exp,
    "step3p5": _step,
    "laguna": _laguna,
    "nemotron-nas": _deci,
}
