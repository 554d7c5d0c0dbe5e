"""How versions before 0.27 packed the caches of DeepSeek-V4: pages of every size, each in slots of its own.

Their layers form a pattern: one page of every size that the compressed past has, as often as its layers
repeat. All other caches are padded to one of those sizes and dealt to groups of as many repeats.
Source: vLLM 0.20.2, 0.22.1 and 0.24.0, `v1/core/kv_cache_utils.py`, `_get_kv_cache_groups_uniform_groups`,
`_get_kv_cache_config_deepseek_v4`, `_get_kv_cache_config_packed` and
`get_max_concurrency_for_kv_cache_config`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from bringup.planner.kv_packing import padded_least
from bringup.planner.kv_records import CacheKind, LayerCache, UngroupableError
from bringup.planner.kv_versions import KvRule, Version, has_rule

Groups = tuple[tuple[LayerCache, ...], ...]


def pattern_groups(layers: Sequence[LayerCache]) -> Groups:
    """The compressed past as one group, and the windows in groups of as many repeats."""
    past = tuple(layer for layer in layers if layer.kind is CacheKind.MLA)
    sizes = sorted({layer.page for layer in past})
    windows: dict[tuple[int, int], list[LayerCache]] = {}
    for layer in layers:
        if layer.kind is CacheKind.SLIDING_MLA:
            windows.setdefault((layer.block_tokens, layer.window), []).append(_padded(layer, sizes))
    counts = [_repeats(bucket) for bucket in (past, *windows.values())]
    repeats = padded_least(counts, counts[0])
    dealt = [group for bucket in windows.values() for group in _deal(bucket, repeats)]
    return (past, *dealt)


def pattern_bytes(groups: Groups, version: Version) -> int:
    """Bytes of one block: for every size of page as many slots as the group with most of them has.

    Up to 0.23 all sizes have as many slots as the one with most.
    """
    slots: Counter[int] = Counter()
    for group in groups:
        slots |= Counter(layer.page for layer in group)
    if has_rule(version, KvRule.COUNTS_EACH_PAGE_SIZE):
        return sum(size * count for size, count in slots.items())
    return sum(slots) * max(slots.values(), default=0)


def fit_bytes(groups: Groups) -> int:
    """Bytes that the check of a request's length takes for one block of any group."""
    pages = {layer.page for layer in groups[0]}
    return sum(pages) * max(_repeats(group) for group in groups)


def _padded(layer: LayerCache, sizes: Sequence[int]) -> LayerCache:
    page = next((size for size in sizes if size >= layer.page), None)
    if page is None:
        raise UngroupableError(f"layer {layer.name}: a page of {layer.page} bytes is larger than any other")
    return replace(layer, page=page)


def _repeats(bucket: Sequence[LayerCache]) -> int:
    return max(Counter(layer.page for layer in bucket).values())


def _deal(bucket: Sequence[LayerCache], repeats: int) -> list[tuple[LayerCache, ...]]:
    by_page: dict[int, list[LayerCache]] = {}
    for layer in bucket:
        by_page.setdefault(layer.page, []).append(layer)
    if len({len(same) for same in by_page.values()}) > 1:
        raise UngroupableError("layers of one window have no common pattern")
    rounds = list(zip(*by_page.values(), strict=True))
    groups = ceil(len(rounds) / repeats)
    return [tuple(layer for each in rounds[first::groups] for layer in each) for first in range(groups)]
