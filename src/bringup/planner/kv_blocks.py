"""Tokens per block: what the attention back end of a GPU takes.

Source: vLLM 0.33.0, `platforms/cuda.py` (which back end), the back ends'
`get_supported_kernel_block_sizes`, and `platforms/interface.py`, `update_block_size_for_backend`.
"""

from bringup.planner.kv_compressed import BLOCK as COMPRESSED_BLOCK
from bringup.planner.kv_formats import capability_major
from bringup.planner.kv_records import KvRules
from bringup.values.model import Mixer, ModelSpec

DEFAULT_BLOCK = 16

# Blocks of back ends that do not take 16.
BACKEND_BLOCKS = {
    "FLASHINFER_MLA": 32,
    "TOKENSPEED_MLA": 32,
    "FLASHMLA": 64,
    "FLASHMLA_SPARSE": 64,
    "FLASHINFER_MLA_SPARSE": 64,
    "CUTLASS_MLA": 128,
}


def attention_block(model: ModelSpec, rules: KvRules, dtype: str) -> int:
    """Tokens per block before states are looked at."""
    if rules.block_tokens:
        return rules.block_tokens
    attentions = [(layer.mixer, layer.attention) for layer in model.layers if layer.attention]
    if any(attention.compress_ratio is not None for _, attention in attentions):
        return COMPRESSED_BLOCK
    has_indexer = any(attention.index_heads for _, attention in attentions)
    has_latent = any(mixer is Mixer.MLA for mixer, _ in attentions)
    if has_latent and has_indexer:
        return 64
    if has_indexer:
        return 128
    if rules.attention_backend:
        return BACKEND_BLOCKS.get(rules.attention_backend.upper(), DEFAULT_BLOCK)
    return _latent_block(rules, dtype) if has_latent else DEFAULT_BLOCK


def _latent_block(rules: KvRules, dtype: str) -> int:
    major = capability_major(rules.compute_capability)
    if major == 10:
        return BACKEND_BLOCKS["FLASHINFER_MLA" if rules.version >= (0, 12, 0) else "CUTLASS_MLA"]
    if major == 9 and (dtype.startswith("fp8") or rules.version < (0, 12, 0)):
        return BACKEND_BLOCKS["FLASHMLA"]
    return DEFAULT_BLOCK
