"""Runs a program that a model wrote, shut in by Linux namespaces and limits, or not at all."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from bringup.parse.json_value import float_at, json_or_none, list_at, text_at
from bringup.transport.spawn import started
from bringup.values.exchange import Program, ProgramResult

_GUARD = Path(__file__).with_name("sandbox_guard.py")
_SET_UP_LIMIT_S = 20.0  # guess: measured 0.1 s; a machine that is starved of CPU takes longer
_MOST_BYTES = 1_000_000  # the guard bounds what it reads from the program to half of that


class IsolatedSandbox:
    """Runs programs shut in.

    There is no network, no file of this machine but the interpreter's libraries, read-only, no environment,
    no other process in sight and none to be started; time, memory, files and output are bounded. What a
    program can still do is return what it likes, so the calls must not give the answers away.
    """

    async def run(self, program: Program) -> ProgramResult:
        """What `program` did, whatever it did; with `unavailable` set, nothing of it was run."""
        reason = unsupported(sys.platform)
        if reason:
            return ProgramResult(key=program.key, unavailable=reason)
        job = {"source": program.source, "calls": program.calls, "time_limit_s": program.time_limit_s}
        with tempfile.TemporaryDirectory(prefix="bringup-", ignore_cleanup_errors=True) as folder:
            said = await _run_guard(json.dumps(job).encode(), folder, program.time_limit_s + _SET_UP_LIMIT_S)
        return read_outcome(program.key, said)


def unsupported(platform: str) -> str:
    """Why programs cannot be isolated on `platform`, empty when they can be tried.

    >>> unsupported("darwin")
    'isolation needs Linux namespaces; this is darwin'
    """
    return "" if platform == "linux" else f"isolation needs Linux namespaces; this is {platform}"


def read_outcome(key: str, said: str) -> ProgramResult:
    """The guard's report as a result."""
    outcome = json_or_none(said)
    if not isinstance(outcome, dict):
        return ProgramResult(
            key=key, unavailable=f"the sandbox did not report: {said[:200] or 'nothing said'}"
        )
    if "unavailable" in outcome:
        return ProgramResult(key=key, unavailable=_with_hint(text_at(outcome, "unavailable") or "unknown"))
    return ProgramResult(
        key=key,
        results=tuple(str(one) for one in list_at(outcome, "results")),
        problem=text_at(outcome, "problem") or "",
        elapsed_s=float_at(outcome, "elapsed_s"),
    )


def _with_hint(reason: str) -> str:
    """`reason`, with the setting of Ubuntu 24.04 that usually causes it where it is on."""
    with contextlib.suppress(OSError):
        setting = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        if setting.read_text(encoding="ascii").strip() == "1" and os.geteuid() != 0:
            return f"{reason} (kernel.apparmor_restrict_unprivileged_userns=1)"
    return reason


async def _run_guard(job: bytes, folder: str, limit_s: float) -> str:
    """What the guard wrote; whatever happens, nothing of it is left running."""
    process = await started(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            "-B",
            str(_GUARD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={},
            cwd=folder,
            start_new_session=True,
        )
    )
    try:
        async with asyncio.timeout(limit_s):
            return await _converse(process, job)
    except TimeoutError:
        return json.dumps({"unavailable": f"the sandbox took more than {limit_s:.0f} s"})
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, job: bytes) -> str:
    """Hand the job over and read the report, bounded."""
    if process.stdin is None or process.stdout is None:
        return ""
    with contextlib.suppress(ConnectionError):
        process.stdin.write(job)
        await process.stdin.drain()
        process.stdin.close()
    said = b""
    while len(said) < _MOST_BYTES and (piece := await process.stdout.read(65536)):
        said += piece
    return said.decode(errors="replace")
