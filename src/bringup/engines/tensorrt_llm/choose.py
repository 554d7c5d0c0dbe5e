"""The layouts of a model under TensorRT-LLM when no command line was given, with the command to run.

Attention replicas and several engines need a file or a second server: they are not looked at.
"""

from dataclasses import replace

from bringup.engines.tensorrt_llm.flags import render_command
from bringup.engines.tensorrt_llm.ledgers import plan_layout, weight_rules
from bringup.engines.tensorrt_llm.settings import settings_of
from bringup.planner.choice import Choice
from bringup.planner.choice import choose as choose_among
from bringup.planner.layouts import Reach, candidates
from bringup.planner.refusals import refusals
from bringup.values.engine import EngineSpec
from bringup.values.plan import Layout, LayoutPlan, PlanTask

_REACH = Reach(has_context_ranks=False, spreads_experts_over_data=False)


def choose(task: PlanTask) -> Choice:
    """Layouts that fit, best first, and those that do not with the reason."""
    layouts = candidates(task.model, task.gpus.count, _REACH)
    return choose_among(task, [layout for layout in layouts if layout.data_parallel == 1], plan_one)


def plan_one(task: PlanTask, layout: Layout) -> LayoutPlan | str:
    """A layout with its account and its command, or why TensorRT-LLM refuses it."""
    if layout.data_parallel > 1:
        return "one server has no replicas"
    spec = spec_for(task, layout)
    settings = settings_of(spec, task.model, task.gpus.card)
    refused = refusals(task.model, settings.layout, weight_rules(task, settings))
    if refused:
        return refused[0].summary
    return replace(plan_layout(replace(task, spec=spec)), command=render_command(spec))


def spec_for(task: PlanTask, layout: Layout) -> EngineSpec:
    """The command line for a layout: the flags that the user gave, and those of the layout."""
    sizes = {
        "--tp_size": layout.tensor_parallel,
        "--pp_size": layout.pipeline_parallel,
        "--ep_size": layout.tensor_parallel if layout.has_expert_parallel else 1,
    }
    flags = dict(task.spec.flags)
    flags |= {name: str(size) for name, size in sizes.items() if size > 1}
    if task.concurrency is not None and any(layer.state is not None for layer in task.model.layers):
        flags["--max_batch_size"] = str(task.concurrency)  # as many states are made at the start
    if task.context is not None:
        flags |= {"--max_seq_len": str(task.context), "--enable_chunked_prefill": ""}
    return replace(task.spec, flags=flags, tensor_parallel_size=layout.tensor_parallel)
