"""The layouts of a model under vLLM when no command line was given, best first, with the command to run."""

from dataclasses import replace

from bringup.engines.vllm.flags import render_command
from bringup.engines.vllm.ledgers import plan_layout
from bringup.engines.vllm.settings import settings_of
from bringup.engines.vllm.steps import weight_rules
from bringup.planner.kv_versions import Version
from bringup.planner.layouts import candidates, layout_text, ranked
from bringup.planner.refusals import refusals
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Layout, LayoutPlan, PlanTask


def choose(task: PlanTask, version: Version) -> tuple[tuple[LayoutPlan, ...], tuple[tuple[Layout, str], ...]]:
    """Layouts that fit, best first, and those that do not with the reason.

    Where none fits, the one that lacks least stands alone in the first.
    """
    plans: list[LayoutPlan] = []
    rejected: list[tuple[Layout, str]] = []
    for layout in candidates(task.model, task.gpus.count):
        spec = spec_for(task, layout)
        settings = settings_of(spec, version, task.model, task.gpus.card)
        refused = refusals(task.model, layout, weight_rules(task, settings))
        if refused:
            rejected.append((layout, refused[0].summary))
            continue
        plan = plan_layout(replace(task, spec=spec), layout)
        plans.append(replace(plan, command=render_command(spec)))
    order = ranked(plans, concurrency=task.concurrency)
    fitting = tuple(plan for plan in order if plan.fits)
    rejected += [(plan.layout, _why(plan)) for plan in order if not plan.fits]
    return (fitting or order[:1]), tuple(rejected)


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


def neighbours(best: LayoutPlan, fitting: tuple[LayoutPlan, ...]) -> tuple[Finding, ...]:
    """What the next larger number of GPUs would give. `fitting`: best first."""
    larger = sorted({plan.layout.gpus for plan in fitting if plan.layout.gpus > best.layout.gpus})
    if not larger:
        return ()
    on_more = [plan for plan in fitting if plan.layout.gpus == larger[0]]
    other = max(on_more, key=lambda plan: plan.requests)
    return (
        Finding(
            id="layout.next_larger",
            severity=Severity.NOTE,
            summary=f"{larger[0]} GPUs ({layout_text(other.layout)}) would hold {other.requests:.1f} "
            f"requests of {other.context:,} tokens instead of {best.requests:.1f}",
        ),
    )


def smaller(best: LayoutPlan, rejected: tuple[tuple[Layout, str], ...]) -> tuple[Finding, ...]:
    """Why fewer GPUs do not do."""
    fewer = [(layout, why) for layout, why in rejected if layout.gpus < best.layout.gpus]
    if not fewer:
        return ()
    layout, why = max(fewer, key=lambda pair: (pair[0].gpus, pair[0].tensor_parallel))
    return (
        Finding(
            id="layout.next_smaller",
            severity=Severity.NOTE,
            summary=f"{layout.gpus} GPUs ({layout_text(layout)}) do not do: {why}",
        ),
    )


def _why(plan: LayoutPlan) -> str:
    failures = [finding.summary for finding in plan.findings if finding.severity is Severity.FAILURE]
    return failures[0] if failures else "it does not fit"
