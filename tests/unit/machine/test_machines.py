"""Every recorded machine gives the snapshot that a person reads in its answers.

A case is a folder: `case.json` says what it is, `KEY.txt` is the standard output of one question,
`expected.json` the snapshot without the fields that stayed at their defaults
(`BRINGUP_GOLDEN=write` renews it).
"""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from bringup import registry
from bringup.machine import Subject, Target
from bringup.values.host import CommandResult, HostSnapshot

FOLDER = Path(__file__).parents[2] / "golden" / "machine"
CASES = sorted(path.name for path in FOLDER.iterdir())
SUBJECTS = registry.load("bringup.machine", "SUBJECT")


def read(case: str) -> HostSnapshot:
    about = json.loads((FOLDER / case / "case.json").read_text())
    late = about.get("timed_out", ())
    results = {
        path.stem: CommandResult(
            key=path.stem,
            status=None if path.stem in late else 0,
            stdout=path.read_text(),
            timed_out=path.stem in late,
            elapsed_s=about.get("elapsed_s", {}).get(path.stem),
        )
        for path in sorted((FOLDER / case).glob("*.txt"))
    }
    snapshot = HostSnapshot(taken_at=about["taken_at"], host=case)
    for name, subject in SUBJECTS.items():
        assert isinstance(subject, Subject)
        # A case may be about one subject alone.
        if any(question.key in results for question in subject.questions(Target())):
            snapshot = subject.read(snapshot, results)
        assert snapshot.host == case, name
    return snapshot


def told(value: object) -> object:
    """The record as JSON, without what nobody told."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: told(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {name: field for name, field in fields.items() if field not in (None, [], {})}
    if isinstance(value, tuple | list):
        return [told(item) for item in value]
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and value == float("inf") else value


@pytest.mark.parametrize("case", CASES)
def test_the_recorded_machine_reads_as_expected(case):
    text = json.dumps(told(read(case)), indent=2, ensure_ascii=False) + "\n"
    expected = FOLDER / case / "expected.json"
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("case", CASES)
def test_reading_the_subjects_in_any_order_gives_the_same(case):
    about = json.loads((FOLDER / case / "case.json").read_text())
    results = {
        path.stem: CommandResult(key=path.stem, status=0, stdout=path.read_text(), elapsed_s=1.0)
        for path in (FOLDER / case).glob("*.txt")
    }
    forward = backward = HostSnapshot(taken_at=about["taken_at"], host=case)
    for subject in SUBJECTS.values():
        assert isinstance(subject, Subject)
        forward = subject.read(forward, results)
    for subject in reversed(SUBJECTS.values()):
        assert isinstance(subject, Subject)
        backward = subject.read(backward, results)
    assert dataclasses.replace(forward, missing=()) == dataclasses.replace(backward, missing=())
    assert sorted(forward.missing) == sorted(backward.missing)
