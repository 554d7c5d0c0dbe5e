"""Starting a child process in a way that a cancellation cannot catch half-way."""

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Coroutine
from typing import Any


async def started(starting: Coroutine[Any, Any, Process]) -> Process:
    """The process of an `asyncio.create_subprocess_exec` call.

    asyncio waits for ever when the task that creates a process is cancelled in the middle (seen in CPython
    3.11.7: a Ctrl-C hung). So the creation goes on by itself, and a cancelled caller ends what it brought.
    """
    creation = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(creation)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            process = await creation
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        raise
