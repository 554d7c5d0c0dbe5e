"""Which layers share a block table, and what a block costs then.

All groups take blocks from one pool, so a block costs what the dearest group needs.
Source: vLLM 0.33.0, `v1/core/kv_cache_planning.py`, `get_kv_cache_groups`; `kv_cache_utils.py` before.
"""

from collections import Counter
from dataclasses import replace
from math import ceil

from bringup.planner.kv_packing import pack
from bringup.planner.kv_patterns import pattern_groups
from bringup.planner.kv_records import GROWING, CacheKind, LayerCache, UngroupableError, table_type
from bringup.planner.kv_versions import KvRule, Version, group_stretch, has_rule

Groups = tuple[tuple[LayerCache, ...], ...]

_PROMOTED = {
    CacheKind.SLIDING: CacheKind.FULL,
    CacheKind.CHUNKED: CacheKind.FULL,
    CacheKind.SLIDING_MLA: CacheKind.MLA,
}


def group_layers(
    layers: tuple[LayerCache, ...],
    *,
    version: Version,
    has_hybrid_manager: bool = True,
    packs_layers: bool = False,
) -> Groups:
    """Layers in groups, each with one block table."""
    if not has_hybrid_manager or not has_rule(version, KvRule.GROUPS_LAYERS):
        layers = _promote(layers)
        if layers and not _is_one_type(layers):
            raise UngroupableError("layers of several kinds, which need the hybrid KV cache manager")
    if not layers:
        return ()
    if _is_one_type(layers):
        return (layers,)
    if packs_layers and len({layer.page for layer in layers}) > 1:
        return pack(layers) if has_rule(version, KvRule.PACKS_ANY_PAGES) else pattern_groups(layers)
    try:
        return _split(_unify_pages(layers, version), group_stretch(version))
    except UngroupableError:
        whole = _promote_windows_beside_mla(layers)
        if whole is None:
            raise
        return (whole,)


def group_bytes(group: tuple[LayerCache, ...]) -> int:
    """Bytes of one block of a group."""
    return sum(layer.page for layer in group)


def _is_one_type(layers: tuple[LayerCache, ...]) -> bool:
    return (
        len({table_type(layer) for layer in layers}) == 1
        and len({layer.block_tokens for layer in layers}) == 1
    )


def _unify_pages(layers: tuple[LayerCache, ...], version: Version) -> tuple[LayerCache, ...]:
    largest = max(layer.page for layer in layers)
    return tuple(_enlarge(layer, largest, version) for layer in layers)


def _enlarge(layer: LayerCache, page: int, version: Version) -> LayerCache:
    if layer.page == page:
        return layer
    if layer.kind is CacheKind.STATE:
        return replace(layer, page=page)
    if page % layer.page == 0:
        return replace(layer, page=page, block_tokens=layer.block_tokens * (page // layer.page))
    if layer.kind is CacheKind.MLA or not has_rule(version, KvRule.PADS_ANY_PAGE):
        raise UngroupableError(f"layer {layer.name}: a page of {layer.page} bytes does not divide {page}")
    return replace(layer, page=page)


def _split(layers: tuple[LayerCache, ...], stretch: float) -> Groups:
    buckets: dict[tuple[object, ...], list[LayerCache]] = {}
    for layer in layers:
        key = (
            layer.kind,
            layer.block_tokens,
            layer.page,
            layer.window,
            layer.shape,
            layer.is_context_sharded,
        )
        buckets.setdefault(key, []).append(layer)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < min(sizes) * stretch else min(sizes)
    groups: list[tuple[LayerCache, ...]] = []
    for bucket in buckets.values():
        count = ceil(len(bucket) / size)
        # Dealt in turns, so that every pipeline stage has its share of every group.
        groups += [tuple(bucket[first::count]) for first in range(count)]
    return tuple(groups)


def _promote(layers: tuple[LayerCache, ...]) -> tuple[LayerCache, ...]:
    """Layers with windows kept as full attention, where full attention is beside them."""
    if _is_one_type(layers) or not any(layer.kind in GROWING for layer in layers):
        return layers
    if len({layer.window for layer in layers if layer.kind in _PROMOTED}) > 1:
        raise UngroupableError("windows of several sizes cannot be kept as full attention")
    blocks = Counter(layer.block_tokens for layer in layers if layer.kind in GROWING)
    block = next(iter(blocks)) if len(blocks) == 1 else None
    return tuple(_promoted(layer, block or layer.block_tokens) for layer in layers)


def _promoted(layer: LayerCache, block: int) -> LayerCache:
    if layer.kind not in _PROMOTED:
        return layer
    page = layer.page * block // layer.block_tokens
    return replace(layer, kind=_PROMOTED[layer.kind], window=0, block_tokens=block, page=page)


def _promote_windows_beside_mla(layers: tuple[LayerCache, ...]) -> tuple[LayerCache, ...] | None:
    """All layers as one group of full attention; None where the engine has no such way out."""
    kinds = {layer.kind for layer in layers}
    if {CacheKind.SLIDING_MLA, CacheKind.CHUNKED} & kinds or not {CacheKind.MLA, CacheKind.SLIDING} <= kinds:
        return None
    try:
        promoted = _promote(layers)
    except UngroupableError:
        return None
    return promoted if _is_one_type(promoted) else None
