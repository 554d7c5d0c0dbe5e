"""The port that the server, or the ranks' store, wants is taken, or not this process's to take.

Seen in: errno 98 as asyncio and uvicorn print it ("error while attempting to bind on address"), vLLM 0.6 to
0.32 `entrypoints/launcher.py`, llama.cpp `tools/server/server-http.cpp` ("couldn't bind HTTP server
socket"), PyTorch `c10d/TCPStore.cpp` (EADDRINUSE), docker ("port is already allocated").
"""

import re

from bringup.parse.case_facts import flag_of, spelled
from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix

_PORT = re.compile(
    r"\('[\d.:a-f]*', (?P<a>\d{2,5})|port:? (?P<b>\d{2,5})|:(?P<c>\d{4,5})\b(?!:)|Port (?P<d>\d{2,5})",
    re.IGNORECASE,
)


def _another_port(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    text = next(
        (line.text for line, match in case.matches(found.re) if match.group() == found.group()), found.group()
    )
    told = _PORT.search(text)
    asked = flag_of(case, "--port")
    port = next((value for value in told.groups() if value), None) if told else None
    old = port or asked
    new = str(int(old) + 1) if old and old.isdigit() and int(old) < 65535 else "a free one"
    is_store = "EADDRINUSE" in text or "TCPStore" in text or "listen on any local" in text
    name = "MASTER_PORT" if is_store else spelled(case, "port")
    type_ = "env" if name.isupper() else "flag"
    listen = f"ss -ltnp 'sport = :{old}'" if old else "ss -ltnp"
    return (
        Fix(type=type_, name=name, old=old, new=new, cost="clients must use it too"),
        Fix(
            type="hardware",
            name="kill old pid (ss -ltnp)",
            new=f"end the server that {listen} shows",
            old=old,
        ),
    )


SIGN = Sign(
    kind="host.port",
    pattern=re.compile(
        r"address already in use|\[Errno 98\]|Address already in use|EADDRINUSE"
        r"|couldn't bind (?:HTTP server socket|to server socket)"
        r"|[Pp]ort is already allocated|[Pp]ort \d+ is (?:already )?(?:in use|occupied|not available)"
        r"|[Oo]nly one usage of each socket|Socket '\S+:\d+' already in use"
        r"|failed to listen on any local network address|bind: .*in use"
    ),
    sure=0.95,
    summary="the port is taken by another process",
    explanation="Often an older server that still runs. Engines find out only after the weights are loaded.",
    fixes=_another_port,
    next_measurement="ss -ltnp  # who owns the port",
)

_ADDRESS = Sign(
    kind="host.port",
    pattern=re.compile(
        r"\[Errno 99\].*bind|bind.*[Cc]annot assign requested address|EADDRNOTAVAIL"
        r"|couldn't bind.*hostname: (?P<host>\S+?),"
    ),
    unless=re.compile(r"Address already in use|address already in use"),
    sure=0.93,
    summary="the address to listen on is not one of this machine",
    explanation="A container or host without IPv6 has no ::1, and another host's address cannot be bound.",
    fixes=lambda case, _found: (
        Fix(
            type="flag",
            name=spelled(case, "host"),
            old=flag_of(case, "--host"),
            new="0.0.0.0",  # noqa: S104 what is proposed
            cost="reachable from everywhere",
        ),
    ),
    next_measurement="ip -br addr",
)
_FORBIDDEN = Sign(
    kind="host.port",
    pattern=re.compile(
        r"\[Errno 13\] error while attempting to bind on address \('[^']*', (?P<port>\d+)"
        r"|:(?P<other>\d+): bind: permission denied"
        r"|Ports are not available.*access permissions|forbidden by its access permissions"
    ),
    sure=0.93,
    summary="this user may not listen on that port",
    explanation="Ports below 1024 need a right of their own; Windows reserves ranges.",
    fixes=lambda case, _found: (
        Fix(type="flag", name=spelled(case, "port"), old=flag_of(case, "--port"), new="8000"),
        Fix(type="file", name="AmbientCapabilities of the unit", new="CAP_NET_BIND_SERVICE"),
    ),
    next_measurement="sysctl net.ipv4.ip_unprivileged_port_start",
)

RULE = Rule(
    kinds=("host.port",),
    title="the port is taken",
    literals=(
        "Address already in use",
        "address already in use",
        "Errno 98",
        "EADDRINUSE",
        "bind HTTP server socket",
        "bind to server socket",
        "ort is already allocated",
        " is already in use",
        " is in use",
        " is occupied",
        " is not available",
        "nly one usage of each socket",
        "failed to listen on any",
        "bind: ",
        "' already in use",
        "Errno 99",
        "Errno 13",
        "assign requested address",
        "EADDRNOTAVAIL",
        "couldn't bind",
        "Ports are not available",
        "access permissions",
    ),
    read=read_signs((SIGN, _ADDRESS, _FORBIDDEN)),
    meaning="The server could not listen on its port because another process does.",
    told_apart="A port of the ranks' store names the store or EADDRINUSE: then MASTER_PORT is to change, not "
    "the server's.",
    cure="Another port, or the end of the process that holds it. Check before the weights load.",
    source="asyncio and uvicorn server.py; vllm/entrypoints/launcher.py; llama.cpp "
    "tools/server/server-http.cpp; "
    "torch c10d/TCPStore.cpp; docker libnetwork portallocator",
)
