"""How the parts of a model are spread over the ranks of a layout, and their sizes on one rank."""

from dataclasses import dataclass

from bringup.planner.weight_rules import WeightRules
from bringup.values.plan import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Ranks that share each part of the model."""

    attention: int
    dense: int
    shared_experts: int
    vocabulary: int
    experts: int  # groups of ranks that hold different experts
    expert_width: int  # ranks that share one expert
    encoder: int


# The model as it is, on one rank.
WHOLE = Spread(attention=1, dense=1, shared_experts=1, vocabulary=1, experts=1, expert_width=1, encoder=1)


def spread(layout: Layout, rules: WeightRules) -> Spread:
    """Ranks per part. Experts: by number where there is expert parallelism, else by width.

    Source: vLLM 0.33.0 `fused_moe/config.py`, `FusedMoEParallelConfig.make`: both go over tp x dp.
    """
    tp = layout.tensor_parallel
    attention = max(1, tp // rules.attention_data_parallel)
    over = tp * layout.data_parallel if rules.flattens_expert_parallel else tp
    groups = over if layout.has_expert_parallel else 1
    if rules.expert_groups is not None:
        groups = rules.expert_groups
    return Spread(
        attention=attention,
        dense=tp,
        shared_experts=tp,
        vocabulary=attention,
        experts=groups,
        expert_width=max(1, over // groups),
        encoder=attention if rules.encoder_is_sharded else 1,
    )


def share(size: int, ranks: int) -> int:
    """The largest part that one of `ranks` ranks gets of `size`.

    >>> share(1536, 4), share(10, 4)
    (384, 3)
    """
    return -(-size // ranks)


def kv_heads_per_rank(heads: int, ranks: int) -> int:
    """Key and value heads on one rank: with more ranks than heads every rank holds a copy of one.

    Source: vLLM 0.33.0 `config/model.py`, `get_num_kv_heads`.

    >>> kv_heads_per_rank(8, 4), kv_heads_per_rank(4, 8)
    (2, 1)
    """
    return max(1, heads // ranks)
