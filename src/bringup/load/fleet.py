"""Who generates the load: generators that prepare, start together and give their records back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from bringup.load.page import Counts, Wish
from bringup.load.task import Task
from bringup.values.bench import GeneratorRun, SelfTest


class Fleet(Protocol):
    """Generators, here or on other machines."""

    @property
    def size(self) -> int:
        """How many generators there are."""
        ...

    async def test(self) -> SelfTest:
        """What the instrument measures of itself: of its generators the worst.

        Raises:
            BringupError: a generator died.
        """
        ...

    async def run(self, tasks: Sequence[Task]) -> tuple[GeneratorRun, ...]:
        """One rung: at most one task per generator, all started at the same moment.

        Raises:
            BringupError: a generator died.
        """
        ...

    def counts(self) -> Counts:
        """How far the running rung is, over all generators."""
        ...

    def ask(self, wish: Wish) -> None:
        """Tell the generators to finish or to hang up; each `run` begins with no wish."""
        ...

    async def close(self) -> None:
        """End the generators."""
        ...


def shares(task: Task, generators: int) -> tuple[Task, ...]:
    """One rung for several generators: streams, requests and connections as evenly as they divide.

    Generators that would have nothing to do get no task.
    """
    used = min(
        generators,
        task.streams if task.streams is not None else generators,
        task.requests if task.requests is not None else generators,
    )
    return tuple(
        replace(
            task,
            generator=number,
            generators=used,
            streams=None if task.streams is None else _share(task.streams, number, used),
            requests=None if task.requests is None else _share(task.requests, number, used),
            most_open=max(1, _share(task.most_open, number, used)),
            name=f"local {number}",
        )
        for number in range(used)
    )


def worst(tests: Sequence[SelfTest]) -> SelfTest:
    """The self-test of several generators as one: the largest of each figure."""
    return SelfTest(
        deliver_p50_s=max(test.deliver_p50_s for test in tests),
        deliver_p99_s=max(test.deliver_p99_s for test in tests),
        lag_p50_s=max(test.lag_p50_s for test in tests),
        lag_p99_s=max(test.lag_p99_s for test in tests),
        clock_step_s=max(test.clock_step_s for test in tests),
        seconds=max(test.seconds for test in tests),
    )


def _share(whole: int, number: int, parts: int) -> int:
    return whole // parts + (number < whole % parts)
