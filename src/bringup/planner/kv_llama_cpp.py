"""What llama.cpp keeps: cells of keys and values, and a state per slot.

Source: llama.cpp b11434, `src/llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`, `llama-memory-recurrent.cpp`.
"""

from dataclasses import dataclass

from bringup.values.model import Attention, Layer, Mixer, ModelSpec

_CELLS = 256  # the number of cells is a multiple of it

# Bytes and values of one block of a cache type.
CACHE_TYPES = {
    "f32": (4, 1), "f16": (2, 1), "bf16": (2, 1),
    "q8_0": (34, 32), "q5_1": (24, 32), "q5_0": (22, 32),
    "q4_1": (20, 32), "q4_0": (18, 32), "iq4_nl": (18, 32),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaRules:
    """llama.cpp's settings as far as they decide the cache."""

    context_tokens: int  # -c: over all slots
    slots: int = 1  # -np
    is_unified: bool = True  # one cache for all slots: the default where -np is not given
    key_type: str = "f16"  # -ctk
    value_type: str = "f16"  # -ctv
    micro_batch: int = 512  # -ub
    has_full_windows: bool = False  # --swa-full


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCache:
    """Bytes by layer; a layer's cache lies on the device that has the layer."""

    layer_bytes: tuple[int, ...]
    cells: int  # of one stream
    window_cells: int
    streams: int

    @property
    def total(self) -> int:
        """Bytes of all layers."""
        return sum(self.layer_bytes)


def llama_cache(model: ModelSpec, rules: LlamaRules) -> LlamaCache:
    """The cache of the whole model.

    The size that a server logged for GLM-Z1-32B (61 layers, 2 KV heads of 128) at 5120 tokens, 162.03 MiB:

    >>> heads = Attention(query_heads=48, kv_heads=2, head_dim=128, v_head_dim=128)
    >>> layers = tuple(Layer(index=n, mixer=Mixer.FULL, attention=heads) for n in range(61))
    >>> model = ModelSpec(name="", architecture="", model_type="glm4", layers=layers, hidden_size=6144,
    ...                   vocabulary=151552)
    >>> found = llama_cache(model, LlamaRules(context_tokens=5120, key_type="q8_0", value_type="q8_0"))
    >>> found.total
    169902080
    """
    streams = 1 if rules.is_unified else rules.slots
    cells = _padded(-(-rules.context_tokens // streams))
    windows = [_cells(layer, rules, cells) for layer in model.layers if _window(layer)]
    return LlamaCache(
        layer_bytes=tuple(_layer_bytes(layer, rules, cells, streams) for layer in model.layers),
        cells=cells,
        window_cells=max(windows, default=0),
        streams=streams,
    )


def type_bytes(cache_type: str, values: int) -> int:
    """Bytes of `values` values of one head, which must be whole blocks of the type.

    >>> type_bytes("q8_0", 128), type_bytes("q4_0", 128), type_bytes("f16", 576)
    (136, 72, 1152)
    """
    if cache_type not in CACHE_TYPES:
        raise ValueError(f"unknown cache type `{cache_type}`")
    size, count = CACHE_TYPES[cache_type]
    if values % count:
        raise ValueError(f"cache type `{cache_type}` has blocks of {count}, which do not divide {values}")
    return values // count * size


def _padded(cells: int) -> int:
    return -(-cells // _CELLS) * _CELLS


def _window(layer: Layer) -> int | None:
    return layer.attention.window if layer.attention and layer.mixer is Mixer.SLIDING else None


def _cells(layer: Layer, rules: LlamaRules, cells: int) -> int:
    window = _window(layer)
    if window is None or rules.has_full_windows:
        return cells
    sequences = rules.slots if rules.is_unified else 1
    return min(cells, _padded(window * sequences + rules.micro_batch))


def _layer_bytes(layer: Layer, rules: LlamaRules, cells: int, streams: int) -> int:
    size = _state_bytes(layer) * rules.slots
    attention = layer.attention
    if attention is not None and layer.mixer is not Mixer.NONE and not attention.shares_kv:
        size += _cells(layer, rules, cells) * streams * _token_bytes(layer, attention, rules)
    return size


def _token_bytes(layer: Layer, attention: Attention, rules: LlamaRules) -> int:
    if layer.mixer is Mixer.MLA:  # the values are a view of the keys
        latent = (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)
        return type_bytes(rules.key_type, latent)
    keys = type_bytes(rules.key_type, attention.kv_heads * attention.head_dim)
    return keys + type_bytes(rules.value_type, attention.kv_heads * attention.v_head_dim)


def _state_bytes(layer: Layer) -> int:
    """Float32 state of one slot."""
    state = layer.state
    if state is None:
        return 0
    inner = state.inner_size or state.value_heads * state.value_head_dim
    tail = state.conv_kernel - 1
    if layer.mixer is Mixer.SHORT_CONV:
        return 4 * tail * inner
    if layer.mixer is Mixer.KDA:
        heads = state.value_heads * state.value_head_dim
        return 4 * (3 * tail * heads + heads * state.value_head_dim)
    width = inner + 2 * state.key_heads * state.key_head_dim
    return 4 * (tail * width + state.key_head_dim * inner)
