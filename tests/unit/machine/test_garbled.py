"""No answer, however cut or garbled, makes a subject crash or invent a number out of rubbish."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bringup import registry
from bringup.machine import Subject, Target
from bringup.parse import process_table
from bringup.values.host import CommandResult, HostSnapshot

FOLDER = Path(__file__).parents[2] / "golden" / "machine"
RECORDED = sorted((path.stem, path.read_text()) for path in FOLDER.glob("*/*.txt"))
SUBJECTS = [
    subject
    for subject in registry.load("bringup.machine", "SUBJECT").values()
    if isinstance(subject, Subject)
]
KEYS = sorted(
    {question.key for subject in SUBJECTS for question in subject.questions(Target(model="m", log_unit="u"))}
)
EMPTY = HostSnapshot(taken_at=1.8e9, host="h")

NUMBERS = st.one_of(
    st.integers(-3, 70000).map(str),
    st.just("9" * 30),
    st.just("9" * 5000),
    st.just("٣"),
    st.just(""),
    st.just("0x"),
)
WORDS = st.one_of(
    NUMBERS,
    st.sampled_from(
        [
            "self",
            "0100007F:1F40",
            "FFFF:1",
            "docker",
            "unit",
            "Uid:\t1\t2",
            "kB",
            "@@",
            "Max open files",
            "-",
            "%",
            "/",
        ]
    ),
    st.text(max_size=6),
)
KINDS = st.sampled_from([*process_table._READERS, "@@", "0000:01:00.0", "MemTotal:", "/dev/sda1"])
LINES = st.builds(lambda kind, words: " ".join((kind, *words)), KINDS, st.lists(WORDS, max_size=6))


@st.composite
def answers(draw):
    """A recorded answer with a piece cut out and something else in its place."""
    key, text = draw(st.sampled_from(RECORDED))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    middle = draw(st.one_of(st.text(max_size=40), WORDS, st.lists(LINES, max_size=8).map("\n".join)))
    return key, text[:start] + middle + draw(st.sampled_from([text[end:], ""]))


def read_all(key, text, **fields):
    snapshot = EMPTY
    for subject in SUBJECTS:
        result = CommandResult(key=key, status=fields.pop("status", 0), stdout=text, elapsed_s=0.1, **fields)
        snapshot = subject.read(snapshot, {key: result})
    json.loads(msgspec.json.encode(snapshot))
    return snapshot


@given(answers())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_garbled_answer_is_read_without_a_crash(answer):
    snapshot = read_all(*answer)
    for engine in snapshot.engines:
        assert engine.port is None or 0 <= engine.port <= 65535
        assert engine.resident is None or engine.resident >= 0
    for disk in snapshot.disks:
        assert disk.size is not None
        assert disk.size >= 0
        assert disk.available is None or disk.available >= 0


@given(st.sampled_from([*KEYS, "transport.clock"]), st.lists(LINES, max_size=30).map("\n".join))
@settings(max_examples=300, deadline=None)
def test_lines_of_the_right_kind_with_wrong_contents_are_read_without_a_crash(key, text):
    read_all(key, text)


@pytest.mark.parametrize("key", [*KEYS, "transport.clock"])
@pytest.mark.parametrize(
    "unit", [" ", "\t", "9", "@@ a\n", "kin 1 1 1\n", "Max ", "a:", "0000:00:00.0 x y\n", "/ "]
)
def test_a_long_answer_is_read_in_one_go(key, unit):
    read_all(key, unit * (200_000 // len(unit)))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_was_not_answered_is_said(subject):
    keys = [question.key for question in subject.questions(Target(port=1, model="m", log_unit="u"))]
    for fields, words in (
        ({"skipped": "another question of its group hangs"}, "hangs"),
        ({"timed_out": True}, "time limit"),
        ({"stderr": "sh: fork: no more processes\n"}, "fork"),
    ):
        results = {key: CommandResult(key=key, status=None, **fields) for key in keys}
        snapshot = subject.read(EMPTY, results)
        assert any(words in line for line in snapshot.missing), (words, snapshot.missing)
    if subject.questions(Target()):
        assert any("not asked" in line for line in subject.read(EMPTY, {}).missing)


def test_no_subject_drops_what_another_one_has_filled_in():
    full = EMPTY
    for key, text in RECORDED:
        for subject in SUBJECTS:
            before = full
            after = subject.read(full, {key: CommandResult(key=key, status=0, stdout=text)})
            assert after.missing[: len(before.missing)] == before.missing
            assert (after.taken_at, after.host, after.gpus) == (before.taken_at, before.host, before.gpus)
