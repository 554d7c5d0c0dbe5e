"""The layout that serves best, what was rejected and why, and what fewer or more GPUs would give."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bringup.errors import UsageError
from bringup.planner.layouts import layout_text, ranked
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Layout, LayoutPlan, Neighbour, PlanTask

# A layout planned with its command, or why the engine would not start with it.
Look = Callable[[PlanTask, Layout], LayoutPlan | str]
Order = Callable[[Sequence[LayoutPlan]], tuple[LayoutPlan, ...]]
_MOST_TIMES = 8  # as many GPUs as were named, where nothing fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Every layout looked at."""

    layouts: tuple[LayoutPlan, ...]  # that fit, best first; where none does the one that lacks least
    rejected: tuple[tuple[Layout, str], ...]
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What fewer and more GPUs would give, in words."""
        best = self.layouts[0]
        return (*(_told(best, other) for other in self.neighbours), *_without_stages(best, self.layouts))


def choose(task: PlanTask, layouts: Iterable[Layout], look: Look, order: Order | None = None) -> Choice:
    """The best of `layouts` by `order`; without it, what was asked for on the fewest GPUs."""
    plans: list[LayoutPlan] = []
    rejected: list[tuple[Layout, str]] = []
    for layout in layouts:
        found = look(task, layout)
        if isinstance(found, str):
            rejected.append((layout, found))
        else:
            plans.append(found)
    in_order = order(plans) if order else ranked(plans, concurrency=task.concurrency)
    fitting = tuple(plan for plan in in_order if plan.fits)
    rejected += [(plan.layout, why(plan)) for plan in in_order if not plan.fits]
    kept = fitting or in_order[:1]
    if not kept:
        raise UsageError(f"no layout of `{task.model.name}` can be started: {rejected[0][1]}")
    best = kept[0]
    others = (_smaller(best, fitting, rejected), _larger(task, best, fitting, look))
    return Choice(
        layouts=kept,
        rejected=tuple(rejected),
        neighbours=tuple(other for other in others if other is not None),
    )


def why(plan: LayoutPlan) -> str:
    """The first thing that is wrong with a layout."""
    failures = [finding.summary for finding in plan.findings if finding.severity is Severity.FAILURE]
    return failures[0] if failures else "it does not fit"


def _smaller(
    best: LayoutPlan, fitting: Sequence[LayoutPlan], rejected: Sequence[tuple[Layout, str]]
) -> Neighbour | None:
    """The most that fewer GPUs would serve, or why they do not do."""
    fewer = [plan for plan in fitting if plan.layout.gpus < best.layout.gpus]
    if fewer:
        most = max(plan.layout.gpus for plan in fewer)
        on_most = [plan for plan in fewer if plan.layout.gpus == most]
        return _neighbour("smaller", max(on_most, key=lambda plan: plan.requests))
    refused = [(layout, reason) for layout, reason in rejected if layout.gpus < best.layout.gpus]
    if not refused:
        return None
    layout, reason = max(refused, key=lambda pair: (pair[0].gpus, pair[0].tensor_parallel))
    return Neighbour(side="smaller", layout=layout, fits=False, reason=reason)


def _larger(task: PlanTask, best: LayoutPlan, fitting: Sequence[LayoutPlan], look: Look) -> Neighbour | None:
    """The most that more GPUs would serve: of those named, else twice as many and more of the kind."""
    more = [plan for plan in fitting if plan.layout.gpus > best.layout.gpus]
    if more:
        least = min(plan.layout.gpus for plan in more)
        on_least = [plan for plan in more if plan.layout.gpus == least]
        return _neighbour("larger", max(on_least, key=lambda plan: plan.requests))
    times = 2
    while times <= (2 if best.fits else _MOST_TIMES):
        wider = replace(task, gpus=replace(task.gpus, count=times * task.gpus.count))
        found = [look(wider, layout) for layout in _times(best.layout, times)]
        plans = [plan for plan in found if not isinstance(plan, str) and plan.fits]
        if plans:
            return _neighbour("larger", max(plans, key=lambda plan: plan.requests))
        times *= 2
    return None


def _times(layout: Layout, times: int) -> tuple[Layout, ...]:
    """The layout on `times` as many GPUs, each size grown in turn."""
    return (
        replace(layout, tensor_parallel=times * layout.tensor_parallel),
        replace(layout, pipeline_parallel=times * layout.pipeline_parallel),
        replace(layout, data_parallel=times * layout.data_parallel),
    )


def _neighbour(side: str, plan: LayoutPlan) -> Neighbour:
    return Neighbour(
        side=side,
        layout=plan.layout,
        fits=True,
        context=plan.context,
        requests=plan.requests,
        tokens=plan.kv.tokens,
    )


def _without_stages(best: LayoutPlan, fitting: Sequence[LayoutPlan]) -> tuple[Finding, ...]:
    """The layout without pipeline stages on as many GPUs: it holds less and answers each one sooner."""
    if best.layout.pipeline_parallel == 1 or best.layout.detail:
        return ()
    others = [
        plan
        for plan in fitting
        if plan.layout.pipeline_parallel == 1 and plan.layout.gpus == best.layout.gpus and plan.fits
    ]
    if not others:
        return ()
    other = max(others, key=lambda plan: plan.requests)
    return (
        Finding(
            id="layout.without_stages",
            severity=Severity.NOTE,
            summary=f"{layout_text(other.layout)} would hold {other.requests:.1f} requests of "
            f"{other.context:,} tokens on the same GPUs, without stages",
            explanation="a request passes all stages one after the other: they hold more, and are no faster",
        ),
    )


def _told(best: LayoutPlan, other: Neighbour) -> Finding:
    gpus = "1 GPU" if other.layout.gpus == 1 else f"{other.layout.gpus} GPUs"
    where = f"{gpus} ({layout_text(other.layout)})"
    if other.fits:
        have = f" instead of {best.requests:.1f}" if best.fits else ""
        words = f"{where} would hold {other.requests:.1f} requests of {other.context:,} tokens{have}"
    else:
        words = f"{where} would not do: {other.reason}"
    return Finding(id=f"layout.next_{other.side}", severity=Severity.NOTE, summary=words)
