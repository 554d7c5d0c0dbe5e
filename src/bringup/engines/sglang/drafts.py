"""A drafter beside the model under SGLang: its weights and its cache, and whether the pools pay for them.

Source: SGLang 0.5.23 loads it before the pools are sized; up to 0.5.12 it comes after them, out of what the
static share leaves, with as many slots as the model's own pool.
"""

from dataclasses import replace

from bringup.engines.sglang.fraction import AFTER_0_5_12
from bringup.engines.sglang.settings import Settings, draft_name
from bringup.planner.draft_weights import Draft, draft_of, unmeasured, with_draft
from bringup.planner.kv_sglang import SglangPools
from bringup.planner.weight_rules import WeightRules
from bringup.planner.weights import Weights, weights_per_rank
from bringup.planner.workspace import Estimate, exact
from bringup.values.plan import PlanTask

# SGLang's words for how a drafter drafts -> ours.
_METHODS = {"NEXTN": "mtp", "STANDALONE": "model"}


def draft_of_task(task: PlanTask, settings: Settings) -> Draft | None:
    """The draft model of its own, where its config is known."""
    if task.draft is None or settings.speculative is None:
        return None
    return draft_of(task.draft, _METHODS.get(settings.speculative, settings.speculative))


def with_draft_layers(task: PlanTask, settings: Settings) -> Settings:
    """The settings with as many drafting layers as the draft model says."""
    drafting = draft_of_task(task, settings)
    return settings if drafting is None else replace(settings, draft_layers=len(drafting.layers))


def loaded_weights(task: PlanTask, settings: Settings, rules: WeightRules) -> tuple[Weights, Estimate]:
    """Weights that are there before the pools, and those that come after them."""
    layout, drafting = settings.layout, draft_of_task(task, settings)
    weights = weights_per_rank(task.model, layout, replace(rules, loads_mtp=False))
    if drafting is not None:
        whole = with_draft(weights, task.model, drafting, layout, rules)
    else:
        whole = weights_per_rank(task.model, layout, rules) if rules.loads_mtp else weights
    if (name := draft_name(task.spec)) is not None and drafting is None:
        found = (*weights.findings, unmeasured(name, task.draft_fault))
        weights, whole = replace(weights, findings=found), replace(whole, findings=found)
    if settings.version >= AFTER_0_5_12:
        return whole, exact(0, "no drafter after the pools")
    size = whole.total - weights.total
    late = Estimate(
        bytes=size,
        low=max(0, whole.low - weights.low),
        high=max(size, whole.high - weights.high),
        formula=f"weights of the drafter {size:,} B",
    )
    return weights, late


def late_drafter(task: PlanTask, settings: Settings, pools: SglangPools, weights: Estimate) -> Estimate:
    """What a drafter takes after the pools: its weights, and a cache of as many tokens as the model's."""
    growing = sum(layer.attention is not None for layer in task.model.layers)
    if settings.version >= AFTER_0_5_12 or not settings.draft_layers or not growing:
        return weights
    cache = pools.kv_bytes * settings.draft_layers // growing
    words = f"{weights.formula} + {settings.draft_layers} / {growing} of the pool's {pools.kv_bytes:,} B"
    return Estimate(
        bytes=weights.bytes + cache, low=weights.low + cache, high=weights.high + cache, formula=words
    )
