"""Flags that vLLM does not know, or not in the version that runs."""

from bringup.engines.vllm.flag_names import FLAGS, NEWEST_READ
from bringup.planner.kv_versions import Version
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Fix, Severity


def flag_findings(spec: EngineSpec, version: Version) -> list[Finding]:
    """A note for every unknown flag, a failure for every flag that the version does not have."""
    found: list[Finding] = []
    for spelled in spec.flags:
        name = spelled.partition(".")[0]
        positive = f"--{name[5:]}" if name.startswith("--no-") else name
        flag = FLAGS.get(name) or FLAGS.get(positive)
        if flag is None:
            found.append(_unknown(name))
        elif version[:2] < flag.first and version[0] == 0:
            found.append(_absent(name, version, f"vLLM has it since {_text(flag.first)}"))
        elif flag.last is not None and version[:2] > flag.last:
            found.append(_absent(name, version, f"vLLM {_text(flag.last)} was the last to have it"))
    return found


def _unknown(name: str) -> Finding:
    from difflib import get_close_matches  # noqa: PLC0415 - start-up time: hardly a plan needs it

    near = get_close_matches(name, list(FLAGS), n=1, cutoff=0.6)
    return Finding(
        id="flags.unknown",
        severity=Severity.NOTE,
        summary=f"`{name}` is no flag of vLLM 0.8 to {_text(NEWEST_READ)}"
        + (f"; the nearest is `{near[0]}`" if near else ""),
        explanation="it is left out of the plan; vLLM ends with a usage message when it does not know a flag",
        fixes=tuple(Fix(type="flag", name=name, old=name, new=nearest) for nearest in near),
    )


def _absent(name: str, version: Version, since: str) -> Finding:
    return Finding(
        id="flags.version",
        severity=Severity.FAILURE,
        summary=f"vLLM {'.'.join(map(str, version))} has no `{name}`",
        expected=since,
        explanation="vLLM ends with a usage message when it does not know a flag",
    )


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
