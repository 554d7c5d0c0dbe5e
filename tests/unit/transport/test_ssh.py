import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bringup.errors import HostError, UsageError
from bringup.transport.channel import Patience
from bringup.transport.ssh import SshRunner, checked_destination
from bringup.values.host import Question

from .conftest import children_of, free_port, is_running, make_key, wait_until

HANG = f"8{os.getpid():07d}"  # seconds of a sleep that is surely ours
QUICK = Patience(start_s=20.0, grace_s=10.0)


def runner_for(sshd, **options) -> SshRunner:
    options.setdefault("connect_limit_s", 5.0)
    return SshRunner("box", config_file=sshd.config, patience=QUICK, **options)


def ask(sshd, *questions, **options):
    async def once():
        runner = runner_for(sshd, **options)
        try:
            return await runner.ask(questions)
        finally:
            await runner.close()

    return asyncio.run(once())


def fails_with(sshd, **options) -> HostError:
    with pytest.raises(HostError) as caught:
        ask(sshd, Question(key="a", argv=("true",)), **options)
    assert caught.value.hint
    return caught.value


def test_all_questions_of_a_round_are_answered_apart(sshd):
    results = ask(
        sshd,
        Question(key="both", script="echo out; echo err >&2; exit 7"),
        Question(key="gpus", argv=("nvidia-smi-of-another-planet", "-L")),
        Question(key="own255", script="exit 255"),
        Question(key="words", argv=("printf", "%s|", "a b", "c'd", "$HOME", "*")),
        Question(key="locale", script='echo "$LC_ALL"'),
    )
    both = results["both"]
    assert (both.status, both.stdout, both.stderr) == (7, "out\n", "err\n")
    assert results["gpus"].status == 127
    assert "not found" in results["gpus"].stderr
    assert results["own255"].status == 255
    assert results["words"].stdout == "a b|c'd|$HOME|*|"
    assert results["locale"].stdout == "C\n"
    clock = results["transport.clock"]
    assert abs(float(clock.stdout) - clock.received_at) < 60
    assert clock.elapsed_s > 0


NOISE = """
printf 'Welcome to box\\nno newline at the end'
echo 'stty: standard input: Inappropriate ioctl for device' >&2
printf '\\n0123456789abcdef0123456789abcdef B 0 1.0\\nfake\\n'
eval "$SSH_ORIGINAL_COMMAND"
printf 'logout'
"""


def test_a_noisy_login_shell_and_a_banner_change_nothing(start_sshd):
    noisy = start_sshd(NOISE, banner="*** AUTHORISED USE ONLY ***\n")
    results = ask(noisy, Question(key="a", script="printf 'x\\n0123 E 0 0 0\\n'; printf e >&2"))
    assert (results["a"].stdout, results["a"].stderr) == ("x\n0123 E 0 0 0\n", "e")


ECHO = """
import os, subprocess
command = os.environ["SSH_ORIGINAL_COMMAND"].encode()
for file in (1, 2):
    os.write(file, command)
shell = subprocess.Popen(["sh", "-c", os.environ["SSH_ORIGINAL_COMMAND"]], stdin=subprocess.PIPE)
while data := os.read(0, 65536):
    for file in (1, 2, shell.stdin.fileno()):
        os.write(file, data)
"""


def test_a_shell_that_echoes_its_input_changes_nothing(start_sshd, tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    echoing = start_sshd(f"exec {sys.executable} {tmp_path}/echo.py")
    results = ask(echoing, Question(key="a", script="echo x; echo e >&2"))
    assert (results["a"].status, results["a"].stdout, results["a"].stderr) == (0, "x\n", "e\n")


def test_more_questions_than_a_command_line_holds(sshd):
    long = "x" * 3000
    results = ask(sshd, *(Question(key=str(number), argv=("echo", long)) for number in range(50)))
    assert all(results[str(number)].stdout == long + "\n" for number in range(50))


@pytest.mark.parametrize("login_shell", ["csh", "fish", "zsh", "bash", "dash"])
def test_the_login_shell_does_not_matter(start_sshd, login_shell):
    program = shutil.which(login_shell)
    if program is None:
        pytest.skip(f"NOT TESTED: no {login_shell} here (Debian: apt-get install {login_shell})")
    odd = start_sshd(f'exec {program} -c "$SSH_ORIGINAL_COMMAND"')
    words = ("it's", '"$HOME"', "a!b!!", "`id`", "back\\slash\\n", "a\nb", "100%", "é~*?{a,b}")
    results = ask(odd, Question(key="a", argv=("printf", "%s|", *words)))
    assert results["a"].stdout == "".join(f"{word}|" for word in words)


def test_a_question_that_searches_the_processes_does_not_find_the_others(sshd):
    results = ask(
        sshd,
        Question(key="list", script="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"),
        Question(key="other", argv=("echo", "engine-with-a-rare-name")),
    )
    assert "engine-with-a-rare-name" not in results["list"].stdout
    assert "sh -c" in results["list"].stdout


def test_a_megabyte_comes_whole(sshd):
    results = ask(sshd, Question(key="a", script="head -c 1048576 /dev/zero | tr '\\0' 'x'"))
    assert results["a"].stdout == "x" * 1_048_576
    assert results["a"].remark == ""


def test_a_slow_link_loses_nothing(sshd, delaying_proxy):
    sshd.client_options["ProxyCommand"] = delaying_proxy(0.1)
    results = ask(sshd, *(Question(key=str(number), argv=("echo", str(number))) for number in range(5)))
    assert [results[str(number)].stdout for number in range(5)] == [f"{number}\n" for number in range(5)]
    assert results["transport.clock"].elapsed_s >= 0.2  # both ways


def test_a_question_that_hangs_is_killed_on_the_host_and_the_rest_is_answered(sshd):
    results = ask(
        sshd,
        Question(
            key="hang",
            script=f"echo $$; echo half >&2; sleep {HANG} & sleep {HANG}",
            time_limit_s=0.5,
            group="gpu",
        ),
        Question(key="same", argv=("true",), group="gpu"),
        Question(key="other", argv=("echo", "still here")),
    )
    assert (results["hang"].status, results["hang"].timed_out) == (None, True)
    assert results["hang"].stderr.startswith("half\n")
    assert not is_running(int(results["hang"].stdout))
    assert not sleeping_below(sshd.process.pid)
    assert "group `gpu`" in results["same"].skipped
    assert results["other"].stdout == "still here\n"


def test_a_connection_killed_half_way_keeps_what_had_arrived(sshd):
    async def half_way():
        runner = runner_for(sshd)
        try:
            asking = asyncio.create_task(
                runner.ask(
                    [
                        Question(key="before", argv=("echo", "here")),
                        Question(key="during", argv=("sleep", HANG), time_limit_s=100.0),
                        Question(key="after", argv=("true",)),
                    ]
                )
            )
            await asyncio.to_thread(wait_until, lambda: sleeping_below(sshd.process.pid), "the sleep")
            victims = descendants(sshd.process.pid)
            for pid in sshd.connections():
                os.kill(pid, signal.SIGKILL)
            results = await asking
            await asyncio.to_thread(
                wait_until, lambda: not any(map(is_running, victims)), "the end of the host's processes"
            )
            again = await runner.ask([Question(key="again", argv=("echo", "back"))])
        finally:
            await runner.close()
        return results, again

    results, again = asyncio.run(half_way())
    assert results["before"].stdout == "here\n"
    assert (results["during"].status, results["during"].timed_out) == (None, False)
    assert "connection ended" in results["during"].skipped
    assert "connection ended" in results["after"].skipped
    assert again["again"].stdout == "back\n"


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [below for child in found for below in descendants(child)]


def sleeping_below(pid: int) -> list[int]:
    found = []
    for below in descendants(pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{below}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", HANG.encode()]:
                found.append(below)
    return found


def test_cancelling_leaves_nothing_on_either_side(sshd):
    async def cancelled():
        runner = runner_for(sshd)
        try:
            asking = asyncio.create_task(
                runner.ask([Question(key="a", argv=("sleep", HANG), time_limit_s=100.0)])
            )
            await asyncio.to_thread(wait_until, lambda: sleeping_below(sshd.process.pid), "the sleep")
            sleeper = sleeping_below(sshd.process.pid)
            folder = runner._folder
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert folder.exists()  # the connection itself is still good
            return sleeper, folder
        finally:
            await runner.close()

    sleeper, folder = asyncio.run(cancelled())
    wait_until(lambda: not any(map(is_running, sleeper)), "the end of the hanging question")
    wait_until(lambda: not sshd.connections(), "the end of the connection")
    assert not folder.exists()


KILLED = """
import asyncio, sys
from bringup.transport.ssh import SshRunner
from bringup.values.host import Question

async def main(config, seconds):
    runner = SshRunner("box", config_file=config)
    await runner.ask([Question(key="a", argv=("true",))])
    print(runner._folder, flush=True)
    await runner.ask([Question(key="a", argv=("sleep", seconds), time_limit_s=100.0)])

asyncio.run(main(*sys.argv[1:]))
"""


def test_being_killed_leaves_nothing_on_either_side(sshd):
    program = [sys.executable, "-c", KILLED, sshd.config, HANG]
    source = str(Path(__file__).parents[3] / "src")
    asking = subprocess.Popen(program, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source})
    with asking:
        folder = Path(asking.stdout.readline().decode().strip())
        wait_until(lambda: sleeping_below(sshd.process.pid), "the sleep")
        sleeper = sleeping_below(sshd.process.pid)
        asking.kill()
    wait_until(lambda: not any(map(is_running, sleeper)), "the end of the hanging question")
    wait_until(lambda: not sshd.connections(), "the end of the connection")
    wait_until(lambda: not folder.exists(), "the end of the socket's folder")


def test_the_socket_folder_is_ours_alone_and_goes_away(sshd):
    async def look():
        runner = runner_for(sshd)
        await runner.ask([Question(key="a", argv=("true",))])
        folder = runner._folder
        mode = folder.stat().st_mode & 0o777
        await runner.close()
        return folder, mode

    folder, mode = asyncio.run(look())
    assert mode == 0o700
    assert not folder.exists()


def test_many_rounds_share_one_connection(sshd):
    async def rounds():
        runner = runner_for(sshd)
        try:
            for _ in range(3):
                await runner.ask([Question(key="a", argv=("true",))])
        finally:
            await runner.close()

    asyncio.run(rounds())
    assert sshd.log.read_text().count("Accepted publickey") == 1


def test_a_forwarded_port_leads_to_the_hosts_loopback(sshd):
    async def through():
        async def answer(reader, writer):
            writer.write(b"hello from the host")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        runner = runner_for(sshd)
        try:
            local = await runner.forward("127.0.0.1", port)
            assert await runner.forward("127.0.0.1", port) == local
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
        finally:
            await runner.close()
            server.close()
            await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", local)
        return said

    assert asyncio.run(through()) == b"hello from the host"


def test_a_refused_key_is_told_with_what_to_do(sshd, tmp_path):
    make_key(tmp_path / "stranger")
    sshd.client_options["IdentityFile"] = str(tmp_path / "stranger")
    error = fails_with(sshd)
    assert "refused every key" in error.message
    assert "Permission denied" in error.message
    assert "ssh-copy-id box" in error.hint


def test_a_changed_host_key_is_told_with_its_line(sshd, tmp_path):
    other = make_key(tmp_path / "other")
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{sshd.port} {other}\n")
    sshd.client_options["UserKnownHostsFile"] = str(known)
    error = fails_with(sshd)
    assert "not the one that was accepted" in error.message
    assert f"{known}:1" in error.hint
    assert "ssh-keygen -R" in error.hint


def test_an_unknown_host_is_not_accepted_silently(sshd, tmp_path):
    sshd.client_options["UserKnownHostsFile"] = str(tmp_path / "none")
    sshd.client_options["StrictHostKeyChecking"] = "ask"
    error = fails_with(sshd)
    assert "unknown" in error.message
    assert "compare the fingerprint" in error.hint
    assert not (tmp_path / "none").exists()


def test_nothing_listens(sshd):
    sshd.client_options["Port"] = str(free_port())
    assert "nothing listens" in fails_with(sshd).message


def test_a_name_that_nobody_knows(sshd):
    sshd.client_options["HostName"] = "no-such-host.invalid"
    assert "name is not known" in fails_with(sshd).message


def test_a_port_where_somebody_else_listens_and_keeps_silent(sshd):
    async def silent():
        async def keep(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(keep, "127.0.0.1", 0)
        sshd.client_options["Port"] = str(server.sockets[0].getsockname()[1])
        runner = runner_for(sshd, connect_limit_s=0.5)
        try:
            with pytest.raises(HostError) as caught:
                await runner.ask([Question(key="a", argv=("true",))])
        finally:
            await runner.close()
            server.close()
            await server.wait_closed()
        return caught.value

    error = asyncio.run(silent())
    assert "no answer in time" in error.message
    assert error.hint


def test_an_account_that_runs_no_shell(start_sshd):
    error = fails_with(start_sshd("echo This account is currently not available."))
    assert "not available" in error.message
    assert "echo works" in error.hint


def test_a_broken_configuration_is_told(sshd):
    sshd.client_options["NoSuchOption"] = "yes"
    assert "configuration" in fails_with(sshd).message


def test_a_host_without_ssh_client(sshd, monkeypatch):
    folder = sshd.folder / "empty"
    folder.mkdir()
    for tool in ("sh", "kill", "rmdir"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    error = fails_with(sshd)
    assert "not installed" in error.message


def test_forced_sessions_of_the_users_configuration_do_not_get_in_the_way(sshd):
    sshd.client_options |= {
        "RemoteCommand": "top",
        "RequestTTY": "force",
        "ControlMaster": "auto",
        "ControlPersist": "10m",
        "LocalForward": f"{free_port()} 127.0.0.1:9",
    }
    results = ask(sshd, Question(key="a", argv=("echo", "x")))
    assert results["a"].stdout == "x\n"
    assert not sshd.connections() or wait_until(lambda: not sshd.connections(), "the end") is None


@pytest.mark.parametrize(
    "destination", ["box", "root@box", "ssh://root@box:2222", "root@fe80::1%eth0", "10.0.0.1"]
)
def test_destinations_that_ssh_knows_pass(destination):
    assert checked_destination(destination) == destination


@pytest.mark.parametrize(
    "destination",
    ["", "-oProxyCommand=touch /tmp/x", "root@-oX", "a b", "a;b", "$(id)", "`id`", "a\nb", "root@", "a\0b"],
)
def test_destinations_that_could_be_something_else_do_not(destination):
    with pytest.raises(UsageError) as caught:
        SshRunner(destination)
    assert re.search(r"HOST", caught.value.hint)
