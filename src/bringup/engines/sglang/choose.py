"""The layouts of a model under SGLang when no command line was given, best first, with the command to run."""

from dataclasses import replace

from bringup.engines.sglang.flags import render_command
from bringup.engines.sglang.fraction import NEWEST
from bringup.engines.sglang.ledgers import plan_layout, weight_rules
from bringup.engines.sglang.settings import settings_of
from bringup.planner.choice import Choice
from bringup.planner.choice import choose as choose_among
from bringup.planner.kv_versions import read_version
from bringup.planner.layouts import Reach, candidates
from bringup.planner.refusals import refusals
from bringup.values.engine import EngineSpec
from bringup.values.plan import Layout, LayoutPlan, PlanTask

_REACH = Reach(has_context_ranks=False, has_attention_replicas=True, spreads_experts_over_data=False)


def choose(task: PlanTask) -> Choice:
    """Layouts that fit, best first, and those that do not with the reason."""
    return choose_among(task, candidates(task.model, task.gpus.count, _REACH), plan_one)


def plan_one(task: PlanTask, layout: Layout) -> LayoutPlan | str:
    """A layout with its account and its command, or why SGLang refuses it."""
    spec = spec_for(task, layout)
    settings = settings_of(
        spec, min(read_version(task.version) or NEWEST, NEWEST), task.model, task.gpus.card
    )
    refused = refusals(task.model, settings.layout, weight_rules(task, settings))
    if refused:
        return refused[0].summary
    return replace(plan_layout(replace(task, spec=spec)), command=render_command(spec))


def spec_for(task: PlanTask, layout: Layout) -> EngineSpec:
    """The command line for a layout: the flags that the user gave, and those of the layout."""
    tp, copies = layout.tensor_parallel, layout.attention_data_parallel
    sizes = {
        "--tensor-parallel-size": tp,
        "--pipeline-parallel-size": layout.pipeline_parallel,
        "--data-parallel-size": layout.data_parallel if copies == 1 else copies,
        "--expert-parallel-size": tp if layout.has_expert_parallel else 1,
    }
    flags = dict(task.spec.flags)
    flags |= {name: str(size) for name, size in sizes.items() if size > 1}
    if copies > 1:
        flags["--enable-dp-attention"] = ""
    if task.context is not None:
        flags["--context-length"] = str(task.context)
    return replace(
        task.spec,
        flags=flags,
        tensor_parallel_size=tp,
        context_tokens=task.context or task.spec.context_tokens,
    )
