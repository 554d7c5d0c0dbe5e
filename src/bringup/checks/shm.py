"""Shared memory for the ranks of one model: NCCL and the engine's own queues live in /dev/shm.

Source: NCCL user guide, "Sharing data" (docker gives 64 MB); vLLM and SGLang pass requests and results
between their processes through shared memory when there is more than one worker.
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.units import bytes_text, mib
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.host import EngineProcess, HostSnapshot

_SMALL = mib(128)  # docker and Kubernetes give 64 MiB unless told
_LITTLE = mib(128)  # guess: NCCL's segments of one more communicator
_EXPECTED = "more shared memory than docker's 64 MiB, with room in it, for ranks that talk through it"
_ENGINES = frozenset(("vllm", "sglang", "tensorrt_llm", "tgi", "lmdeploy"))


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Whether /dev/shm suits an engine of several ranks; nothing for one rank."""
    _ = replies
    host = deployment.host_after or deployment.host
    if host is None or deployment.engine.engine not in _ENGINES or deployment.ranks < 2:
        return Judgement(findings=())
    process = deployment.process_after or deployment.process
    return Judgement(findings=tuple(_room(*_shm(host, process), deployment.ranks, process)))


def _shm(host: HostSnapshot, process: EngineProcess | None) -> tuple[int | None, int | None]:
    """Size and room as the engine sees them; the host's own only for an engine in no container."""
    if process is None:
        return None, None
    if process.shm_total is not None or process.container is not None:
        return process.shm_total, process.shm_available
    return host.facts.shm_total, host.facts.shm_available


def _room(
    total: int | None, available: int | None, ranks: int, process: EngineProcess | None
) -> Iterator[Finding]:
    if total is None or available is None:
        return
    ipc = process.container_settings.ipc_mode if process and process.container_settings else None
    text = f"{total} bytes, {available} available" + (f", ipc mode {ipc}" if ipc else "")
    evidence = (Evidence(source="the engine's /dev/shm", text=text),)
    if total <= _SMALL:
        yield Finding(
            id="shm",
            severity=Severity.WARNING,
            summary=f"the engine's /dev/shm has {bytes_text(total)} for {ranks} ranks",
            expected=_EXPECTED,
            explanation="NCCL's segments do not fit: ranks die with a bus error or `No space left on device`",
            action="start the container with `--shm-size 16g` or `--ipc=host`; in a pod mount an emptyDir "
            "with `medium: Memory`",
            evidence=evidence,
            fixes=(Fix(type="flag", name="--shm-size", old=bytes_text(total), new="16g"),),
        )
    elif available < _LITTLE:
        yield Finding(
            id="shm",
            severity=Severity.WARNING,
            summary=f"the engine's /dev/shm is full: {bytes_text(available)} of {bytes_text(total)} left",
            expected=_EXPECTED,
            explanation="the next segment that a rank makes fails with a bus error",
            action="look for what dead processes left there (`ls -l /dev/shm`), or make it larger",
            evidence=evidence,
        )
    else:
        summary = f"{bytes_text(available)} of /dev/shm are free for {ranks} ranks"
        yield Finding(id="shm", severity=Severity.OK, summary=summary, expected=_EXPECTED, evidence=evidence)


CHECK = Check(
    title="has shared memory for its ranks",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
