"""Lines of the kernel's log to the processes that it killed because memory had run out.

Source: `mm/oom_kill.c` of the kernel, 4.19 to 6.12.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bringup.values.host import KernelLine

_KILLED = re.compile(r"(?P<where>[Mm]emory cgroup )?.*?Killed process (?P<pid>[0-9]{1,10}) \((?P<name>.*?)\)")
_GROUP = re.compile(r"oom-kill:.*\btask_memcg=(?P<group>[^,]*),.*\bpid=(?P<pid>[0-9]{1,10})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """One process that was killed."""

    pid: int
    name: str  # 15 characters at most
    at: float | None  # Unix time, seconds
    is_of_limit: bool  # the limit of a control group had been reached, not the machine's memory
    group: str | None  # control group of the process
    text: str  # the line


def read_oom_kills(lines: Iterable[KernelLine]) -> tuple[OomKill, ...]:
    """Every kill in order.

    >>> read_oom_kills((KernelLine(at=1.0, text="Out of memory: Killed process 812 (python3) total-vm:9kB"),))
    (OomKill(pid=812, name='python3', at=1.0, is_of_limit=False, group=None, \
text='Out of memory: Killed process 812 (python3) total-vm:9kB'),)
    """
    groups: dict[int, str] = {}
    kills: list[OomKill] = []
    for line in lines:
        if match := _GROUP.search(line.text):
            groups[int(match["pid"])] = match["group"]
        elif match := _KILLED.search(line.text):
            pid = int(match["pid"])
            kill = OomKill(
                pid=pid,
                name=match["name"],
                at=line.at,
                is_of_limit=match["where"] is not None,
                group=groups.get(pid),
                text=line.text,
            )
            kills.append(kill)
    return tuple(kills)
