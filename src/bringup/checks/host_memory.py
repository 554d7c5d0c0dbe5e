"""Host memory: what is available, what of the engine lies in swap, what a limit leaves, what was killed.

Source: proc_meminfo(5), `Documentation/admin-guide/cgroup-v2.rst`, `mm/oom_kill.c` of the kernel.
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.oom_kill import OomKill, read_oom_kills
from bringup.units import GIB, bytes_text, mib, seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.host import EngineProcess, HostFacts, HostSnapshot

_LITTLE = GIB  # a burst of long prompts and a few images take that in host memory
_LITTLE_SHARE = 0.01  # guess: of a large machine more is needed, below it running programs lose pages
_MOST_SHARE = 0.1  # a small machine is not short with a tenth of it left
_SWAPPED = mib(256)  # guess: less is what was used once, at the start
_READ_BACK = mib(64)  # guess: below it a few pages of other programs came back
_OLD_S = 7 * 24 * 3600.0
_EXPECTED = "host memory that is left when the engine needs it, and none of the engine in swap"
_ENGINE_NAMES = (
    "VLLM::",
    "vllm",
    "sglang",
    "llama-server",
    "ollama",
    "text-generation",
    "trtllm",
    "lmdeploy",
)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What is wrong with the memory of the host; what is left of it, when nothing is."""
    _ = replies
    host = deployment.host_after or deployment.host
    if host is None:
        return Judgement(findings=())
    process = deployment.process_after or deployment.process
    found = (
        *_available(host.facts),
        *_swap(deployment, process),
        *(_limit(process) if process is not None else ()),
        *(_killed(host, process) if process is not None else ()),
    )
    return Judgement(findings=found or tuple(_sound(host.facts)))


def _sound(facts: HostFacts) -> Iterator[Finding]:
    if facts.memory_available is not None and facts.memory_total is not None:
        summary = f"{bytes_text(facts.memory_available)} of {bytes_text(facts.memory_total)} are available"
        yield Finding(id="host_memory", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _available(facts: HostFacts) -> Iterator[Finding]:
    available, total = facts.memory_available, facts.memory_total
    if available is None or total is None or available >= _enough(total):
        return
    yield Finding(
        id="host_memory.available",
        severity=Severity.WARNING,
        summary=f"only {bytes_text(available)} of {bytes_text(total)} host memory are available",
        expected=_EXPECTED,
        explanation="when it runs out the kernel kills the largest process, and that is the engine",
        action="stop what else runs there, or lower what the engine keeps in host memory (swap space, "
        "offloaded weights or cache)",
        evidence=(Evidence(source="/proc/meminfo", text=f"MemAvailable {available} of {total} bytes"),),
    )


def _enough(total: int) -> float:
    return min(max(_LITTLE, _LITTLE_SHARE * total), _MOST_SHARE * total)


def _swap(deployment: Deployment, process: EngineProcess | None) -> Iterator[Finding]:
    swapped = process.swapped if process is not None else None
    read_back = _read_back(deployment)
    is_out = swapped is not None and swapped >= _SWAPPED
    is_moving = read_back is not None and read_back >= _READ_BACK
    if not is_out and not is_moving:
        return
    figures = (
        f"{bytes_text(swapped)} of the engine lie in swap" if is_out and swapped is not None else "",
        f"{bytes_text(read_back)} were read back from swap meanwhile" if is_moving and read_back else "",
    )
    yield Finding(
        id="host_memory.swap",
        severity=Severity.WARNING,
        summary=", ".join(filter(None, figures)),
        expected=_EXPECTED,
        explanation="a request that touches such a page waits for the disk",
        action="make room in host memory and restart the engine; `MemorySwapMax=0` in its unit keeps it out",
        evidence=(
            Evidence(source=f"/proc/{process.pid}/status", text=f"VmSwap {swapped} bytes")
            if is_out and process is not None
            else Evidence(source="/proc/vmstat", text=f"pswpin: {read_back} bytes more than before"),
        ),
    )


def _read_back(deployment: Deployment) -> int | None:
    before, after = deployment.host, deployment.host_after
    if before is None or after is None or None in (before.facts.swapped_in, after.facts.swapped_in):
        return None
    return (after.facts.swapped_in or 0) - (before.facts.swapped_in or 0)


def _limit(process: EngineProcess) -> Iterator[Finding]:
    group = process.group
    if group is None or group.memory_limit is None or group.memory_used is None:
        return
    room = group.memory_limit - group.memory_used
    if room >= _enough(group.memory_limit):
        return
    limit = bytes_text(group.memory_limit)
    yield Finding(
        id="host_memory.limit",
        severity=Severity.WARNING,
        summary=f"the engine's memory limit of {limit} leaves {bytes_text(max(room, 0))}",
        expected=_EXPECTED,
        explanation="at the limit the kernel kills a process of this group, however much the host has left",
        action=f"raise it: {_where_limited(process)}",
        evidence=(
            Evidence(
                source=f"control group of process {process.pid}",
                text=f"{group.memory_used} bytes used that cannot be dropped, limit {group.memory_limit}",
            ),
        ),
    )


def _where_limited(process: EngineProcess) -> str:
    if process.container is not None:
        return "`--memory` of the container, `memory` of the LXC or the limit of the pod"
    return "`MemoryMax=` of its unit or of a slice above it"


def _killed(host: HostSnapshot, process: EngineProcess) -> Iterator[Finding]:
    kills = [kill for kill in read_oom_kills(host.kernel_lines) if _is_engine(kill, process)]
    if not kills:
        return
    last = kills[-1]
    age = None if last.at is None else max(host.taken_at - last.at, 0.0)
    when = "" if age is None else f", last {seconds_text(age)} ago"
    times = "once" if len(kills) == 1 else f"{len(kills)} times"
    cause = "its control group was at its limit" if last.is_of_limit else "the host's memory had run out"
    is_old = age is not None and age > _OLD_S
    is_other = not any(_is_own(kill, process) or not _is_elsewhere(kill, process) for kill in kills)
    whose = "another process of this engine's name" if is_other else "a process of the engine"
    yield Finding(
        id="host_memory.oom_kill",
        severity=Severity.NOTE if is_old or is_other else Severity.WARNING,
        summary=f"the kernel killed {whose} {times}{when}: {cause}",
        expected=_EXPECTED,
        explanation="loading the weights, a large prompt or offloading needs more host memory than there is",
        action="none, if that was somebody else's" if is_other else _against_kills(last, process),
        evidence=tuple(Evidence(source="kernel log", text=kill.text) for kill in (kills[0], *kills[1:][-1:])),
    )


def _against_kills(last: OomKill, process: EngineProcess) -> str:
    if last.is_of_limit:
        return f"raise the limit: {_where_limited(process)}"
    return "give the host more memory, or load with fewer workers at once and without offloading"


def _is_engine(kill: OomKill, process: EngineProcess) -> bool:
    """By its control group, by its number, or by a name that only an engine has."""
    return _is_own(kill, process) or kill.name.startswith(_ENGINE_NAMES)


def _is_own(kill: OomKill, process: EngineProcess) -> bool:
    """Of this engine, or of an earlier start of the same unit or container."""
    own = process.cgroup
    if own and own != "/" and kill.group and f"{kill.group}/".startswith(f"{own}/"):
        return True
    return kill.pid in {process.pid, *process.children}


def _is_elsewhere(kill: OomKill, process: EngineProcess) -> bool:
    """Whether a name alone does not make it this engine's: it fell before its start or in another group."""
    if kill.group and process.cgroup:
        return True
    return kill.at is not None and process.started_at is not None and kill.at < process.started_at


CHECK = Check(
    title="has host memory left",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
