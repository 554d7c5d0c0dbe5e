"""The KV cache of vLLM: from a model, a layout and the engine's rules to blocks, tokens and requests.

`kv_layout` says what a block costs; `kv_plan` what a given number of bytes holds then.
Source: vLLM 0.33.0, `v1/core/kv_cache_utils.py`, `get_kv_cache_configs` and `get_kv_cache_capacity`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil

from bringup.planner.kv_formats import cache_dtype
from bringup.planner.kv_groups import group_bytes, group_layers
from bringup.planner.kv_layers import layer_caches
from bringup.planner.kv_patterns import fit_bytes, pattern_bytes
from bringup.planner.kv_records import CacheKind, KvLayout, KvRules, LayerCache, UngroupableError
from bringup.planner.kv_refusals import refuse_layout, refuse_sequences
from bringup.planner.kv_versions import KvRule, Version, has_rule
from bringup.values.model import ModelSpec
from bringup.values.plan import KvPlan, Layout


@lru_cache(maxsize=1024)  # layouts of a model times kinds of cards: a block costs what it costs
def kv_layout(model: ModelSpec, layout: Layout, rules: KvRules) -> KvLayout:
    """Layers in groups, and the bytes of a block on every pipeline stage."""
    dcp = layout.decode_context_parallel
    layers = layer_caches(model, rules, tp=layout.tensor_parallel, dcp=dcp)
    refusal = refuse_layout(layers, layout, rules)
    packs = _packs_layers(model, rules)
    is_patterned = packs and not has_rule(rules.version, KvRule.PACKS_ANY_PAGES)
    try:
        groups = group_layers(
            layers,
            version=rules.version,
            has_hybrid_manager=rules.has_hybrid_manager,
            packs_layers=packs,
        )
    except UngroupableError as error:
        groups, refusal = (layers,), refusal or f"{error}"
    stages = layer_stages(len(model.layers), layout.pipeline_parallel, rules.stage_layers)
    return KvLayout(
        groups=groups,
        stage_bytes=_stage_bytes(groups, stages, rules.version if is_patterned else None) if groups else (),
        context_parallel=dcp,
        cache_dtype=cache_dtype(model, rules),
        in_flight_tokens=_in_flight_tokens(rules, layout.pipeline_parallel),
        encoder_tokens=model.encoder_tokens or 0,
        refusal=refusal,
        kinds=tuple(map(_one_of_each, groups)),
        is_patterned=is_patterned and len(groups) > 1,
    )


def _one_of_each(group: tuple[LayerCache, ...]) -> tuple[LayerCache, ...]:
    """One layer of all that need the same blocks for any length: like layers are asked about once."""
    found = {
        (
            cache.kind,
            cache.block_tokens,
            cache.window,
            cache.pages_per_request,
            cache.keeps_all_states,
            cache.is_context_sharded,
        ): cache
        for cache in group
    }
    return tuple(found.values())


def _packs_layers(model: ModelSpec, rules: KvRules) -> bool:
    """Whether a block holds the pages of all layers side by side, which pages of several sizes need."""
    if rules.packs_layers is not None:
        return rules.packs_layers
    return any(
        layer.attention is not None
        and (layer.attention.compress_ratio is not None or layer.attention.index_ratio is not None)
        for layer in model.layers
    )


def layer_stages(layers: int, stages: int, given: Sequence[int] = ()) -> tuple[tuple[int, int], ...]:
    """First layer of every pipeline stage, and the one after its last.

    Layers that do not divide go to the stages from the second-last backwards.
    Source: vLLM 0.33.0, `distributed/utils.py`, `get_pp_indices`.

    >>> layer_stages(62, 4)
    ((0, 15), (15, 31), (31, 47), (47, 62))
    """
    counts = list(given) or [layers // stages] * stages
    for extra in range(0 if given else layers % stages):
        counts[max(0, stages - 2 - extra)] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(stages)]
    return tuple((end - count, end) for end, count in zip(ends, counts, strict=True))


def _stage_bytes(
    groups: tuple[tuple[LayerCache, ...], ...],
    stages: tuple[tuple[int, int], ...],
    patterned: Version | None,
) -> tuple[int, ...]:
    """Bytes of a block on each stage: groups are the whole model's, a stage has its layers of them."""
    final = max(cache.layer for group in groups for cache in group)
    bounds = [*stages[:-1], (stages[-1][0], final + 1)]
    parts = [
        tuple(tuple(cache for cache in group if first <= cache.layer < end) for group in groups)
        for first, end in bounds
    ]
    if patterned is not None:
        return tuple(pattern_bytes(part, patterned) for part in parts)
    return tuple(max(map(group_bytes, part)) for part in parts)


def _in_flight_tokens(rules: KvRules, stages: int) -> int:
    """Tokens that are computed but not yet settled."""
    if not has_rule(rules.version, KvRule.COUNTS_IN_FLIGHT):
        return rules.max_num_batched_tokens
    is_async = rules.has_async_scheduling is not False
    batches = stages
    if is_async:
        batches = stages + 1 if has_rule(rules.version, KvRule.HAS_SECOND_RUNNER) else 2
    return rules.max_num_batched_tokens * batches


def pages_needed(cache: LayerCache, length: int, layout: KvLayout) -> int:
    """Blocks that one request of `length` tokens takes of this layer's table."""
    block = cache.block_tokens
    if cache.kind is CacheKind.STATE:
        return cache.pages_per_request + (ceil(length / block) if cache.keeps_all_states else 0)
    if cache.kind is CacheKind.CROSS:
        return ceil(layout.encoder_tokens / block)
    if cache.kind is CacheKind.CHUNKED:
        return ceil(min(cache.window + layout.in_flight_tokens, length) / block)
    if cache.kind in (CacheKind.SLIDING, CacheKind.SLIDING_MLA):
        # One more, since a window need not begin where a block does.
        return ceil(min(cache.window - 1 + layout.in_flight_tokens, length) / block) + 1
    if cache.is_context_sharded:
        length = ceil(length / layout.context_parallel)
    return ceil(length / block)


def blocks_per_request(layout: KvLayout, length: int) -> int:
    """Blocks that one request of `length` tokens takes, over all groups."""
    if layout.is_patterned:
        taken = sum(
            cache.page * pages_needed(cache, length, layout) for group in layout.groups for cache in group
        )
        return ceil(taken / group_bytes(layout.groups[0]))
    return _pages_of_groups(layout, length)


def _pages_of_groups(layout: KvLayout, length: int) -> int:
    groups = layout.kinds or layout.groups
    return sum(max(pages_needed(cache, length, layout) for cache in group) for group in groups)


def kv_plan(layout: KvLayout, available: int | Sequence[int], max_model_len: int, rules: KvRules) -> KvPlan:
    """What `available` bytes hold; one figure for all pipeline stages, or one for each."""
    sizes = [available] * len(layout.stage_bytes) if isinstance(available, int) else list(available)
    pairs = list(zip(sizes, layout.stage_bytes, strict=True))
    blocks = max(0, min((size // cost for size, cost in pairs if cost), default=1))
    if rules.blocks_override is not None:
        blocks = rules.blocks_override
    need = blocks_per_request(layout, max_model_len)
    concurrency = blocks / need if need else 0.0
    tokens = _printed_tokens(layout, blocks, max_model_len, concurrency, rules)
    fits = not layout.groups or blocks >= _blocks_to_fit(layout, max_model_len, rules)
    refusal = layout.refusal or refuse_sequences(layout, blocks, rules)
    cost = layout.bytes_per_block
    return KvPlan(
        available_bytes=min(sizes, default=0),
        bytes_per_token=blocks * cost / tokens if tokens else _marginal_bytes(layout),
        tokens=tokens,
        max_concurrency=concurrency,
        low_tokens=tokens,
        high_tokens=tokens,
        block_tokens=_block_tokens(layout),
        blocks=blocks,
        bytes_per_block=cost,
        fixed_bytes_per_request=cost * _fixed_blocks(layout),
        groups=tuple(len(group) for group in layout.groups),
        cache_dtype=layout.cache_dtype,
        fits=fits and refusal is None,
        needed_bytes=cost * _blocks_to_fit(layout, max_model_len, rules),
        longest_context=max_model_len
        if fits
        else _longest(max_model_len, lambda length: blocks >= _blocks_to_fit(layout, length, rules)),
        refusal=refusal,
    )


def _blocks_to_fit(layout: KvLayout, length: int, rules: KvRules) -> int:
    """Blocks without which the engine refuses requests of that length."""
    if layout.is_patterned:
        return ceil(_pages_of_groups(layout, length) * fit_bytes(layout.groups) / layout.bytes_per_block)
    spare = 1 if has_rule(rules.version, KvRule.RESERVES_NULL_BLOCK) else 0
    return blocks_per_request(layout, length) + spare


def _printed_tokens(
    layout: KvLayout, blocks: int, max_model_len: int, concurrency: float, rules: KvRules
) -> int:
    """What the version prints as the size of its KV cache."""
    if not layout.groups:
        return 0
    if has_rule(rules.version, KvRule.TOKENS_FROM_CONCURRENCY):
        return int(concurrency * max_model_len)
    smallest = _block_tokens(layout) or 0
    if not has_rule(rules.version, KvRule.SPLITS_TOKENS):
        return blocks * smallest
    return blocks // len(layout.groups) * smallest * layout.context_parallel


def _block_tokens(layout: KvLayout) -> int | None:
    caches = [cache for group in layout.groups for cache in group]
    kept = [cache for cache in caches if cache.kind is not CacheKind.STATE] or caches
    return min((cache.block_tokens for cache in kept), default=None)


def _marginal_bytes(layout: KvLayout) -> float:
    """Bytes that one more token costs, of what grows with a request."""
    growing = [group[0] for group in layout.groups if group[0].kind in (CacheKind.FULL, CacheKind.MLA)]
    shards = layout.context_parallel
    return sum(
        layout.bytes_per_block / (cache.block_tokens * (shards if cache.is_context_sharded else 1))
        for cache in growing
    )


def _fixed_blocks(layout: KvLayout) -> int:
    """Blocks that every long request takes beside those that grow with it."""
    return sum(
        max(pages_needed(cache, cache.window + layout.in_flight_tokens, layout) for cache in group)
        for group in layout.kinds or layout.groups
        if group[0].kind not in (CacheKind.FULL, CacheKind.MLA)
    )


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """Largest length up to `limit` that fits; 0 when none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
