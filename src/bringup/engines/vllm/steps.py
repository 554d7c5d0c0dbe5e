"""What one GPU of each pipeline stage needs under vLLM, apart from its cache."""

from dataclasses import dataclass, replace

from bringup.engines.vllm.encoder import encoder_need
from bringup.engines.vllm.flags import count, settings_at, switch
from bringup.engines.vllm.settings import Settings, draft_name, layout_of, stage_partition
from bringup.parse.command_line import whole_number
from bringup.parse.flag_values import finite_number
from bringup.parse.json_value import int_at
from bringup.planner.draft_weights import Draft, draft_of, unmeasured, with_draft
from bringup.planner.vllm_figures import bytes_per_logit
from bringup.planner.weight_rules import LayerOffload, WeightRules, vllm_rules
from bringup.planner.weights import StageWeights, Weights, weights_per_rank
from bringup.planner.workspace import (
    Estimate,
    Platform,
    StepSize,
    communication_memory,
    context_memory,
    exact,
    forward_peak,
    graph_memory,
    late_memory,
    latent_workspace,
    platform_of,
    sampler_peak,
)
from bringup.units import GIB, MIB
from bringup.values.model import ModelSpec
from bringup.values.plan import Layout, Origin, PlanTask

_VOCABULARY_PADDING = 64  # rows. Source: vLLM 0.33.0 `vocab_parallel_embedding.py`


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeed:
    """One GPU of one stage."""

    weights: Estimate
    weights_origin: Origin
    context: Estimate
    communication: Estimate
    late: Estimate
    forward: Estimate
    sampler: Estimate
    encoder: Estimate
    activations: Estimate
    graphs: Estimate
    graphs_charged: Estimate  # what the engine takes them for
    measured: frozenset[str] = frozenset()  # names of the parts that an earlier start measured


def padded_vocabulary(model: ModelSpec) -> int:
    """Logits of one request: the vocabulary in whole blocks of rows."""
    return -(-model.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def weight_rules(task: PlanTask, settings: Settings) -> WeightRules:
    """How this version holds weights, with the flags that change it."""
    flags = task.spec.flags
    version = ".".join(str(part) for part in settings.version)
    capability = task.gpus.card.compute_capability or ""
    rules = vllm_rules(
        version,
        compute_capability=capability if capability[:1].isdigit() else None,
        is_rocm=capability.startswith("gfx"),
    )
    is_quantized = task.model.quantization is not None
    online = flags.get("--quantization") if not is_quantized else None
    has_lora = switch(flags, "--enable-lora") is True
    experts = settings_at(flags, "--eplb-config")
    redundant = int_at(experts, "num_redundant_experts") or count(flags.get("--num-redundant-experts")) or 0
    return replace(
        rules,
        loads_mtp=settings.loads_mtp and task.draft is None,
        loads_encoder=settings.has_vision,
        encoder_is_sharded=flags.get("--mm-encoder-tp-mode") != "data",
        replicates_embedding=_replicates_embedding(task),
        stage_layers=stage_partition(task.spec, len(task.model.layers), layout_of(task.spec)) or (),
        online_quantization="fp8" if online == "fp8" else None,
        redundant_experts=redundant if switch(flags, "--enable-eplb") else 0,
        offloaded=round(max(0.0, finite_number(flags.get("--cpu-offload-gb")) or 0.0) * GIB),
        offload=_layer_offload(task),
        lora_slots=(count(flags.get("--max-loras")) or 1) if has_lora else 0,
        lora_rank=count(flags.get("--max-lora-rank")) or 16,
    )


def _layer_offload(task: PlanTask) -> LayerOffload | None:
    """Whole layers that the command leaves in host memory. Where it names parameters, none are counted."""
    flags = task.spec.flags
    group = count(flags.get("--offload-group-size"))
    if not group or "--offload-params" in flags or flags.get("--offload-backend") == "uva":
        return None
    ahead = whole_number(flags.get("--offload-prefetch-step"))
    return LayerOffload(
        group=group,
        count=count(flags.get("--offload-num-in-group")) or 1,
        ahead=1 if ahead is None else ahead,
    )


def _replicates_embedding(task: PlanTask) -> bool:
    """Whether every rank holds the whole embedding: DeepSeek-V3.2 and GLM-5, where it is asked for.

    Source: vLLM 0.33.0 `layers/fused_embed_norm.py`, `make_input_embedding`; `models/deepseek_v32/`.
    """
    has_indexer = any(layer.attention and layer.attention.index_heads for layer in task.model.layers)
    return task.spec.environment.get("VLLM_REPLICATE_EMBED") == "1" and has_indexer


def weights_of(task: PlanTask, layout: Layout, settings: Settings) -> Weights:
    """The weights of every pipeline stage, with what is to be said about them."""
    rules = weight_rules(task, settings)
    weights = weights_per_rank(task.model, layout, rules)
    if draft := draft_of_task(task, settings):
        return with_draft(weights, task.model, draft, layout, rules)
    if (name := draft_name(task.spec)) is not None:
        return replace(weights, findings=(*weights.findings, unmeasured(name, task.draft_fault)))
    return weights


def draft_of_task(task: PlanTask, settings: Settings) -> Draft | None:
    """The draft model of its own, where its config is known."""
    if task.draft is None or settings.speculation is None:
        return None
    return draft_of(task.draft, settings.speculation.method)


def stage_needs(
    task: PlanTask, layout: Layout, settings: Settings, weights: Weights
) -> tuple[StageNeed, ...]:
    """The need of every pipeline stage, first to last."""
    origin = Origin.HEADERS if task.model.tensors else Origin.CONFIG
    last = len(weights.stages) - 1
    return tuple(
        _need(task, layout, settings, _weights(stage, weights), origin, is_last=number == last)
        for number, stage in enumerate(weights.stages)
    )


def _need(
    task: PlanTask,
    layout: Layout,
    settings: Settings,
    weights: Estimate,
    origin: Origin,
    *,
    is_last: bool,
) -> StageNeed:
    model, tp = task.model, layout.tensor_parallel
    batch = settings.batch
    step = StepSize(tokens=batch.tokens, sequences=batch.sequences)
    forward = forward_peak(model, layout, step)
    drafts = settings.speculation.tokens if settings.speculation else 0
    rows = min(batch.sequences * (1 + drafts), batch.tokens) if is_last else 0
    sampler = sampler_peak(rows, padded_vocabulary(model), bytes_per_logit(settings.version))
    encoder = encoder_need(model, settings) if settings.has_vision else exact(0, "")
    platform = platform_of(task.gpus.card)
    graphs = graph_memory(model, batch.sequences, is_eager=settings.is_eager)
    return StageNeed(
        weights=weights,
        weights_origin=origin,
        context=context_memory(),
        communication=communication_memory(tp * layout.pipeline_parallel, platform),
        late=late_memory(tp, platform, settings.version),
        forward=forward,
        sampler=sampler,
        encoder=encoder,
        activations=_peak(forward, sampler, encoder, latent_workspace(model, layout, settings.max_model_len)),
        graphs=graphs,
        graphs_charged=_graph_estimate(graphs, platform),
    )


def _graph_estimate(real: Estimate, platform: Platform) -> Estimate:
    """What the engine takes its graphs for before it records them, from two samples.

    Source: vLLM #45178, #50780: two to five times too much; 2.43 GiB on a GB10 where nothing was taken.
    """
    if real.bytes == 0:
        return real
    size = round(1.4 * GIB) if platform.is_unified else real.bytes
    words = f"estimate from two samples, {size / GIB:.2f} GiB"
    return Estimate(bytes=size, low=real.low // 2, high=size + GIB, formula=words)


def _weights(stage: StageWeights, weights: Weights) -> Estimate:
    words = " + ".join(f"{name} {size / MIB:,.0f}" for name, size in stage.parts) + " MiB"
    return Estimate(bytes=stage.total, low=stage.low, high=stage.high, formula=words or weights.formula)


def _peak(forward: Estimate, sampler: Estimate, encoder: Estimate, kept: Estimate) -> Estimate:
    """The greatest of what happens one after the other, beside what is kept throughout."""
    parts = [("forward", forward), ("sampler", sampler), ("encoder", encoder)]
    name, most = max(parts, key=lambda part: part[1].bytes)
    words = f"{name}: {most.formula}" + (f" + latents: {kept.formula}" if kept.bytes else "")
    return Estimate(
        bytes=most.bytes + kept.bytes,
        low=max(part.low for _, part in parts) + kept.low,
        high=max(part.high for _, part in parts) + kept.high,
        formula=words,
    )
