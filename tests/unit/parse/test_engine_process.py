"""Which of several processes is the engine that was asked for."""

import pytest

from bringup.parse.engine_process import is_engine, read_engines
from bringup.parse.process_table import read_process_table


def rows(*lines):
    return read_engines(read_process_table("\n".join(("asker 0", "clock 1700000000 100", *lines, "end"))))


def process(pid, argv, *, parent=1, cgroup="/"):
    return (
        f"kin {pid} {parent} 500",
        f"process {pid}",
        f"cgroup {pid} 0::{cgroup}",
        f"rss {pid} 10",
        f"pss {pid} 10",
        *(f"arg {pid} {word}" for word in argv),
    )


def listens(pid, inode, port, address="0100007F", space="self", uid=0):
    return (f"owner {pid} {inode}", f"listen {inode} {space} {address}:{port:04X} {uid}")


VLLM = ("python3", "-m", "vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("vllm", "serve", "m"), True),
        (("/usr/bin/python3", "-u", "-m", "vllm.entrypoints.openai.api_server"), True),
        (("python", "/venv/bin/trtllm-serve", "m"), True),
        (("uv", "run", "vllm", "serve"), True),
        (("numactl", "--cpunodebind=0", "vllm", "serve"), True),
        (("/opt/llama.cpp/llama-server-cuda", "-m", "x.gguf"), True),
        (("text-generation-router",), True),
        (("bash", "-c", "vllm serve m"), False),
        (("python3", "proxy.py", "vllm"), False),
        (("python3", "-c", "import vllm"), False),
        (("python3", "-m", "http.server"), False),
        (("tail", "-f", "/var/log/vllm"), False),
    ],
)
def test_command_lines_of_engines(argv, expected):
    assert is_engine(argv) is expected


def test_workers_that_inherited_the_socket_are_children_and_not_the_engine():
    engines, missing = rows(
        "want port 8000",
        *process(20, VLLM, parent=10),
        *process(10, VLLM),
        *process(21, ("VLLM::EngineCore",), parent=20),
        *listens(10, 1, 8000),
        "owner 20 1",
        "owner 21 1",
    )
    assert [(engine.pid, engine.children) for engine in engines] == [(10, (20, 21))]
    assert missing == ()


def test_two_programs_on_one_port_are_both_told_the_engine_first():
    engines, missing = rows(
        "want port 8000",
        *process(5, ("nginx",)),
        *process(90, VLLM),
        *listens(5, 1, 8000, address="0A02A8C0"),
        *listens(90, 2, 8000),
    )
    assert [engine.pid for engine in engines] == [90, 5]
    (words,) = missing
    assert words.startswith("which process answers on port 8000: ")
    assert "process 5 at 192.168.2.10, process 90 at 127.0.0.1 all listen" in words


def test_a_squatter_on_the_port_is_not_taken_for_the_named_unit():
    engines, missing = rows(
        "want port 8000",
        "want unit vllm.service",
        "main 50 unit vllm.service",
        "unit vllm.service ActiveState=activating",
        *process(50, VLLM, cgroup="/system.slice/vllm.service"),
        *process(60, ("python3", "-m", "http.server")),
        *listens(60, 1, 8000),
    )
    assert [(engine.pid, engine.port) for engine in engines] == [(50, None), (60, 8000)]
    assert engines[0].unit.active_state == "activating"
    assert engines[1].unit is None
    assert "process 50 is named, process 60 listens" in missing[0]


def test_a_unit_that_runs_a_client_of_docker_is_joined_to_the_engine_in_the_container():
    engines, _ = rows(
        "want port 8000",
        "want unit vllm.service",
        "main 50 unit vllm.service",
        "unit vllm.service ActiveState=active",
        *process(50, ("/usr/bin/docker", "run", "vllm"), cgroup="/system.slice/vllm.service"),
        *process(70, VLLM, cgroup=f"/system.slice/docker-{'ab' * 32}.scope"),
        *listens(70, 1, 8000),
    )  # fmt: skip
    (engine,) = engines
    assert (engine.pid, engine.unit.name, engine.container) == (70, "vllm.service", f"docker:{'ab' * 32}")


def test_the_engine_below_the_named_containers_first_process_is_found():
    engines, _ = rows(
        "want container c",
        "main 7 docker abc",
        *process(7, ("tini", "--", "start.sh")),
        *process(8, VLLM, parent=7),
        *listens(8, 1, 45000, space="7"),
        *listens(8, 2, 8000, space="7"),
    )
    assert [(engine.pid, engine.port, engine.container) for engine in engines] == [(8, 8000, "docker:abc")]


def test_the_port_that_was_asked_for_is_told_and_not_the_first_one():
    engines, _ = rows("want port 9001", *process(8, VLLM), *listens(8, 1, 8000), *listens(8, 2, 9001))
    assert [engine.port for engine in engines] == [9001]
    told, _ = rows(
        "want port 1", *process(8, (*VLLM, "--port=8123")), *listens(8, 1, 8000), *listens(8, 2, 8123)
    )
    assert [engine.port for engine in told] == [8123]


def test_one_port_in_two_containers_is_said_to_be_ambiguous():
    engines, missing = rows(
        "want port 8000",
        *process(70, VLLM, cgroup="/lxc/101"),
        *process(80, VLLM, cgroup="/lxc/102"),
        *listens(70, 1, 8000, space="70"),
        *listens(80, 2, 8000, space="80"),
    )
    assert [engine.container for engine in engines] == ["lxc:101", "lxc:102"]
    assert "2 containers have one (processes 70, 80)" in missing[0]


def test_a_host_socket_whose_owner_root_cannot_see_is_said():
    engines, missing = rows("want port 8000", *listens(99, 1, 8000)[1:])
    assert engines == ()
    assert "no process that can be seen from here holds it" in missing[0]


def test_memory_is_none_when_one_of_the_family_does_not_tell():
    lines = ("want port 8000", *process(8, VLLM), "kin 9 8 600", *listens(8, 1, 8000))
    (engine,), missing = rows(*lines)
    assert engine.resident is None
    assert missing == ("memory of process 8: 1 of its 2 do not tell",)
    (engine,), missing = rows(*lines, "rss 9 30")
    assert engine.resident == 40 * 1024
    assert "shared pages count once per process" in missing[0]


def test_a_loop_in_garbled_parents_ends():
    engines, _ = rows("want port 8000", *process(8, VLLM, parent=9), "kin 9 8 1", *listens(8, 1, 8000))
    assert engines[0].children == (9,)


def test_that_engines_of_other_users_are_not_seen_is_said_when_none_was_named():
    engines, missing = read_engines(read_process_table("asker 1000\nend"))
    assert (engines, missing) == (
        (),
        ("engines of other users: user id 1000 may not look into their sockets",),
    )
    assert rows() == ((), ())
