"""Bugs that are known of this version of the engine, on these GPUs, with these flags.

What is known stands in `data/known_bugs.json`, each with its source. A bug is told only when everything that
it depends on has been seen: a version, card or flag that is not known matches nothing.

Source: issues and pull requests of the engines, named at each bug.
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.known_bugs import read_version
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.host import Gpu
from bringup.values.known_bug import KnownBug

_EXPECTED = "no bug known for this version, these GPUs and these flags"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """One finding per bug that this deployment can meet; that there is none, where that is known."""
    _ = replies
    found = tuple(_finding(bug, deployment) for bug in deployment.known_bugs if _applies(bug, deployment))
    return Judgement(findings=found or tuple(_sound(deployment)))


def _sound(deployment: Deployment) -> Iterator[Finding]:
    """Only where version and flags were seen, and bugs of this engine are known at all."""
    own = [bug for bug in deployment.known_bugs if bug.engine == deployment.engine.engine]
    version = read_version(deployment.engine.version)
    if not own or version is None or deployment.spec is None or deployment.host is None:
        return
    summary = f"none of the {len(own)} bugs known of {deployment.engine.display_name} is met here"
    yield Finding(
        id="versions",
        severity=Severity.OK,
        summary=summary,
        expected=_EXPECTED,
        evidence=(Evidence(source="the engine", text=f"version {deployment.engine.version}"),),
    )


def _applies(bug: KnownBug, deployment: Deployment) -> bool:
    return (
        bug.engine == deployment.engine.engine
        and _has_version(bug, deployment.engine.version)
        and _has_gpus(bug, deployment)
        and _has_model(bug, deployment)
        and _has_settings(bug, deployment)
    )


def _has_version(bug: KnownBug, text: str | None) -> bool:
    if bug.first is None and bug.last is None and bug.fixed_in is None:
        return True  # in every version so far
    version = read_version(text)
    if version is None:
        return False
    first, last, fixed = (read_version(one) for one in (bug.first, bug.last, bug.fixed_in))
    return not (
        (first is not None and version < first)
        or (last is not None and version > last)
        or (fixed is not None and version >= fixed)
    )


def _has_gpus(bug: KnownBug, deployment: Deployment) -> bool:
    gpus = deployment.carriers or deployment.gpus
    if bug.without_gpu and (deployment.host is None or deployment.host.gpus or deployment.host.pci_devices):
        return False
    if bug.gpu_count_min is not None and deployment.ranks < bug.gpu_count_min:
        return False
    if bug.capabilities and not any(_has_capability(gpu, bug.capabilities) for gpu in gpus):
        return False
    return not bug.gpu_names or any(name in (gpu.name or "") for gpu in gpus for name in bug.gpu_names)


def _has_capability(gpu: Gpu, wanted: tuple[str, ...]) -> bool:
    own = gpu.compute_capability
    return own is not None and (own in wanted or own.partition(".")[0] in wanted)


def _has_model(bug: KnownBug, deployment: Deployment) -> bool:
    if not bug.models:
        return True
    wanted = deployment.spec.model if deployment.spec is not None else None
    names = " ".join(filter(None, (deployment.model.id, deployment.model.root, wanted))).lower()
    return any(word.lower() in names for word in bug.models)


def _has_settings(bug: KnownBug, deployment: Deployment) -> bool:
    if not (bug.flags or bug.flags_absent or bug.environment or bug.environment_absent):
        return True
    spec, process = deployment.spec, deployment.process
    if (bug.flags or bug.flags_absent) and spec is None:
        return False
    if (bug.environment or bug.environment_absent) and process is None:
        return False
    flags = spec.flags if spec is not None else {}
    environment = process.environment if process is not None else {}
    return (
        _holds(bug.flags, flags)
        and _holds(bug.environment, environment)
        and not any(name in flags for name in bug.flags_absent)
        and not any(name in environment for name in bug.environment_absent)
    )


def _holds(wanted: tuple[tuple[str, tuple[str, ...]], ...], given: dict[str, str]) -> bool:
    return all(name in given and (not values or given[name] in values) for name, values in wanted)


def _finding(bug: KnownBug, deployment: Deployment) -> Finding:
    fixed = f"update: version {bug.fixed_in} has the fix, or " if bug.fixed_in is not None else ""
    seen = f"; seen up to version {bug.last}" if bug.last is not None and bug.fixed_in is None else ""
    version = deployment.engine.version or "of unknown version"
    return Finding(
        id=f"versions.{bug.id}",
        severity=Severity.WARNING if bug.is_serious else Severity.NOTE,
        summary=bug.summary,
        expected=_EXPECTED,
        explanation=f"{bug.explanation}{seen}",
        action=f"{fixed}{bug.action}",
        evidence=(
            Evidence(
                source="; ".join(bug.sources),
                text=f"{deployment.engine.display_name} {version}{_conditions(bug, deployment)}",
            ),
        ),
    )


def _conditions(bug: KnownBug, deployment: Deployment) -> str:
    """What of this deployment the bug depends on, as it was seen."""
    flags = deployment.spec.flags if deployment.spec is not None else {}
    gpus = (deployment.carriers or deployment.gpus) if bug.capabilities or bug.gpu_names else ()
    parts = [f"{name} {flags[name]}".strip() for name, _ in bug.flags]
    parts += [f"without {name}" for name in bug.flags_absent]
    parts += [f"{name} is set" for name, _ in bug.environment]
    parts += [f"{name} is not set" for name in bug.environment_absent]
    parts += list(dict.fromkeys(gpu.name for gpu in gpus if gpu.name))
    parts += [f"{deployment.ranks} ranks"] if bug.gpu_count_min is not None else []
    return "".join(f", {part}" for part in parts)


CHECK = Check(
    title="has no known bug of its version",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
