"""Files of `/proc` to plain values: memory, limits, listening sockets, control groups, numbers in words.

Source: proc(5), cgroups(7), `fs/proc/base.c` for the columns of `limits`.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from bringup.units import KIB


def whole_number(text: str | None) -> int | None:
    """The decimal number that `text` is, or None.

    >>> whole_number(" 42 "), whole_number("-1"), whole_number("4 kB"), whole_number(None)
    (42, -1, None, None)
    """
    text = (text or "").strip()
    # Longer than any kernel counter: not a number of the kernel's, and int() would refuse it beyond 4300.
    return int(text) if re.fullmatch(r"-?[0-9]{1,24}", text) else None


def read_meminfo(text: str) -> dict[str, int]:
    r"""Bytes by name, of `/proc/meminfo` and of a NUMA node's `meminfo`.

    >>> read_meminfo("MemTotal:  24683652 kB\nNode 0 MemFree:  1024 kB\nHugePages_Total:  0\n")
    {'MemTotal': 25276059648, 'MemFree': 1048576}
    """
    rows = re.findall(
        r"^(?:Node [0-9]+ )?([A-Za-z0-9_()]+):[ \t]*([0-9]{1,18}) kB[ \t]*$", text, re.MULTILINE
    )
    return {name: int(count) * KIB for name, count in rows}


def read_limits(text: str) -> dict[str, str]:
    r"""Soft limit by name, in the kernel's words, and the hard one where it differs, as "NAME (hard)".

    >>> read_limits("Max open files            1024                 524288               files     \n")
    {'open files': '1024', 'open files (hard)': '524288'}
    """
    limits: dict[str, str] = {}
    for line in text.split("\n"):
        # The kernel prints "%-25s %-20s %-20s %-10s"; names hold blanks, so the columns count.
        name, soft, hard = line[:25].strip(), line[26:46].strip(), line[47:67].strip()
        if not (name.startswith("Max ") and _is_limit(soft) and _is_limit(hard)):
            continue
        limits[name[4:]] = soft
        if hard != soft:
            limits[f"{name[4:]} (hard)"] = hard
    return limits


def _is_limit(word: str) -> bool:
    return word == "unlimited" or (word.isascii() and word.isdigit())


def read_socket_address(text: str) -> tuple[str, int] | None:
    """Address and port of `local_address` in `/proc/net/tcp` or `tcp6`, or None.

    The kernel prints the address as machine words; all machines with GPUs of interest are little-endian.

    >>> read_socket_address("0100007F:1F40")
    ('127.0.0.1', 8000)
    >>> read_socket_address("00000000000000000000000000000000:1F40")
    ('::', 8000)
    >>> read_socket_address("0000000000000000FFFF00000100007F:1F40")
    ('127.0.0.1', 8000)
    """
    match = re.fullmatch(r"([0-9A-Fa-f]{8}|[0-9A-Fa-f]{32}):([0-9A-Fa-f]{4})", text)
    if match is None:
        return None
    raw = bytes.fromhex(match[1])
    packed = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    port = int(match[2], 16)
    if len(packed) == 4:
        return str(IPv4Address(packed)), port
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address), port


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Where a process stands in the host's tree of control groups."""

    path: str
    container: str | None = None  # "docker:3f2c..", "lxc:101", "podman:.."
    unit: str | None = None  # innermost systemd service
    is_user_unit: bool = False  # of a user's own systemd, which only that user may ask
    is_foreign_unit: bool = False  # of the systemd inside a container, which only the container can ask


# Longest prefix first; the id of docker, podman and Kubernetes is 64 hex digits.
_CONTAINERS = (
    (re.compile(r"/libpod-(?P<id>[0-9a-f]{12,64})"), "podman"),
    (re.compile(r"/(?:cri-containerd|crio)-(?P<id>[0-9a-f]{12,64})"), "kubernetes"),
    (re.compile(r"/kubepods[^/]*/(?:[^/]+/)*(?:docker-)?(?P<id>[0-9a-f]{32,64})"), "kubernetes"),
    (re.compile(r"/docker[-/](?P<id>[0-9a-f]{12,64})"), "docker"),
    (re.compile(r"/nerdctl-(?P<id>[0-9a-f]{12,64})"), "containerd"),
    (re.compile(r"/lxc(?:\.payload[./]|/)(?P<id>[A-Za-z0-9_-][A-Za-z0-9_.-]*)"), "lxc"),
    (re.compile(r"/systemd-nspawn@(?P<id>[^/]+)\.service/"), "nspawn"),
)


def read_cgroup(text: str) -> ControlGroup | None:
    r"""The place that `/proc/PID/cgroup` names, version 1 or 2; None when it names none.

    >>> read_cgroup("0::/system.slice/vllm.service\n").unit
    'vllm.service'
    >>> place = read_cgroup("0::/lxc/101/ns/system.slice/sglang.service\n")
    >>> place.container, place.unit, place.is_foreign_unit
    ('lxc:101', 'sglang.service', True)
    """
    rows = re.findall(r"^[0-9]+:([^:\n]*):(/.*)$", text, re.MULTILINE)
    # systemd's own tree, then the unified one, then the memory controller: docker with the cgroupfs driver
    # on version 1 shows its id in every tree but not always in systemd's.
    paths = [
        path
        for wanted in ("name=systemd", "", "memory", "pids")
        for controllers, path in rows
        if wanted in controllers.split(",")
    ]
    if not paths:
        return None
    path = max(paths, key=lambda found: found != "/")
    container = next((found for found in map(_container, paths) if found), None)
    services = re.findall(r"/([^/]+\.service)(?=/|$)", path)
    # `user@1000.service` is a session, not the user's unit; nspawn's own service is the container.
    unit = services[-1] if services and not services[-1].startswith(("user@", "systemd-nspawn@")) else None
    return ControlGroup(
        path=path,
        container=container,
        unit=unit,
        is_user_unit=unit is not None and "/user@" in path,
        is_foreign_unit=unit is not None and container is not None,
    )


def _container(path: str) -> str | None:
    for pattern, kind in _CONTAINERS:
        match = pattern.search(path)
        if match and not (kind == "lxc" and match["id"] in {"monitor", "pivot"}):
            return f"{kind}:{match['id']}"
    return None
