"""Whether a freshly started endpoint can be used, and why not yet or never."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How far an endpoint has come."""

    READY = "ready"  # it has generated a token for the expected model
    LOADING = "loading"  # not yet: nothing listens, or it says so
    FAILING = "failing"  # it is up and does not generate
    SQUATTED = "squatted"  # the port is another server's
    CLOSED = "closed"  # it wants a key, or another one
    DEAD = "dead"  # the process that was started has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """One judgement: the state, the reason in words, and whether waiting can still change it."""

    state: State
    reason: str
    is_final: bool = False
