"""The kernel's log, from every source that tells it, with the wall's time."""

import pytest

from bringup.machine import Target
from bringup.machine.kernel_log import SUBJECT
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot

(QUESTION,) = SUBJECT.questions(Target())
CLOCK = "@@ clock\n1100\n100.00 7.00\n"
OOM = "Out of memory: Killed process 812 (python3) total-vm:9kB"


def read(text):
    result = CommandResult(key=QUESTION.key, status=0, stdout=text)
    return SUBJECT.read(HostSnapshot(taken_at=0.0, host="here"), {QUESTION.key: result})


@pytest.mark.parametrize(
    ("how", "stamp", "source"),
    [
        ("iso", "1970-01-01T01:16:52,500000+01:00", "dmesg"),
        ("iso", "1970-01-01T00:16:52.500+00:00", "dmesg"),
        ("boot", "[   12.500000]", "dmesg"),
        ("boot", "<6>[   12.500000][ T812]", "dmesg"),
        ("unix", "1012.500000 box kernel:", "the journal"),
    ],
)
def test_each_form_gives_the_time_and_the_text(how, stamp, source):
    if how == "unix":
        stamp = stamp.replace("1012.5", "1700001012.5")
    snapshot = read(f"{CLOCK}@@ log {how}\nfirst {stamp} Linux version\nline {stamp} {OOM}\n@@ end\n")
    (line,) = snapshot.kernel_lines
    assert line.text == OOM
    assert line.at == (1700001012.5 if how == "unix" else 1012.5)
    assert snapshot.kernel_log_since == line.at
    assert snapshot.kernel_log == source
    assert snapshot.missing == ()


def test_a_log_without_such_lines_was_read_all_the_same():
    snapshot = read(CLOCK + "@@ log iso\n@@ log boot\nfirst [    0.000000] Linux\n@@ end\n")
    assert snapshot.kernel_log == "dmesg"
    assert snapshot.kernel_log_since == 1000.0
    assert snapshot.kernel_lines == ()


def test_a_log_that_may_not_be_read_is_said_to_be_missing():
    text = CLOCK + "@@ log iso\n@@ log boot\n@@ log unix\n@@ refused\n"
    snapshot = read(f"{text}dmesg: read kernel buffer failed: Operation not permitted\n@@ end\n")
    assert snapshot.kernel_log is None
    assert snapshot.missing == ("the kernel's log: read kernel buffer failed: Operation not permitted",)


def test_a_recording_made_before_the_question_says_nothing():
    snapshot = HostSnapshot(taken_at=0.0, host="here")
    absent = CommandResult(key=QUESTION.key, status=None, skipped=NOT_RECORDED)
    assert SUBJECT.read(snapshot, {QUESTION.key: absent}) == snapshot


def test_a_garbled_time_is_no_time():
    snapshot = read("@@ clock\nx\n@@ log iso\nfirst y\nline 2026-13-01T00:00:00,0+00:00 NVRM: Xid\n@@ end\n")
    assert [(line.at, line.text) for line in snapshot.kernel_lines] == [(None, "NVRM: Xid")]
