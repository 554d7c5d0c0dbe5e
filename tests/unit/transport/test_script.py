import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import HostError, UsageError
from bringup.transport.channel import Patience
from bringup.transport.frames import Collector, FrameSplitter
from bringup.transport.local import LocalRunner
from bringup.transport.script import ANSWER_LIMIT, build_script
from bringup.values.host import Question

from .conftest import is_running, wait_until

HANG = f"9{os.getpid():07d}"  # seconds of a sleep that is surely ours

HOSTS = [
    ("dash", ""),
    ("dash", "timeout"),
    ("dash", "timeout setsid"),
    ("bash", ""),
    ("bash", "timeout"),
    ("bash", "timeout setsid"),
    ("busybox sh", ""),
    ("busybox sh", "timeout"),
    ("busybox sh", "timeout setsid"),
]


@pytest.fixture(params=HOSTS, ids=[f"{shell} without {without or 'nothing'}" for shell, without in HOSTS])
def shell(request, host_shell):
    return host_shell(*request.param)


def ask(shell, *questions):
    return asyncio.run(LocalRunner(shell=shell, patience=Patience(grace_s=20.0)).ask(questions))


def test_what_a_question_prints_comes_apart_and_unchanged(shell):
    results = ask(
        shell,
        Question(key="both", script="echo out; echo err >&2; exit 7"),
        Question(key="plain", argv=("printf", "%s", "no newline")),
        Question(key="quoted", argv=("echo", "it's", '"$HOME"', "`id`", "a\nb", "é")),
        Question(key="nothing", argv=("true",)),
        Question(key="missing", argv=("nvidia-smi-of-another-planet",)),
        Question(key="broken", script="if then"),
        Question(key="killed", script="kill -9 $$"),
        Question(key="stdin", argv=("cat",)),
        Question(key="nul", script="printf 'a\\0b'"),
        Question(key="bytes", script="printf '\\377\\376'"),
    )
    both = results["both"]
    assert (both.status, both.stdout, both.stderr) == (7, "out\n", "err\n")
    assert both.elapsed_s is not None
    assert results["plain"].stdout == "no newline"
    assert results["quoted"].stdout == 'it\'s "$HOME" `id` a\nb é\n'
    assert (results["nothing"].status, results["nothing"].stdout) == (0, "")
    assert results["missing"].status == 127
    assert results["broken"].status == 2
    assert results["killed"].status == 137
    assert not results["killed"].timed_out
    assert results["stdin"].stdout == ""
    assert results["nul"].stdout == "a\0b"
    assert results["bytes"].stdout == "\ufffd\ufffd"


def test_a_hanging_question_is_killed_with_its_children_and_skips_its_group(shell):
    results = ask(
        shell,
        Question(key="quick", argv=("echo", "1"), group="gpu"),
        Question(
            key="hang", script=f"sleep {HANG} & echo $! $$; sleep {HANG}", time_limit_s=1.0, group="gpu"
        ),
        Question(key="same", argv=("echo", "2"), group="gpu"),
        Question(
            key="deaf", script=f"trap '' TERM; while :; do sleep {HANG}; done", time_limit_s=1.0, group="x"
        ),
        Question(key="other", argv=("echo", "3")),
    )
    assert results["quick"].stdout == "1\n"
    hang = results["hang"]
    assert (hang.status, hang.timed_out, hang.skipped) == (None, True, "")
    assert "group `gpu`" in results["same"].skipped
    assert results["same"].status is None
    assert results["deaf"].timed_out
    assert results["other"].stdout == "3\n"
    wait_until(lambda: not hanging(), "their end")


def hanging() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", HANG.encode()] and is_running(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


def test_a_process_that_cannot_be_killed_holds_up_nothing(host_shell):
    # out of the group's reach, as one is that hangs inside a driver; it keeps both pipes open
    escaped = f"setsid sh -c 'exec sleep {HANG}'"
    results = ask(
        host_shell("dash"),
        Question(key="stuck", script=f"{escaped} & wait", time_limit_s=1.0),
        Question(key="next", argv=("echo", "x")),
    )
    (escaped_pid,) = hanging()
    os.kill(escaped_pid, signal.SIGKILL)
    assert results["stuck"].timed_out
    assert results["next"].stdout == "x\n"


def test_what_was_said_before_the_time_limit_still_comes(host_shell):
    results = ask(
        host_shell("dash"),
        Question(key="a", script=f"echo half; echo oops >&2; sleep {HANG}", time_limit_s=1.0),
    )
    assert results["a"].stdout == "half\n"
    assert results["a"].stderr.startswith("oops\n")


@pytest.mark.parametrize("host", [HOSTS[0], HOSTS[5], HOSTS[7]], ids=str)
def test_an_endless_answer_is_cut_and_says_so(host_shell, host):
    results = ask(
        host_shell(*host),
        Question(key="long", argv=("yes",)),
        Question(key="full", script=f"head -c {ANSWER_LIMIT} /dev/zero"),
        Question(key="error", script="yes >&2"),
        Question(key="next", argv=("echo", "x")),
    )
    assert len(results["long"].stdout) == ANSWER_LIMIT
    assert results["long"].remark == f"standard output cut off after {ANSWER_LIMIT} bytes"
    assert (len(results["full"].stdout), results["full"].remark) == (ANSWER_LIMIT, "")
    assert "standard error cut off" in results["error"].remark
    assert results["next"].stdout == "x\n"


def test_no_question_sees_the_frame_word(shell):
    listing = "ps -ef || ps; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    questions = [
        Question(key="list", script=f"({listing}) 2>/dev/null"),
        Question(key="next", argv=("echo", "x")),
    ]
    word = "0123456789abcdef0123456789abcdef"
    process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(build_script(questions, word))
    process.stdin.flush()
    out = process.stdout.read()
    process.communicate()
    frames = out.count(word.encode())
    assert frames == out.count(b"\n" + word.encode() + b" ") == 6  # clock, two questions, done


def test_the_end_of_the_asking_side_ends_the_question(shell):
    process = subprocess.Popen(
        shell, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    hang = Question(key="a", argv=("sleep", HANG), time_limit_s=500.0)
    process.stdin.write(build_script([hang], "0123456789abcdef"))
    process.stdin.flush()
    wait_until(hanging, "the question")
    process.stdin.close()
    assert process.wait(20) == 143
    wait_until(lambda: not hanging(), "the end of the question")


def test_a_script_that_arrives_cut_off_does_nothing(shell, tmp_path):
    script = build_script([Question(key="a", argv=("touch", str(tmp_path / "done")))], "0123456789abcdef")
    for size in (len(script) // 3, len(script) - 12):
        subprocess.run(shell, input=script[:size], capture_output=True, check=False, timeout=20)
    assert not (tmp_path / "done").exists()


def test_nothing_is_written_on_the_host(host_shell, tmp_path, monkeypatch):
    shell = host_shell("dash")
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(home)
    ask(shell, Question(key="a", argv=("true",)), Question(key="b", argv=("sleep", "9"), time_limit_s=0.2))
    assert list(home.iterdir()) == []


def test_secrets_do_not_get_past_the_answer():
    runner = LocalRunner(secrets=["my-own-key-77"])
    question = Question(key="a", script="echo HF_TOKEN=abc; echo my-own-key-77 >&2")
    result = asyncio.run(runner.ask([question]))["a"]
    assert (result.stdout, result.stderr) == ("HF_TOKEN=[redacted]\n", "[redacted]\n")


def test_cancelling_a_local_round_leaves_no_process():
    async def cancelled():
        asking = asyncio.create_task(
            LocalRunner().ask([Question(key="a", argv=("sleep", HANG), time_limit_s=500.0)])
        )
        await asyncio.to_thread(wait_until, hanging, "the question")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cancelled())
    wait_until(lambda: not hanging(), "the end of the question")


def test_a_host_that_falls_silent_keeps_what_had_arrived(tmp_path):
    # a shell whose host stops: the second question freezes the script itself
    freeze = Question(
        key="freeze", script="kill -STOP $PPID; kill -STOP $(ps -o ppid= -p $PPID)", time_limit_s=0.1
    )
    patience = Patience(start_s=10.0, grace_s=1.0)
    asked = asyncio.run(
        LocalRunner(patience=patience).ask(
            [Question(key="a", argv=("echo", "x")), freeze, Question(key="b", argv=("true",))]
        )
    )
    assert asked["a"].stdout == "x\n"
    assert asked["freeze"].status is None
    assert "silent" in asked["b"].skipped


def test_a_machine_without_a_shell_is_told():
    with pytest.raises(HostError, match="cannot be run"):
        asyncio.run(LocalRunner(shell=("/no/such/sh",)).ask([]))
    with pytest.raises(HostError, match="did not run the questions") as caught:
        asyncio.run(LocalRunner(shell=("echo", "I am no shell")).ask([]))
    assert "I am no shell" in caught.value.hint


@pytest.mark.parametrize(
    "question",
    [Question(key="a"), Question(key="a", argv=("x",), script="y"), Question(key="a", argv=("a\0b",))],
)
def test_a_question_that_is_none_is_refused(question):
    with pytest.raises(UsageError):
        build_script([question], "0123456789abcdef")


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\nff", b"fe ", b"\nfefe", b" B 0 1\n", b"\nfefe E\n", b"\xff"]))
)
def test_frames_are_the_same_for_every_way_of_cutting_the_bytes(parts):
    stream = b"".join(parts)

    def joined(pieces):
        shown = []
        for piece in pieces:
            if isinstance(piece, bytes) and shown and isinstance(shown[-1], bytes):
                shown[-1] += piece
            else:
                shown.append(piece)
        return shown

    whole = FrameSplitter("fefe")
    expected = joined([*whole.feed(stream), whole.finish()])
    for step in (1, 2, 3):
        splitter = FrameSplitter("fefe")
        pieces = [
            piece for at in range(0, len(stream), step) for piece in splitter.feed(stream[at : at + step])
        ]
        assert joined([*pieces, splitter.finish()]) == expected


def test_elapsed_time_is_the_hosts_when_the_link_stretches_ours():
    collector = Collector([Question(key="a", argv=("x",))], "fefe")
    collector.begin(0.0)
    collector.feed("out", b"\nfefe B 0 100.00\n", 1.0, 0.0)
    collector.feed("out", b"\nfefe E 0 0 0 100.50 \n", 9.0, 5.0)
    collector.feed("err", b"\nfefe B 0\n\nfefe E 0\n\nfefe D\n", 9.0, 5.0)
    collector.feed("out", b"\nfefe D\n", 9.0, 5.0)
    assert collector.is_done
    result = collector.results("")["a"]
    assert (result.elapsed_s, result.received_at, result.status) == (0.5, 5.0, 0)
