"""SGLang's memory: what a command line takes and holds."""

from bringup.engines import EngineMemory
from bringup.engines.sglang.choose import choose
from bringup.engines.sglang.fraction import NEWEST
from bringup.engines.sglang.ledgers import plan_layout
from bringup.engines.sglang.on_host import on_host
from bringup.engines.sglang.settings import config_changes, draft_name
from bringup.planner.choice import Choice
from bringup.planner.kv_versions import Version, read_version
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Plan, PlanTask

OLDEST: Version = (0, 5, 5)


def plan_task(task: PlanTask) -> Plan:
    """The plan of a command line; of every layout that divides where there is none."""
    version = read_version(task.version)
    notes = [
        *version_findings(task.version, version),
        *(Finding(id="model.config", severity=Severity.NOTE, summary=note) for note in task.model.notes),
    ]
    if task.spec.argv:
        choice = Choice(layouts=(plan_layout(task),), rejected=())
    else:
        choice = choose(task)
        notes += choice.findings
    return Plan(
        model=task.model.name,
        engine="sglang",
        engine_version=_text(version or NEWEST),
        gpus=task.gpus,
        layouts=choice.layouts,
        rejected=choice.rejected,
        neighbours=choice.neighbours,
        findings=tuple(notes),
    )


def version_findings(text: str | None, version: Version | None) -> tuple[Finding, ...]:
    """What is to be said about the version whose rules are used."""
    if version is None:
        given = f"`{text}` is no version" if text else "no version given"
        return (
            Finding(
                id="plan.version",
                severity=Severity.NOTE,
                summary=f"{given}: the rules of SGLang {_text(NEWEST)} apply",
                action="give `--engine-version`",
            ),
        )
    if OLDEST <= version <= NEWEST:
        return ()
    return (
        Finding(
            id="plan.version",
            severity=Severity.NOTE,
            summary=f"SGLang {text} lies outside what is known ({_text(OLDEST)} to {_text(NEWEST)}): the "
            "nearest rules apply",
        ),
    )


def _text(version: Version) -> str:
    return ".".join(map(str, version))


MEMORY = EngineMemory(plan=plan_task, draft=draft_name, on_host=on_host, config_changes=config_changes)
