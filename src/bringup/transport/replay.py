"""Answers from a recording, in place of a host and an endpoint."""

from collections.abc import Mapping, Sequence

from bringup.transport.script import CLOCK_KEY
from bringup.values.exchange import Answer, Ask, Problem, Program, ProgramResult
from bringup.values.host import NOT_RECORDED, CommandResult, Question
from bringup.values.recording import Recording

_ABSENT = NOT_RECORDED


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
    """The recorded endpoint. A key that is a path names a probe, `check/key` the answer to a check's ask."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def send(self, ask: Ask) -> Answer:
        """The recorded answer; `not_asked` when there is none."""
        if ask.key.startswith("/"):
            found = self._recording.probes.get(ask.key)
        else:
            check, _, key = ask.key.partition("/")
            found = self._recording.answers.get(check, {}).get(key)
        return found or Answer(key=ask.key, problem=Problem.NOT_ASKED, detail=_ABSENT)

    async def close(self) -> None:
        """Nothing to close."""


class ReplaySandbox:
    """The recorded runs of programs: nothing is executed."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def run(self, program: Program) -> ProgramResult:
        """The recorded result; `unavailable` when there is none."""
        check, _, key = program.key.partition("/")
        found = self._recording.programs.get(check, {}).get(key)
        return found or ProgramResult(key=program.key, unavailable=_ABSENT)
