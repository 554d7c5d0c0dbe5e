"""Generators as actors on the nodes of a Ray cluster that runs already: load from many machines at once.

The same generator does the work in each; Ray places it, carries its task there and its records back. The
nodes' clocks are compared before each rung, so that all begin together and their records share one axis.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import bringup
from bringup.errors import BringupError, HostError, UsageError
from bringup.load.fleet import worst
from bringup.load.page import Counts, Page, Wish
from bringup.load.task import Task
from bringup.load.work import Order, Work
from bringup.values.bench import GeneratorRun, SelfTest

_LEAD_NS = 100_000_000  # a call to a busy cluster takes some milliseconds
_COMPARISONS = 9
_PLACED_WITHIN_S = 60.0
_KNOCK_S = 5.0


class Member:
    """One generator on its node, as Ray runs it: two threads, one that works and one that answers."""

    def __init__(self) -> None:
        import uvloop  # noqa: PLC0415 - on the node

        self._page = Page(1)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._work = Work(self._page, 0)

    def clock(self) -> int:
        """The node's monotonic clock, nanoseconds."""
        return time.monotonic_ns()

    def take(self, order: Order, content: object) -> object:
        """Carry out one order, to its end."""
        return self._runner.run(self._work.take(order, content))

    def counts(self) -> Counts:
        """How far the running rung is."""
        return self._page.read(0)

    def ask(self, wish: Wish) -> None:
        """Finish or hang up; or forget the wish of the rung before."""
        self._page.ask(wish)


@dataclass(frozen=True, slots=True)
class _Placed:
    """An actor and where it is."""

    actor: Any
    node: str


def ray_fleet(address: str | None, generators: int | None) -> "RayFleet":
    """Places generators on the cluster's nodes in turn; by default one per node.

    Raises:
        UsageError: Ray is not installed here.
        HostError: no cluster answers, or it has no room.
    """
    try:
        import ray  # noqa: PLC0415 - an extra
        from ray.exceptions import RayError  # noqa: PLC0415
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "--engine ray needs Ray, which is not installed", hint="pip install 'bringup[ray]'"
        ) from None
    _knock(address)
    try:
        ray.init(
            address=address or "auto",
            log_to_driver=False,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
            # our own code goes with the task, so that every node measures with the same; libraries do not
            runtime_env={"py_modules": [str(Path(bringup.__file__).parent)], "excludes": ["__pycache__"]},
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise HostError(
            f"no Ray cluster at `{address or 'auto'}`: {str(error).splitlines()[0]}",
            hint="`ray start --head` on one machine, `ray start --address HEAD:6379` on the others",
        ) from None
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise HostError("the Ray cluster has no node with a processor", hint="`ray status` shows the nodes")
    member = ray.remote(Member)
    placed: list[_Placed] = []
    for number in range(generators or len(nodes)):
        node = nodes[number % len(nodes)]
        actor = member.options(
            max_concurrency=2,
            num_cpus=1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote()
        placed.append(_Placed(actor, f"{node['NodeManagerHostname']} {number}"))
    fleet = RayFleet(placed)
    try:
        ray.get([one.actor.clock.remote() for one in placed], timeout=_PLACED_WITHIN_S)
    except RayError as error:
        fleet.end()
        raise HostError(
            f"the Ray cluster did not start {len(placed)} generators: {_last_line(error)}",
            hint="each needs a free processor (`ray status`) and the libraries of bringup on its node",
        ) from None
    return fleet


def _knock(address: str | None) -> None:
    """Ray itself tries for a minute to reach a head that is not there."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto" and the like: Ray looks for the cluster of this machine
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()
    except OSError as error:
        raise HostError(
            f"no Ray cluster at `{address}`: {error.strerror or error}",
            hint="`ray start --head` on one machine, `ray start --address HEAD:6379` on the others",
        ) from None


class RayFleet:
    """The side of whoever measures."""

    def __init__(self, placed: Sequence[_Placed]) -> None:
        self._placed = placed
        self._counts: dict[int, Counts] = {}
        self._asking: dict[int, Any] = {}

    @property
    def size(self) -> int:
        """How many generators there are."""
        return len(self._placed)

    async def test(self) -> SelfTest:
        """What the instrument measures of itself; of several generators the worst."""
        tests = await asyncio.gather(*(_told(one, "test", None) for one in self._placed))
        return worst([cast("SelfTest", test) for test in tests])

    async def run(self, tasks: Sequence[Task]) -> tuple[GeneratorRun, ...]:
        """One rung: one task per generator, from the first on, begun at the same moment."""
        members = self._placed[: len(tasks)]
        self._counts.clear()
        await asyncio.gather(*(_answer(one, one.actor.ask.remote(Wish.GO)) for one in members))
        named = [replace(task, name=one.node) for one, task in zip(members, tasks, strict=True)]
        await asyncio.gather(*(_told(one, "prepare", task) for one, task in zip(members, named, strict=True)))
        offsets = await asyncio.gather(*(_offset(one) for one in members))
        start = time.monotonic_ns() + _LEAD_NS
        runs = await asyncio.gather(
            *(_told(one, "run", start + ahead) for one, (ahead, _) in zip(members, offsets, strict=True))
        )
        return tuple(
            replace(cast("GeneratorRun", run), began_ns=start, clock_error_ns=error)
            for run, (_, error) in zip(runs, offsets, strict=True)
        )

    def counts(self) -> Counts:
        """How far the running rung is, as far as the nodes have told; asks them for the next time."""
        import ray  # noqa: PLC0415 - an extra

        for number, one in enumerate(self._placed):
            asked = self._asking.get(number)
            if asked is not None and ray.wait([asked], timeout=0)[0]:
                self._counts[number] = ray.get(self._asking.pop(number))
                asked = None
            if asked is None:
                self._asking[number] = one.actor.counts.remote()
        rows = list(self._counts.values())
        return Counts(
            started=sum(row.started for row in rows),
            finished=sum(row.finished for row in rows),
            failed=sum(row.failed for row in rows),
            running=sum(row.running for row in rows),
            events=sum(row.events for row in rows),
            lag_us=max((row.lag_us for row in rows), default=0),
            first_tokens=sum(row.first_tokens for row in rows),
        )

    def ask(self, wish: Wish) -> None:
        """Tell the generators to finish or to hang up."""
        for one in self._placed:
            one.actor.ask.remote(wish)

    async def close(self) -> None:
        """End the generators; the cluster stays."""
        await asyncio.sleep(0)
        self.end()

    def end(self) -> None:
        """The same, at once."""
        import ray  # noqa: PLC0415 - an extra

        for one in self._placed:
            ray.kill(one.actor)
        ray.shutdown()


async def _told(one: _Placed, order: Order, content: object) -> object:
    return await _answer(one, one.actor.take.remote(order, content))


async def _answer(one: _Placed, asked: Any) -> object:
    """What a node answers.

    Raises:
        BringupError: the actor or its node died, or the order failed there.
    """
    from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415 - an extra

    try:
        return await asyncio.wrap_future(asked.future())
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, BringupError):
            raise cause from None
        raise BringupError(f"the generator on {one.node} failed: {cause}") from None
    except RayError as error:
        raise BringupError(
            f"the generator on {one.node} died: {_last_line(error)}",
            hint="`ray status` and the node's logs tell why",
        ) from None


def _last_line(error: Exception) -> str:
    """Ray's errors end with what went wrong there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


async def _offset(one: _Placed) -> tuple[int, int]:
    """How far a node's clock is ahead of ours, and by how much that may be wrong, nanoseconds.

    The answer whose way there and back was shortest tells most: the error is at most half of that way.
    """
    best: tuple[int, int] | None = None
    for _ in range(_COMPARISONS):
        asked = time.monotonic_ns()
        there = cast("int", await _answer(one, one.actor.clock.remote()))
        came = time.monotonic_ns()
        if best is None or came - asked < 2 * best[1]:
            best = (there - (asked + came) // 2, (came - asked) // 2)
    if best is None:
        raise AssertionError("at least one comparison was made")
    return best
