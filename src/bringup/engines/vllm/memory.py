"""vLLM's memory: what a command line or, without one, every layout takes and holds."""

from bringup.engines import EngineMemory
from bringup.engines.vllm.choose import choose
from bringup.engines.vllm.ledgers import plan_layout
from bringup.engines.vllm.on_host import on_host
from bringup.engines.vllm.settings import config_changes, draft_name
from bringup.planner.choice import Choice
from bringup.planner.kv_versions import NEWEST, Version, read_version
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Plan, PlanTask

OLDEST: Version = (0, 8, 0)


def plan_task(task: PlanTask) -> Plan:
    """The plan of a command line; of every layout that divides where there is none."""
    version = read_version(task.version)
    notes = [*version_findings(task.version, version), *model_findings(task)]
    if task.spec.argv:
        choice = Choice(layouts=(plan_layout(task),), rejected=())
    else:
        choice = choose(task)
        notes += choice.findings
    return Plan(
        model=task.model.name,
        engine="vllm",
        engine_version=".".join(str(part) for part in version or NEWEST),
        gpus=task.gpus,
        layouts=choice.layouts,
        rejected=choice.rejected,
        neighbours=choice.neighbours,
        findings=tuple(notes),
    )


def model_findings(task: PlanTask) -> tuple[Finding, ...]:
    """What the reader of the config had to assume."""
    return tuple(
        Finding(id="model.config", severity=Severity.NOTE, summary=note) for note in task.model.notes
    )


def version_findings(text: str | None, version: Version | None) -> tuple[Finding, ...]:
    """What is to be said about the version whose rules are used."""
    newest = ".".join(map(str, NEWEST))
    if version is None:
        given = f"`{text}` is no version" if text else "no version given"
        return (
            Finding(
                id="plan.version",
                severity=Severity.NOTE,
                summary=f"{given}: the rules of vLLM {newest} apply",
                action="give `--engine-version`",
            ),
        )
    if OLDEST <= version <= NEWEST:
        return ()
    return (
        Finding(
            id="plan.version",
            severity=Severity.NOTE,
            summary=f"vLLM {text} lies outside what is known (0.8 to {newest}): the nearest rules apply",
        ),
    )


MEMORY = EngineMemory(plan=plan_task, draft=draft_name, on_host=on_host, config_changes=config_changes)
