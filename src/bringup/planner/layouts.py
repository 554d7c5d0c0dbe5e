"""Which layouts there are, and which is best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bringup.values.model import ModelSpec
from bringup.values.plan import Layout, LayoutPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The ways of spreading a model that an engine has beside tensor, pipeline and data parallelism."""

    has_context_ranks: bool = True  # the cache of one request over ranks
    has_attention_replicas: bool = False  # requests over ranks that share the rest of the model
    spreads_experts_over_data: bool = True  # and not over the tensor parallel ranks alone


def candidates(model: ModelSpec, gpus: int, reach: Reach | None = None) -> tuple[Layout, ...]:
    """Every layout whose ranks divide `gpus`, smallest first.

    Experts are spread or not, where there are any. The context is spread where ranks would else hold copies:
    of one latent for all heads, or with more ranks than KV heads. Attention has replicas where experts or a
    latent make that worth its while.
    """
    reach = reach or Reach()
    has_experts = any(layer.mlp is not None and layer.mlp.experts for layer in model.layers)
    kinds = (False, True) if has_experts else (False,)
    found: list[Layout] = []
    for used in _divisors(gpus):
        for tp, pp, dp in _factors(used):
            whole = Layout(tensor_parallel=tp, pipeline_parallel=pp, data_parallel=dp)
            over = tp * dp if reach.spreads_experts_over_data else tp
            found += [
                replace(whole, has_expert_parallel=is_spread)
                for is_spread in kinds
                if over > 1 or not is_spread
            ]
            if reach.has_context_ranks and pp == dp == 1:
                found += [
                    replace(whole, decode_context_parallel=ranks) for ranks in _context_ranks(model, tp)
                ]
            if reach.has_attention_replicas and dp == 1 and (has_experts or _has_latent(model)):
                found += [
                    replace(whole, has_expert_parallel=is_spread, attention_data_parallel=copies)
                    for copies in _divisors(tp)[1:]
                    for is_spread in kinds
                ]
    return tuple(found)


def _has_latent(model: ModelSpec) -> bool:
    return any(layer.attention is not None and layer.attention.kv_lora_rank for layer in model.layers)


def _context_ranks(model: ModelSpec, tp: int) -> list[int]:
    """Ranks over which the cache can be spread: as many as hold the same heads.

    Source: vLLM 0.33.0 `config/model.py`, `verify_with_parallel_config`.
    """
    heads = [layer.attention.kv_heads for layer in model.layers if layer.attention is not None]
    if not heads:
        return []
    copies = tp if _has_latent(model) else tp // max(heads)
    return [ranks for ranks in _divisors(copies)[1:] if tp % ranks == 0]


def ranked(plans: Sequence[LayoutPlan], *, concurrency: int | None) -> tuple[LayoutPlan, ...]:
    """Best first: what fits and serves `concurrency` requests, on the fewest GPUs, then the most requests.

    Of what does not fit, that which lacks least comes first.
    """

    def key(plan: LayoutPlan) -> tuple[bool, bool, int, int, int, int, bool, int]:
        layout = plan.layout
        falls_short = concurrency is not None and plan.requests < concurrency
        return (
            not plan.fits,
            falls_short,
            layout.gpus if plan.fits and not falls_short else 0,
            -int(plan.requests) if plan.fits else -plan.kv.available_bytes,
            layout.pipeline_parallel,
            layout.data_parallel,
            layout.has_expert_parallel,
            layout.attention_data_parallel,
        )

    return tuple(sorted(plans, key=key))


def layout_text(layout: Layout) -> str:
    """A layout in the field's short words.

    >>> layout_text(Layout(tensor_parallel=4, data_parallel=2, has_expert_parallel=True))
    'TP4 DP2 EP'
    """
    parts = [f"TP{layout.tensor_parallel}"]
    parts += [f"PP{layout.pipeline_parallel}"] if layout.pipeline_parallel > 1 else []
    parts += [f"DP{layout.data_parallel}"] if layout.data_parallel > 1 else []
    parts += [f"DCP{layout.decode_context_parallel}"] if layout.decode_context_parallel > 1 else []
    parts += ["EP"] if layout.has_expert_parallel else []
    parts += [f"DPA{layout.attention_data_parallel}"] if layout.attention_data_parallel > 1 else []
    words = " ".join(parts)
    return f"{words}, {layout.detail}" if layout.detail else words


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def _factors(product: int) -> Iterator[tuple[int, int, int]]:
    """Every way to write `product` as three factors."""
    for first in _divisors(product)[::-1]:
        for second in _divisors(product // first):
            yield first, second, product // first // second
