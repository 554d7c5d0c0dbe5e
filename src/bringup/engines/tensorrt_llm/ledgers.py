"""TensorRT-LLM's memory of one GPU: the KV cache gets a share of what weights and a trial run leave free.

The engine loads, runs its largest step once and takes `free_gpu_memory_fraction` of what the card has left
then. Other processes and the context are in what is taken, as `cudaMemGetInfo` counts the whole card.

Source: TensorRT-LLM 1.2, `_torch/pyexecutor/_util.py` (`KvCacheCreator.configure_kv_cache_capacity`) and
`resource_manager.py` (`get_cache_bytes_per_token`). Three public start-up logs (1.1.0rc3, gpt-oss-120b on a
DGX Spark; SmolLM2-135M; DeepSeek with a cache of eight bits) have these bytes of a token, this rule for the
cache and these whole blocks; the parts that the rule is fed with are estimates.
"""

from dataclasses import dataclass, replace
from math import sqrt

from bringup.engines.tensorrt_llm.findings import Account, findings_of
from bringup.engines.tensorrt_llm.settings import Settings, settings_of
from bringup.planner.kv_formats import head_bytes, latent_bytes
from bringup.planner.kv_states import state_bytes
from bringup.planner.ledger import line, settle
from bringup.planner.spread import share
from bringup.planner.stages import stage_shares
from bringup.planner.weight_rules import WeightRules, sglang_rules
from bringup.planner.weights import Weights, weights_per_rank
from bringup.planner.workspace import (
    Estimate,
    StepSize,
    communication_memory,
    context_memory,
    exact,
    forward_peak,
    graph_memory,
    late_memory,
    platform_of,
)
from bringup.units import GIB, bytes_text
from bringup.values.finding import Severity, worst
from bringup.values.model import Layer, Mixer, ModelSpec
from bringup.values.plan import Card, Gpus, KvPlan, LayoutPlan, LedgerLine, Origin, PlanTask, Share, Upcoming

_NINE_IN_TEN = 1.64  # a line's bounds are kept by two starts of three; those of the pool by nine of ten
_GRAPH_BATCH = 128  # cuda_graph_config.max_batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one GPU holds before its cache."""

    weights: Estimate
    context: Estimate
    system: Estimate
    communication: Estimate
    kernels: Estimate
    activations: Estimate
    graphs: Estimate
    states: Estimate

    @property
    def parts(self) -> tuple[Estimate, ...]:
        """Every part, in the order of the account."""
        return (
            self.context,
            self.system,
            self.communication,
            self.weights,
            self.states,
            self.kernels,
            self.graphs,
            self.activations,
        )


def plan_layout(task: PlanTask) -> LayoutPlan:
    """The account of the GPU that decides, for the layout of the command line."""
    settings = settings_of(task.spec, task.model, task.gpus.card)
    weights = weights_per_rank(task.model, settings.layout, weight_rules(task, settings))
    need = _need(task, settings, weights)
    kv = _kv(task, settings, need)
    ledger = _ledger(task, need, kv)
    context = task.context or settings.context
    copies = settings.attention_data_parallel
    requests = copies * min(kv.tokens / context, float(settings.batch)) if context else 0.0
    findings = findings_of(
        Account(
            task=task,
            settings=settings,
            kv=kv,
            ledger=ledger,
            weights=weights,
            requests=requests,
            state_bytes=need.states.bytes,
        )
    )
    starts = worst(tuple(one for one in findings if not one.id.startswith("flags."))) is not Severity.FAILURE
    low, high = _smi_used(task.gpus, ledger)
    return LayoutPlan(
        layout=settings.layout,
        fits=starts and kv.tokens > 0,
        weights_bytes=weights.total,
        kv=kv,
        stages=stage_shares(weights, sum(one.bytes for one in ledger if one.name == "kv_pool")),
        smi_used_low=low,
        smi_used_high=high,
        ledger=ledger,
        findings=findings,
        command=task.spec.argv,
        context=context,
        requests=requests,
        upcoming=_upcoming(settings, need),
        share=Share(
            flag="--kv_cache_free_gpu_memory_fraction",
            value=settings.fraction,
            base=task.gpus.card.cuda_total
            - task.gpus.used_by_others
            - sum(part.bytes for part in need.parts),
        ),
    )


def _upcoming(settings: Settings, need: Need) -> tuple[Upcoming, ...]:
    """The largest step again: what the trial run took was given back before the cache was made."""
    step = need.activations
    return (
        Upcoming(
            name="the first full step",
            bytes=step.bytes,
            low=step.low,
            high=step.high,
            piece=step.bytes // 2,  # guess: it is at least two buffers
            flag="--max_num_tokens",
            value=settings.step_tokens,
        ),
    )


def weight_rules(task: PlanTask, settings: Settings) -> WeightRules:
    """How TensorRT-LLM holds weights: taken to be as SGLang does, MXFP4 padded for CUTLASS.

    Seen: 63.52 GiB of gpt-oss-120b, whose files have 60.8; 63.6 are predicted. For all else a guess.
    """
    capability = task.gpus.card.compute_capability or ""
    rules = sglang_rules(compute_capability=capability if capability[:1].isdigit() else None)
    return replace(
        rules,
        engine="TensorRT-LLM",
        attention_data_parallel=settings.attention_data_parallel,
        expert_groups=settings.expert_groups,
        vocabulary_padding=1,
        mxfp4_backend="flashinfer_cutlass",
    )


def token_bytes(model: ModelSpec, settings: Settings) -> int:
    """Bytes that one token takes on one rank, over the layers of the fullest stage.

    Windows are kept in full unless `max_attention_window` says otherwise.
    """
    ranks = max(1, settings.layout.tensor_parallel // settings.attention_data_parallel)
    stage = share(len(model.layers), settings.layout.pipeline_parallel)
    return sum(_layer_bytes(layer, settings.cache_dtype, ranks) for layer in model.layers[:stage])


def _layer_bytes(layer: Layer, dtype: str, ranks: int) -> int:
    attention = layer.attention
    if attention is None or layer.mixer is Mixer.NONE:
        return 0
    if attention.kv_lora_rank is not None:
        rotary = attention.qk_rope_head_dim or 0
        if dtype.startswith("fp8"):  # plain, not the packed form of other engines
            return attention.kv_lora_rank + rotary
        return latent_bytes(dtype, attention.kv_lora_rank, rotary)
    return share(attention.kv_heads, ranks) * head_bytes(dtype, attention.head_dim, attention.v_head_dim)


def _states(model: ModelSpec, settings: Settings) -> Estimate:
    """Recurrent states: one for every request of the largest batch, made at the start."""
    ranks = max(1, settings.layout.tensor_parallel // settings.attention_data_parallel)
    stage = share(len(model.layers), settings.layout.pipeline_parallel)
    each = sum(
        state_bytes(
            layer.mixer,
            layer.state,
            tp=ranks,
            convolution_dtype=model.dtype,
            state_dtype=layer.state.state_dtype or model.dtype,
        ).total
        for layer in model.layers[:stage]
        if layer.state is not None
    )
    return exact(each * settings.batch, f"{settings.batch:,} requests x {each:,} B of state")


def _need(task: PlanTask, settings: Settings, weights: Weights) -> Need:
    heaviest, layout, card = weights.heaviest, settings.layout, task.gpus.card
    platform = platform_of(card)
    ranks = layout.tensor_parallel * layout.pipeline_parallel
    held = Estimate(
        bytes=heaviest.total,
        low=round(0.98 * heaviest.low),  # guess: what is repacked after loading is not known
        high=round(1.05 * heaviest.high),
        formula=weights.formula,
    )
    step = StepSize(tokens=settings.step_tokens, sequences=settings.batch)
    peak = forward_peak(task.model, layout, step)
    return Need(
        weights=held,
        context=context_memory(),
        system=_system(task.gpus.card, held),
        communication=communication_memory(ranks, platform),
        kernels=late_memory(layout.tensor_parallel, platform),
        activations=replace(peak, low=round(0.6 * peak.bytes), high=2 * peak.bytes + GIB),
        graphs=graph_memory(task.model, min(settings.batch, _GRAPH_BATCH), is_eager=not settings.has_graphs),
        states=_states(task.model, settings),
    )


def _system(card: Card, weights: Estimate) -> Estimate:
    """What the operating system holds where it shares the GPU's memory; the files that were read count in it.

    Seen: 49.3 GiB outside of torch after 63 GB of weights were read, on a DGX Spark, one start.
    """
    if not platform_of(card).is_unified:
        return exact(0, "memory of its own")
    return Estimate(
        bytes=9 * GIB,
        low=4 * GIB,
        high=9 * GIB + weights.bytes,
        formula="the operating system, its programs and the files it keeps in memory, 9 GiB and more",
    )


def _kv(task: PlanTask, settings: Settings, need: Need) -> KvPlan:
    gpus, block = task.gpus, settings.block_tokens
    total = gpus.card.cuda_total - gpus.used_by_others
    free = total - sum(part.bytes for part in need.parts)
    less = sqrt(sum((part.high - part.bytes) ** 2 for part in need.parts))
    more = sqrt(sum((part.bytes - part.low) ** 2 for part in need.parts))
    rate = token_bytes(task.model, settings)

    def pool(left: float) -> int:
        """Tokens of what is left free. The last block is rounded up: 86,711 become 86,720 in a log."""
        tokens = int(max(0.0, left) * settings.fraction // rate) if rate else 0
        tokens = min(tokens, settings.max_tokens) if settings.max_tokens else tokens
        return -(-tokens // block) * block

    tokens = pool(free)
    context = task.context or settings.context
    return KvPlan(
        available_bytes=round(free * settings.fraction) if settings.max_tokens is None else tokens * rate,
        bytes_per_token=float(rate),
        tokens=tokens,
        max_concurrency=min(tokens / context, float(settings.batch)) if context else 0.0,
        low_tokens=pool(free - _NINE_IN_TEN * less),
        high_tokens=pool(free + _NINE_IN_TEN * more),
        block_tokens=block,
        blocks=tokens // block,
        bytes_per_block=rate * block,
        cache_dtype=settings.cache_dtype,
        fits=tokens >= context,
        needed_bytes=-(-context // block) * block * rate,
        longest_context=min(settings.context, tokens),
    )


def _ledger(task: PlanTask, need: Need, kv: KvPlan) -> tuple[LedgerLine, ...]:
    """Every byte of the card by nvidia-smi's count."""
    gpus, card = task.gpus, task.gpus.card
    reserved = exact(card.memory_total - card.cuda_total, "nvidia-smi's total - CUDA's total")
    rate = round(kv.bytes_per_token)
    pool = Estimate(
        bytes=kv.tokens * rate,
        low=kv.low_tokens * rate,
        high=kv.high_tokens * rate,
        formula=f"{kv.tokens:,} tokens x {rate:,} B, of {bytes_text(max(0, kv.available_bytes))} offered",
    )
    lines = [
        line("reserved", reserved, Origin.MEASURED if card.is_cuda_total_measured else Origin.ESTIMATE),
        line("other_processes", exact(gpus.used_by_others, "as given"), Origin.MEASURED),
        line("system", need.system),
        line("context", need.context),
        line("communication", need.communication),
        line("weights", need.weights),
        line("state_pool", need.states),
        line("kv_pool", pool),
        line("kernels", need.kernels),
        line("graphs", need.graphs),
        line("activations", need.activations),
    ]
    return settle(lines, card.memory_total)


def _smi_used(gpus: Gpus, ledger: tuple[LedgerLine, ...]) -> tuple[int, int]:
    """What nvidia-smi will show: everything but the driver's own and what is free."""
    held = [one for one in ledger if one.name not in ("reserved", "free", "activations")]
    peak = next(one for one in ledger if one.name == "activations")
    # What weights take more the cache gets less, so their doubts do not add up.
    low = sum(one.bytes for one in held) - round(0.05 * sum(one.bytes for one in held))
    return low, max(low, min(sum(one.bytes for one in held) + peak.high, gpus.card.cuda_total))
