"""Weights of a draft model of its own, loaded beside the model for speculative decoding."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, Vector
from bringup.planner.rope import rope_tables
from bringup.planner.sizes import Tally, forms_of, held_sizes
from bringup.planner.spread import Spread, share, spread
from bringup.planner.tensors import layer_tensors, mtp_tensors
from bringup.planner.weight_rules import WeightRules
from bringup.planner.weights import StageWeights, Weights, weights_per_rank
from bringup.values.finding import Finding, Severity
from bringup.values.model import Layer, ModelSpec
from bringup.values.plan import Layout

_AUXILIARY = 3  # layers of the model whose results EAGLE-3 takes together. Source: vLLM `llama_eagle3.py`
_DOUBT = 0.03  # guess: share of the drafter's bytes, where heads and embeddings may be its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft model and how it drafts."""

    model: ModelSpec
    kind: str  # "eagle", "eagle3", "dflash", "mtp"; "model": a whole language model

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that draft, each with a cache of its own."""
        is_mtp = self.kind == "mtp" and self.model.mtp_layers
        return self.model.mtp_layers if is_mtp else self.model.layers


def draft_of(model: ModelSpec, method: str | None) -> Draft:
    """How a draft model drafts: by the method asked for, else by its name and class.

    Source: vLLM 0.33.0 `config/speculative.py`, `SpeculativeConfig.__post_init__`.
    """
    asked = (method or "").lower()
    said = f"{model.name} {model.architecture}".lower()
    for word in ("eagle3", "eagle", "dflash", "mtp", "nextn"):
        if word in asked or (not asked and word in said):
            kind = {"nextn": "mtp"}.get(word, word)
            is_third = kind == "eagle" and "eagle3" in said.replace("-", "").replace("_", "")
            return Draft(model=model, kind="eagle3" if is_third else kind)
    return Draft(model=model, kind="model")


def with_draft(
    weights: Weights, target: ModelSpec, draft: Draft, layout: Layout, rules: WeightRules
) -> Weights:
    """The weights with those of the drafter, which the last pipeline stage holds."""
    alone = replace(layout, pipeline_parallel=1)
    own = replace(rules, loads_mtp=False, loads_encoder=False, lora_slots=0, offloaded=0, libraries=0)
    own = replace(own, libraries_high=0, leftover_layers=0, online_quantization=None, stage_layers=())
    if draft.kind == "model":
        whole = weights_per_rank(draft.model, alone, own).heaviest
        size, low, high = whole.total, whole.low, whole.high
    else:
        size = _drafter_bytes(target, draft, spread(alone, own), own)
        low, high = round(size * (1 - _DOUBT)), round(size * (1 + _DOUBT))
    last = weights.stages[-1]
    stage = replace(
        last,
        total=last.total + size,
        low=last.low + low,
        high=last.high + high,
        parts=tuple(sorted((*last.parts, ("draft", size)), key=lambda part: -part[1])),
    )
    return replace(weights, stages=(*weights.stages[:-1], stage), formula=_formula(weights, stage, size))


def _formula(weights: Weights, stage: StageWeights, size: int) -> str:
    if stage.total < max(one.total for one in weights.stages):
        return weights.formula
    return f"{weights.formula}; draft model {size:,} B of it"


def _drafter_bytes(target: ModelSpec, draft: Draft, ranks: Spread, rules: WeightRules) -> int:
    """Layers, what joins the model's results to them, and a head where it has one of its own.

    Embedding and head are the model's, unless the widths differ.
    Source: vLLM 0.33.0 `v1/spec_decode/llm_base_proposer.py`, `_maybe_share_embeddings`.
    """
    forms, tally = forms_of(draft.model, rules), Tally(rules)
    for tensor in _drafter(target, draft, ranks, rules):
        tally.add(tensor.part, held_sizes(tensor, forms, rules))
    return tally.closed().total()


def _drafter(target: ModelSpec, draft: Draft, ranks: Spread, rules: WeightRules) -> Iterator[Held]:
    model = draft.model
    if draft.kind == "mtp" and model.mtp_layers:
        yield from mtp_tensors(model, ranks, rules)
        return
    for number, layer in enumerate(model.layers):
        tensors = layer_tensors(model, layer, ranks, rules)
        yield from _widened(tensors) if draft.kind == "eagle3" and number == 0 else tensors
    yield from rope_tables(model, rules)
    yield _joint(model, _joined(target, draft))
    yield Vector(part="draft", bytes=model.hidden_size * element_bytes(model.dtype), count=2)
    if draft.kind == "eagle3":
        rows = _count(model.config, "draft_vocab_size") or model.vocabulary
        yield _table(model, share(rows, ranks.vocabulary), "lm_head")
        yield Vector(part="draft", bytes=8 * rows)  # which token each of its own stands for
    if model.hidden_size != target.hidden_size:
        yield _table(model, share(model.vocabulary, ranks.vocabulary), "embed_tokens")


def _widened(tensors: Iterable[Held]) -> Iterator[Held]:
    """EAGLE-3's first layer takes the embedding and the joined results side by side."""
    for tensor in tensors:
        is_first = isinstance(tensor, Matrix) and any(name.endswith(".q_proj") for name in tensor.names)
        yield replace(tensor, inputs=2 * tensor.inputs) if isinstance(tensor, Matrix) and is_first else tensor


def _joined(target: ModelSpec, draft: Draft) -> int:
    """Numbers per token that the drafter's first projection takes."""
    config = draft.model.config
    width = _count(config, "target_hidden_size") or target.hidden_size
    if draft.kind == "eagle3":
        return _AUXILIARY * width
    if draft.kind == "dflash":
        return width * (_named_layers(config) or len(draft.model.layers))
    return 2 * width


def _named_layers(config: Mapping[str, object]) -> int | None:
    nested = config.get("dflash_config")
    if not isinstance(nested, Mapping):
        return None
    ids = cast("Mapping[str, object]", nested).get("target_layer_ids")
    return len(cast("list[object]", ids)) if isinstance(ids, list) else None


def _joint(model: ModelSpec, inputs: int) -> Matrix:
    return Matrix(names=("fc",), part="draft", outputs=(model.hidden_size,), inputs=inputs, dtype=model.dtype)


def _table(model: ModelSpec, rows: int, name: str) -> Matrix:
    return Matrix(
        names=(name,),
        part="draft",
        outputs=(rows,),
        inputs=model.hidden_size,
        dtype=model.dtype,
        may_be_quantised=False,
    )


def _count(config: Mapping[str, object], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def unmeasured(name: str, fault: str | None) -> Finding:
    """What is said where a draft model is asked for whose config cannot be had."""
    return Finding(
        id="weights.draft_model",
        severity=Severity.UNKNOWN,
        summary=f"the draft model `{name}` was not measured: {fault or 'no config'}",
        explanation="neither its weights nor its cache are in the account: fewer tokens will fit",
        action="give the folder of the draft model, or download its config.json",
    )
