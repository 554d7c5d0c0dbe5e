"""Programs that try to get out of the sandbox; where it is not to be had, they are skipped."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bringup.transport.sandbox import IsolatedSandbox, read_outcome, unsupported
from bringup.values.exchange import Program, ProgramResult

SOURCE = Path(__file__).parents[3] / "src"


def run(source: str, *calls: str, time_limit_s: float = 5.0) -> ProgramResult:
    program = Program(key="p", source=textwrap.dedent(source), calls=calls, time_limit_s=time_limit_s)
    return asyncio.run(IsolatedSandbox().run(program))


@pytest.fixture(scope="module", autouse=True)
def isolation() -> None:
    result = run("x = 1", "x")
    if result.unavailable:
        pytest.skip(f"NO ISOLATION ON THIS MACHINE, sandbox not tested: {result.unavailable}")
    assert result.results == ("1",)


# what it is for


def test_calls_are_answered_in_order():
    result = run("def add(a, b):\n    return a + b", "add(2, 3)", "add('a', 'b')", "add([1], [2])")
    assert result.results == ("5", "'ab'", "[1, 2]")
    assert result.problem == ""
    assert result.key == "p"


def test_exceptions_are_results_and_the_next_call_goes_on():
    result = run("def f(x):\n    return 1 / x", "f(0)", "f(1)", "g()", "f(", "raise_")
    assert result.results[:2] == ("!ZeroDivisionError: division by zero", "1.0")
    assert [said.partition(":")[0] for said in result.results[2:]] == [
        "!NameError",
        "!SyntaxError",
        "!NameError",
    ]


def test_the_standard_library_is_there_and_nothing_else():
    result = run(
        "import math, re, json, random, collections, itertools, hashlib, decimal, datetime",
        "math.sqrt(16)",
        "hashlib.sha256(b'').hexdigest()[:6]",
        "0 <= random.random() < 1",
        "__import__('bringup')",
        "__import__('pytest')",
    )
    assert result.results[:3] == ("4.0", "'e3b0c4'", "True")
    assert all(said.startswith("!ModuleNotFoundError") for said in result.results[3:])


def test_values_that_cannot_be_shown_or_sent_do_no_harm():
    result = run(
        """
        class Bad:
            def __repr__(self):
                raise ValueError("no repr")
        class NotText:
            def __repr__(self):
                return 5
        class Evil(Exception):
            def __str__(self):
                raise RuntimeError("no str")
        def evil():
            raise Evil
        def deep(n):
            return deep(n + 1)
        """,
        "Bad()",
        "NotText()",
        "evil()",
        "deep(0)",
        "(lambda: 0).__name__",
        "'\\ud800'",
        "'\\n\\x00'",
    )
    assert result.results[0] == "!ValueError: no repr"
    assert result.results[1].startswith("!TypeError")
    assert result.results[2] == "!Evil: ?"
    assert result.results[3].startswith("!RecursionError")
    assert result.results[4:] == ("'<lambda>'", "'\\ud800'", "'\\n\\x00'")


def test_a_huge_repr_is_cut():
    result = run("x = 'a' * 10_000_000", "x", "1")
    assert len(result.results[0]) <= 4000
    assert result.results[1] == "1"


def test_a_syntax_error_is_told():
    result = run("def f(:", "1")
    assert result.results == ()
    assert "SyntaxError" in result.problem


# time, memory, output, processes, files


def test_an_endless_loop_is_ended():
    assert run("while True:\n    pass", "1", time_limit_s=0.5).problem == "time limit"


def test_an_endless_call_keeps_the_results_before_it():
    result = run("def spin():\n    while True: pass", "1", "spin()", "2", time_limit_s=0.5)
    assert result.results == ("1",)
    assert result.problem == "time limit"


def test_signals_and_handlers_do_not_extend_the_time():
    source = """
        import signal, time
        for number in range(1, 65):
            try:
                signal.signal(number, lambda *_: None)
            except (OSError, ValueError):
                pass
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass
    """
    assert run(source, "1", time_limit_s=0.5).problem == "time limit"


@pytest.mark.parametrize(
    "source",
    [
        "x = 'a' * (4 * 1024**3)",
        "x = []\nwhile True:\n    x.append(bytearray(10**7))",
        "import mmap\nx = [mmap.mmap(-1, 10**8) for _ in range(100)]",
    ],
)
def test_a_memory_hog_is_ended(source):
    result = run(source, "1")
    assert result.results == ()
    assert "memory" in result.problem.lower()


def test_a_memory_hog_inside_a_call_is_told():
    result = run("def f():\n    return bytearray(10**10)", "f()", "2")
    assert result.results == ("!MemoryError: ", "2")
    assert result.problem == "memory limit"


def test_printing_a_gigabyte_costs_nobody_memory():
    result = run(
        "import sys\nfor _ in range(1000):\n    sys.stdout.write('x' * 10**6)\nsys.stderr.write('y' * 10**6)",
        "1",
    )
    assert result.results == ("1",)


def test_writing_a_gigabyte_into_the_result_line_is_ended():
    source = """
        import os
        for _ in range(1000):
            for number in range(3, 30):
                try:
                    os.write(number, b"x" * 10**6)
                except OSError:
                    pass
    """
    result = run(source, "1")
    assert result.results == ()
    assert result.problem == "output limit"


def test_a_fork_bomb_has_no_second_process():
    result = run("import os", "os.fork()", "os.fork()", "1")
    assert all(said.startswith("!BlockingIOError") for said in result.results[:2])
    assert result.results[2] == "1"


def test_no_thread_and_no_program_can_be_started():
    result = run(
        "import subprocess, threading, os",
        "threading.Thread(target=print).start()",
        "subprocess.run(['/bin/sh', '-c', 'true'])",
        "os.execv('/bin/sh', ['sh'])",
        "os.path.exists('/usr/bin')",
    )
    assert all(said.startswith("!") for said in result.results[:3])
    assert result.results[3] == "False"


def test_files_outside_cannot_be_written_and_inside_they_are_small():
    result = run(
        """
        import os
        def write(place, size=1):
            with open(place, "wb") as file:
                file.write(b"x" * size)
            return "written"
        """,
        "write('/escaped')",
        "write('/usr/lib/escaped')",
        "write(os.path.dirname(os.__file__) + '/escaped')",
        "write('scratch')",
        "write('large', 2 * 1024 * 1024)",
    )
    assert all(said.startswith(("!OSError", "!PermissionError")) for said in result.results[:3])
    assert result.results[3] == "'written'"
    assert result.results[4].startswith("!OSError") or "exit status" in result.problem


def test_the_scratch_folder_has_a_bottom():
    result = run(
        """
        def fill():
            for number in range(100):
                with open(str(number), "wb") as file:
                    file.write(b"x" * 1000 * 1000)
        """,
        "fill()",
    )
    assert result.results[0].startswith("!OSError: [Errno 28]")


# what it can see


def test_nothing_of_this_machine_is_in_sight(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key", encoding="ascii")
    secret.chmod(0o644)
    result = run(
        "import os",
        "dict(os.environ)",
        f"open({str(secret)!r}).read()",
        "open('/etc/passwd').read()",
        "os.listdir('/proc')",
        f"os.listdir({str(Path.home())!r})",
        "os.listdir('.')",
        "os.getpid() < 10",
        "os.getuid() != 0",
    )
    assert result.results[0] == "{}"
    assert all(said.startswith("!FileNotFoundError") for said in result.results[1:4])
    home = result.results[4]
    shown = Path(sys.base_prefix).parts
    assert home.startswith("!") or eval(home) == [shown[len(Path.home().parts)]]
    assert result.results[5:] == ("[]", "True", "True")


def test_other_processes_are_out_of_reach():
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        result = run(
            "import os, signal", f"os.kill({sleeper.pid}, signal.SIGKILL)", f"os.kill({os.getpid()}, 0)"
        )
        assert all(said.startswith("!ProcessLookupError") for said in result.results)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_network_is_unreachable():
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("127.0.0.1", 0))
        server.listen()
        name = f"\0bringup-test-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        port = server.getsockname()[1]
        result = run(
            "import socket",
            f"socket.create_connection(('127.0.0.1', {port}), 2)",
            f"socket.socket(socket.AF_UNIX).connect({name!r})",
            "socket.create_connection(('1.1.1.1', 80), 2)",
            "[name for _, name in socket.if_nameindex()]",
        )
    assert all(said.startswith("!") for said in result.results[:3])
    assert eval(result.results[3]) in ([], ["lo"])


def test_rights_cannot_be_won_back():
    result = run(
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def names():
            if libc.unshare(0x00020000) == 0:
                return "new mount namespace"
            return "refused"
        """,
        "names()",
        "libc.mount(b'tmpfs', b'/scratch', b'tmpfs', 0, b'') == 0",
        "libc.umount2(b'/scratch', 2) == 0",
        "libc.chroot(b'/scratch') == 0",
        "os.setuid(0)",
        "libc.mount(None, b'/', None, 32 | 4096, b'') == 0",
    )
    assert result.results[0] == "'refused'"
    assert result.results[1:4] == ("False", "False", "False")
    assert result.results[4].startswith("!")
    assert result.results[5] == "False"


# what it says cannot be faked


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import os\nos._exit(0)", "exit status 0 before every call was answered"),
        ("import os\nos._exit(7)", "exit status 7 before every call was answered"),
        ("import os\nos.kill(os.getpid(), 9)", "exit status 137 before every call was answered"),
        ("import os\nos.abort()", "exit status 134 before every call was answered"),
        ("import sys\nsys.exit()", "SystemExit: "),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("import ctypes\nctypes.string_at(0)", "exit status 139 before every call was answered"),
    ],
)
def test_a_program_that_ends_itself_has_no_results(source, problem):
    result = run(source, "91")
    assert result.results == ()
    assert result.problem == problem


def test_ending_inside_a_call_leaves_that_call_unanswered():
    result = run("import os, sys", "1", "sys.exit(0)", "os._exit(0)", "4")
    assert result.results == ("1", "!SystemExit: 0")
    assert result.problem.startswith("exit status 0")


def test_what_a_program_prints_is_no_result():
    source = """
        import os, sys
        for text in ('["91"]', '{"results": ["91"], "problem": ""}', 'ready', '["token", "91", false]'):
            print(text)
            for number in range(1, 30):
                try:
                    os.write(number, text.encode() + b"\\n")
                except OSError:
                    pass
        sys.stdout.flush()
        os._exit(0)
    """
    result = run(source, "1 + 1")
    assert result.results == ()
    assert result.problem


def test_replacing_builtins_changes_no_result():
    result = run(
        """
        import builtins, json, os
        builtins.repr = lambda _: "91"
        builtins.eval = lambda *_: 91
        json.dumps = lambda *_: "91"
        def f():
            return 5
        """,
        "f()",
    )
    assert result.results == ("5",)


# where it is not to be had


def test_other_systems_than_linux_are_told():
    assert "darwin" in unsupported("darwin")
    assert unsupported("linux") == ""


def test_a_guard_that_says_nothing_or_nonsense_means_unavailable():
    assert read_outcome("p", "").unavailable
    assert read_outcome("p", "Traceback (most recent call last): ...").unavailable
    assert read_outcome("p", '{"unavailable": "no namespaces"}').unavailable.startswith("no namespaces")


def elsewhere(
    marker: Path, command: list[str], *, user: int | None = None, python: str = sys.executable
) -> dict:
    """What the sandbox says when it is used by another process; the program leaves `marker` where it can."""
    source = f"import os\ntry:\n    open({str(marker)!r}, 'w').write('x')\nexcept OSError:\n    pass\n"
    calls = ["2 + 3", "os.fork()", "os.listdir('/home')"]
    script = textwrap.dedent(
        """
        import asyncio, json, sys
        from bringup.transport.sandbox import IsolatedSandbox
        from bringup.values.exchange import Program
        source, calls = json.loads(sys.argv[1])
        program = Program(key="p", source=source, calls=tuple(calls))
        result = asyncio.run(IsolatedSandbox().run(program))
        print(json.dumps({"unavailable": result.unavailable, "results": result.results}))
        """
    )
    done = subprocess.run(
        [*command, python, "-B", "-c", script, json.dumps([source, calls])],
        env={"PYTHONPATH": str(SOURCE), "HOME": "/nonexistent", "PATH": os.environ["PATH"]},
        cwd="/",
        user=user,
        group=user,
        extra_groups=[] if user is not None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_without_user_namespaces_nothing_is_run(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("NO `unshare` HERE: a machine without user namespaces is not tested")
    closed = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    marker = tmp_path / "ran"
    said = elsewhere(marker, [unshare, "--user", "--map-root-user", "sh", "-c", closed, "sh"])
    assert said["unavailable"]
    assert said["results"] == []
    assert not marker.exists()


def test_an_ordinary_user_has_it_too(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the other tests ran as an ordinary one already")
    python = next(
        (path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if _is_new_enough(path)), None
    )
    if python is None:
        pytest.skip("NO PYTHON >= 3.11 THAT AN ORDINARY USER CAN READ: not tested as one")
    marker = tmp_path / "ran"
    marker.touch()
    marker.chmod(0o666)
    said = elsewhere(marker, [], user=65534, python=python)
    assert said["unavailable"] == ""
    assert said["results"][0] == "5"
    assert marker.read_text(encoding="ascii") == ""
    assert all(result.startswith("!") for result in said["results"][1:])


def _is_new_enough(path: str) -> bool:
    if not Path(path).exists():
        return False
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([path, "-c", check], check=False).returncode == 0


def test_nothing_is_left_running_when_the_caller_gives_up():
    async def give_up() -> set[str]:
        program = Program(key="p", source="while True: pass", calls=(), time_limit_s=60)
        task = asyncio.create_task(IsolatedSandbox().run(program))
        while len(_running(_sessions())) < 3:  # guard, warden, worker
            assert not task.done()
            await asyncio.sleep(0.02)
        sessions = _sessions()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sessions

    sessions = asyncio.run(give_up())
    for _ in range(250):  # process 1 of a namespace dies with its parent, but not in the same instant
        if not _running(sessions):
            break
        time.sleep(0.02)
    assert _running(sessions) == set()


def _table() -> list[tuple[str, str, str, str]]:
    """(pid, state, parent, session) of every process."""
    rows = []
    for place in Path("/proc").iterdir():
        try:
            state, parent, _, session = (
                (place / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[:4]
            )
        except OSError:
            continue
        rows.append((place.name, state, parent, session))
    return rows


def _sessions() -> set[str]:
    """Sessions led by children of this process."""
    return {pid for pid, _, parent, session in _table() if parent == str(os.getpid()) and session == pid}


def _running(sessions: set[str]) -> set[str]:
    return {pid for pid, state, _, session in _table() if session in sessions and state not in "ZX"}
