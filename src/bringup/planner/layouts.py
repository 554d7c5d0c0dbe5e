"""Which layouts there are, and which is best."""

from collections.abc import Iterator, Sequence

from bringup.values.model import ModelSpec
from bringup.values.plan import Layout, LayoutPlan


def candidates(model: ModelSpec, gpus: int) -> tuple[Layout, ...]:
    """Every layout whose ranks divide `gpus`, smallest first.

    Experts are spread or not, where there are any; the context is spread over ranks only of models that keep
    one latent for all heads, since others gain nothing by it.
    """
    has_experts = any(layer.mlp is not None and layer.mlp.experts for layer in model.layers)
    has_latent = any(layer.attention is not None and layer.attention.kv_lora_rank for layer in model.layers)
    found: list[Layout] = []
    for used in _divisors(gpus):
        for tp, pp, dp in _factors(used):
            found.append(Layout(tensor_parallel=tp, pipeline_parallel=pp, data_parallel=dp))
            if has_experts and tp * dp > 1:
                found.append(
                    Layout(
                        tensor_parallel=tp,
                        pipeline_parallel=pp,
                        data_parallel=dp,
                        has_expert_parallel=True,
                    )
                )
            if has_latent and pp == dp == 1:
                found += [
                    Layout(tensor_parallel=tp, decode_context_parallel=dcp) for dcp in _divisors(tp)[1:]
                ]
    return tuple(found)


def ranked(plans: Sequence[LayoutPlan], *, concurrency: int | None) -> tuple[LayoutPlan, ...]:
    """Best first: what fits and serves `concurrency` requests, on the fewest GPUs, then the most requests.

    Of what does not fit, that which lacks least comes first.
    """

    def key(plan: LayoutPlan) -> tuple[bool, bool, int, int, int, int, bool]:
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
    return " ".join(parts)


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def _factors(product: int) -> Iterator[tuple[int, int, int]]:
    """Every way to write `product` as three factors."""
    for first in _divisors(product)[::-1]:
        for second in _divisors(product // first):
            yield first, second, product // first // second
