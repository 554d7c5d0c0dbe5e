"""Groups for caches whose blocks hold the pages of all layers side by side, whatever their size.

Source: vLLM 0.32.0, `v1/core/kv_cache_utils.py`, `_get_packed_kv_cache_groups` and `_approximate_gcd`.
"""

from collections import Counter
from collections.abc import Sequence
from math import ceil

from bringup.planner.kv_records import CacheKind, LayerCache, UngroupableError, table_type

_Bucket = list[LayerCache]


def pack(layers: Sequence[LayerCache]) -> tuple[tuple[LayerCache, ...], ...]:
    """Layers in groups: a repeating pattern of pages is kept together, states never widen a block."""
    buckets: dict[tuple[object, ...], _Bucket] = {}
    for layer in layers:
        buckets.setdefault((table_type(layer), layer.block_tokens), []).append(layer)
    repeats = _repeats_per_group(list(buckets.values()))
    counts = [_pattern_groups(bucket, repeats) for bucket in buckets.values()]
    anchor = max(
        _widest(bucket, len(bucket) if _is_state(bucket, repeats) else count)
        for bucket, count in zip(buckets.values(), counts, strict=True)
    )
    groups: list[tuple[LayerCache, ...]] = []
    for bucket, count in zip(buckets.values(), counts, strict=True):
        if _is_state(bucket, repeats):
            held = max(anchor // bucket[0].page, 1)
            groups += _deal(bucket, max(count, ceil(len(bucket) / held)))
        else:
            groups += _deal(bucket, count)
    return tuple(groups)


def padded_least(counts: Sequence[int], smallest: int) -> int:
    """The size whose multiples the counts are rounded up to with least added; the largest of equals.

    >>> padded_least([20, 21, 43], 21)
    22
    """
    sizes = range(max(1, smallest), max(*counts, smallest) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _pages(bucket: _Bucket) -> Counter[int]:
    return Counter(layer.page for layer in bucket)


def _is_balanced(bucket: _Bucket) -> bool:
    """Whether there are as many layers of one page size as of any other: a pattern that repeats."""
    return len(set(_pages(bucket).values())) == 1


def _repeats(bucket: _Bucket) -> int:
    return max(_pages(bucket).values())


def _repeats_per_group(buckets: list[_Bucket]) -> int | None:
    balanced = [bucket for bucket in buckets if _is_balanced(bucket)]
    mixed = [_repeats(bucket) for bucket in balanced if len(_pages(bucket)) > 1]
    return padded_least([_repeats(bucket) for bucket in balanced], max(mixed)) if mixed else None


def _pattern_groups(bucket: _Bucket, repeats: int | None) -> int:
    return ceil(_repeats(bucket) / repeats) if repeats and _is_balanced(bucket) else 1


def _is_state(bucket: _Bucket, repeats: int | None) -> bool:
    kind = bucket[0].kind
    is_window = kind in (CacheKind.SLIDING, CacheKind.SLIDING_MLA)
    return kind is CacheKind.STATE or (repeats is None and is_window)


def _widest(bucket: _Bucket, groups: int) -> int:
    return sum(ceil(count / groups) * page for page, count in _pages(bucket).items())


def _deal(bucket: _Bucket, groups: int) -> list[tuple[LayerCache, ...]]:
    """The bucket's repeats dealt in turns."""
    if groups == 1:
        return [tuple(bucket)]
    by_page: dict[int, _Bucket] = {}
    for layer in bucket:
        by_page.setdefault(layer.page, []).append(layer)
    if not _is_balanced(bucket) or groups > _repeats(bucket):
        # The engine deals whole rounds only: it stops with "Some layers are not assigned to any group", or
        # has a group without layers.
        raise UngroupableError(f"pages of {len(by_page)} sizes cannot be dealt to {groups} groups")
    rounds = list(zip(*by_page.values(), strict=True))
    return [tuple(layer for each in rounds[first::groups] for layer in each) for first in range(groups)]
