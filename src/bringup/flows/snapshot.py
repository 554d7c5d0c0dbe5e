"""Takes a snapshot of a host: every question of every vendor and subject, in one round trip."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from bringup import registry
from bringup.machine import Subject, Target
from bringup.transport import Runner
from bringup.values.host import CommandResult, HostSnapshot, Question
from bringup.vendors import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Who asks a host: GPU makers and subjects of the operating system."""

    vendors: Mapping[str, Vendor]
    subjects: Mapping[str, Subject]

    def questions(self, target: Target) -> tuple[Question, ...]:
        """All questions of a snapshot."""
        asked = [question for vendor in self.vendors.values() for question in vendor.questions]
        for subject in self.subjects.values():
            asked += subject.questions(target)
        return tuple(asked)


def sources() -> Sources:
    """All vendors and subjects that there are."""
    return Sources(
        vendors=cast("Mapping[str, Vendor]", registry.load("bringup.vendors", "VENDOR")),
        subjects=cast("Mapping[str, Subject]", registry.load("bringup.machine", "SUBJECT")),
    )


async def ask_host(
    runner: Runner, asked: Sources, target: Target, *, is_first: bool = True
) -> dict[str, CommandResult]:
    """The raw answers of one snapshot, by question key; a second look leaves out what takes its time."""
    questions = asked.questions(target)
    return dict(await runner.ask([one for one in questions if is_first or not one.is_first_look_only]))


def read_snapshot(
    results: Mapping[str, CommandResult], asked: Sources, *, host: str, taken_at: float
) -> HostSnapshot:
    """The snapshot that the raw answers of one moment amount to."""
    snapshot = HostSnapshot(taken_at=taken_at, host=host)
    readings = [vendor.read(results) for vendor in asked.vendors.values()]
    has_gpus = any(reading.gpus for reading in readings)
    for reading in readings:
        state = None if has_gpus and reading.is_absent else reading.state
        states = [state for state in (snapshot.gpu_state, state) if state]
        snapshot = replace(
            snapshot,
            gpus=(*snapshot.gpus, *reading.gpus),
            processes=(*snapshot.processes, *reading.processes),
            links=(*snapshot.links, *reading.links),
            driver=snapshot.driver or reading.driver,
            gpu_state="; ".join(states) or None,
            missing=(*snapshot.missing, *reading.missing),
        )
    for subject in asked.subjects.values():
        snapshot = subject.read(snapshot, results)
    return snapshot
