"""One round of questions through a process that ends in a POSIX shell: here, or at the far end of ssh."""

import asyncio
import contextlib
import os
import secrets as random_words
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bringup.transport.frames import Collector
from bringup.transport.script import as_command, build_script
from bringup.transport.spawn import started
from bringup.values.host import CommandResult, Question

_READ_SIZE = 262_144
_FAREWELL_S = 2.0  # how long a process may take to end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long silence is borne before the link counts as dead; the host keeps a question's own limit."""

    start_s: float = 30.0  # until the host's shell says its first word: slow login shells exist
    grace_s: float = 15.0  # on top of a question's limit, and between questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round of questions brought."""

    results: dict[str, CommandResult]
    is_begun: bool  # the host's shell ran our script
    broken: str = ""  # why not every answer came
    noise: str = ""  # what was said outside of the answers
    status: int | None = None  # the process' own exit status, once it ended
    missing: tuple[str, ...] = field(default=())  # keys without an answer because the link broke


async def ask_through(
    argv: Sequence[str],
    questions: Sequence[Question],
    *,
    patience: Patience,
    secrets: Collection[str] = (),
    takes_command: bool = False,
) -> Round:
    """The results of `questions`, asked through the process `argv`: a POSIX shell that reads its input.

    With `takes_command` it is an ssh that wants a command line as its last argument. The script goes in
    there: sshd takes no input before a command runs, which would cost one more round trip.

    Raises:
        OSError: the process could not be started.
    """
    nonce = random_words.token_hex(16)
    script = build_script(questions, nonce)
    collector = Collector(questions, nonce, secrets)
    command = as_command(script) if takes_command else None
    process = await started(
        asyncio.create_subprocess_exec(
            *(*argv, *([command or "exec sh"] if takes_command else [])),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        broken = await _converse(process, b"" if command else script, collector, patience)
    finally:
        status = await end_process(process)
    results = collector.results(broken)
    return Round(
        results=results,
        is_begun=collector.is_begun,
        broken=broken,
        noise=collector.noise(),
        status=status,
        missing=tuple(key for key, result in results.items() if broken and broken in result.skipped),
    )


async def _converse(
    process: asyncio.subprocess.Process, script: bytes, collector: Collector, patience: Patience
) -> str:
    """Why the round ended early; empty when every answer came."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        return "no pipes"
    tasks = [
        asyncio.create_task(_drain("out", process.stdout, collector)),
        asyncio.create_task(_drain("err", process.stderr, collector)),
    ]
    collector.begin(time.monotonic())
    process.stdin.write(script)  # buffered by the loop; stays open, its end would end the script
    try:
        while True:
            left = _deadline(collector, patience) - time.monotonic()
            if left <= 0:
                return _silence(collector, patience)
            await asyncio.wait(tasks, timeout=min(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
            if collector.is_done:
                return ""
            if all(task.done() for task in tasks):
                return "the connection ended before every answer had come"
            tasks_left = [task for task in tasks if not task.done()]
            if len(tasks_left) < len(tasks):
                await asyncio.wait(tasks_left, timeout=min(left, _FAREWELL_S))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(stream: str, reader: asyncio.StreamReader, collector: Collector) -> None:
    while not collector.is_done:
        data = await reader.read(_READ_SIZE)
        if not data:
            return
        collector.feed(stream, data, time.monotonic(), time.time())


def _deadline(collector: Collector, patience: Patience) -> float:
    """When silence has lasted too long, on our monotonic clock."""
    last = collector.last_activity or time.monotonic()
    if not collector.is_begun:
        return last + patience.start_s
    running = collector.running
    return last + patience.grace_s + (running.time_limit_s if running is not None else 0.0)


def _silence(collector: Collector, patience: Patience) -> str:
    if not collector.is_begun:
        return f"no answer within {patience.start_s:g} s"
    return f"the host has been silent for {patience.grace_s:g} s longer than the question may take"


async def end_process(process: asyncio.subprocess.Process) -> int | None:
    """Its exit status, after it was asked to end by the end of its input, then by signals.

    The script at the other end kills what it runs when its input ends, so the gentle way comes first.
    """
    if process.stdin is not None:
        process.stdin.close()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            _signal_group(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await process.wait()
                return process.returncode
    return None


def _signal_group(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sign)
