"""Generators as processes of this machine, forked before anything else runs.

They wait for work on a socket and share nothing while they work but a page of counters. Whoever shows
progress or samples GPUs does it in the parent, beside the load and not in its loop.
"""

import asyncio
import contextlib
import errno
import os
import pickle
import signal
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, cast

from bringup.errors import BringupError
from bringup.load.fleet import worst
from bringup.load.page import Counts, Page, Wish
from bringup.load.task import Task
from bringup.load.work import Order, Work
from bringup.units import MIB
from bringup.values.bench import GeneratorRun, SelfTest

_LENGTH = struct.Struct("!Q")
_LEAD_NS = 5_000_000  # between "all are ready" and the common start
_READ = MIB


def local_fleet(generators: int) -> "LocalFleet":
    """Forks the generators. Call it before threads, event loops and large data exist."""
    page = Page(generators)
    members = [_fork(number, page) for number in range(generators)]
    return LocalFleet(members, page)


@dataclass(frozen=True, slots=True)
class _Member:
    """A generator as its parent sees it."""

    pid: int
    line: socket.socket


class LocalFleet:
    """The parent's side."""

    def __init__(self, members: Sequence[_Member], page: Page) -> None:
        self._members = members
        self._page = page
        self._used: Sequence[_Member] = members

    @property
    def size(self) -> int:
        """How many generators there are."""
        return len(self._members)

    async def test(self) -> SelfTest:
        """What the instrument measures of itself; of several generators the worst."""
        return worst(
            [
                cast("SelfTest", test)
                for test in await asyncio.gather(*(self._tell(one, "test", None) for one in self._members))
            ]
        )

    async def run(self, tasks: Sequence[Task]) -> tuple[GeneratorRun, ...]:
        """One rung: one task per generator, from the first on."""
        members = self._members[: len(tasks)]
        self._page.ask(Wish.GO)
        await asyncio.gather(
            *(self._tell(member, "prepare", task) for member, task in zip(members, tasks, strict=True))
        )
        start = time.monotonic_ns() + _LEAD_NS
        runs = await asyncio.gather(*(self._tell(member, "run", start) for member in members))
        return tuple(replace(cast("GeneratorRun", run), began_ns=start) for run in runs)

    def counts(self) -> Counts:
        """How far the running rung is."""
        return self._page.total()

    def ask(self, wish: Wish) -> None:
        """Tell the generators to finish or to hang up."""
        self._page.ask(wish)

    async def close(self) -> None:
        """End the generators: a closed line is their sign."""
        for member in self._members:
            member.line.close()
        for member in self._members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)  # one that is in the middle of a rung
            with contextlib.suppress(ChildProcessError):
                os.waitpid(member.pid, 0)  # noqa: ASYNC222 - it was killed: this takes no time

    async def _tell(self, member: _Member, order: Order, content: object) -> object:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(member.line, _packed((order, content)))
            is_good, answer = cast("tuple[bool, object]", await _receive(loop, member.line))
        except OSError:
            raise BringupError(
                f"a load generator (process {member.pid}) died: {_death(member.pid)}",
                hint="the kernel's log tells an out-of-memory kill; fewer streams at once need less",
            ) from None
        if not is_good and isinstance(answer, Exception):
            raise answer
        return answer


def _death(pid: int) -> str:
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return "nobody knows of what"
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit status {os.WEXITSTATUS(status)}"


def _packed(message: object) -> bytes:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


async def _receive(loop: asyncio.AbstractEventLoop, line: socket.socket) -> object:
    """The next message.

    Raises:
        OSError: the other side is gone.
    """
    got = bytearray()
    wanted = _LENGTH.size
    while len(got) < wanted:
        data = await loop.sock_recv(line, _READ)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the other side is gone")
        got += data
        if len(got) >= _LENGTH.size:
            wanted = _LENGTH.size + _LENGTH.unpack_from(got)[0]
    return pickle.loads(memoryview(got)[_LENGTH.size :])  # noqa: S301 - our own process wrote it


def _fork(number: int, page: Page) -> _Member:
    near, far = socket.socketpair()
    near.settimeout(0.0)
    pid = os.fork()
    if pid == 0:
        near.close()
        _generate(number, far, page)
    far.close()
    return _Member(pid, near)


def _generate(number: int, line: socket.socket, page: Page) -> NoReturn:
    """The child: works until its line is closed."""
    status = 1
    try:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell or `timeout` tells the group
            signal.signal(one, signal.SIG_IGN)  # the parent decides what an interruption means
        line.settimeout(0.0)
        import uvloop  # noqa: PLC0415 - while the parent asks the endpoint who it is

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(number, line, page))
        status = 0
    except BaseException as error:  # noqa: BLE001 - a child must not fall back into its parent's program
        os.write(2, f"load generator {number}: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


async def _serve(number: int, line: socket.socket, page: Page) -> NoReturn:
    """Take orders until the line is closed; then the process ends, even in the middle of a rung."""
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[tuple[Order, object]] = asyncio.Queue()

    async def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                orders.put_nowait(cast("tuple[Order, object]", await _receive(loop, line)))
        os._exit(0)

    listener = asyncio.create_task(listen())
    work = Work(page, number)
    while True:
        order, content = await orders.get()
        try:
            answer = (True, await work.take(order, content))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = (False, error)
        await loop.sock_sendall(line, _packed(answer))
        if listener.done():
            os._exit(0)
