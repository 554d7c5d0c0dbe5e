"""The header of a GGUF file as the config of the model in it: their words turned into config.json's.

Source: llama.cpp, `gguf-py/gguf/constants.py` for the keys, `src/llama-hparams.h` and `src/llama-model.cpp`
for what they mean.
"""

from collections.abc import Mapping, Sequence

from bringup.errors import UnreadableAnswer
from bringup.parse.gguf_header import GgufHeader, Value
from bringup.parse.json_value import Json

# Their architecture -> our model type, where it is not the same word.
_TYPES: Mapping[str, str] = {
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "qwen3vl": "qwen3",
    "qwen3vlmoe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5",
    "qwen35moe": "qwen3_5_moe",
    "deepseek2": "deepseek_v3",
    "deepseek32": "deepseek_v32",
    "glm-dsa": "glm_moe_dsa",
    "glm4moe": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "minimax-m2": "minimax_m2",
    "kimi-linear": "kimi_linear",
    "nemotron_h_moe": "nemotron_h",
    "granitehybrid": "granitemoehybrid",
    "granitemoe": "granite",
    "falcon-h1": "falcon_h1",
    "lfm2moe": "lfm2_moe",
    "command-r": "cohere",
    "deci": "nemotron-nas",
    "mimo2": "mimo_v2_flash",
    "phi3": "phi3",
    "ernie4_5-moe": "ernie4_5_moe",
    "hunyuan-moe": "hunyuan_v1_moe",
    "hunyuan-dense": "hunyuan_v1_dense",
    "seed_oss": "seed_oss",
}

# config.json's word -> theirs, for what needs no thought.
_NUMBERS: Mapping[str, str] = {
    "hidden_size": "embedding_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "sliding_window": "attention.sliding_window",
    "rotary_dim": "rope.dimension_count",
    "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank",
    "index_n_heads": "attention.indexer.head_count",
    "index_head_dim": "attention.indexer.key_length",
    "index_topk": "attention.indexer.top_k",
    "full_attention_interval": "full_attention_interval",
    "num_kv_shared_layers": "attention.shared_kv_layers",
}


class _Metadata:
    """The metadata of one architecture, by the end of its keys."""

    def __init__(self, header: GgufHeader, architecture: str) -> None:
        self.values, self.prefix = header.metadata, architecture

    def value(self, key: str) -> Value | None:
        return self.values.get(f"{self.prefix}.{key}")

    def number(self, key: str) -> int | None:
        """A whole number; of a list the largest."""
        numbers = self.numbers(key)
        return max(numbers) if numbers else None

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers; of one number a list of one."""
        value = self.value(key)
        items = value if isinstance(value, tuple) else (value,)
        return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]

    def is_list(self, key: str) -> bool:
        return isinstance(self.value(key), tuple)


def gguf_config(header: GgufHeader, *, file: str) -> dict[str, Json]:
    """The config of the model in a GGUF file, in config.json's words.

    Raises:
        UnreadableAnswer: the file does not say what it holds.
    """
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise UnreadableAnswer(f"`{file}` does not say which architecture it holds")
    read = _Metadata(header, architecture)
    config: dict[str, Json] = {
        name: number for name, key in _NUMBERS.items() if (number := read.number(key)) is not None
    }
    model_type = _TYPES.get(architecture, architecture)
    blocks = read.number("block_count") or 0
    config |= {
        "model_type": model_type,
        "num_hidden_layers": blocks - (read.number("nextn_predict_layers") or 0),
        "vocab_size": _vocabulary(header, read),
        "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in header.tensors),
        "dtype": "float16",
    }
    value_length = read.number("attention.value_length")
    if value_length and value_length != read.number("attention.key_length"):
        config["v_head_dim"] = value_length
    if "kv_lora_rank" in config:
        config |= _latent(read)
    config |= _states(read, model_type)
    config |= _kinds(read, model_type)
    return {name: value for name, value in config.items() if value is not None}


def _vocabulary(header: GgufHeader, read: _Metadata) -> int | None:
    embedding = next((tensor for tensor in header.tensors if tensor.name == "token_embd.weight"), None)
    if embedding is not None and len(embedding.shape) == 2:
        return embedding.shape[1]
    return read.number("vocab_size") or header.lengths.get("tokenizer.ggml.tokens")


def _latent(read: _Metadata) -> dict[str, Json]:
    """MLA: `key_length` is the latent with its rotated part where the file keeps absorbed matrices."""
    rope = read.number("rope.dimension_count") or 0
    keys = read.number("attention.key_length_mla") or read.number("attention.key_length") or 0
    values = read.number("attention.value_length_mla") or read.number("attention.value_length")
    return {
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": keys - rope,
        "v_head_dim": values,
        "q_lora_rank": read.number("attention.q_lora_rank"),
        "head_dim": None,
    }


def _states(read: _Metadata, model_type: str) -> dict[str, Json]:
    size, groups = read.number("ssm.state_size"), read.number("ssm.group_count")
    inner, heads = read.number("ssm.inner_size"), read.number("ssm.time_step_rank")
    kernel = read.number("ssm.conv_kernel")
    if model_type.startswith(("qwen3_next", "qwen3_5")) and size and inner and heads:
        return {
            "linear_num_key_heads": groups,
            "linear_key_head_dim": size,
            "linear_num_value_heads": heads,
            "linear_value_head_dim": inner // heads,
            "linear_conv_kernel_dim": kernel,
        }
    if model_type == "lfm2":
        return {"conv_L_cache": read.number("shortconv.l_cache"), "block_auto_adjust_ff_dim": False}
    if not inner or not size:
        return {}
    if model_type == "jamba":
        return {"mamba_d_state": size, "mamba_d_conv": kernel, "mamba_dt_rank": heads}
    return {
        "ssm_state_size": size,
        "n_groups": groups,
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // heads if heads else None,
        "conv_kernel": kernel,
    }


def _kinds(read: _Metadata, model_type: str) -> dict[str, Json]:
    """The layers by kind: a list of key-value heads has 0 where a layer has no attention."""
    heads = read.numbers("attention.head_count_kv")
    if not read.is_list("attention.head_count_kv") or not heads:
        return {}
    widths = read.numbers("feed_forward_length")
    if model_type == "nemotron_h":
        experts = bool(read.number("expert_count"))
        return {"hybrid_override_pattern": "".join(_letters(heads, widths, has_experts=experts))}
    if model_type == "nemotron-nas":
        return {"block_configs": _blocks(read, heads, widths)}
    if 0 in heads:
        word = "conv" if model_type.startswith("lfm2") else "linear_attention"
        return {"layer_types": [("full_attention" if count else word) for count in heads]}
    return {}


def _letters(heads: Sequence[int], widths: Sequence[int], *, has_experts: bool) -> list[str]:
    padded = [*widths, *[0] * (len(heads) - len(widths))]
    wide = "E" if has_experts else "-"
    return ["*" if count else (wide if width else "M") for count, width in zip(heads, padded, strict=False)]


def _blocks(read: _Metadata, heads: Sequence[int], widths: Sequence[int]) -> list[Json]:
    hidden, queries = read.number("embedding_length") or 1, read.number("attention.head_count") or 1
    blocks: list[Json] = []
    for index, count in enumerate(heads):
        width = widths[index] if index < len(widths) else 0
        attention: dict[str, Json] = {"n_heads_in_group": queries // count if count else None}
        # Their width is already rounded up; 1.5 / hidden turns it back into the factor.
        mlp: dict[str, Json] = {"ffn_mult": 1.5 * width / hidden} if width else {"no_op": True}
        blocks.append({"attention": attention, "ffn": mlp})
    return blocks
