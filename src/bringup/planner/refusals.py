"""What an engine would refuse to start with: sizes that a layout does not divide."""

from collections.abc import Iterator
from functools import lru_cache

from bringup.planner.formats import Matrix
from bringup.planner.ignored import format_of
from bringup.planner.layer_kinds import layer_kinds
from bringup.planner.spread import WHOLE, Spread, spread
from bringup.planner.tensors import layer_tensors
from bringup.planner.weight_rules import WeightRules
from bringup.values.finding import Finding, Severity
from bringup.values.model import Layer, ModelSpec, Quantization
from bringup.values.plan import Layout


@lru_cache(maxsize=1024)  # asked when layouts are chosen, and again with the weights
def refusals(model: ModelSpec, layout: Layout, rules: WeightRules) -> tuple[Finding, ...]:
    """A failure for every size that does not divide, each said once."""
    ranks = spread(layout, rules)
    found: dict[str, Finding] = {}
    if layout.pipeline_parallel > len(model.layers):
        finding = _refusal("stages", f"{layout.pipeline_parallel} stages for {len(model.layers)} layers")
        found[finding.summary] = finding
    for layer in layer_kinds(model):
        for finding in (
            *_heads(layer, ranks),
            *_experts(layer, ranks, rules),
            *_widths(layer, ranks),
            *_blocks(model, layer, ranks, rules),
        ):
            found.setdefault(finding.summary, finding)
    return tuple(found.values())


def _refusal(what: str, summary: str, explanation: str = "") -> Finding:
    return Finding(
        id=f"weights.{what}",
        severity=Severity.FAILURE,
        summary=summary,
        explanation=explanation or "the engine stops while it builds the model",
        action="take a tensor parallel size that divides it, expert parallelism where experts are cut, "
        "or pipeline parallelism for the rest",
    )


def _heads(layer: Layer, ranks: Spread) -> Iterator[Finding]:
    tp, attention, state = ranks.attention, layer.attention, layer.state
    if attention is not None and attention.query_heads % tp:
        yield _refusal("heads", f"{attention.query_heads} query heads do not divide by {tp} ranks")
    if attention is not None and attention.kv_lora_rank is None:
        heads = attention.kv_heads
        if (heads >= tp and heads % tp) or (heads < tp and tp % heads):
            yield _refusal(
                "kv_heads", f"{heads} key and value heads on {tp} ranks: neither divides the other"
            )
    if state is not None:
        for name, heads in (("value", state.value_heads), ("key", state.key_heads)):
            # Mamba2's groups are repeated where they do not divide; the heads of all kinds must.
            is_group = name == "key" and layer.mixer.startswith("mamba")
            if heads > 1 and heads % tp and not is_group:
                yield _refusal(
                    "state_heads", f"{heads} {name} heads of the state do not divide by {tp} ranks"
                )


def _experts(layer: Layer, ranks: Spread, rules: WeightRules) -> Iterator[Finding]:
    """VLLM gives the first ranks one expert more where they do not divide; SGLang refuses."""
    if layer.mlp is None or layer.mlp.experts is None:
        return
    experts = layer.mlp.experts + rules.redundant_experts
    if experts % ranks.experts and not rules.flattens_expert_parallel:
        yield _refusal("experts", f"{experts} experts do not divide by {ranks.experts} expert-parallel ranks")


def _widths(layer: Layer, ranks: Spread) -> Iterator[Finding]:
    mlp = layer.mlp
    if mlp is None:
        return
    over = ranks.dense if mlp.experts is None else ranks.expert_width
    if mlp.intermediate_size % over:
        yield _refusal(
            "intermediate", f"intermediate size {mlp.intermediate_size} does not divide by {over} ranks"
        )
    if mlp.shared_intermediate_size % ranks.shared_experts:
        size = mlp.shared_intermediate_size
        yield _refusal("shared", f"shared experts of {size} do not divide by {ranks.shared_experts} ranks")


# Models whose merged matrices no engine checks. Source: SGLang 0.5.23 `models/mimo_v2.py`.
_UNCHECKED = frozenset({"mimo_v2", "mimo_v2_flash"})


def _blocks(model: ModelSpec, layer: Layer, ranks: Spread, rules: WeightRules) -> Iterator[Finding]:
    """Shards that cut through a block or group of the number format.

    Source: vLLM 0.33.0 `quantization/utils/fp8_utils.py`, `validate_fp8_block_shape`; `layers/linear.py`,
    `_maybe_allow_fp8_block_shape_mismatch`.
    """
    if model.quantization is None:
        return
    mine = layer_tensors(model, layer, ranks, rules)
    whole = layer_tensors(model, layer, WHOLE, rules)
    for part, full in zip(mine, whole, strict=True):
        if isinstance(part, Matrix) and isinstance(full, Matrix) and part.may_be_quantised:
            form = format_of(part.names, model.quantization, is_expert=part.is_expert)
            if form is not None:
                yield from _cut(part, full, form, rules, is_checked=model.model_type not in _UNCHECKED)


def _cut(
    part: Matrix, full: Matrix, form: Quantization, rules: WeightRules, *, is_checked: bool
) -> Iterator[Finding]:
    rows, columns = _steps(form)
    name = ("expert's " if part.is_expert else "") + part.names[0].rsplit(".", 1)[-1]
    if part.is_expert and form.scheme == "fp8_block" and rules.pads_fp8_experts:
        return
    # The rows of merged matrices, queries with keys and values or gate with up, may end within a block.
    may_end_within = len(part.outputs) > 1 and (rules.allows_cut_merges or not is_checked)
    if not may_end_within and part.outputs != full.outputs and any(piece % rows for piece in part.outputs):
        size = next(piece for piece in part.outputs if piece % rows)
        yield _refusal(
            "block", f"`{name}`: {size} rows per rank are not whole blocks of {rows} ({form.scheme})"
        )
    if part.inputs != full.inputs and part.inputs % columns:
        yield _refusal(
            "block",
            f"`{name}`: {part.inputs} columns per rank are not whole blocks of {columns} ({form.scheme})",
        )


def _steps(form: Quantization) -> tuple[int, int]:
    """Rows and columns that share a scale; (1, 1) where any shard will do."""
    if form.scheme == "fp8_block":
        return form.block or (128, 128)
    if form.scheme in ("int4_group", "int8_group", "nvfp4", "mxfp8") and form.group_size:
        return 1, form.group_size
    return 1, 1
