"""Asks hosts and endpoints. Only this package, `load` and `store` touch the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a plan asks nobody: it loads none of this
    from collections.abc import Mapping, Sequence

    from bringup.values.exchange import Answer, Ask
    from bringup.values.host import CommandResult, Question


class Runner(Protocol):
    """Asks one host. All questions of a call go in one round trip."""

    @property
    def host(self) -> str:
        """The host's name for people: "local", "root@gpubox"."""
        ...

    async def ask(self, questions: Sequence[Question]) -> Mapping[str, CommandResult]:
        """One result per question, by key, whatever happened to it.

        Raises:
            HostError: the host could not be asked at all.
        """
        ...

    async def close(self) -> None:
        """Leave nothing behind: no process, no socket, no file."""
        ...


class Endpoint(Protocol):
    """Sends requests to one endpoint. Never raises for what the server does: that is in the answer."""

    async def send(self, ask: Ask) -> Answer:
        """The answer to one request, whole or with its problem."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
