"""What every layer of a model keeps on one rank.

Source: vLLM 0.32.0 and 0.33.0, `v1/kv_cache_interface.py`, the layers' `get_kv_cache_spec`, and
`platforms/interface.py`, `_align_hybrid_block_size`.
"""

from dataclasses import dataclass, replace
from math import ceil

from bringup.planner.kv_blocks import DEFAULT_BLOCK, attention_block
from bringup.planner.kv_compressed import compressed_caches
from bringup.planner.kv_formats import cache_dtype, element_bytes, head_bytes, latent_bytes
from bringup.planner.kv_records import CacheKind, KvRules, LayerCache
from bringup.planner.kv_state_modes import aligned_block, chunk_of, state_count, state_mode
from bringup.planner.kv_states import state_bytes
from bringup.planner.kv_versions import KvRule, has_rule
from bringup.values.model import Attention, Layer, LinearState, Mixer, ModelSpec

_WINDOWS = {Mixer.SLIDING: CacheKind.SLIDING, Mixer.CHUNKED: CacheKind.CHUNKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What holds for all layers of one rank."""

    model: ModelSpec
    rules: KvRules
    dtype: str
    tp: int
    dcp: int
    block: int
    state_mode: str = "none"
    state_page: int | None = None  # bytes; None: each state its own
    shared_page: int | None = None  # bytes; what windows that stay unquantised are padded to


def layer_caches(model: ModelSpec, rules: KvRules, *, tp: int, dcp: int) -> tuple[LayerCache, ...]:
    """What each layer keeps on one rank, in the order of the model; nothing for a layer without a cache."""
    dtype = cache_dtype(model, rules)
    layers = loaded_layers(model, rules)
    rank = _Rank(
        model=model,
        rules=rules,
        dtype=dtype,
        tp=tp,
        dcp=dcp,
        block=attention_block(model, rules, dtype),
        state_mode=state_mode(rules, layers),
    )
    rank = _with_skipped(_aligned(rank, layers), layers)
    return tuple(cache for layer in layers for cache in _caches(layer, rank))


def loaded_layers(model: ModelSpec, rules: KvRules) -> tuple[Layer, ...]:
    """Decoder layers that are built; the MTP layers only when they draft."""
    layers = model.layers + (model.mtp_layers if rules.loads_mtp else ())
    last = layers[-1].index if layers else 0
    drafting = tuple(replace(layer, index=last + 1 + n) for n, layer in enumerate(rules.draft_layers))
    return tuple(layer if rules.keeps_latent else _unfolded(layer) for layer in layers + drafting)


def _unfolded(layer: Layer) -> Layer:
    """A layer with a latent as one that keeps the keys and values of all its heads."""
    attention = layer.attention
    if layer.mixer is not Mixer.MLA or attention is None:
        return layer
    return replace(layer, mixer=Mixer.FULL, attention=replace(attention, kv_heads=attention.query_heads))


def _caches(layer: Layer, rank: _Rank) -> list[LayerCache]:
    found: list[LayerCache] = []
    attention = layer.attention
    if attention is not None and attention.compress_ratio is not None:
        found += compressed_caches(layer, attention, rank.dtype)
    elif attention is not None and layer.mixer is not Mixer.NONE and not attention.shares_kv:
        found.append(_attention_cache(layer, attention, rank))
        if attention.owns_index_cache and attention.index_head_dim:
            found += _index_caches(layer, attention, rank)
    if layer.state is not None:
        found.append(_state_cache(layer, layer.state, rank))
    if layer.side_state is not None:
        beside = replace(layer, mixer=Mixer.SHORT_CONV)
        found.append(_state_cache(beside, layer.side_state, replace(rank, tp=1), is_copied=True))
    return found


def _attention_cache(layer: Layer, attention: Attention, rank: _Rank) -> LayerCache:
    kind = _kind(layer, rank.rules)
    dtype = rank.model.dtype if _is_skipped(layer, rank.rules) else rank.dtype
    token = token_bytes(layer, attention, dtype, tp=rank.tp)
    block, page = rank.block, rank.block * token
    if rank.shared_page is not None and kind is CacheKind.SLIDING and dtype != rank.dtype:
        block = max(DEFAULT_BLOCK, rank.shared_page // token // DEFAULT_BLOCK * DEFAULT_BLOCK)
        page = rank.shared_page
    return LayerCache(
        name=f"{layer.index}",
        layer=layer.index,
        kind=kind,
        block_tokens=block,
        page=page,
        window=(attention.window or 0) if kind in (CacheKind.SLIDING, CacheKind.CHUNKED) else 0,
        heads=0 if kind is CacheKind.MLA else attention.kv_heads,
        shape=(attention.kv_heads, attention.head_dim, attention.v_head_dim, dtype, "attention"),
        is_context_sharded=rank.dcp > 1 and kind in (CacheKind.FULL, CacheKind.MLA),
    )


def _kind(layer: Layer, rules: KvRules) -> CacheKind:
    if layer.mixer is Mixer.MLA:
        return CacheKind.MLA
    if layer.mixer is Mixer.CROSS:
        return CacheKind.CROSS
    if layer.mixer is Mixer.CHUNKED and not has_rule(rules.version, KvRule.KEEPS_CHUNKS):
        return CacheKind.FULL
    return _WINDOWS.get(layer.mixer, CacheKind.FULL)


def token_bytes(layer: Layer, attention: Attention, dtype: str, *, tp: int) -> int:
    """Bytes that one token takes in one layer on one rank.

    With more ranks than heads every rank holds one copied head; a latent is copied to every rank.
    Source: vLLM 0.33.0, `config/model.py`, `get_num_kv_heads`.
    """
    if layer.mixer is Mixer.MLA:
        return latent_bytes(dtype, attention.kv_lora_rank or 0, attention.qk_rope_head_dim or 0)
    return max(1, attention.kv_heads // tp) * head_bytes(dtype, attention.head_dim, attention.v_head_dim)


def _index_caches(layer: Layer, attention: Attention, rank: _Rank) -> list[LayerCache]:
    """The keys of a sparse indexer, and those of the tokens that are still to become one.

    The latter lie in a ring, one per request, with room for speculated tokens, each with three positions of
    eight bytes. Source: vLLM 0.30.0, `models/qwen4_exp/common/qsa_cache.py`.
    """
    ratio, size = attention.index_ratio, attention.index_head_dim or 0
    if ratio is None:
        return [_index_cache(layer, attention, rank)]
    width = element_bytes("bfloat16")
    keys = LayerCache(
        name=f"{layer.index}.indexer",
        layer=layer.index,
        kind=CacheKind.MLA,
        block_tokens=rank.block,
        page=rank.block // ratio * size * width,
        shape=(size, ratio, "indexer"),
        is_context_sharded=rank.dcp > 1,
    )
    tokens = ceil((ratio + rank.rules.speculative_tokens) / ratio) * ratio
    ring = LayerCache(
        name=f"{layer.index}.ring",
        layer=layer.index,
        kind=CacheKind.STATE,
        block_tokens=tokens,
        page=tokens * (size * width + 3 * 8),
        shape=(size, "ring"),
        pages_per_request=1,
    )
    return [keys, ring]


def _index_cache(layer: Layer, attention: Attention, rank: _Rank) -> LayerCache:
    """The keys of a sparse indexer.

    Beside a latent they are of eight bits with a float32 scale for every 128, else (MiniMax-M3) of bfloat16.
    """
    size = attention.index_head_dim or 0
    token = size + size // 128 * 4 if layer.mixer is Mixer.MLA else size * element_bytes("bfloat16")
    return LayerCache(
        name=f"{layer.index}.indexer",
        layer=layer.index,
        kind=CacheKind.MLA,
        block_tokens=rank.block,
        page=rank.block * token,
        shape=(size, "indexer"),
        is_context_sharded=rank.dcp > 1,
    )


def _state_cache(layer: Layer, state: LinearState, rank: _Rank, *, is_copied: bool = False) -> LayerCache:
    count = state_count(rank.state_mode, layer.mixer, rank.rules)
    page = _own_state_page(layer, state, rank)
    return LayerCache(
        name=f"{layer.index}.copied" if is_copied else f"{layer.index}.state",
        layer=layer.index,
        kind=CacheKind.STATE,
        block_tokens=rank.block,
        page=max(page, rank.state_page or 0),
        shape=(layer.mixer, page),
        pages_per_request=count.fixed,
        keeps_all_states=count.has_one_per_block,
        is_copied=is_copied,
    )


def _own_state_page(layer: Layer, state: LinearState, rank: _Rank) -> int:
    rules, model = rank.rules, rank.model
    convolution = rules.mamba_dtype if rules.mamba_dtype not in (None, "auto") else model.dtype
    recurrent = (
        rules.mamba_state_dtype if rules.mamba_state_dtype not in (None, "auto") else state.state_dtype
    )
    if recurrent is None:
        recurrent = "float32" if layer.mixer is Mixer.KDA else convolution
    found = state_bytes(
        layer.mixer,
        state,
        tp=rank.tp,
        convolution_dtype=convolution or "bfloat16",
        state_dtype=recurrent or "bfloat16",
        drafts=rules.speculative_tokens,
    )
    return found.total


def _is_skipped(layer: Layer, rules: KvRules) -> bool:
    """Whether a layer keeps the model's own format: named by its index, or as one of the windows."""
    names = rules.skip_layers
    return f"{layer.index}" in names or ("sliding_window" in names and layer.mixer is Mixer.SLIDING)


def _with_skipped(rank: _Rank, layers: tuple[Layer, ...]) -> _Rank:
    """With layers that stay unquantised: blocks so large that one of the others holds their smallest.

    Source: vLLM 0.32.0, `platforms/interface.py`, `_align_heterogeneous_kv_block_size`.
    """
    skipped = [layer for layer in layers if layer.attention and _is_skipped(layer, rank.rules)]
    kept = [layer.attention for layer in layers if layer.attention and layer not in skipped]
    if not skipped or not kept:
        return rank
    layer, attention = skipped[0], kept[0]
    token = token_bytes(layer, attention, rank.dtype, tp=rank.tp)
    own = token_bytes(layer, attention, rank.model.dtype, tp=rank.tp)
    if own == token:
        return rank
    required = max(own * DEFAULT_BLOCK, rank.state_page or 0)
    block = max(rank.block, rank.block * ceil(required / (rank.block * token)))
    return replace(
        rank,
        block=block,
        shared_page=block * token,
        state_page=block * token if rank.state_page is not None else None,
    )


def _aligned(rank: _Rank, layers: tuple[Layer, ...]) -> _Rank:
    """With states beside attention: blocks so large that one of attention holds a whole state."""
    states = [_own_state_page(layer, layer.state, rank) for layer in layers if layer.state is not None]
    states += [
        _own_state_page(replace(layer, mixer=Mixer.SHORT_CONV), layer.side_state, replace(rank, tp=1))
        for layer in layers
        if layer.side_state is not None
    ]
    tokens = [
        (token_bytes(layer, layer.attention, rank.dtype, tp=rank.tp), layer.mixer)
        for layer in layers
        if layer.attention is not None and layer.mixer is not Mixer.NONE
    ]
    if not states or not tokens:
        return rank
    token, mixer = max(tokens)
    block = aligned_block(
        rank.block,
        state=max(states),
        token=token,
        mixer=mixer,
        chunk=chunk_of(rank.state_mode, layers),
        rules=rank.rules,
    )
    return replace(rank, block=block, state_page=block * token)
