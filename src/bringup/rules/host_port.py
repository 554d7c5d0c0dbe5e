"""The port that the server wants is taken."""

import re

from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix

_TAKEN = re.compile(
    r"[Aa]ddress already in use|error while attempting to bind on address|EADDRINUSE|"
    r"couldn't bind HTTP server socket"
)
_PORT = re.compile(r"\(?'[^']*', (\d+)\)?|port:? (\d+)|--port[ =](\d+)|:(\d{4,5})\b")


def read(case: Case) -> tuple[Match, ...]:
    """A match for the first line that says so."""
    found = case.first(_TAKEN)
    if found is None:
        return ()
    line, _ = found
    match = _PORT.search(line.text)
    told = next((group for group in match.groups() if group), None) if match else None
    port = told or case.flags.get("--port")
    new = str(int(port) + 1) if port else None
    lines = tuple(one for one, _ in case.matches(_TAKEN))
    return (
        Match(
            kind="host.port",
            sure=0.95,
            lines=lines,
            summary=f"port {port} is taken by another process"
            if port
            else "the port is taken by another process",
            explanation="Another process, often the server before this one, still listens there.",
            fixes=(
                Fix(type="flag", name="--port", old=port, new=new, kind="cure"),
                Fix(
                    type="service",
                    name="the process that holds the port",
                    new="ended",
                    cost="ends whatever it serves",
                ),
            ),
            next_measurement=f"ss -ltnp 'sport = :{port}'" if port else "ss -ltnp",
        ),
    )


RULE = Rule(
    kinds=("host.port",),
    title="the port is taken",
    literals=(
        "ddress already in use",
        "attempting to bind on address",
        "EADDRINUSE",
        "bind HTTP server socket",
    ),
    read=read,
    meaning="The server could not listen on its port because another process does.",
    told_apart="from a torch.distributed port by the server's own words: the latter names the store's port.",
    cure="Another port, or end the process that holds it.",
    source="asyncio and uvicorn (`error while attempting to bind on address`), vLLM "
    "`entrypoints/launcher.py`, "
    "llama.cpp `tools/server/server-http.cpp` (`couldn't bind HTTP server socket`).",
)
