"""The machine's own memory ran out, and the kernel or Ray ended the loader.

Seen in: Linux `mm/oom_kill.c` ("Out of memory: Killed process", "oom-kill:constraint="), systemd ("killed
by the OOM killer", "Failed with result 'oom-kill'"), Ray 2.x `memory_monitor` messages, kubelet
("OOMKilled"), exit status 137.
"""

import re

from bringup.rules import Match, Rule, Sign, read_signs
from bringup.units import GIB, KIB
from bringup.values.case import Case
from bringup.values.finding import Fix

_KERNEL = re.compile(
    r"(?:Out of memory"
    r"|Memory cgroup out of memory): Kill(?:ed)? process \d+ "
    r"\((?P<name>[^)]+)\).*?(?:anon-rss:(?P<rss>\d+)kB)?"
)
_RSS = re.compile(r"anon-rss:(?P<rss>\d+)kB")
_LIMIT = re.compile(r"oom-kill:constraint=(?P<constraint>CONSTRAINT_\w+)")
_UNIT = re.compile(
    r"killed by the OOM killer|Failed with result 'oom-kill'|OOMKilled|OOM Killed|oom_kill_process"
    r"|low on resource: memory|Detected \d+ oom[_-]kill event|Exceeded (?:job|step) memory limit"
)
# What Ray lists as possible names no cause.
_PERHAPS = re.compile(r"(?:common causes include|potential root causes)")
_RAY = re.compile(
    r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory"
    r"|Workers \(tasks / actors\) killed due to memory|killed due to memory pressure \(OOM\)"
    r"|exceeds the memory usage threshold|Ray killed this worker"
)
_RAY_USE = re.compile(
    r"Memory on the node .*? was (?P<used>[\d.]+)GB / (?P<total>[\d.]+)GB|memory used=(?P<own>[\d.]+)GB"
)
_ENDED = re.compile(
    r"[Ee]xit ?code:? ?-9\b|exitcode: -9|exit code:? 137\b|exited with code 137|status=9/KILL"
    r"|code=killed, status=9"
    r"|died, exit code: -9|^Killed$|^\S+: line \d+: +\d+ Killed|signal 9 \(SIGKILL\)|SIGKILL\b|signal: killed"
    r"|exited on signal 9\b|is killed by signal: Killed"
)
_ALSO_ENDS = re.compile(
    r"Received sigquit from a child|SIGTERM received|Traceback \(most recent|[Ww]atchdog(?!_)"
)
_COMPILER = re.compile(r"\b(?:cicc|nvcc|ptxas|cudafe\+\+|cc1plus|ninja)\b")
_HALF = 0.5


def _asked(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    """More memory, or less of what asked for it."""
    text = found.string
    if "swap space" in text:
        less = Fix(type="flag", name="--swap-space", new="4", cost="preempted requests are computed again")
        return (less, *_fixes(case, None, ray=False, group=False)[:1])
    if case.engine == "llama_cpp" or "ggml" in text or "CPU buffer" in text:
        return (
            *_fixes(case, None, ray=False, group=False)[:1],
            Fix(type="flag", name="--n-gpu-layers", new="more, where a card has room"),
            Fix(type="flag", name="--no-mmap", new="left out", kind="workaround",
                cost="the file is paged in from disk"),
        )  # fmt: skip
    return _fixes(case, None, ray=False, group=False)


ASKED = (
    Sign(
        kind="host.ram_oom",
        pattern=re.compile(
            r"(?:unable|failed) to allocate CPU buffer|ggml_backend_cpu_buffer_type_alloc_buffer: failed"
            r"|ggml_aligned_malloc: insufficient memory|DefaultCPUAllocator: (?:can't allocate"
            r"|not enough) memory"
            r"|_ArrayMemoryError: Unable to allocate"
        ),
        # What is asked for the cache or the graph is told by the rule of the phases.
        unless=re.compile(r"failed to initialize the context|buffer for kv cache|allocate compute"),
        sure=0.96,
        summary="the host has no memory left for what the engine asks for",
        explanation="Host memory, not GPU memory: what does not lie on a card lies here.",
        fixes=_asked,
        next_measurement="free -g; cat /sys/fs/cgroup/memory.max; ulimit -v",
    ),
    Sign(
        kind="host.ram_oom",
        pattern=re.compile(
            r"model requires more system memory \((?P<wants>[\d.]+ \w+)\) than is available "
            r"\((?P<has>[\d.]+ \w+)\)"
            r"|model request too large for system.*requested=\"?(?P<asks>[\d.]+ \w+)"
        ),
        sure=0.96,
        summary="the model wants {wants} of host memory, {has} are free",
        fixes=_asked,
        next_measurement="free -g",
    ),
    Sign(
        kind="host.ram_oom",
        pattern=re.compile(
            r"Too large swap space\. (?P<wants>[\d.]+) GiB out of the (?P<has>[\d.]+) GiB total CPU memory"
        ),
        sure=0.95,
        summary="a swap space of {wants} GiB does not fit into {has} GiB of host memory",
        fixes=_asked,
        next_measurement="free -g",
    ),
    Sign(
        kind="host.ram_oom",
        pattern=re.compile(
            r"(?:Errno 12\]|mmap\S* (?:failed|\d+ bytes)|IoError).*Cannot allocate memory"
            r"|mmap failed: Cannot allocate"
            r"|earlyoom.*(?:sending SIG|low memory)|^sending SIGKILL to process \d+"
            r"|systemd-oomd.*Killed|Killed \S+ due to memory (?:pressure|used)"
        ),
        sure=0.9,
        summary="the host has no memory left",
        fixes=_asked,
        next_measurement="free -g; cat /sys/fs/cgroup/memory.max; ulimit -v",
    ),
    Sign(
        kind="host.ram_oom",
        pattern=re.compile(r"std::bad_alloc|^MemoryError(?::|$)"),
        unless=re.compile(r"parse_safetensors_file_metadata"),  # a pointer file's text read as a length
        sure=0.6,
        summary="a program asked for more host memory than it gets: too little memory, or a broken file",
        fixes=_asked,
        next_measurement="free -g; sizes of the model's files against the hub",
    ),
)


def _fixes(case: Case, used: float | None, *, ray: bool, group: bool) -> tuple[Fix, ...]:
    facts = case.host.facts if case.host else None
    total = facts.memory_total if facts else None
    have = f"{total / GIB:.0f} GiB" if total else f"{used:.0f} GiB at the kill" if used else None
    more = Fix(
        type="hardware", name="RAM", old=have, new="add, or swap on NVMe while it loads", cost="swap is slow"
    )
    limit = Fix(
        type="file", name="memory limit of the container or unit (MemoryMax)", new="raise it", old=have
    )
    monitor = Fix(
        type="env",
        name="RAY_memory_monitor_refresh_ms",
        old="250",
        new="0",
        kind="workaround",
        cost="the kernel kills instead when memory is really gone",
    )
    swap = Fix(
        type="flag",
        name="--safetensors-load-strategy" if case.engine == "vllm" else "--load-format",
        new="lazy" if case.engine == "vllm" else "safetensors",
        kind="workaround",
        cost="loads from the page cache instead of a copy",
    )
    first = (limit,) if group else ()
    return (*first, more, *((monitor,) if ray else ()), swap)


def read(case: Case) -> tuple[Match, ...]:
    """The kill by name where a kernel line tells it, else by what is left of the process."""
    told = read_signs(ASKED)(case)
    return _kernel(case) or _by_ray(case) or told or _by_status(case)


def _kernel(case: Case) -> tuple[Match, ...]:
    told = list(case.matches(_KERNEL))
    limits = list(case.matches(_LIMIT))
    units = [line for line, _ in case.matches(_UNIT) if not _PERHAPS.search(line.text)]
    probes = tuple(
        ("kernel log", row.strip())
        for text in case.texts.values()
        for row in text.splitlines()
        if _KERNEL.search(row)
    )[:3]
    if told and all(_COMPILER.search(match["name"]) for _, match in told):
        return ()  # compilers have a rule of their own
    lines = tuple([line for line, _ in told] + [line for line, _ in limits] + units)[:6]
    if not lines and not probes:
        return ()
    size = _RSS.search(lines[0].text if lines else probes[0][1])
    used = int(size["rss"]) * KIB / GIB if size else None
    group = any("MEMCG" in match["constraint"] for _, match in limits) or case.says(
        "Memory cgroup out of memory"
    )
    who = told[0][1]["name"] if told else "the engine"
    return (
        Match(
            kind="host.ram_oom",
            sure=0.95,
            lines=lines,
            summary=f"the kernel killed {who}"
            + (f" at {used:.1f} GiB" if used else "")
            + (": its memory limit" if group else ": the machine's memory was used up"),
            explanation="Host memory, not GPU memory. Loading holds shards of all ranks at once.",
            fixes=_fixes(case, used, ray=False, group=group),
            next_measurement="free -g; cat /sys/fs/cgroup/memory.max; journalctl -k | grep -i oom",
            probes=probes,
        ),
    )


def _by_ray(case: Case) -> tuple[Match, ...]:
    lines = [line for line, _ in case.matches(_RAY)]
    use = case.first(_RAY_USE)
    if not lines:
        return ()
    said = f": {use[1]['used']} of {use[1]['total']} GB" if use and use[1]["used"] else ""
    used = float(use[1]["used"]) if use and use[1]["used"] else None
    return (
        Match(
            kind="host.ram_oom",
            sure=0.95,
            lines=(*lines, *((use[0],) if use else ()))[:6],
            summary=f"Ray's memory monitor ended a worker{said}",
            explanation="Ray kills at 95 % of the host's memory, before the kernel does.",
            fixes=_fixes(case, used, ray=True, group=False),
            next_measurement="free -g while it loads; ray memory --stats-only",
        ),
    )


def _by_status(case: Case) -> tuple[Match, ...]:
    """Only that a process was killed: the kernel's line is not in this log."""
    lines = [line for line, _ in case.matches(_ENDED) if not _PERHAPS.search(line.text)]
    if not lines:
        return ()
    facts = case.host.facts if case.host else None
    low = (
        facts is not None
        and bool(facts.memory_total)
        and (facts.memory_available or 0) < _HALF * (facts.memory_total or 0)
    )
    plain = not case.first(_ALSO_ENDS)
    if not plain and not low:
        return ()  # something said why before it was ended
    return (
        Match(
            kind="host.ram_oom",
            sure=0.65,
            lines=tuple(lines[:4]),
            summary="a process was killed from outside (signal 9) without an error of its own",
            explanation="Without a traceback that is mostly the kernel out of memory; the kernel log settles "
            "it. SGLang also "
            "ends itself so after its sigquit line.",
            fixes=_fixes(case, None, ray=False, group=False),
            next_measurement="journalctl -k | grep -iE 'oom|killed process'; free -g",
        ),
    )


RULE = Rule(
    kinds=("host.ram_oom",),
    title="host memory ran out",
    literals=(
        "Killed process",
        "Kill process",
        "oom-kill",
        "oom_kill",
        "OOM killer",
        "OOMKilled",
        "OOM Killed",
        "oom-kill event",
        "memory limit at some point",
        "by signal: Killed",
        "OutOfMemoryError: Task",
        "OutOfMemoryError",
        "running low on memory",
        "killed due to memory",
        "Memory on the node",
        "low on resource",
        "memory usage threshold",
        "memory pressure (OOM)",
        "Ray killed this worker",
        "code -9",
        "code: -9",
        "exitcode: -9",
        "code 137",
        "code: 137",
        "status=9",
        "Killed",
        "SIGKILL",
        "signal: killed",
        "on signal 9",
        "CPU buffer",
        "ggml_backend_cpu_buffer_type",
        "ggml_aligned_malloc",
        "DefaultCPUAllocator",
        "_ArrayMemoryError",
        "more system memory",
        "too large for system",
        "Too large swap space",
        "Cannot allocate memory",
        "MemoryError",
        "earlyoom",
        "sending SIGKILL",
        "systemd-oomd",
        "due to memory ",
        "std::bad_alloc",
    ),
    read=read,
    meaning="The kernel, a control group's limit or Ray's monitor ended a process of the engine for its use "
    "of host memory.",
    told_apart="A kernel or Ray line names it. Exit -9 alone needs the kernel log; with a sigquit line the "
    "engine ended itself. "
    "A killed compiler (cicc, ptxas) is a parallel build, not the loader. -15 is a parent ending a sibling, "
    "never a cause.",
    cure="More memory or swap, a higher limit of the container or unit, a loader that streams; Ray's monitor "
    "off as work-around.",
    source="linux mm/oom_kill.c; systemd src/core/unit.c; ray src/ray/common/memory_monitor.cc and "
    "raylet/worker_killing_policy; kubelet",
)
