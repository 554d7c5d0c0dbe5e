"""What a machine is asked beside a log: the whole snapshot, and what only a sick start needs."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote

from bringup.errors import HostError
from bringup.flows.snapshot import ask_host, read_snapshot, sources
from bringup.machine import Target
from bringup.transport import Runner
from bringup.transport.local import LocalRunner
from bringup.transport.ssh import SshRunner
from bringup.values.host import CommandResult, HostSnapshot, Question

LOCAL = "local"
_PREFIX = "diagnose."
_LIMITED = 'limited() { if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi; }\n'
# Ten readings, a second apart: a rank that spins shows a busy GPU at low power, one that loads fills memory.
_SAMPLES = """
command -v nvidia-smi >/dev/null 2>&1 || exit 69
ask() {
  "$@" --format=csv,nounits --query-gpu=timestamp,index,name,utilization.gpu,power.draw,power.limit,\
memory.used,memory.total,clocks.sm,clocks.max.sm,temperature.gpu,pcie.link.gen.current,pcie.link.gen.max,\
pcie.link.width.current,pcie.link.width.max
}
if command -v timeout >/dev/null 2>&1
then ask timeout 11 nvidia-smi -l 1; else ask nvidia-smi; fi | head -n 400
"""
_KERNEL = """
words='Xid|NVRM|oom-kill|Out of memory|Killed process|AER:|nvidia|amdgpu|I/O error|segfault|nvlink|fabric'
{ limited 5 journalctl -k -b --no-pager -q -o short-iso 2>/dev/null || limited 5 dmesg -T 2>/dev/null ||
  limited 5 dmesg 2>&1; } | grep -E "$words" | tail -n 300
exit 0
"""
_ACS = "limited 5 lspci -vvv 2>/dev/null | grep -E '^[0-9a-f]|ACSCtl' | grep -B1 ACSCtl | head -n 200; exit 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a machine said beside the log."""

    host: HostSnapshot | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])  # by key: "kernel", "gpu.samples", ...


def questions(target: Target) -> tuple[Question, ...]:
    """What is asked beside the snapshot's own questions."""
    asked = [
        Question(key="diagnose.gpu.samples", script=f"{_LIMITED}{_SAMPLES}", time_limit_s=20.0),
        Question(key="diagnose.kernel", script=f"{_LIMITED}{_KERNEL}", time_limit_s=15.0),
        Question(key="diagnose.df.bytes", script=f"{_LIMITED}limited 5 df -P -h 2>/dev/null; exit 0"),
        Question(key="diagnose.df.inodes", script=f"{_LIMITED}limited 5 df -P -i 2>/dev/null; exit 0"),
        Question(key="diagnose.shm", script="ls -la /dev/shm 2>/dev/null | head -n 200; exit 0"),
        Question(key="diagnose.ulimit", script="ulimit -a; exit 0"),
        Question(
            key="diagnose.listeners",
            script="ss -ltnp 2>/dev/null || netstat -ltnp 2>/dev/null; exit 0",
        ),
        Question(key="diagnose.acs", script=f"{_LIMITED}{_ACS}", time_limit_s=10.0),
    ]
    if target.unit:
        unit = quote(target.unit)
        script = f"systemctl cat -- {unit} 2>/dev/null; systemctl show -- {unit} 2>/dev/null; exit 0"
        asked.append(Question(key="diagnose.unit", script=script))
    return tuple(asked)


def observe(host: str, target: Target) -> Observed:
    """The machine as it is now, in one connection.

    Raises:
        HostError: it could not be asked.
    """
    return asyncio.run(_observe(host, target))


async def _observe(host: str, target: Target) -> Observed:
    runner: Runner = LocalRunner() if host == LOCAL else SshRunner(host)
    try:
        asked = sources()
        results = await ask_host(runner, asked, target)
        further = await runner.ask(questions(target))
    finally:
        await runner.close()
    if not results:
        raise HostError(f"`{host}` answered no question")
    snapshot = read_snapshot(results, asked, host=runner.host, taken_at=time.time())
    return Observed(host=snapshot, texts=texts_of(further))


def texts_of(results: Mapping[str, CommandResult]) -> dict[str, str]:
    """The answers by their short keys; what was not answered is absent."""
    return {
        key.removeprefix(_PREFIX): result.stdout
        for key, result in results.items()
        if key.startswith(_PREFIX) and result.stdout.strip()
    }
