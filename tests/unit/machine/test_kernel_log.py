"""The kernel's log, from every source that tells it, with the wall's time."""

import shutil
import subprocess

import pytest
from busybox import PREFERS_OWN, prefers_its_own

from bringup.machine import Target
from bringup.machine.kernel_log import SUBJECT
from bringup.values.host import NOT_RECORDED, CommandResult, Gpu, GpuDriver, HostSnapshot, KernelLog

(QUESTION,) = SUBJECT.questions(Target())
CLOCK = "@@ clock\n1100\n100.00 7.00\n"
OOM = "Out of memory: Killed process 812 (python3) total-vm:9kB"


def read(text, **more):
    result = CommandResult(key=QUESTION.key, status=0, stdout=text)
    return SUBJECT.read(HostSnapshot(taken_at=0.0, host="here", **more), {QUESTION.key: result})


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


XID = "NVRM: Xid (PCI:0000:06:00): 79, pid=77, name=python3, GPU has fallen off the bus."
CARDS = {"gpus": (Gpu(index=0),)}


@pytest.mark.parametrize("how", ["iso", "boot", "unix"])
def test_errors_of_gpus_are_among_the_lines_whoever_tells_them(how):
    first, at = {
        "iso": ("1970-01-01T00:16:40,000000+00:00", "1970-01-01T00:16:52,500000+00:00"),
        "boot": ("[    0.000000]", "[   12.500000]"),
        "unix": ("1700000000.000000 box kernel:", "1700000012.500000 box kernel:"),
    }[how]
    clock = CLOCK if how != "unix" else "@@ clock\n1700000100\n100.00 7.00\n"
    log = read(f"{clock}@@ log {how}\nfirst {first} Linux\nline {at} {XID}\n@@ end\n", **CARDS).gpu_log
    assert log is not None
    assert (log.uptime, log.begins_at, log.refused) == (100.0, 0.0, None)
    (error,) = log.errors
    assert (error.code, error.bus_id, error.at, error.pid) == (79, "0000:06:00.0", 12.5, 77)
    assert error.text == "pid=77, name=python3, GPU has fallen off the bus."


def test_a_refusal_is_told_in_its_words():
    text = (
        f"{CLOCK}@@ log iso\n@@ refused\ndmesg: read kernel buffer failed: Operation not permitted\n@@ end\n"
    )
    refused = KernelLog(refused="read kernel buffer failed: Operation not permitted")
    assert read(text, **CARDS).gpu_log == refused
    assert read(text, driver=GpuDriver(module="595.58.03")).gpu_log == refused
    assert read(text).gpu_log is None


def test_a_host_without_the_driver_has_no_errors_to_tell():
    text = CLOCK + "@@ log boot\nfirst [    0.000000] Linux\n{}@@ end\n"
    assert read(text.format("")).gpu_log is None
    assert read(text.format(""), gpus=(Gpu(index=0, vendor="amd"),)).gpu_log is None
    assert read(text.format(f"line [ 9.5] {XID}\n")).gpu_log is not None  # its driver has gone meanwhile


def test_the_log_that_reaches_further_back_is_read():
    late = "@@ log boot\nfirst [ 90.0] x\nline [ 95.0] NVRM: Xid (PCI:0000:06:00): 43, x\n"
    journal = f"@@ log unix\nfirst 1000000000.0 b kernel: L\nline 1000000012.5 b kernel: {XID}\n"
    clock = "@@ clock\n1000000100\n100.00 7.00\n"
    snapshot = read(f"{clock}{late}{journal}@@ end\n", **CARDS)
    assert [error.code for error in snapshot.gpu_log.errors] == [79]
    assert (snapshot.gpu_log.begins_at, snapshot.kernel_log) == (0.0, "the journal")
    snapshot = read(f"{clock}{late}@@ log unix\n@@ end\n", **CARDS)
    assert (snapshot.gpu_log.begins_at, [one.code for one in snapshot.gpu_log.errors]) == (90.0, [43])


SHELLS = [
    pytest.param(
        argv,
        id=argv[-1],
        marks=[
            pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]} here"),
            pytest.mark.skipif(argv[0] == "busybox" and prefers_its_own(), reason=PREFERS_OWN),
        ],
    )
    for argv in (("dash",), ("busybox", "sh"), ("bash", "--posix"))
]
REFUSES = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2\nexit 1"
STAMP = "1970-01-01T00:16:40,000000+00:00"
ISO = "case $* in *iso*) ;; *) exit 1 ;; esac"


@pytest.fixture(params=SHELLS)
def ask(request, tmp_path):
    """Asks the question where `dmesg` and `journalctl` are these scripts."""
    for name in ("awk", "cat", "date", "head", "sh", "timeout"):
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)

    def answer(**commands):
        for name, body in commands.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)
        shell = request.param
        done = subprocess.run(
            [str(shutil.which(shell[0])), *shell[1:], "-c", QUESTION.script.replace(":/usr/sbin:/sbin", "")],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": str(tmp_path), "LC_ALL": "C"},
            check=False,
        )
        assert done.stderr == ""
        return done.stdout

    return answer


def test_the_journal_is_asked_only_where_dmesg_lacks_the_beginning(ask):
    whole = f"{ISO}; echo '{STAMP} Linux version 6'; echo '{STAMP} {XID}'; echo '{STAMP} other'"
    text = ask(dmesg=whole, journalctl="echo never")
    assert "log unix" not in text
    assert read(text, **CARDS).kernel_lines[0].text == XID
    assert "other" not in text
    late = f"{ISO}; echo '{STAMP} other'"
    assert f"line 1.5 b kernel: {XID}" in ask(dmesg=late, journalctl=f"echo '1.5 b kernel: {XID}'")
    assert "refused" not in ask(dmesg=late, journalctl="exit 1")


def test_a_plain_dmesg_is_asked_where_it_knows_no_format(ask):
    plain = f"[ $# -eq 0 ] || exit 1; echo '[    0.000000] Booting'; echo '[   12.500000] {XID}'"
    text = ask(dmesg=plain, journalctl="echo never")
    assert "@@ log boot\nfirst [    0.000000] Booting" in text
    assert "never" not in text


def test_the_journal_stands_in_for_a_log_that_may_not_be_read(ask):
    text = ask(dmesg=REFUSES, journalctl=f"echo '1700000000.5 b kernel: {XID}'")
    assert read(text, **CARDS).kernel_log == "the journal"
    assert "refused" not in text
    refused = read(ask(dmesg=REFUSES, journalctl="exit 1"), **CARDS)
    assert refused.gpu_log.refused == "read kernel buffer failed: Operation not permitted"
