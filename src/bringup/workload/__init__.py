"""What is sent: prompts, lengths, arrivals, conversations, traces. Pure: every draw comes from a seed."""

from collections.abc import Iterator
from typing import Protocol

from bringup.values.bench import LoadRequest


class Workload(Protocol):
    """A source of requests. The same seed gives the same requests, however many generators share them.

    Instances are plain data that msgspec or pickle can carry to another machine.
    """

    @property
    def words(self) -> str:
        """The workload in words, as the report names it."""
        ...

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator, lazily and without end unless the source ends.

        Request `i` belongs to generator `i % generators`. With an open loop `at_s` ascends. Of a
        conversation only the first turn comes from here.
        """
        ...

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The turn after `request`, which was answered with `answer`; `None` when there is no more."""
        ...
