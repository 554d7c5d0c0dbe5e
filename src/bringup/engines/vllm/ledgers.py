"""vLLM's memory of one GPU: from `--gpu-memory-utilization` to the KV cache, by the rule of its version.

Source: vLLM 0.6.6 to 0.33.0, `v1/worker/gpu_worker.py` (`determine_available_memory`), `v1/worker/utils.py`
(`request_memory`) and `utils/mem_utils.py` (`memory_profiling`).
"""

from dataclasses import dataclass, replace
from math import ceil, sqrt

from bringup.engines.vllm.measured import measured_parts, with_measured
from bringup.engines.vllm.risks import Account, findings_of, upcoming
from bringup.engines.vllm.settings import Settings, layout_of, settings_of, stage_partition
from bringup.engines.vllm.steps import StageNeed, draft_of_task, stage_needs, weights_of
from bringup.planner.kv_cache import kv_layout, kv_plan
from bringup.planner.kv_records import KvLayout, KvRules
from bringup.planner.kv_versions import NEWEST, Version, read_version
from bringup.planner.ledger import line, settle
from bringup.planner.stages import stage_shares
from bringup.planner.workspace import Estimate, exact
from bringup.units import GIB, MIB
from bringup.values.finding import Finding, Severity, worst
from bringup.values.plan import Gpus, KvPlan, Layout, LayoutPlan, LedgerLine, Origin, PlanTask, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """What the share of the card that the engine asks for has to pay, beside weights and activations."""

    since: Version
    pays_context: bool  # the CUDA context of its own process
    pays_communication: bool  # NCCL and all-reduce buffers made at start
    pays_others: bool  # what other processes hold
    pays_slack: bool  # segments that the allocator keeps
    words: str


# Newest first. Source: the packages named above; 0.10 and 0.12 lie between two that were read.
BUDGET_RULES = (
    BudgetRule(
        since=(0, 27, 0),
        pays_context=False,
        pays_communication=False,
        pays_others=False,
        pays_slack=True,
        words="what the driver says was taken since start, + activation peak + graphs",
    ),
    BudgetRule(
        since=(0, 10, 0),
        pays_context=False,
        pays_communication=False,
        pays_others=False,
        pays_slack=False,
        words="weights + activation peak + what appeared outside the allocator",
    ),
    BudgetRule(
        since=(0, 9, 0),
        pays_context=False,
        pays_communication=True,
        pays_others=False,
        pays_slack=False,
        words="weights + activation peak + NCCL and the rest outside the allocator",
    ),
    BudgetRule(
        since=(0, 8, 0),
        pays_context=True,
        pays_communication=True,
        pays_others=True,
        pays_slack=False,
        words="all that is used on the card, other processes and the context included, + activation peak",
    ),
    BudgetRule(
        since=(0, 0, 0),
        pays_context=False,
        pays_communication=True,
        pays_others=False,
        pays_slack=False,
        words="weights + activation peak + NCCL and the rest outside the allocator",
    ),
)
# guess: one start says 3.2 GiB more was taken than weights (0.29, a fork), others hide it in their noise.
_SLACK = Estimate(bytes=200 * MIB, low=0, high=GIB, formula="segments kept by the allocator")
# A line's bounds are kept by about two starts of three; those of the cache are to be kept by nine of ten.
_NINE_IN_TEN = 1.64
# Virtual GPUs and Windows show CUDA all that nvidia-smi shows. Seen: 0.65 % more (RTX PRO 6000 as a vGPU).
_UNSEEN_SHARE = 0.0065
# What is held beyond the budget once a server has worked: lazily loaded kernels, work spaces, fragments of
# the allocator. Seen: 1.37 GiB over it, 62 MiB of graphs among them (gpt-oss-120b, TP8, 0.28).
_BEYOND_BUDGET = GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage's GPU: what it needs and what is left for its cache."""

    need: StageNeed
    charged: int  # bytes that the budget pays before the cache
    available: int
    low: int
    high: int


def budget_rule(version: Version) -> BudgetRule:
    """The rule of `version`.

    >>> budget_rule((0, 9, 2)).pays_communication, budget_rule((0, 16, 0)).pays_communication
    (True, False)
    """
    return next(rule for rule in BUDGET_RULES if version >= rule.since)


def plan_layout(task: PlanTask, layout: Layout | None = None) -> LayoutPlan:
    """The account of the GPU that decides, for the layout of the command line or the one given."""
    version = read_version(task.version) or NEWEST
    chosen = layout or layout_of(task.spec)
    settings = settings_of(task.spec, version, task.model, task.gpus.card)
    rules = kv_rules(settings, task.gpus, task)
    cache = kv_layout(task.model, chosen, rules)
    weights = weights_of(task, chosen, settings)
    requested = ceil(task.gpus.card.cuda_total * settings.utilization)
    needs = stage_needs(task, chosen, settings, weights)
    measured = measured_parts(task, chosen, settings, max(needs, key=lambda need: need.weights.bytes))
    stages = tuple(_stage(with_measured(need, measured), settings, task.gpus, requested) for need in needs)
    kv = _kv(cache, stages, settings, rules)
    context = task.context or settings.max_model_len
    requests = _requests(kv, cache, stages, settings, rules, context) * chosen.data_parallel
    decides = stages[_deciding(cache, stages)]
    pool = (kv.blocks or 0) * cache.stage_bytes[_deciding(cache, stages)] if cache.stage_bytes else 0
    ledger = _ledger(decides, pool, settings, task.gpus)
    low, high = _smi_used(decides, pool, settings, task.gpus, requested)
    findings = findings_of(
        Account(
            task=task,
            layout=chosen,
            settings=settings,
            kv=kv,
            ledger=ledger,
            need=decides.need,
            weights=weights,
            requested=requested,
            requests=requests,
        )
    )
    if task.measured is not None:
        findings += (measured.finding(task.measured),)
    return LayoutPlan(
        layout=chosen,
        fits=_fits(kv, findings),
        weights_bytes=max(stage.need.weights.bytes for stage in stages),
        kv=kv,
        smi_used_low=low,
        smi_used_high=high,
        ledger=ledger,
        findings=findings,
        command=task.spec.argv,
        context=context,
        requests=requests,
        upcoming=upcoming(task, settings, decides.need),
        share=_share(task, settings),
        stages=stage_shares(weights, pool, [(kv.blocks or 0) * size for size in cache.stage_bytes]),
    )


def _share(task: PlanTask, settings: Settings) -> Share | None:
    """`--gpu-memory-utilization`, unless the cache was given in bytes."""
    if settings.kv_cache_memory_bytes is not None:
        return None
    flag = "--gpu-memory-utilization"
    return Share(flag=flag, value=settings.utilization, base=task.gpus.card.cuda_total)


def _fits(kv: KvPlan, findings: tuple[Finding, ...]) -> bool:
    """Whether the engine starts with it; a flag that its version does not know is another matter."""
    refusals = [finding for finding in findings if not finding.id.startswith("flags.")]
    return kv.fits and worst(tuple(refusals)) is not Severity.FAILURE


def kv_rules(settings: Settings, gpus: Gpus, task: PlanTask) -> KvRules:
    """The settings as far as the cache's rules ask for them."""
    flags = task.spec.flags
    speculation = settings.speculation
    draft = speculation.tokens if speculation else 0
    block = flags.get("--block-size", "")
    return KvRules(
        version=settings.version,
        cache_dtype=settings.kv_cache_dtype,
        block_tokens=int(block) if block.isdigit() else None,
        max_num_batched_tokens=settings.batch.tokens,
        max_num_seqs=settings.batch.sequences,
        has_prefix_caching=settings.has_prefix_caching,
        has_async_scheduling=settings.has_async_scheduling,
        has_hybrid_manager=settings.has_hybrid_manager,
        speculative_tokens=draft,
        loads_mtp=settings.loads_mtp and task.draft is None,
        draft_layers=drafting.layers if (drafting := draft_of_task(task, settings)) else (),
        packs_layers=task.spec.environment.get("VLLM_KV_CACHE_LAYOUT", "").startswith("BL") or None,
        has_graphs=not settings.is_eager,
        mamba_mode=flags.get("--mamba-cache-mode"),
        mamba_dtype=flags.get("--mamba-cache-dtype"),
        mamba_state_dtype=flags.get("--mamba-ssm-cache-dtype"),
        compute_capability=gpus.card.compute_capability,
        attention_backend=flags.get("--attention-backend")
        or task.spec.environment.get("VLLM_ATTENTION_BACKEND"),
        skip_layers=tuple(flags.get("--kv-cache-dtype-skip-layers", "").split()),
        blocks_override=settings.blocks_given,
        stage_layers=stage_partition(task.spec, len(task.model.layers), layout_of(task.spec)) or (),
    )


def _stage(need: StageNeed, settings: Settings, gpus: Gpus, requested: int) -> Stage:
    """What one stage's GPU has for its cache."""
    if settings.kv_cache_memory_bytes is not None:
        given = settings.kv_cache_memory_bytes
        return Stage(need=need, charged=0, available=given, low=given, high=given)
    paid = _charged(need, settings, gpus)
    charged = sum(part.bytes for part in paid)
    # The estimates err apart from each other, so their doubts add up as the sides of a right angle do.
    more = round(_NINE_IN_TEN * sqrt(sum((part.high - part.bytes) ** 2 for part in paid)))
    less = round(_NINE_IN_TEN * sqrt(sum((part.bytes - part.low) ** 2 for part in paid)))
    unseen = round(gpus.card.cuda_total * _UNSEEN_SHARE * settings.utilization)
    available = requested - charged
    return Stage(
        need=need, charged=charged, available=available, low=available - more, high=available + less + unseen
    )


def _charged(need: StageNeed, settings: Settings, gpus: Gpus) -> list[Estimate]:
    rule = budget_rule(settings.version)
    parts = [need.weights, need.late, need.activations]
    if settings.charges_graphs:
        parts.append(need.graphs_charged)
    if rule.pays_context:
        parts.append(need.context)
    if rule.pays_communication:
        parts.append(need.communication)
    if rule.pays_others and gpus.used_by_others:
        parts.append(exact(gpus.used_by_others, "other processes"))
    if rule.pays_slack and "late" not in need.measured:  # a measured figure has the segments in it
        parts.append(_SLACK)
    return parts


def _kv(cache: KvLayout, stages: tuple[Stage, ...], settings: Settings, rules: KvRules) -> KvPlan:
    """The cache at what is likely left, with the tokens at the least and at the most."""
    count = max(1, len(cache.stage_bytes))

    def at(sizes: list[int]) -> KvPlan:
        return kv_plan(cache, [max(0, size) for size in sizes][:count], settings.max_model_len, rules)

    kv = at([stage.available for stage in stages])
    if settings.is_length_fitted and kv.longest_context:
        settings = replace(settings, max_model_len=kv.longest_context)
        kv = at([stage.available for stage in stages])
    low = at([stage.low for stage in stages])
    high = at([stage.high for stage in stages])
    available = min(stage.available for stage in stages)
    return replace(kv, available_bytes=available, low_tokens=low.tokens, high_tokens=high.tokens)


def _requests(
    kv: KvPlan, cache: KvLayout, stages: tuple[Stage, ...], settings: Settings, rules: KvRules, context: int
) -> float:
    """Requests of `context` tokens that one engine holds at once: by its cache, by --max-num-seqs."""
    held = kv
    if context != settings.max_model_len:
        count = max(1, len(cache.stage_bytes))
        held = kv_plan(cache, [max(0, stage.available) for stage in stages][:count], context, rules)
    return min(held.max_concurrency, float(settings.batch.sequences))


def _deciding(cache: KvLayout, stages: tuple[Stage, ...]) -> int:
    """Index of the stage that has room for the fewest blocks."""
    costs = cache.stage_bytes or (1,) * len(stages)
    return min(range(len(stages)), key=lambda index: stages[index].available / max(1, costs[index]))


def _ledger(stage: Stage, pool: int, settings: Settings, gpus: Gpus) -> tuple[LedgerLine, ...]:
    """Every byte of the card by nvidia-smi's count."""
    card, need = gpus.card, stage.need
    reserved = exact(card.memory_total - card.cuda_total, "nvidia-smi's total - CUDA's total")
    lines = [
        line("reserved", reserved, Origin.MEASURED if card.is_cuda_total_measured else Origin.ESTIMATE),
        line("other_processes", exact(gpus.used_by_others, "as given"), Origin.MEASURED),
        line("context", need.context, _origin(need, "context")),
        line("communication", need.communication, _origin(need, "communication")),
        line("weights", need.weights, need.weights_origin),
        line("kernels", need.late, _origin(need, "late")),
        line("activations", need.activations, _origin(need, "activations")),
        line("graphs", need.graphs, _origin(need, "graphs")),
        line("kv_pool", _pool(stage, pool, settings), Origin.RULE),
    ]
    return settle(lines, card.memory_total)


def _origin(need: StageNeed, part: str) -> Origin:
    return Origin.MEASURED if part in need.measured else Origin.ESTIMATE


def _pool(stage: Stage, pool: int, settings: Settings) -> Estimate:
    words = f"{settings.utilization:g} x CUDA total - {stage.charged:,} B, in whole blocks"
    if settings.blocks_given is not None:
        return exact(pool, f"--num-gpu-blocks-override {settings.blocks_given:,} x bytes of a block")
    if settings.kv_cache_memory_bytes is not None:
        words = f"--kv-cache-memory-bytes {settings.kv_cache_memory_bytes:,}, in whole blocks"
    return Estimate(bytes=pool, low=min(pool, max(0, stage.low)), high=max(pool, stage.high), formula=words)


def _smi_used(stage: Stage, pool: int, settings: Settings, gpus: Gpus, requested: int) -> tuple[int, int]:
    """What nvidia-smi will show, from just after the start to a server that has worked.

    Source: the order of events in `gpu_worker.py`; the allocator keeps what a peak once took.
    """
    need = stage.need
    base_low = gpus.used_by_others + need.context.low + need.communication.low
    base_high = gpus.used_by_others + need.context.high + need.communication.high
    low = base_low + need.weights.low + need.late.low + pool + need.graphs.low
    charged = need.graphs_charged.low if settings.charges_graphs else 0
    high = base_high + requested + max(0, need.graphs.high - charged) + _BEYOND_BUDGET
    if settings.kv_cache_memory_bytes is not None or settings.blocks_given is not None:
        taken = need.weights.high + need.late.high + need.activations.high + need.graphs.high
        high = base_high + taken + pool + _BEYOND_BUDGET
    most = gpus.card.cuda_total
    return min(low, most), max(min(low, most), min(high, most))
