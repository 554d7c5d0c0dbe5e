"""Weights that each GPU holds once an engine has loaded a model."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from bringup.planner.doubts import bounds, contradiction, doubts
from bringup.planner.formats import Matrix
from bringup.planner.header_tensors import is_gguf
from bringup.planner.header_weights import Counted, Stage, header_parts
from bringup.planner.held import Held
from bringup.planner.refusals import refusals
from bringup.planner.rope import rope_scratch
from bringup.planner.sizes import Tally, adapter_bytes, float_scales, forms_of, held_sizes, online_format
from bringup.planner.spread import WHOLE, Spread, spread
from bringup.planner.tensors import edge_tensors, layer_tensors, mtp_tensors
from bringup.planner.weight_rules import WeightRules
from bringup.units import GIB
from bringup.values.finding import Finding
from bringup.values.model import Layer, ModelSpec, Quantization
from bringup.values.plan import Layout

_EDGES = (
    "embedding",
    "head",
    "encoder",
    "rope",
    "libraries",
    "allocator",
    "repacking",
    "adapters",
)  # of no layer
_ADAPTED = ("attention", "mlp", "experts", "shared experts", "state")  # what LoRA may change


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """What every rank of one pipeline stage holds."""

    layers: tuple[int, ...]  # indices
    total: int  # bytes
    low: int
    high: int
    parts: tuple[tuple[str, int], ...]  # ("attention", bytes), largest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a GPU holds: the stage with most decides."""

    stages: tuple[StageWeights, ...]
    formula: str
    findings: tuple[Finding, ...] = ()

    @property
    def heaviest(self) -> StageWeights:
        """The stage whose ranks hold most."""
        return max(self.stages, key=lambda stage: stage.total)

    @property
    def total(self) -> int:
        """Bytes on a rank of the heaviest stage."""
        return self.heaviest.total

    @property
    def low(self) -> int:
        """The least that is likely."""
        return self.heaviest.low

    @property
    def high(self) -> int:
        """The most that is likely."""
        return self.heaviest.high

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Bytes by part of the model, largest first."""
        return self.heaviest.parts


def stage_layers(layers: int, stages: int, given: tuple[int, ...] = ()) -> tuple[tuple[int, ...], ...]:
    """Indices of the layers of each pipeline stage: as given, else shared evenly.

    What does not divide goes to the stages from the second last backwards.
    Source: vLLM 0.33.0 `distributed/utils.py`, `get_pp_indices`.

    >>> [len(stage) for stage in stage_layers(62, 4)]
    [15, 16, 16, 15]
    >>> [len(stage) for stage in stage_layers(62, 2, (36, 26))]
    [36, 26]
    """
    counts = list(given) or [layers // stages] * stages
    for step in range(0 if given else layers % stages):
        counts[(-step - 2) % stages] += 1
    starts = [sum(counts[:stage]) for stage in range(stages)]
    return tuple(tuple(range(start, start + count)) for start, count in zip(starts, counts, strict=True))


@lru_cache(maxsize=1024)  # layouts of a model times kinds of cards: most cards hold weights alike
def weights_per_rank(model: ModelSpec, layout: Layout, rules: WeightRules) -> Weights:
    """Bytes of weights on one GPU of each pipeline stage, as the engine counts them after loading."""
    split = stage_layers(len(model.layers), layout.pipeline_parallel, rules.stage_layers)
    stages = tuple(
        _stage(model, layout, rules, indices, is_last=number == len(split) - 1)
        for number, indices in enumerate(split)
    )
    heaviest = max(stages, key=lambda stage: stage.total)
    findings = refusals(model, layout, rules) + doubts(model, rules)
    if model.tensors and not is_gguf(model):
        promised = weights_per_rank(replace(model, tensors=()), layout, rules).total
        findings += contradiction(heaviest.total, promised)
    return Weights(stages=stages, formula=_formula(heaviest, rules), findings=findings)


def _stage(
    model: ModelSpec, layout: Layout, rules: WeightRules, indices: tuple[int, ...], *, is_last: bool
) -> StageWeights:
    has_headers = bool(model.tensors)
    mine: list[Held] = []
    if has_headers or rules.lora_slots:
        mine = _held(model, spread(layout, rules), rules, indices, is_last=is_last)
    if has_headers and online_format(model.quantization, rules) is model.quantization:
        full = _held(model, WHOLE, rules, indices, is_last=is_last)
        stage = Stage(pairs=tuple(zip(mine, full, strict=True)), layers=indices, is_last=is_last)
        counted = header_parts(model, stage, spread(layout, rules), rules)
    else:
        counted = Counted(parts=config_parts(model, spread(layout, rules), rules, indices, is_last=is_last))
    parts = counted.parts
    if rules.leftover_layers and forms_of(model, rules).experts is not None:
        layers = sum(1 for index in indices if (mlp := model.layers[index].mlp) and mlp.experts)
        parts["repacking"] = parts["experts"] * min(rules.leftover_layers, layers) // max(layers, 1)
    if rules.has_float_scales:
        parts["repacking"] += float_scales(model, rules, parts["experts"])
    if rules.lora_slots:
        adapted = (tensor for tensor in mine if isinstance(tensor, Matrix) and tensor.part in _ADAPTED)
        parts["adapters"] = sum(adapter_bytes(matrix, rules) for matrix in adapted)
    if rules.offload is not None and indices:
        inner = sum(size for part, size in parts.items() if part not in _EDGES)
        parts["offloaded"] -= inner * rules.offload.away(len(indices)) // len(indices)
    if rules.offloaded:
        parts["offloaded"] -= min(rules.offloaded, parts.total())
    low, high = bounds(model, parts, rules)
    return StageWeights(
        layers=indices,
        total=parts.total(),
        low=low - counted.perhaps_less,
        high=high + counted.perhaps_more,
        parts=tuple(sorted(parts.items(), key=lambda part: -part[1])),
    )


def _held(
    model: ModelSpec, ranks: Spread, rules: WeightRules, indices: tuple[int, ...], *, is_last: bool
) -> list[Held]:
    is_first = not indices or indices[0] == 0
    held = list(edge_tensors(model, ranks, rules, is_first=is_first, is_last=is_last))
    for index in indices:
        held.extend(layer_tensors(model, model.layers[index], ranks, rules))
    if is_last and rules.loads_mtp:
        held.extend(mtp_tensors(model, ranks, rules))
    return held


def config_parts(
    model: ModelSpec, ranks: Spread, rules: WeightRules, indices: tuple[int, ...], *, is_last: bool
) -> Counter[str]:
    """Bytes by part where only the config is known. Layers that are alike are worked out once."""
    forms, tally = forms_of(model, rules), Tally(rules, scratch=rope_scratch(model, rules))
    sizes_of_kind: dict[object, list[tuple[str, tuple[int, ...]]]] = {}
    is_by_kind = not _names_layers(model.quantization)

    def sizes(held: Iterable[Held]) -> list[tuple[str, tuple[int, ...]]]:
        return [(tensor.part, tuple(held_sizes(tensor, forms, rules))) for tensor in held]

    def layer_sizes(layer: Layer) -> list[tuple[str, tuple[int, ...]]]:
        kind = (layer.mixer, layer.attention, layer.state, layer.mlp) if is_by_kind else layer.index
        if kind not in sizes_of_kind:
            sizes_of_kind[kind] = sizes(layer_tensors(model, layer, ranks, rules))
        return sizes_of_kind[kind]

    is_first = not indices or indices[0] == 0
    counted = sizes(edge_tensors(model, ranks, rules, is_first=is_first, is_last=is_last))
    for index in indices:
        counted += layer_sizes(model.layers[index])
    if is_last and rules.loads_mtp:
        counted += sizes(mtp_tensors(model, ranks, rules))
    for part, blocks in counted:
        tally.add(part, blocks)
    return tally.closed()


def _names_layers(quantization: Quantization | None) -> bool:
    """Whether the number format of a module can depend on the number of its layer."""
    if quantization is None:
        return False
    forms = (quantization, *quantization.others)
    return any(
        character.isdigit() for form in forms for name in form.ignored + form.targets for character in name
    )


def _formula(stage: StageWeights, rules: WeightRules) -> str:
    text = " + ".join(f"{name} {size / GIB:.4f}" for name, size in stage.parts)
    return f"{text} GiB, {rules.engine}".replace("+ offloaded -", "- offloaded ")
