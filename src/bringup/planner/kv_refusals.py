"""Why vLLM would not start with a KV cache, apart from bytes that are missing."""

from collections.abc import Sequence

from bringup.planner.kv_records import CacheKind, KvLayout, KvRules, LayerCache
from bringup.planner.kv_versions import KvRule, has_rule
from bringup.values.plan import Layout


def refuse_layout(layers: Sequence[LayerCache], layout: Layout, rules: KvRules) -> str | None:
    """What this version does not take of a layout and its flags; None where it takes all."""
    if rules.mamba_mode == "all" and has_rule(rules.version, KvRule.DROPS_ALL_STATES):
        return "this version has no `--mamba-cache-mode all`"
    if layout.decode_context_parallel == 1:
        return None
    if not has_rule(rules.version, KvRule.SHARDS_CONTEXT):
        return "this version has no decode context parallelism"
    return _refuse_context(layers, layout)


def _refuse_context(layers: Sequence[LayerCache], layout: Layout) -> str | None:
    """What decode context parallelism needs and this layout has not; None where it has all.

    Source: vLLM 0.32.0, `config/parallel.py`; `config/model.py`, `verify_with_parallel_config`;
    `v1/core/single_type_kv_cache_manager.py`, "DCP not support sliding window attn now".
    """
    dcp, tp = layout.decode_context_parallel, layout.tensor_parallel
    if tp % dcp:
        return f"decode_context_parallel_size ({dcp}) does not divide tensor_parallel_size ({tp})"
    if {layer.kind for layer in layers} & {CacheKind.SLIDING, CacheKind.CHUNKED}:
        return "decode context parallelism does not work with windows"
    heads = max((layer.heads for layer in layers if layer.kind is CacheKind.FULL), default=0)
    if heads and dcp * heads > tp:
        return f"decode_context_parallel_size ({dcp}) is above {tp} ranks over {heads} KV heads"
    return None


def refuse_sequences(layout: KvLayout, blocks: int, rules: KvRules) -> str | None:
    """Too few blocks for the states of all sequences, each of which a graph must hold; None where not.

    Source: vLLM 0.20.2 to 0.33.0, `config/compilation.py`, "exceeds available Mamba cache blocks".
    """
    has_states = any(
        cache.kind is CacheKind.STATE for group in layout.kinds or layout.groups for cache in group
    )
    if not has_states or not rules.has_graphs or not rules.max_num_seqs:
        return None
    if blocks >= rules.max_num_seqs or not has_rule(rules.version, KvRule.REFUSES_FEW_STATES):
        return None
    return f"max_num_seqs ({rules.max_num_seqs}) exceeds the {blocks} blocks that states can take"
