"""Answers from a recording, in place of a host and an endpoint."""

from collections.abc import Mapping, Sequence

from bringup.transport.script import CLOCK_KEY
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.host import CommandResult, Question
from bringup.values.recording import Recording

_ABSENT = "not in the recording"


class ReplayRunner:
    """The recorded host. `snapshot` names which of the recorded snapshots answers."""

    def __init__(self, recording: Recording, snapshot: str = "before") -> None:
        self._recording = recording
        self._snapshot = snapshot

    @property
    def host(self) -> str:
        """The recorded host's name."""
        return self._recording.host

    def at(self, snapshot: str) -> "ReplayRunner":
        """The same host at another recorded snapshot: "before", "after"."""
        return ReplayRunner(self._recording, snapshot)

    async def ask(self, questions: Sequence[Question]) -> Mapping[str, CommandResult]:
        """The recorded results; a question that was not recorded is skipped, with the reason."""
        recorded = self._recording.snapshots.get(self._snapshot, {})
        keys = [*(question.key for question in questions), CLOCK_KEY]
        return {
            key: recorded.get(key) or CommandResult(key=key, status=None, skipped=_ABSENT) for key in keys
        }

    async def close(self) -> None:
        """Nothing to close."""


class ReplayEndpoint:
    """The recorded endpoint. With `check` the answers of that check, without it the probes by path."""

    def __init__(self, recording: Recording, check: str | None = None) -> None:
        self._recording = recording
        self._check = check

    def for_check(self, check: str) -> "ReplayEndpoint":
        """The same endpoint answering for one check: keys are unique only within a check."""
        return ReplayEndpoint(self._recording, check)

    async def send(self, ask: Ask) -> Answer:
        """The recorded answer; `not_asked` when there is none."""
        if self._check is None:
            found = self._recording.probes.get(ask.path)
        else:
            found = self._recording.answers.get(self._check, {}).get(ask.key)
        return found or Answer(key=ask.key, problem=Problem.NOT_ASKED, detail=_ABSENT)

    async def close(self) -> None:
        """Nothing to close."""
