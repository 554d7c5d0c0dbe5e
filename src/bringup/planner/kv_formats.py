"""How many bytes one token's keys and values take in every KV format, and what `auto` becomes.

Source: vLLM 0.33.0, `v1/kv_cache_interface.py`, and the back ends' `customize_spec`.
"""

from math import ceil

from bringup.errors import UsageError
from bringup.planner.kv_records import KvRules
from bringup.values.model import ModelSpec

_ELEMENT_BYTES = {
    "float32": 4, "fp32": 4, "f32": 4,
    "bfloat16": 2, "float16": 2, "half": 2, "bf16": 2, "fp16": 2, "f16": 2,
}  # fmt: skip


def element_bytes(dtype: str) -> int:
    """Bytes of one element; formats of eight bits are one byte.

    >>> element_bytes("bfloat16"), element_bytes("float32"), element_bytes("fp8_e4m3")
    (2, 4, 1)
    """
    word = dtype.removeprefix("torch.")
    if word in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[word]
    if word.startswith(("fp8", "float8", "int8", "uint8")):
        return 1
    raise UsageError(
        f"unknown KV cache format `{dtype}`",
        hint="one that the engine takes, such as `auto`, `bfloat16`, `fp8` or `nvfp4`",
    )


# Bits of keys and of values. Keys of eight bits are stored as they are, fewer with a norm of two bytes.
# Source: vLLM 0.32.0, `model_executor/layers/quantization/turboquant/config.py`.
_TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}


def head_bytes(dtype: str, head_dim: int, v_head_dim: int) -> int:
    """Bytes of one KV head of one token.

    >>> [head_bytes(dtype, 128, 128) for dtype in ("bfloat16", "fp8", "nvfp4", "int8_per_token_head")]
    [512, 256, 144, 264]
    >>> [head_bytes(dtype, 128, 128) for dtype in ("turboquant_k8v4", "ultraquant_4bit")]
    [196, 136]
    """
    both = head_dim + v_head_dim
    if dtype.startswith("nvfp4"):  # two values a byte, and one scale byte for 16 of them
        return sum(size // 2 + size // 16 for size in (head_dim, v_head_dim))
    if dtype == "int4_per_token_head":
        return head_dim // 2 + v_head_dim // 2 + 8
    if dtype.endswith("_per_token_head"):  # two float32 scales
        return both + 8
    if dtype in _TURBOQUANT:
        return _turboquant_bytes(head_dim, *_TURBOQUANT[dtype])
    if dtype == "ultraquant_4bit":  # two values a byte, and one scale byte for 32 of them
        return both // 2 + both // 32
    return both * element_bytes(dtype)


def _turboquant_bytes(head_dim: int, key_bits: int, value_bits: int) -> int:
    keys = head_dim if key_bits == 8 else ceil(head_dim * key_bits / 8) + 2
    size = keys + ceil(head_dim * value_bits / 8) + 4  # scale and zero point of the values
    return size + size % 2


# Bytes of one token in the packed formats of sparse latent attention: 512 values of eight (four) bits
# with their scales, and 64 rotary ones in bfloat16.
_PACKED_LATENT = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


def latent_bytes(dtype: str, rank: int, rotary: int) -> int:
    """Bytes of one token's latent.

    >>> [latent_bytes(dtype, 512, 64) for dtype in ("bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla")]
    [1152, 576, 656, 352]
    """
    if dtype in _PACKED_LATENT:
        return _PACKED_LATENT[dtype]
    if dtype.endswith("_per_token_head"):  # one scale, and room for a second
        return (rank + rotary) // (2 if dtype.startswith("int4") else 1) + 8
    return (rank + rotary) * element_bytes(dtype)


def capability_major(text: str | None) -> int:
    """Number before the dot of a compute capability; 0 where there is none, as on other makers' GPUs.

    >>> capability_major("12.0"), capability_major("gfx942"), capability_major(None)
    (12, 0, 0)
    """
    word = (text or "").split(".")[0]
    return int(word) if word.isdecimal() else 0


def cache_dtype(model: ModelSpec, rules: KvRules) -> str:
    """The format of the cache: what the flag says, else what the checkpoint or the model asks for.

    Source: vLLM 0.32.0, `model_executor/models/config.py` (GLM-5), `models/deepseek_v4/attention.py`
    (`_resolve_dsv4_kv_cache_dtype`), `model_executor/layers/attention/mla_attention.py`
    (`_canonicalize_sparse_mla_kv_cache_dtype`), `platforms/cuda.py` (which back end).
    """
    word, major = rules.cache_dtype, capability_major(rules.compute_capability)
    is_auto = word == "auto"
    attentions = [layer.attention for layer in model.layers if layer.attention]
    if is_auto:
        quantization = model.quantization
        word = (quantization.kv_cache if quantization else None) or model.dtype
    if any(attention.compress_ratio is not None for attention in attentions):
        return "fp8_ds_mla" if is_auto or word.startswith("fp8") else word
    if not any(attention.kv_lora_rank and attention.index_heads for attention in attentions):
        return word
    if is_auto and major == 10 and model.model_type == "glm_moe_dsa":
        word = "fp8_e4m3"
    if major == 12 and is_auto:
        return "fp8_ds_mla"
    is_plain = major == 10 and (rules.attention_backend or "").upper() != "FLASHMLA_SPARSE"
    return "fp8_ds_mla" if word.startswith("fp8") and not is_plain else word
