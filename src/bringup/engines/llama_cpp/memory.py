"""llama.cpp's memory: what a command line takes and holds."""

from bringup.engines import EngineMemory
from bringup.engines.llama_cpp.choose import choose
from bringup.engines.llama_cpp.ledgers import plan_layout
from bringup.engines.llama_cpp.on_host import on_host
from bringup.planner.choice import Choice
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Plan, PlanTask

_READ = "b11434"  # the build whose rules are known


def plan_task(task: PlanTask) -> Plan:
    """The plan of a command line; of every way to run it where there is none."""
    choice = choose(task) if not task.spec.argv else Choice(layouts=(plan_layout(task),), rejected=())
    notes = tuple(
        Finding(id="model.config", severity=Severity.NOTE, summary=note) for note in task.model.notes
    )
    return Plan(
        model=task.model.name,
        engine="llama_cpp",
        engine_version=task.version or _READ,
        gpus=task.gpus,
        layouts=choice.layouts,
        rejected=choice.rejected,
        neighbours=choice.neighbours,
        findings=notes + choice.findings,
    )


MEMORY = EngineMemory(plan=plan_task, on_host=on_host)
