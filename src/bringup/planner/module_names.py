"""The many names of the same module, and one spelling for all of them."""

import re
from functools import lru_cache
from itertools import product

# The same module has several names: the checkpoint's family decides. The first of each group stands for all.
_SAME = {
    "mlp": ("mlp", "block_sparse_moe", "feed_forward", "ffn", "mixer"),
    "self_attn": ("self_attn", "attn", "attention", "mixer"),
    "linear_attn": ("linear_attn", "self_attn", "mixer"),
    "shared_experts": ("shared_experts", "shared_expert", "shared_mlp"),
}
_FIRST = {word: first for first, words in _SAME.items() for word in words if word not in ("mixer", *_SAME)}
_WIDTHS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}  # Mixtral, MiniMax, DeepSeek-V4
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})
_STATE = frozenset(
    {"in_proj", "out_proj", "conv1d", "x_proj", "dt_proj", "A", "A_log", "D", "dt_bias", "norm"}
)
# GGUF's words. Source: gguf-py 0.17 `constants.py`, `TENSOR_NAMES`.
_GGUF = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_b": "self_attn.kv_b_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.0.gate_proj",
    "ffn_up_exps": "mlp.experts.0.up_proj",
    "ffn_down_exps": "mlp.experts.0.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_GGUF_LAYER = re.compile(r"^blk\.(\d+)\.(.+)$")
_GGUF_EDGES = {"token_embd": "embed_tokens", "output": "lm_head"}
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "backbone.", "")
# The index of a decoder layer: the last one in the name.
LAYER = re.compile(r"^(?:.*\.)?layers\.(\d+|\*)(?:\.|$)")
_ENCODER = re.compile(
    r"(^|\.)(vision|visual|audio|speech|vit|image|mm_|multi_?modal|embed_vision|embed_audio|patch_|sound)"
)
_MTP = re.compile(r"(^|\.)mtp(\.|$)")


def is_encoder(name: str) -> bool:
    """Whether a module belongs to a vision or audio tower, or to what joins it to the language model.

    >>> is_encoder("model.visual.blocks.0.attn.qkv"), is_encoder("model.layers.0.mlp.gate_proj")
    (True, False)
    """
    return bool(_ENCODER.search(name))


def is_mtp(name: str) -> bool:
    """Whether a module is named as one of the model's own draft layers.

    >>> is_mtp("mtp.layers.0.mlp.up_proj")
    True
    """
    return bool(_MTP.search(name))


@lru_cache(maxsize=1 << 17)
def canonical(name: str) -> str:
    """One spelling for all: no prefix, and the first word of each group of synonyms.

    >>> canonical("blk.7.ffn_up_exps")
    'layers.7.mlp.experts.0.up_proj'
    >>> canonical("backbone.layers.7.mixer.q_proj"), canonical("model.layers.3.block_sparse_moe.experts.5.w1")
    ('layers.7.self_attn.q_proj', 'layers.3.mlp.experts.5.gate_proj')
    """
    if is_encoder(name) or is_mtp(name):
        return name
    if match := _GGUF_LAYER.match(name):
        return f"layers.{match[1]}.{_GGUF.get(match[2], match[2])}"
    if name in _GGUF_EDGES:
        return _GGUF_EDGES[name]
    if match := LAYER.match(name + "."):
        words = [_FIRST.get(word, word) for word in name[match.end() :].split(".") if word]
        return ".".join(["layers", match[1], *_unmixed(words)])
    for prefix in _PREFIXES:
        if prefix and name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _unmixed(words: list[str]) -> list[str]:
    """Nemotron-H calls attention, state and MLP `mixer`: what follows tells them apart."""
    if words[:1] == ["mixer"] and len(words) > 1:
        first = "self_attn" if words[1] in _ATTENTION else "mixer" if words[1] in _STATE else "mlp"
        words = [first, *words[1:]]
    if "experts" in words or "shared_experts" in words:
        return [_WIDTHS.get(word, word) for word in words]
    return words


@lru_cache(maxsize=1 << 17)
def aliases(name: str) -> tuple[str, ...]:
    """All spellings of a module that a pattern may be written for."""
    if not name.startswith("model.layers."):
        return tuple({name, *(prefix + name.removeprefix("model.") for prefix in _PREFIXES)})
    words = name.removeprefix("model.").split(".")
    choices = [_SAME.get(word, (word,)) for word in words]
    return tuple(prefix + ".".join(choice) for prefix in _PREFIXES for choice in product(*choices))
