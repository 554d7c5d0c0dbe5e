"""Limits of the engine's process that are nearly used up: open files, threads, locked memory, stack.

Source: getrlimit(2), `Documentation/admin-guide/cgroup-v2.rst` (pids), llama.cpp `--mlock`; one request is
one open socket, vLLM and SGLang hold a second one per request for what passes between their processes.
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.proc import whole_number
from bringup.units import bytes_text, mib
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.host import EngineProcess

_NEARLY = 0.8
_SMALL_STACK = mib(1)  # glibc takes the soft limit as the stack of every thread
_EXPECTED = "limits of the process well above what it uses and what its requests need"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Every limit that is near; how far the files are from theirs, when none is."""
    _ = replies
    process = deployment.process_after or deployment.process
    if process is None:
        return Judgement(findings=())
    found = (
        *_files(process, deployment.engine.max_running),
        *_tasks(process),
        *_locked(process),
        *_stack(process),
    )
    return Judgement(findings=found or tuple(_sound(process)))


def _sound(process: EngineProcess) -> Iterator[Finding]:
    limit, used = process.limits.get("open files"), process.open_files
    if limit is not None and used is not None:
        summary = f"{used} of {limit} files are open"
        yield Finding(id="limits", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _files(process: EngineProcess, running: int | None) -> Iterator[Finding]:
    limit, used = whole_number(process.limits.get("open files")), process.open_files
    if limit is None or used is None:
        return
    needed = used + (running or 0)
    if used < _NEARLY * limit and needed <= limit:
        return
    why = f"{running} requests at once need as many more" if running and needed > limit else "nearly all"
    yield Finding(
        id="limits.open_files",
        severity=Severity.WARNING,
        summary=f"{used} of {limit} files are open: {why}",
        expected=_EXPECTED,
        explanation="every request is an open socket; beyond the limit connections are dropped (`EMFILE`)",
        action="raise it: `LimitNOFILE=1048576` in the unit, `--ulimit nofile=1048576` for a container",
        evidence=(_limit_line(process, "open files"),),
        fixes=(Fix(type="service", name="LimitNOFILE", old=str(limit), new="1048576"),),
    )


def _tasks(process: EngineProcess) -> Iterator[Finding]:
    group = process.group
    if group is None or group.task_limit is None or group.tasks is None:
        return
    if group.tasks < _NEARLY * group.task_limit:
        return
    text = f"pids.current {group.tasks}, pids.max {group.task_limit}"
    yield Finding(
        id="limits.threads",
        severity=Severity.WARNING,
        summary=f"{group.tasks} of {group.task_limit} threads are in use",
        expected=_EXPECTED,
        explanation="beyond the limit no thread starts: `can't start new thread`",
        action="raise it: `TasksMax=infinity` in the unit, `--pids-limit -1` for a container",
        evidence=(Evidence(source=f"control group of process {process.pid}", text=text),),
    )


def _locked(process: EngineProcess) -> Iterator[Finding]:
    limit = whole_number(process.limits.get("locked memory"))
    asked = "--mlock" in process.argv
    if not asked or limit is None or process.resident is None or process.locked is None:
        return
    if process.locked > limit // 2 or limit >= process.resident:
        return
    locked = bytes_text(process.locked)
    yield Finding(
        id="limits.locked_memory",
        severity=Severity.WARNING,
        summary=f"`--mlock` had no effect: {locked} are locked, {bytes_text(limit)} may be",
        expected=_EXPECTED,
        explanation="the weights can be pushed out of memory, and then answers wait for the disk",
        action="set `LimitMEMLOCK=infinity` in the unit, or `--ulimit memlock=-1` for the container",
        evidence=(_limit_line(process, "locked memory"),),
        fixes=(Fix(type="service", name="LimitMEMLOCK", old=str(limit), new="infinity"),),
    )


def _stack(process: EngineProcess) -> Iterator[Finding]:
    limit = whole_number(process.limits.get("stack size"))
    if limit is None or limit >= _SMALL_STACK:
        return
    yield Finding(
        id="limits.stack",
        severity=Severity.WARNING,
        summary=f"every thread has a stack of only {bytes_text(limit)}",
        expected=_EXPECTED,
        explanation="grammars, tokenizers and compilers recurse deeper: the engine ends with a segfault",
        action="set `LimitSTACK=8M` in the unit, or `--ulimit stack=67108864` for the container",
        evidence=(_limit_line(process, "stack size"),),
    )


def _limit_line(process: EngineProcess, name: str) -> Evidence:
    return Evidence(source=f"/proc/{process.pid}/limits", text=f"{name}: {process.limits.get(name)}")


CHECK = Check(
    title="is far from its limits",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
