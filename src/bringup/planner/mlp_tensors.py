"""The tensors of one layer's feed-forward part on one rank: dense, experts, shared experts, router."""

from collections.abc import Iterator

from bringup.planner.formats import Matrix
from bringup.planner.held import Held, Vector
from bringup.planner.spread import Spread, share
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import Mlp, ModelSpec

# Where a family keeps its experts beside the dense MLP instead of inside it.
_EXPERTS_BESIDE = ("gemma4",)


def mlp_tensors(model: ModelSpec, mlp: Mlp, path: str, ranks: Spread, rules: WeightRules) -> Iterator[Held]:
    """All of one layer's feed-forward part."""
    if mlp.experts is None:
        yield from _dense(model, mlp, mlp.intermediate_size, f"{path}.mlp", ("mlp", ranks.dense))
        return
    is_beside = model.model_type.startswith(_EXPERTS_BESIDE)
    name = path if is_beside else f"{path}.mlp"
    yield from _router(model, mlp, f"{path}.router" if is_beside else f"{name}.gate")
    hidden = mlp.latent_size or model.hidden_size
    if mlp.latent_size is not None:
        yield _linear(model, (f"{name}.fc1_latent_proj",), (hidden,), model.hidden_size, "shared experts")
        yield _linear(model, (f"{name}.fc2_latent_proj",), (model.hidden_size,), hidden, "shared experts")
    yield from _experts(model, mlp, hidden, f"{name}.experts.0", ranks, rules)
    if mlp.shared_intermediate_size:
        shared = f"{path}.mlp" if is_beside else f"{name}.shared_experts"
        group = ("shared experts", ranks.shared_experts)
        yield from _dense(model, mlp, mlp.shared_intermediate_size, shared, group)


def _router(model: ModelSpec, mlp: Mlp, name: str) -> Iterator[Held]:
    experts = mlp.experts or 0
    yield Matrix(
        names=(name,),
        part="router",
        outputs=(experts,),
        inputs=model.hidden_size,
        has_bias=mlp.has_bias,
        dtype=mlp.router_dtype or model.dtype,
        may_be_quantised=False,
    )
    if mlp.has_correction_bias:
        yield Vector(part="router", bytes=experts * 4)
    if mlp.has_shared_gate:
        yield Matrix(
            names=(f"{name}.shared_expert_gate",),
            part="router",
            outputs=(1,),
            inputs=model.hidden_size,
            dtype=model.dtype,
            may_be_quantised=False,
        )


def _experts(
    model: ModelSpec, mlp: Mlp, hidden: int, name: str, ranks: Spread, rules: WeightRules
) -> Iterator[Held]:
    """All experts of one rank in two stacked matrices. Source: vLLM 0.33.0 `fused_moe/layer.py`."""
    size = share(mlp.intermediate_size, ranks.expert_width)
    copies = share((mlp.experts or 0) + rules.redundant_experts, ranks.experts)
    names = (f"{name}.gate_proj", f"{name}.up_proj") if mlp.is_gated else (f"{name}.up_proj",)
    yield Matrix(
        names=names,
        part="experts",
        outputs=(size,) * len(names),
        inputs=hidden,
        copies=copies,
        has_bias=mlp.has_bias,
        dtype=model.dtype,
        is_expert=True,
    )
    yield Matrix(
        names=(f"{name}.down_proj",),
        part="experts",
        outputs=(hidden,),
        inputs=size,
        copies=copies,
        has_bias=mlp.has_bias,
        dtype=model.dtype,
        is_expert=True,
        inputs_are_hidden=False,
    )


def _dense(model: ModelSpec, mlp: Mlp, size: int, name: str, group: tuple[str, int]) -> Iterator[Held]:
    part, ranks = group
    size = share(size, ranks)
    names = (f"{name}.gate_proj", f"{name}.up_proj") if mlp.is_gated else (f"{name}.up_proj",)
    has_bias = mlp.has_bias and mlp.experts is None
    yield _linear(model, names, (size,) * len(names), model.hidden_size, part, has_bias=has_bias)
    yield _linear(model, (f"{name}.down_proj",), (model.hidden_size,), size, part, has_bias=has_bias)


def _linear(
    model: ModelSpec,
    names: tuple[str, ...],
    outputs: tuple[int, ...],
    inputs: int,
    part: str,
    *,
    has_bias: bool = False,
) -> Matrix:
    return Matrix(
        names=names, part=part, outputs=outputs, inputs=inputs, has_bias=has_bias, dtype=model.dtype
    )
