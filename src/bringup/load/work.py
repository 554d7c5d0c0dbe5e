"""What a generator does when it is told: the same for a process here and for an actor on another machine."""

from typing import Literal, cast

from bringup.load.generator import Generator
from bringup.load.page import Page
from bringup.load.self_test import self_test
from bringup.load.task import Task
from bringup.values.bench import GeneratorRun, SelfTest

Order = Literal["test", "prepare", "run"]


class Work:
    """One generator over its life: a self-test, then rungs, each prepared and then run."""

    def __init__(self, page: Page, row: int) -> None:
        self._page = page
        self._row = row
        self._generator: Generator | None = None

    async def take(self, order: Order, content: object) -> SelfTest | GeneratorRun | None:
        """Carry out one order.

        Raises:
            ValueError: a run without having been prepared.
            UsageError: the task names a file that cannot be used.
        """
        if order == "test":
            return await self_test()
        if order == "prepare":
            self._generator = Generator(cast("Task", content), self._page, self._row)
            await self._generator.prepare()
            return None
        generator, self._generator = self._generator, None
        if generator is None:
            raise ValueError("asked to run what was not prepared")
        return await generator.run(cast("int", content))
