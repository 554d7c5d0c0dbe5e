"""The questions themselves, run by this machine's shells on real processes and on made-up trees of sysfs."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from busybox import PREFERS_OWN, prefers_its_own

from bringup import registry
from bringup.machine import Subject, Target
from bringup.machine.counters import SUBJECT as COUNTERS
from bringup.machine.disks import SUBJECT as DISKS
from bringup.machine.facts import SUBJECT as FACTS
from bringup.machine.kernel_log import SUBJECT as KERNEL_LOG
from bringup.machine.numa import SUBJECT as NUMA
from bringup.machine.pci import SUBJECT as PCI
from bringup.machine.process import SUBJECT as PROCESS
from bringup.values.host import CommandResult, HostSnapshot

if not Path("/proc/self/stat").exists():
    pytest.skip("no /proc on this machine: the scripts' own subject is not here", allow_module_level=True)


@dataclass(frozen=True)
class Shell:
    argv: tuple[str, ...]
    path: str = os.environ["PATH"]


SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)] or ["sh"]


@pytest.fixture(params=SHELLS, scope="session")
def shell(request):
    """A shell with the programs it runs among: busybox has nothing but its own."""
    program = shutil.which(request.param)
    if request.param != "busybox":
        yield Shell((program, "--posix") if request.param == "bash" else (program,))
        return
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
        for applet in listed.stdout.split():
            Path(folder, applet).symlink_to(program)
        yield Shell((program, "sh"), folder)


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user or make namespaces")

SERVER = """
import socket, subprocess, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
held = [open(path) for path in sys.argv[3:] if path.startswith("/")]
# A child that holds the same files and goes with its parent.
text = "import sys; print(1, flush=True); sys.stdin.read()"
pipe = subprocess.PIPE
numbers = [file.fileno() for file in held]
child = subprocess.Popen([sys.executable, "-c", text], stdin=pipe, stdout=pipe, pass_fds=numbers)
child.stdout.readline()
print(server.getsockname()[1], child.pid, flush=True)
sys.stdin.read()
"""


class Server:
    """A program that listens, with one child; ends when the test does."""

    def __init__(self, *arguments, address="127.0.0.1", port=0, before=(), **environment):
        self.argv = (sys.executable, "-c", SERVER, address, str(port), *arguments)
        self.process = subprocess.Popen(
            (*before, *self.argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], **environment},
        )
        line = self.process.stdout.readline().split()
        self.port, self.child = int(line[0]), int(line[1])
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def ask(
    subject, *, shell=("sh",), target=None, edit=lambda script: script, before=(), path=None, **environment
):
    """The snapshot that `subject` reads from this machine, and its raw answers."""
    results = {}
    for question in subject.questions(target or Target()):
        done = subprocess.run(
            [*before, *shell.argv, "-c", edit(question.script)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            env={
                "PATH": path or shell.path,
                "LC_ALL": "C",
                "HOME": os.environ.get("HOME", "/"),
                **environment,
            },
        )
        results[question.key] = CommandResult(
            key=question.key, status=done.returncode, stdout=done.stdout, stderr=done.stderr
        )
    return subject.read(HostSnapshot(taken_at=time.time(), host="here"), results), results


def test_the_process_behind_a_port_is_found_with_all_that_belongs_to_it(shell):
    before = time.time()
    with Server("--name", "two\nlines", "", "last", GREETING="hello world") as server:
        snapshot, results = ask(PROCESS, shell=shell, target=Target(port=server.port))
        cgroup = Path(f"/proc/{server.pid}/cgroup").read_text()
    assert results["machine.process"].stderr == ""
    (engine,) = [engine for engine in snapshot.engines if engine.port == server.port]
    assert snapshot.engines[0] is engine
    assert engine.pid == server.pid
    assert engine.address == "127.0.0.1"
    assert engine.argv == server.argv
    assert engine.environment["GREETING"] == "hello world"
    assert engine.children == (server.child,)
    assert engine.executable == os.path.realpath(sys.executable)
    assert engine.cgroup in cgroup
    assert engine.limits["open files"].isdigit()
    # The kernel counts boot time in whole seconds and start time in ticks.
    assert before - 2 < engine.started_at < time.time() + 2
    # Two interpreters: more than a few MiB, less than what both map.
    assert 4 * 1024**2 < engine.resident < 200 * 1024**2
    # Other engines of this machine may have something to say.
    assert not [words for words in snapshot.missing if re.search(rf"\b({engine.pid}|{server.port})\b", words)]


@pytest.mark.skipif(
    not (Path("/proc/net/if_inet6").exists() and "lo" in Path("/proc/net/if_inet6").read_text()),
    reason="no IP version 6 on this machine",
)
def test_an_address_of_ip_version_6_is_read(shell):
    with Server(address="::1") as server:
        snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=server.port))
    assert [(engine.pid, engine.address) for engine in snapshot.engines[:1]] == [(server.pid, "::1")]


def test_a_port_nobody_listens_on_is_said(shell):
    with Server() as server:
        port = server.port
    snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=port))
    assert not [engine for engine in snapshot.engines if engine.port == port]
    assert any(f"port {port}: nothing listens there" in words for words in snapshot.missing)


def test_an_engine_on_another_port_is_told_as_well(tmp_path, shell):
    program = tmp_path / "llama-server"
    program.symlink_to(sys.executable)
    with Server() as server:
        other = subprocess.Popen(
            [program, *server.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            port = int(other.stdout.readline().split()[0])
            snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=server.port))
        finally:
            other.communicate(timeout=20)
    assert snapshot.engines[0].port == server.port
    found = [engine for engine in snapshot.engines[1:] if engine.pid == other.pid]
    assert [(engine.port, engine.argv[0]) for engine in found] == [(port, str(program))]


SECRETS = {
    "HF_TOKEN": "hf_ThisIsNoRealToken0123456789abcdef",
    "VLLM_API_KEY": "sk-not-a-real-key-1",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "DB_PASSWORD": "correct horse battery",
    "EXTRA_ARGS": "--port 1 --api-key sk-inside-a-value --seed 7",
}
PLAIN = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "NCCL_DEBUG": "INFO",
    "SSH_AUTH_SOCK": "/run/agent",
}


def test_no_secret_leaves_the_host(shell):
    arguments = (
        "--api-key",
        "sk-one",
        "sk-two",
        "--max-num-batched-tokens",
        "8192",
        "--hf-token=hf_three",
        "end",
    )
    nested = "export X_TOKEN=tok-four; run --admin-api-key adm-five --seed 3"
    with Server(*arguments, nested, **SECRETS, **PLAIN) as server:
        snapshot, results = ask(PROCESS, shell=shell, target=Target(port=server.port))
    raw = results["machine.process"].stdout
    for secret in (
        "sk-one",
        "sk-two",
        "hf_x3",
        "tok-four",
        "adm-five",
        "sk-inside",
        "horse",
        "hf_This",
        "wJal",
    ):
        assert secret not in raw
    engine = snapshot.engines[0]
    tail = engine.argv[engine.argv.index("--api-key") :]
    assert tail[:3] == ("--api-key", "[redacted]", "[redacted]")
    assert tail[3:7] == ("--max-num-batched-tokens", "8192", "--hf-token=[redacted]", "end")
    assert tail[7] == "export X_TOKEN=[redacted] run --admin-api-key [redacted] --seed 3"
    assert engine.environment["EXTRA_ARGS"] == "--port 1 --api-key [redacted] --seed 7"
    assert {name: engine.environment[name] for name in PLAIN} == PLAIN
    assert all("[redacted]" in engine.environment[name] for name in SECRETS)


def test_device_files_of_the_process_and_its_children_are_told(tmp_path, shell):
    for name in ("nvidia0", "nvidiactl", "other"):
        (tmp_path / name).touch()
    folder = str(tmp_path)

    def edit(script):
        changed = script.replace(r"/^\/dev\/(nvidia", "/^" + folder.replace("/", r"\/") + r"\/(nvidia")
        assert changed != script
        return changed

    held = [f"{folder}/{name}" for name in ("nvidia0", "nvidiactl", "other")]
    with Server(*held) as server:
        snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=server.port), edit=edit)
    assert snapshot.engines[0].gpu_devices == (f"{folder}/nvidia0", f"{folder}/nvidiactl")


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv on this machine")
def test_a_process_of_another_user_is_said_to_be_invisible(shell):
    nobody = (shutil.which("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups")
    with Server() as server:
        snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=server.port), before=nobody)
    assert not [engine for engine in snapshot.engines if engine.port == server.port]
    (words,) = [words for words in snapshot.missing if str(server.port) in words]
    assert "not visible" in words
    assert "belongs to user id 0 and user id 65534 may not look into it" in words


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this machine")
def test_a_process_in_another_network_namespace_is_found(shell):
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no right to make a network namespace")
    with Server(address="0.0.0.0", port=18765, before=("unshare", "-n")) as server:
        snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=18765))
    assert (snapshot.engines[0].pid, snapshot.engines[0].port) == (server.pid, 18765)


@pytest.fixture
def stubs(tmp_path, shell):
    """A folder in front of PATH, and a function that puts a program there."""
    folder = tmp_path / "stubs"
    folder.mkdir()

    def add(name, text):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return f"{folder}:{shell.path}"

    return add


UNIT = r"""
case "$*" in
  *LoadState\ --*) echo LoadState=loaded ;;
  *"-p MainPID "*) echo "MainPID=$ENGINE" ;;
  *) echo "Id=vllm.service"; echo LoadState=loaded; echo ActiveState=active; echo NRestarts=2
     echo 'TimeoutStartUSec=10min'; echo 'Environment="API_KEY=sk two" HF_TOKEN=hf_x NCCL_DEBUG=INFO'
     echo 'ExecStart={ path=/v ; argv[]=/v serve m --api-key sk-unit --port 8000 ; pid=1 }' ;;
esac
"""


def test_the_named_unit_leads_to_its_process_and_joins_it(stubs, shell):
    path = stubs("systemctl", UNIT)
    with Server() as server:
        snapshot, results = ask(
            PROCESS, shell=shell, target=Target(unit="vllm"), path=path, ENGINE=str(server.pid)
        )
    raw = results["machine.process"].stdout
    assert not re.search("sk two|sk-unit|hf_x", raw)
    engine = snapshot.engines[0]
    assert (engine.pid, engine.port) == (server.pid, server.port)
    assert (engine.unit.name, engine.unit.restarts, engine.unit.start_limit_s) == ("vllm.service", 2, 600.0)
    assert engine.unit.properties["Environment"].endswith("HF_TOKEN=[redacted] NCCL_DEBUG=INFO")
    assert "--port 8000" in engine.unit.properties["ExecStart"]


DOCKER = r"""
case "$1 $*" in
  inspect*State.Pid*Id*)
    [ "$5" = engine ] || { echo "Error: No such object" >&2; exit 1; }
    echo "$ENGINE 3f2c9a7b1d20" ;;
  inspect*) echo "$ENGINE" ;;
  ps*) echo "3f2c9a7b1d20 0.0.0.0:$PUBLISHED->8000/tcp" ;;
esac
"""


def test_the_named_container_leads_to_its_process(stubs, shell):
    path = stubs("docker", DOCKER)
    with Server() as server:
        snapshot, _ = ask(
            PROCESS, shell=shell, target=Target(container="engine"), path=path, ENGINE=str(server.pid)
        )
    assert [(engine.pid, engine.container) for engine in snapshot.engines[:1]] == [
        (server.pid, "docker:3f2c9a7b1d20")
    ]


def test_a_container_that_is_not_there_is_said_in_dockers_words(stubs, shell):
    path = stubs("docker", DOCKER)
    snapshot, _ = ask(PROCESS, shell=shell, target=Target(container="no such; thing"), path=path, ENGINE="1")
    assert "the named container: docker Error: No such object" in snapshot.missing


def test_a_published_port_leads_into_the_container(stubs, shell):
    path = stubs("docker", DOCKER)
    with Server() as server:
        port = 64999 if server.port != 64999 else 64998
        snapshot, _ = ask(
            PROCESS,
            shell=shell,
            target=Target(port=port),
            path=path,
            ENGINE=str(server.pid),
            PUBLISHED=str(port),
        )
    engine = snapshot.engines[0]
    assert (engine.pid, engine.port, engine.container) == (server.pid, port, "docker:3f2c9a7b1d20")


def test_what_the_user_names_is_never_run(tmp_path, shell):
    mark = tmp_path / "mark"
    evil = f"$(touch {mark}); touch {mark} '; touch {mark} #"
    target = Target(
        port=1,
        unit=evil,
        container=evil,
        folders=(("model", evil), ("model", f"~/{evil}"), ("model", "a/relative one")),
    )
    for subject in (PROCESS, DISKS):
        ask(subject, shell=shell, target=target)
    assert not mark.exists()


@pytest.fixture
def sysfs(tmp_path):
    """A tree of sysfs with four cards on two bridges, one without a driver and one on the root bus."""
    root = tmp_path / "sys"
    rows = (
        ("pci0000:00/0000:00:01.1/0000:01:00.0", "0x030200", "nvidia", 0, 13, "16"),
        ("pci0000:00/0000:00:01.2/0000:02:00.0", "0x030200", None, 0, 14, "0"),
        ("pci0000:80/0000:80:01.1/0000:81:00.0", "0x030000", "vfio-pci", 1, 15, "8"),
        ("pci0000:80/0000:80:01.1/0000:81:00.1", "0x040300", "snd_hda_intel", 1, 15, "8"),
        ("pci0000:80/0000:80:02.0", "0x030000", "nouveau", -1, 16, "255"),
    )
    (root / "bus/pci/devices").mkdir(parents=True)
    port = root / "devices/pci0000:00/0000:00:01.1"
    port.mkdir(parents=True)
    (port / "max_link_width").write_text("8\n")
    (port / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    for path, kind, driver, node, group, width in rows:
        folder = root / "devices" / path
        folder.mkdir(parents=True)
        values = {
            "class": kind,
            "vendor": "0x10de",
            "device": "0x2bb5",
            "numa_node": str(node),
            "local_cpulist": "0-7",
            "current_link_width": width,
            "max_link_width": "16",
            "current_link_speed": "Unknown" if width == "255" else "32.0 GT/s PCIe",
        }
        for name, value in values.items():
            (folder / name).write_text(value + "\n")
        if driver:
            (root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(root / "bus/pci/drivers" / driver)
        (root / f"kernel/iommu_groups/{group}").mkdir(parents=True, exist_ok=True)
        (root / f"kernel/iommu_groups/{group}/type").write_text("identity\n")
        (folder / "iommu_group").symlink_to(root / f"kernel/iommu_groups/{group}")
        (root / "bus/pci/devices" / folder.name).symlink_to(folder)
    return root


LSPCI = r"""
[ "$*" = "-D -vvv -d ::0604" ] || exit 9
for bridge in 0000:00:01.1 0000:00:01.2 0000:80:01.1; do
  echo "$bridge PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 1483 (prog-if 00 [Normal decode])"
  printf '\tCapabilities: [50] Power Management version 3\n\tCapabilities: [2a0 v1] Access Control Services\n'
  printf '\t\tACSCap:\tSrcValid+ ReqRedir+\n\t\tACSCtl:\tSrcValid+ ReqRedir%s CmpltRedir-\n' "$REDIRECT"
done
"""


@pytest.mark.parametrize(("redirect", "expected"), [("+", "redirecting"), ("-", "off")])
def test_cards_are_read_from_sysfs_with_or_without_a_driver(sysfs, stubs, shell, redirect, expected):
    path = stubs("lspci", LSPCI)
    snapshot, _ = ask(
        PCI,
        shell=shell,
        edit=lambda script: script.replace("/sys/", f"{sysfs}/"),
        path=path,
        REDIRECT=redirect,
    )
    told = [
        (card.address, card.driver, card.numa_node, card.iommu_group, card.link_width)
        for card in snapshot.pci_devices
    ]
    assert told == [
        ("0000:01:00.0", "nvidia", 0, 13, 16),
        ("0000:02:00.0", None, 0, 14, None),
        ("0000:80:02.0", "nouveau", None, 16, None),
        ("0000:81:00.0", "vfio-pci", 1, 15, 8),
    ]
    assert [card.link_speed for card in snapshot.pci_devices][2:] == [None, "32.0 GT/s PCIe"]
    assert [card.slot_width_max for card in snapshot.pci_devices] == [8, None, None, None]
    assert snapshot.pci_devices[0].slot_speed_max == "16.0 GT/s PCIe"
    assert snapshot.facts.iommu == "passthrough"
    assert snapshot.facts.acs == expected
    assert snapshot.missing == ()


def test_without_lspci_the_acs_state_is_said_to_be_unknown(sysfs, tmp_path, shell):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("grep", "awk", "cat", "ls", "readlink"):
        (folder / name).symlink_to(shutil.which(name, path=shell.path))

    def edit(script):
        return script.replace("/sys/", f"{sysfs}/").replace('PATH="$PATH:/usr/sbin:/sbin"', f"PATH={folder}")

    snapshot, _ = ask(PCI, shell=shell, edit=edit)
    assert snapshot.facts.acs is None
    assert snapshot.missing == ("ACS state: lspci is not installed",)


def test_nodes_are_read_from_sysfs(tmp_path, shell):
    for index, cpus in ((0, "0-63"), (2, ""), (10, "64-127")):
        node = tmp_path / f"devices/system/node/node{index}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(f"Node {index} MemTotal:  1024 kB\nNode {index} MemFree:  512 kB\n")
    snapshot, _ = ask(NUMA, shell=shell, edit=lambda script: script.replace("/sys/", f"{tmp_path}/"))
    assert [(node.index, node.cpus, node.memory_total) for node in snapshot.numa_nodes] == [
        (0, "0-63", 1048576),
        (2, "", 1048576),
        (10, "64-127", 1048576),
    ]


def test_the_facts_of_this_machine_agree_with_python(shell):
    snapshot, results = ask(FACTS, shell=shell)
    facts = snapshot.facts
    system = os.uname()
    assert results["machine.facts"].stderr == ""
    assert (facts.name, facts.kernel) == (
        system.nodename,
        f"{system.sysname} {system.release} {system.machine}",
    )
    assert facts.cpu_count == os.cpu_count()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(facts.memory_total - pages) < 0.02 * pages
    assert facts.memory_available < facts.memory_total
    assert facts.load_1min is not None
    if Path("/dev/shm").is_mount():
        shm = os.statvfs("/dev/shm")
        assert facts.shm_total == shm.f_blocks * shm.f_frsize
    assert facts.virtualization
    assert snapshot.missing == ()


def test_room_is_told_for_folders_that_are_not_there_yet(tmp_path, shell):
    target = Target(folders=(("model", f"{tmp_path}/not there/yet"), ("cache", "~/it's mine")))
    snapshot, _ = ask(DISKS, shell=shell, target=target, HOME=str(tmp_path), HF_HOME=f"{tmp_path}/hf")
    disks = {(disk.purpose, disk.path): disk for disk in snapshot.disks}
    size = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    for place in (
        ("model", f"{tmp_path}/not there/yet"),
        ("cache", f"{tmp_path}/it's mine"),
        ("hub cache", f"{tmp_path}/hf/hub"),
    ):
        assert disks[place].size == size
        assert disks[place].file_system
    assert ("root", "/") in disks
    assert snapshot.missing == ()


def test_every_subject_has_questions_that_a_plain_shell_accepts(shell):
    seen = set()
    for subject in registry.load("bringup.machine", "SUBJECT").values():
        assert isinstance(subject, Subject)
        for question in subject.questions(
            Target(port=8000, unit="a", container="b", folders=(("model", "/m"),))
        ):
            assert question.key not in seen
            seen.add(question.key)
            assert question.key.startswith("machine.")
            assert bool(question.argv) != bool(question.script)
            assert 0 < question.time_limit_s <= 30
            done = subprocess.run(
                [*shell.argv, "-n", "-c", question.script], capture_output=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, b"")
            # One argument of a command may be 128 KiB long, and the whole script travels with every snapshot.
            assert len(question.script) < 16_000


BOUND = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && ulimit -n 300 && exec "$@"'


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this machine")
def test_what_a_process_may_use_is_told_as_it_sees_it(shell):
    """A container's own /dev/shm is not the host's, and limits are those of the process."""
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no right to make a mount namespace")
    before = (*("unshare", "-m", "sh", "-c", BOUND, "sh"), *(("taskset", "-c", "0") if TASKSET else ()))
    with Server(before=before) as server:
        used = Path(f"/proc/{server.pid}/status").read_text()
        files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        snapshot, _ = ask(PROCESS, shell=shell, target=Target(port=server.port))
    engine = snapshot.engine_on(server.port)
    assert engine.shm_total == 64 * 1024 * 1024
    assert engine.shm_available == 64 * 1024 * 1024
    assert engine.limits["open files"] == "300"
    assert engine.open_files == files
    assert f"Cpus_allowed_list:\t{engine.cpus_allowed}\n" in used
    assert f"Mems_allowed_list:\t{engine.memory_nodes_allowed}\n" in used
    assert engine.cpus_allowed == "0" or not TASKSET
    assert engine.memory_policy in {None, "default"}
    assert (engine.swapped, engine.locked) == (0, 0)
    assert engine.threads == 2
    assert engine.main_thread_s >= 0
    assert engine.name.startswith("python")


TASKSET = shutil.which("taskset")


def tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def with_groups(root, member):
    """The script among made-up control groups, of which the process is in the one that `member` names."""
    return lambda script: (
        script.replace("/sys/fs/cgroup", str(root))
        .replace('"/proc/$p/cgroup"', f'"{member}"')
        .replace('"/proc/$1/cgroup"', f'"{member}"')
    )


def test_the_tightest_of_the_control_groups_counts(tmp_path, shell):
    root = tree(
        tmp_path / "cgroup",
        {
            "cgroup.controllers": "cpu memory pids\n",
            "a.slice/memory.max": "1000000\n",
            "a.slice/memory.current": "900000\n",
            "a.slice/memory.stat": "anon 5\ninactive_file 200000\nactive_file 100000\n",
            "a.slice/cpu.max": "max 100000\n",
            "a.slice/b.service/memory.max": "max\n",
            "a.slice/b.service/memory.current": "800000\n",
            "a.slice/b.service/memory.stat": "inactive_file 1\n",
            "a.slice/b.service/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n",
            "a.slice/b.service/cpu.max": "250000 100000\n",
            "a.slice/b.service/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 7\n",
            "a.slice/b.service/pids.max": "512\n",
            "a.slice/b.service/pids.current": "99\n",
        },
    )
    member = tmp_path / "member"
    member.write_text("0::/a.slice/b.service\n")
    with Server() as server:
        snapshot, _ = ask(
            PROCESS, shell=shell, target=Target(port=server.port), edit=with_groups(root, member)
        )
    group = snapshot.engine_on(server.port).group
    assert (group.memory_limit, group.memory_used, group.oom_kills) == (1000000, 600000, 2)
    assert (group.processor_limit, group.periods, group.throttled_periods) == (2.5, 40, 7)
    assert (group.task_limit, group.tasks) == (512, 99)


def test_control_groups_of_version_1_are_read_too(tmp_path, shell):
    root = tree(
        tmp_path / "cgroup",
        {
            "memory/docker/x/memory.limit_in_bytes": "1000000\n",
            "memory/docker/x/memory.usage_in_bytes": "900000\n",
            "memory/docker/x/memory.stat": "active_file 1\n"
            "total_inactive_file 90000\ntotal_active_file 10000\n",
            "memory/docker/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cpu/docker/x/cpu.cfs_quota_us": "-1\n",
            "cpu/docker/x/cpu.cfs_period_us": "100000\n",
        },
    )
    member = tmp_path / "member"
    member.write_text("4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n")
    with Server() as server:
        snapshot, _ = ask(
            PROCESS, shell=shell, target=Target(port=server.port), edit=with_groups(root, member)
        )
    group = snapshot.engine_on(server.port).group
    assert (group.memory_limit, group.memory_used, group.oom_kills) == (1000000, 800000, 1)
    assert group.processor_limit is None


def test_the_settings_of_its_container_are_told(tmp_path, stubs, shell):
    member = tmp_path / "member"
    member.write_text(f"0::/system.slice/docker-{'3f2c' * 16}.scope\n")
    said = "restart=unless-stopped restarts=4 rm=false ipc=private name=/vllm"
    path = stubs("docker", f'case "$*" in *{"3f2c" * 16}*) echo "{said}" ;; *) exit 1 ;; esac')
    with Server() as server:
        snapshot, _ = ask(
            PROCESS,
            shell=shell,
            path=path,
            target=Target(port=server.port),
            edit=with_groups(tmp_path, member),
        )
    settings = snapshot.engine_on(server.port).container_settings
    assert (settings.tool, settings.name, settings.restart_policy) == ("docker", "vllm", "unless-stopped")
    assert (settings.restarts, settings.is_removed_at_end, settings.ipc_mode) == (4, False, "private")


LINES = r"""printf '[    0.000000] Linux version 6.1\n[    0.100000] Command line: Xid=secret\n'
i=0; while [ $i -lt 600 ]; do i=$((i + 1)); printf '[  %d.000000] NVRM: Xid number %d\n' $i $i; done
printf '[  700.000000] usb 1-1: new device\n'"""


def test_the_oldest_and_the_newest_lines_of_the_kernel_come(stubs, shell):
    if "busybox" in shell.argv[0] and prefers_its_own():
        pytest.skip(PREFERS_OWN)
    path = stubs("dmesg", f'case "$*" in *iso*) echo "dmesg: unknown" >&2; exit 1 ;; esac\n{LINES}')
    snapshot, results = ask(KERNEL_LOG, shell=shell, path=path)
    texts = [line.text for line in snapshot.kernel_lines]
    assert results["machine.kernel_log"].stderr == ""
    assert texts == [f"NVRM: Xid number {number}" for number in (*range(1, 101), *range(301, 601))]
    assert snapshot.kernel_log == "dmesg"
    assert snapshot.kernel_lines[-1].at - snapshot.kernel_log_since == pytest.approx(600.0)


def test_the_journal_tells_it_where_the_buffer_may_not_be_read(stubs, shell):
    if "busybox" in shell.argv[0] and prefers_its_own():
        pytest.skip(PREFERS_OWN)
    stubs("dmesg", 'echo "dmesg: read kernel buffer failed: Operation not permitted" >&2; exit 1')
    line = "1700001012.500000 box kernel: Out of memory: Killed process 812 (python3) total-vm:9kB"
    path = stubs("journalctl", f'case " $* " in *" -k "*short-unix*) echo "{line}" ;; esac')
    snapshot, _ = ask(KERNEL_LOG, shell=shell, path=path)
    assert snapshot.kernel_log == "the journal"
    assert [one.at for one in snapshot.kernel_lines] == [1700001012.5]
    stubs("journalctl", "exit 1")
    snapshot, _ = ask(KERNEL_LOG, shell=shell, path=path)
    assert snapshot.kernel_log is None
    assert "Operation not permitted" in snapshot.missing[0]


def test_what_the_processors_have_counted_is_told(shell):
    first = sum(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    facts = ask(COUNTERS, shell=shell)[0].facts
    last = sum(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    ticks = os.sysconf("SC_CLK_TCK")
    assert first / ticks <= round(sum(facts.processor_s.values()), 3) <= last / ticks
    assert set(facts.processor_s) >= {"user", "idle", "steal"}


def test_the_governors_are_told(tmp_path, shell):
    files = {
        "cpu0/cpufreq/scaling_governor": "powersave\n",
        "cpu1/cpufreq/scaling_governor": "performance\n",
        "cpu2/cpufreq/scaling_governor": "powersave\n",
        "cpu0/cpufreq/scaling_driver": "acpi-cpufreq\n",
    }
    root = tree(tmp_path / "cpu", files)
    snapshot, _ = ask(
        COUNTERS,
        shell=shell,
        edit=lambda script: script.replace("/sys/devices/system/cpu", str(root)).replace(
            "/sys/module/kvm_amd/parameters/sev_snp", str(root / "cpu1/cpufreq/none")
        ),
    )
    facts = snapshot.facts
    assert facts.governors == ("performance", "powersave")
    assert (facts.clock_driver, facts.energy_preference, facts.sev_snp) == ("acpi-cpufreq", None, None)
