"""SGLang's memory of one GPU: from `--mem-fraction-static` to the pools, by the order of its start.

What is free after context and NCCL (`pre`) is divided: `1 - mem_fraction_static` of it stays free for
activations, graphs and workspaces, weights and pools share the rest. So the size of the model does not decide
what nvidia-smi shows.

Source: SGLang 0.5.23 `model_executor/model_runner.py`, `pool_configurator.py`, `mem_cache/`, with 0.5.12,
0.5.9 and 0.5.5; the pool's end was within 0.07 GiB of 43 public start-up logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt

from bringup.engines.sglang.drafts import late_drafter, loaded_weights, with_draft_layers
from bringup.engines.sglang.findings import Account, findings_of
from bringup.engines.sglang.fraction import AFTER_0_5_12, NEWEST
from bringup.engines.sglang.measured import measured_free, measured_parts
from bringup.engines.sglang.settings import Settings, draft_name, graph_count, settings_of
from bringup.parse.command_line import whole_number
from bringup.parse.flag_values import finite_number
from bringup.planner.encoder_tensors import has_encoder
from bringup.planner.kv_sglang import SglangPools, SglangRules, sglang_pools
from bringup.planner.kv_versions import Version, read_version
from bringup.planner.ledger import line, settle
from bringup.planner.measured import AS_LOGGED
from bringup.planner.stages import stage_shares
from bringup.planner.weight_rules import LayerOffload, WeightRules, sglang_rules
from bringup.planner.weights import Weights
from bringup.planner.workspace import (
    Estimate,
    StepSize,
    communication_memory,
    context_memory,
    estimate,
    exact,
    forward_peak,
    platform_of,
    sizes_unit,
)
from bringup.units import GIB, MIB, bytes_text
from bringup.values.finding import Severity, worst
from bringup.values.plan import (
    Card,
    Gpus,
    KvPlan,
    LayoutPlan,
    LedgerLine,
    Origin,
    PlanTask,
    Share,
    Upcoming,
)

_NINE_IN_TEN = 1.64  # a line's bounds are kept by two starts of three; those of the pool by nine of ten
# Seen: 2.3 GiB less free at the start than on other cards of the kind, on a virtual RTX PRO 6000, two starts.
_PERHAPS_LESS = round(1.2 * GIB)
_UNSEEN_SHARE = 0.0065  # virtual GPUs and Windows show CUDA that much more of a card
_IMAGE_RESERVE = 100 * MIB  # SGLANG_VLM_CACHE_SIZE_MB
# Source: SGLang `docs/advanced_features/hyperparameter_tuning.md`: 5 to 8 GB of `available_gpu_mem` are
# right, 10 to 20 mean that the share may be raised.
_WANTED_FREE = (5 * GIB, 8 * GIB)
_TABLE_EXTRA = 4  # columns of the request table beside the context
_READ_VERSIONS: tuple[Version, ...] = ((0, 5, 12), (0, 5, 9), (0, 5, 5))
_POOL_VERSIONS: tuple[Version, ...] = (NEWEST, *_READ_VERSIONS, (0, 5, 3))
# Requests that may run where nothing is said. Source: `kv_cache_configurator.py`, `resolve_max_num_reqs`.
_LEAST_RUNNING, _MOST_RUNNING = 2048, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the pools of one GPU get."""

    pre: Estimate  # free after context and communication
    weights: Estimate
    rest: int
    low: int
    high: int


def plan_layout(task: PlanTask) -> LayoutPlan:
    """The account of the GPU that decides, for the layout of the command line."""
    version = min(read_version(task.version) or NEWEST, NEWEST)
    settings = with_draft_layers(task, settings_of(task.spec, version, task.model, task.gpus.card))
    weights, late = loaded_weights(task, settings, weight_rules(task, settings))
    budget = budget_of(task, settings, weights)
    rules = pool_rules(task, settings)
    pools = sglang_pools(task.model, settings.layout, rules, max(0, budget.rest))
    running = running_requests(settings, pools)
    kv = _kv(task, settings, budget, pools, rules, running)
    drafter = late_drafter(task, settings, pools, late)
    measured = measured_parts(task, settings, running)
    lines = _ledger(task, settings, budget, pools, running, drafter)
    ledger = with_measured(lines, measured.parts, task.gpus)
    low, high = _smi_used(task.gpus, ledger)
    context = task.context or settings.context
    copies = settings.layout.data_parallel * settings.attention_data_parallel
    requests = min(pools.tokens / context, float(running)) * copies
    findings = findings_of(
        Account(
            task=task,
            settings=settings,
            kv=kv,
            pools=pools,
            ledger=ledger,
            weights=weights,
            running=running,
            requests=requests,
        )
    )
    if task.measured is not None:
        findings += (measured.finding(task.measured),)
    starts = worst(tuple(one for one in findings if not one.id.startswith("flags."))) is not Severity.FAILURE
    return LayoutPlan(
        layout=settings.layout,
        fits=starts and pools.tokens > 0,
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
        upcoming=_upcoming(settings, ledger),
        share=Share(
            flag="--mem-fraction-static", value=settings.fraction, base=budget.pre.bytes, reserve=_WANTED_FREE
        ),
    )


def _upcoming(settings: Settings, ledger: tuple[LedgerLine, ...]) -> tuple[Upcoming, ...]:
    """The first prefill of a whole chunk, which no try-out at the start has taken before."""
    step = next(part for part in ledger if part.name == "activations")
    return (
        Upcoming(
            name="the first whole chunk of a prompt",
            bytes=step.bytes,
            low=step.low,
            high=step.high,
            piece=step.bytes // 2,  # guess: it is at least two buffers
            flag="--chunked-prefill-size",
            value=settings.chunk or settings.max_prefill_tokens,
        ),
    )


def after_pools(cuda_total: int, pre: int, fraction: float) -> int:
    """Bytes in use once the pools stand, whatever the size of the model.

    Four RTX PRO 6000 with 94.0 of 94.97 GiB free at the start, and an automatic share of 0.7897:

    >>> round(after_pools(round(94.97 * GIB), round(94.0 * GIB), 0.7897) / MIB)
    77007
    """
    return cuda_total - round(pre * (1 - fraction))


def budget_of(task: PlanTask, settings: Settings, weights: Weights) -> Budget:
    """What is free at the start, what weights take of it, what the pools get."""
    gpus = task.gpus
    pre = measured_free(task, settings) or free_at_start(gpus, settings)
    heaviest = weights.heaviest
    parts = " + ".join(f"{name} {size / MIB:,.0f}" for name, size in heaviest.parts) + " MiB"
    held = Estimate(bytes=heaviest.total, low=heaviest.low, high=heaviest.high, formula=parts)
    images = _IMAGE_RESERVE if settings.has_vision and settings.version >= AFTER_0_5_12 else 0
    share = settings.fraction
    rest = round(pre.bytes * share) - held.bytes - images
    shares = possible_shares(task, settings)
    below, above = (share - min(shares)) * pre.bytes, (max(shares) - share) * pre.bytes
    less = sqrt((share * (pre.bytes - pre.low)) ** 2 + (held.high - held.bytes) ** 2)
    more = sqrt((share * (pre.high - pre.bytes)) ** 2 + (held.bytes - held.low) ** 2)
    is_known = gpus.card.is_cuda_total_measured or pre.formula == AS_LOGGED
    unseen = 0 if is_known else round(gpus.card.cuda_total * _UNSEEN_SHARE * share)
    return Budget(
        pre=pre,
        weights=held,
        rest=rest,
        low=rest - round(_NINE_IN_TEN * less + below),
        high=rest + round(_NINE_IN_TEN * more + above) + unseen,
    )


def possible_shares(task: PlanTask, settings: Settings) -> tuple[float, ...]:
    """The share that weights and pools may take: of every version that was read, where none is named."""
    if settings.is_fraction_given or read_version(task.version) is not None:
        return (settings.fraction,)
    versions = (NEWEST, *_READ_VERSIONS)
    return tuple(settings_of(task.spec, version, task.model, task.gpus.card).fraction for version in versions)


def free_at_start(gpus: Gpus, settings: Settings) -> Estimate:
    """What CUDA calls free once context and communication stand, on the rank that has least."""
    layout, platform = settings.layout, platform_of(gpus.card)
    taken = (
        context_memory(),
        communication_memory(layout.tensor_parallel * layout.pipeline_parallel, platform),
        system_memory(gpus.card),
    )
    total = gpus.card.cuda_total - gpus.used_by_others
    return Estimate(
        bytes=total - sum(part.bytes for part in taken),
        low=total - sum(part.high for part in taken) - (0 if platform.is_unified else _PERHAPS_LESS),
        high=total - sum(part.low for part in taken),
        formula=" - ".join(f"{size:,}" for size in (total, *(part.bytes for part in taken)) if size) + " B",
    )


def system_memory(card: Card) -> Estimate:
    """What the operating system holds where it shares the GPU's memory: "free" is what it says is available.

    Seen: 9.1 to 9.5 GiB beside the context on a DGX Spark, three starts.
    """
    if not platform_of(card).is_unified:
        return exact(0, "memory of its own")
    return Estimate(
        bytes=9 * GIB, low=4 * GIB, high=12 * GIB, formula="the operating system and its programs, 9 GiB"
    )


def weight_rules(task: PlanTask, settings: Settings) -> WeightRules:
    """How SGLang holds weights, with the flags that change it."""
    flags = task.spec.flags
    capability = task.gpus.card.compute_capability or ""
    rules = sglang_rules(
        compute_capability=capability if capability[:1].isdigit() else None, version=task.version
    )
    online = flags.get("--quantization") if task.model.quantization is None else None
    has_lora = "--enable-lora" in flags or "--lora-paths" in flags
    return replace(
        rules,
        attention_data_parallel=settings.attention_data_parallel,
        expert_groups=settings.expert_groups,
        loads_mtp=settings.draft_layers > 0 and draft_name(task.spec) is None,
        loads_encoder=has_encoder(task.model) and not flags.keys() & {"--language-model-only"},
        encoder_is_sharded="--mm-enable-dp-encoder" not in flags,
        online_quantization="fp8" if online == "fp8" else None,
        redundant_experts=whole_number(flags.get("--ep-num-redundant-experts")) or 0,
        offloaded=round(max(0.0, finite_number(flags.get("--cpu-offload-gb")) or 0.0) * GIB),
        offload=_layer_offload(flags),
        lora_slots=(whole_number(flags.get("--max-loras-per-batch")) or 8) if has_lora else 0,
        lora_rank=whole_number(flags.get("--max-lora-rank")) or 16,
    )


def _layer_offload(flags: Mapping[str, str]) -> LayerOffload | None:
    """Whole layers that the command leaves in host memory."""
    group = whole_number(flags.get("--offload-group-size"))
    if not group or group < 0:
        return None
    ahead = whole_number(flags.get("--offload-prefetch-step"))
    return LayerOffload(
        group=group,
        count=whole_number(flags.get("--offload-num-in-group")) or 1,
        ahead=1 if ahead is None else ahead,
    )


def pool_rules(task: PlanTask, settings: Settings) -> SglangRules:
    """The settings as far as the pools' rules ask for them."""
    flags = task.spec.flags
    slots = whole_number(flags.get("--max-mamba-cache-size"))
    if slots is None and not settings.has_radix_cache:
        slots = settings.wanted_running
    return SglangRules(
        version=settings.version,
        cache_dtype=flags.get("--kv-cache-dtype", "auto"),
        attention_data_parallel=settings.attention_data_parallel,
        compute_capability=task.gpus.card.compute_capability,
        attention_backend=flags.get("--attention-backend"),
        page_tokens=settings.page_tokens,
        window_share=finite_number(flags.get("--swa-full-tokens-ratio")),
        has_window_pool="--disable-hybrid-swa-memory" not in flags,
        state_ratio=finite_number(flags.get("--mamba-full-memory-ratio")),
        state_dtype=flags.get("--mamba-ssm-dtype"),
        state_slots=slots,
        max_total_tokens=whole_number(flags.get("--max-total-tokens")),
        draft_layers=settings.draft_layers,
        draft_tokens=0 if "--enable-linear-replayssm-spec" in flags else settings.draft_tokens,
        states_per_request=settings.states_per_request,
        running=settings.wanted_running,
    )


def running_requests(settings: Settings, pools: SglangPools) -> int:
    """Requests that one data-parallel rank runs at once: as told or estimated, and no more than states."""
    tokens, is_new = pools.tokens, settings.version >= AFTER_0_5_12
    running = settings.wanted_running
    if running is None:
        running = max(_LEAST_RUNNING, min(_MOST_RUNNING, int(tokens / settings.context * 512)))
    if is_new:
        running = min(running, tokens // 2)
    if pools.slot_bytes:
        running = min(running, pools.state_slots // settings.states_per_request)
    return running


def _kv(
    task: PlanTask,
    settings: Settings,
    budget: Budget,
    pools: SglangPools,
    rules: SglangRules,
    running: int,
) -> KvPlan:
    # Where the version is not known the bounds hold for the rules of all.
    versions = _POOL_VERSIONS if read_version(task.version) is None else (rules.version,)

    def tokens(available: int) -> list[int]:
        size = max(0, available)
        known = (replace(rules, version=version) for version in versions)
        return [sglang_pools(task.model, settings.layout, each, size).tokens for each in known]

    page = settings.page_tokens
    context = task.context or settings.context
    states = settings.states_per_request * pools.slot_bytes
    return KvPlan(
        available_bytes=budget.rest - (pools.state_bytes if budget.rest > 0 else 0),
        bytes_per_token=pools.token_bytes,
        tokens=pools.tokens,
        max_concurrency=min(pools.tokens / context, float(running)),
        low_tokens=min(tokens(budget.low)),
        high_tokens=max(tokens(budget.high)),
        block_tokens=page,
        blocks=pools.tokens // page,
        bytes_per_block=round(page * pools.token_bytes),
        fixed_bytes_per_request=states,
        cache_dtype=pools.cache_dtype,
        fits=pools.tokens >= context,
        needed_bytes=round(context * pools.token_bytes) + states,
        longest_context=min(settings.context, max(0, pools.tokens - 1)),
    )


def _ledger(
    task: PlanTask, settings: Settings, budget: Budget, pools: SglangPools, running: int, drafter: Estimate
) -> tuple[LedgerLine, ...]:
    """Every byte of the card by nvidia-smi's count."""
    gpus, card = task.gpus, task.gpus.card
    layout = settings.layout
    reserved = exact(card.memory_total - card.cuda_total, "nvidia-smi's total - CUDA's total")
    links = communication_memory(layout.tensor_parallel * layout.pipeline_parallel, platform_of(card))
    weights = Origin.HEADERS if task.model.tensors else Origin.CONFIG
    # Replicas of attention divide a chunk among them. Source: SGLang 0.5.23 `arg_groups/parallel_hook.py`.
    chunk = (settings.chunk or settings.max_prefill_tokens) // settings.attention_data_parallel
    step = StepSize(tokens=chunk, sequences=running)
    lines = [
        line("reserved", reserved, Origin.MEASURED if card.is_cuda_total_measured else Origin.ESTIMATE),
        line("other_processes", exact(gpus.used_by_others, "as given"), Origin.MEASURED),
        line("system", system_memory(card)),
        line("context", context_memory()),
        line("communication", links),
        line("weights", budget.weights, weights),
        line("state_pool", _states(pools), Origin.RULE),
        line("kv_pool", _pool(settings, budget, pools), Origin.RULE),
        line("request_table", request_table(settings, running), Origin.RULE),
        line("workspace", _WORKSPACE),
        line("drafter", drafter),
        line("graphs", _graphs(task, settings, running)),
        line("activations", forward_peak(task.model, layout, step)),
    ]
    return settle(lines, card.memory_total)


def with_measured(
    ledger: tuple[LedgerLine, ...], parts: Mapping[str, Estimate], gpus: Gpus
) -> tuple[LedgerLine, ...]:
    """The account with what an earlier start measured; what was not free is one line, the context's."""
    if not parts:
        return ledger
    changed = {one.name: one for one in ledger if one.name != "free"}
    if "pre" in parts:
        pre, total = parts["pre"], gpus.card.cuda_total - gpus.used_by_others
        taken = Estimate(
            bytes=total - pre.bytes,
            low=total - pre.high,
            high=total - pre.low,
            formula=f"{total:,} - {pre.bytes:,} B free before the weights, as logged",
        )
        together = exact(0, "measured together with the context")
        changed["context"] = line("context", taken, Origin.MEASURED)
        changed["system"] = line("system", together, Origin.MEASURED)
        changed["communication"] = line("communication", together, Origin.MEASURED)
    if "graphs" in parts:
        changed["graphs"] = line("graphs", parts["graphs"], Origin.MEASURED)
    return settle(tuple(changed.values()), gpus.card.memory_total)


# Source: SGLANG_FLASHINFER_WORKSPACE_SIZE, 384 MiB; 512 for some models, Triton needs next to none.
_WORKSPACE = Estimate(
    bytes=384 * MIB, low=16 * MIB, high=512 * MIB, formula="workspace of the attention back end, 384 MiB"
)


def request_table(settings: Settings, running: int) -> Estimate:
    """The table of every request's token slots.

    Source: `mem_cache/memory_pool.py`, `ReqToTokenPool`: 2049 x 131,072 x 4 B are 1.0 GiB.
    """
    size = (running + 1) * (settings.context + _TABLE_EXTRA) * 4
    return exact(size, f"({running:,} + 1) requests x ({settings.context:,} + {_TABLE_EXTRA}) tokens x 4 B")


def _states(pools: SglangPools) -> Estimate:
    slots = pools.state_slots
    if not slots:
        return exact(pools.state_bytes, "no states")
    drafts = pools.state_bytes // pools.slot_bytes - slots - 1
    words = f"({slots:,} + 1{f' + {drafts:,} of drafts' if drafts else ''}) states x {pools.slot_bytes:,} B"
    return exact(pools.state_bytes, words)


def _pool(settings: Settings, budget: Budget, pools: SglangPools) -> Estimate:
    words = (
        f"{budget.pre.formula} = {bytes_text(budget.pre.bytes)} x {settings.fraction:.4f} "
        f"({settings.fraction_words}) - weights - states, "
        f"{pools.tokens:,} tokens x {pools.token_bytes:,.1f} B"
    )
    spread_low, spread_high = budget.rest - budget.low, budget.high - budget.rest
    share = pools.kv_bytes / max(1, pools.kv_bytes + pools.state_bytes)
    low = max(0, pools.kv_bytes - round(spread_low * share))
    return Estimate(
        bytes=pools.kv_bytes, low=low, high=pools.kv_bytes + round(spread_high * share), formula=words
    )


def _graphs(task: PlanTask, settings: Settings, running: int) -> Estimate:
    """What recorded graphs keep.

    Seen: 0.49 GiB for 40 layers and 0.63 GiB for 80 (36 sizes). guess: 2 MiB per size and 24 layers.
    """
    decode = graph_count(settings, running)
    sizes = decode + settings.prefill_sizes // 2  # guess: one size of prefill keeps half as much
    if not sizes:
        return exact(0, "no graphs")
    each = 2 * sizes_unit(task.model)
    size = 0.1 * GIB + sizes * each
    words = f"0.1 GiB + ({decode} + {settings.prefill_sizes} / 2) sizes x {each / MIB:.1f} MiB"
    return estimate(size, words, low=0.3, high=2.5)


def _smi_used(gpus: Gpus, ledger: tuple[LedgerLine, ...]) -> tuple[int, int]:
    """What nvidia-smi will show, from just after the start to a server that has worked.

    Up to the pools the sum is known: what weights take the pools do not get. The doubts of both are the same.
    """
    lines = {one.name: one for one in ledger}
    fixed = sum(lines[name].bytes for name in ("weights", "state_pool", "kv_pool", "other_processes"))
    late = ("request_table", "workspace", "drafter", "graphs")
    outside = ("system", "context", "communication")
    low = fixed + sum(lines[name].bytes for name in outside) + sum(lines[name].low for name in late)
    high = fixed + sum(lines[name].bytes for name in outside) + sum(lines[name].high for name in late)
    high += lines["activations"].high
    return low, max(low, min(high, gpus.card.cuda_total))
