"""Runs the checks' asks against an endpoint, phase by phase, within a budget of time.

Nothing is judged here. Whatever is not sent becomes an answer with the problem `NOT_ASKED`, so that a check
can say "not measured" instead of guessing.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from bringup.checks import MAX_ROUNDS, Batch, Check, Replies
from bringup.transport import Endpoint
from bringup.values.deployment import Deployment
from bringup.values.exchange import Answer, Ask, Problem, Program, ProgramResult

PHASES = ("shared", "exclusive", "hostile", "load", "last", "judge")
_STATES = {Problem.QUEUED: "is full", Problem.SLOW: "is too slow"}
_SILENT_ASKS = 2  # so many asks in a row without one byte: the endpoint hangs, the rest would only wait


AtWork = Callable[[], Awaitable[tuple[Problem, str] | None]]


class Sandbox(Protocol):
    """Runs a model's program where it can be isolated."""

    async def run(self, program: Program) -> ProgramResult:
        """What the program did; `unavailable` when it could not be isolated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of progress: what is being asked, how many checks are done."""

    check: str
    title: str
    done: int
    total: int


@dataclass(slots=True)
class Observed:
    """All replies of one run, by check and key."""

    answers: dict[str, dict[str, Answer]] = field(default_factory=dict[str, dict[str, Answer]])
    programs: dict[str, dict[str, ProgramResult]] = field(default_factory=dict[str, dict[str, ProgramResult]])

    def replies_of(self, name: str, *, with_everyone: bool = False) -> Replies:
        """The replies one check gets to see."""
        return Replies(
            answers=self.answers.get(name, {}),
            programs=self.programs.get(name, {}),
            everyone=self.answers if with_everyone else {},
        )


class Exercise:
    """One run of the checks' asks."""

    def __init__(
        self,
        deployment: Deployment,
        endpoint: Endpoint,
        sandbox: Sandbox,
        *,
        budget_s: float,
        on_step: Callable[[Step], None],
        gives_up: bool = True,  # on an endpoint that is gone; a recording says itself what was not asked
    ) -> None:
        self.deployment = deployment
        self.observed = Observed()
        self._endpoint = endpoint
        self._sandbox = sandbox
        self._deadline = time.monotonic() + (budget_s if gives_up else math.inf)
        self._budget_s = budget_s
        self._on_step = on_step
        self._gives_up = gives_up
        self.at_work: AtWork | None = None  # whether the engine works while it lets us wait
        self.beside: Mapping[str, AbstractAsyncContextManager[object]] = {}  # phase -> what runs with it
        self._silent = 0
        self._gone = ""  # why nothing more is sent

    async def run(self, checks: Mapping[str, Check]) -> Observed:
        """The replies to everything that `checks` asked, in the order of the phases."""
        total, done = len(checks), 0
        for phase in PHASES:
            names = [name for name, check in checks.items() if check.phase == phase and check.asks]
            width = self._width() if phase == "shared" else 1
            gate = asyncio.Semaphore(width)

            async def one(name: str, gate: asyncio.Semaphore = gate) -> None:
                nonlocal done
                async with gate:
                    self._on_step(Step(check=name, title=checks[name].title, done=done, total=total))
                    await self._ask_all(name, checks[name])
                    done += 1

            async with self.beside.get(phase, nullcontext()) if names else nullcontext():
                await asyncio.gather(*(one(name) for name in names))
        return self.observed

    def _width(self) -> int:
        """How many checks may ask at once: no more than the engine has places, so that none waits."""
        places = self.deployment.engine.kv.slots or self.deployment.engine.max_running or 4
        return max(1, min(4, places))

    async def _ask_all(self, name: str, check: Check) -> None:
        answers = self.observed.answers.setdefault(name, {})
        programs = self.observed.programs.setdefault(name, {})
        for _ in range(MAX_ROUNDS):
            batch: Batch = check.asks(self.deployment, self.observed.replies_of(name)) if check.asks else ()
            if not batch:
                return
            replies = await asyncio.gather(*(self._one(name, ask) for ask in batch))
            for reply in replies:
                if isinstance(reply, Answer):
                    answers[reply.key] = reply
                else:
                    programs[reply.key] = reply

    async def _one(self, name: str, ask: Ask | Program) -> Answer | ProgramResult:
        if isinstance(ask, Program):
            result = await self._sandbox.run(replace(ask, key=f"{name}/{ask.key}"))
            return replace(result, key=ask.key)
        left = self._deadline - time.monotonic()
        if left <= 0 and not self._gone:
            self._gone = f"the time for all requests ({self._budget_s:g} s) was used up"
        if self._gone:
            return Answer(key=ask.key, problem=Problem.NOT_ASKED, detail=self._gone)
        limit = min(ask.time_limit_s, left)
        answer = await self._endpoint.send(replace(ask, key=f"{name}/{ask.key}", time_limit_s=limit))
        if _got_nothing(answer) and self._gives_up and self.at_work is not None:
            found = await self.at_work()
            if found is not None:
                detail = f"nothing within {limit:.0f} s, {found[1]}"
                answer = replace(answer, problem=found[0], detail=detail)
        self._watch(answer)
        return replace(answer, key=ask.key)

    def _watch(self, answer: Answer) -> None:
        """Notices an endpoint that is gone or hangs, so that the rest is not asked in vain."""
        if not self._gives_up:
            return
        if answer.problem is Problem.REFUSED:
            self._gone = f"the endpoint stopped listening ({answer.detail})"
        elif answer.problem in _STATES or _got_nothing(answer):
            self._silent += 1
            if self._silent >= _SILENT_ASKS:
                state = _STATES.get(answer.problem or Problem.TIME_LIMIT, "hangs")
                self._gone = f"the endpoint {state}: {self._silent} requests in a row got no byte"
        else:
            self._silent = 0


def _got_nothing(answer: Answer) -> bool:
    """Whether the time was over before the first byte."""
    return answer.problem is Problem.TIME_LIMIT and answer.first_byte_s is None
