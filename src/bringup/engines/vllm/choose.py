"""The layouts of a model under vLLM when no command line was given, best first, with the command to run."""

from dataclasses import replace

from bringup.engines.vllm.flags import render_command
from bringup.engines.vllm.ledgers import plan_layout
from bringup.engines.vllm.settings import settings_of
from bringup.engines.vllm.steps import weight_rules
from bringup.planner.choice import Choice
from bringup.planner.choice import choose as choose_among
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.planner.layouts import candidates
from bringup.planner.refusals import refusals
from bringup.values.engine import EngineSpec
from bringup.values.plan import Layout, LayoutPlan, PlanTask


def choose(task: PlanTask) -> Choice:
    """Layouts that fit, best first, and those that do not with the reason."""
    return choose_among(task, candidates(task.model, task.gpus.count), plan_one)


def plan_one(task: PlanTask, layout: Layout) -> LayoutPlan | str:
    """A layout with its account and its command, or why vLLM refuses it."""
    spec = spec_for(task, layout)
    settings = settings_of(spec, read_version(task.version) or NEWEST, task.model, task.gpus.card)
    refused = refusals(task.model, layout, weight_rules(task, settings))
    if refused:
        return refused[0].summary
    return replace(plan_layout(replace(task, spec=spec), layout), command=render_command(spec))


def spec_for(task: PlanTask, layout: Layout) -> EngineSpec:
    """The command line for a layout: the flags that the user gave, and those of the layout."""
    sizes = {
        "--tensor-parallel-size": layout.tensor_parallel,
        "--pipeline-parallel-size": layout.pipeline_parallel,
        "--data-parallel-size": layout.data_parallel,
        "--decode-context-parallel-size": layout.decode_context_parallel,
    }
    flags = dict(task.spec.flags)
    flags |= {name: str(size) for name, size in sizes.items() if size > 1}
    if layout.has_expert_parallel:
        flags["--enable-expert-parallel"] = ""
    if task.context is not None:
        flags["--max-model-len"] = str(task.context)
    return replace(task.spec, flags=flags, tensor_parallel_size=layout.tensor_parallel)
