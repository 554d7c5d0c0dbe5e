"""TensorRT-LLM's memory: what a command line or, without one, every layout takes and holds."""

from bringup.engines import EngineMemory
from bringup.engines.tensorrt_llm.choose import choose
from bringup.engines.tensorrt_llm.ledgers import plan_layout
from bringup.planner.choice import Choice
from bringup.planner.kv_versions import Version, read_version
from bringup.values.finding import Finding, Severity
from bringup.values.plan import Plan, PlanTask

_OLDEST: Version = (1, 0, 0)
_NEWEST: Version = (1, 2, 0)


def plan_task(task: PlanTask) -> Plan:
    """The plan of a command line; of every layout that divides where there is none."""
    choice = choose(task) if not task.spec.argv else Choice(layouts=(plan_layout(task),), rejected=())
    version = read_version(task.version)
    notes = [Finding(id="model.config", severity=Severity.NOTE, summary=note) for note in task.model.notes]
    return Plan(
        model=task.model.name,
        engine="tensorrt_llm",
        engine_version=_text(version or _NEWEST),
        gpus=task.gpus,
        layouts=choice.layouts,
        rejected=choice.rejected,
        neighbours=choice.neighbours,
        findings=(*_version(task.version, version), *notes, *choice.findings),
    )


def _version(text: str | None, version: Version | None) -> tuple[Finding, ...]:
    if version is not None and _OLDEST <= (*version[:2], 0) <= _NEWEST:
        return ()
    given = f"TensorRT-LLM {text} lies outside what is known" if text else "no version given"
    return (
        Finding(
            id="plan.version",
            severity=Severity.NOTE,
            summary=f"{given}: the rules of TensorRT-LLM {_text(_NEWEST)} apply",
            action="" if text else "give `--engine-version`",
        ),
    )


def _text(version: Version) -> str:
    return ".".join(map(str, version))


MEMORY = EngineMemory(plan=plan_task)
