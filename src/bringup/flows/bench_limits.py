"""What this machine allows one program: foreseen before a run, not met in the middle of it."""

import os
import re
import resource
from pathlib import Path

from bringup.errors import UsageError

_OWN_FILES = 64  # of a generator beside its connections: pipes, timers, the loop's own
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_PORTS = (32768, 60999)  # Linux; documentation of `ip_local_port_range`


def usable_cores() -> int:
    """Processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_files(connections: int, *, generators: int) -> None:
    """Make room for that many connections, divided over the generators; call it before they are forked.

    Raises:
        UsageError: the machine's hard limit is below it.
    """
    needed = -(-connections // generators) + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{connections:,} connections over {generators} generators need {needed:,} open files each, "
            f"this machine allows {hard:,}",
            hint=f"`ulimit -Hn {needed}` as root and start again, `LimitNOFILE={needed}` in a unit, "
            "or more `--workers`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def most_connections(*, generators: int) -> int:
    """How many connections there can be at once: by open files and by local ports."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_ports = local_ports()
    if hard == resource.RLIM_INFINITY:
        return by_ports
    return min(by_ports, max(1, hard - _OWN_FILES) * generators)


def require_ports(connections: int) -> None:
    """Raises where one address of this machine has not that many ports.

    Raises:
        UsageError: it has not.
    """
    ports = local_ports()
    if connections > ports:
        raise UsageError(
            f"{connections:,} connections to one address need as many local ports, here are {ports:,}",
            hint='`sudo sysctl -w net.ipv4.ip_local_port_range="1024 65535"` gives 64,512; more needs more '
            "machines",
        )


def local_ports() -> int:
    """How many ports the kernel gives out for connections."""
    low, high = _USUAL_PORTS
    try:
        found = re.findall(r"\d+", _PORT_RANGE.read_text(encoding="ascii"))
    except OSError:
        found = []
    if len(found) == 2:
        low, high = int(found[0]), int(found[1])
    return max(1, high - low + 1)
