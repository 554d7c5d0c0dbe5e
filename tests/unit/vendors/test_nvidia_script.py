"""The questions as a real shell runs them, against a stand-in for nvidia-smi and for the kernel's files."""

import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup.units import MIB
from bringup.values.host import CommandResult
from bringup.vendors import GpuReading
from bringup.vendors.nvidia import VENDOR

SHELLS = [
    pytest.param(
        argv, id=argv[-1], marks=pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]} here")
    )
    for argv in (("dash",), ("busybox", "sh"), ("bash", "--posix"))
]

NOT_LOADED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."

ROW = {
    "index": "0",
    "uuid": "GPU-aaaaaaaa-0000-0000-0000-000000000000",
    "pci.bus_id": "00000000:06:00.0",
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "driver_version": "595.58.03",
    "memory.total": "97887",
    "memory.reserved": "636",
    "memory.used": "96721",
}


@dataclass
class Box:
    """A folder that looks like a host to the scripts."""

    root: Path
    shell: tuple[str, ...]
    path: str

    def tool(self, body: str) -> None:
        """Put a stand-in for nvidia-smi into the host's PATH."""
        file = self.root / "bin/nvidia-smi"
        file.write_text("#!/bin/sh\n" + textwrap.dedent(body))
        file.chmod(0o755)

    def card(
        self, address: str, owner: str = "nvidia", vendor: str = "0x10de", kind: str = "0x030200"
    ) -> None:
        """Put a card on the PCI bus."""
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
        if owner:
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{owner}")

    def driver(self, version: str) -> None:
        """Load a kernel module of this version."""
        folder = self.root / "proc/driver/nvidia"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (b@h)\n"
        (folder / "version").write_text(text + "GCC version:  gcc version 12.2.0\n")

    def ask(self, key: str, change: Callable[[str], str] = str) -> CommandResult:
        """The answer to one question."""
        question = next(question for question in VENDOR.questions if question.key == key)
        script = change(question.script)
        for place in (
            "/proc/",
            "/sys/bus",
            "/sys/module",
            "/usr/lib/wsl",
            "/usr/local/nvidia",
            "/etc/nv_tegra",
        ):
            script = script.replace(place, f"{self.root}{place}")
        done = subprocess.run(
            [*self.shell, "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": f"{self.root}/bin:{self.path}", "LC_ALL": "C"},
            check=False,
        )
        assert done.stderr == ""
        return CommandResult(key=key, status=done.returncode, stdout=done.stdout)

    def read(self) -> GpuReading:
        """Everything the vendor reads on this host."""
        return VENDOR.read({question.key: self.ask(question.key) for question in VENDOR.questions})


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A PATH with the few commands that the scripts may use, and no nvidia-smi."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("awk", "cat", "grep", "head", "readlink", "sh", "sleep", "sort", "timeout", "true"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path, tools: str) -> Box:
    """A host with one of several shells."""
    shell = request.param
    return host(tmp_path / "host", (str(shutil.which(shell[0])), *shell[1:]), tools)


@pytest.fixture
def plain_box(tmp_path: Path, tools: str) -> Box:
    """A host with this machine's shell, for what the readers decide."""
    return host(tmp_path / "host", (str(shutil.which("sh")),), tools)


def host(root: Path, shell: tuple[str, ...], tools: str) -> Box:
    (root / "bin").mkdir(parents=True)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    return Box(root=root, shell=shell, path=tools)


def answering(rows: list[dict[str, str]], unknown: tuple[str, ...] = (), lost: str = "") -> str:
    """A stand-in that answers any field list, refuses fields that it does not know, and has one card lost."""
    cells = "\n".join(
        f"    {place}:{name}) printf '%s' '{value}' ;;"
        for place, row in enumerate(rows)
        for name, value in row.items()
    )
    refusals = "\n".join(
        f"""case ,$fields, in
  *,{name},*) echo 'Field "{name}" is not a valid field to query.'; exit 2 ;;
esac"""
        for name in unknown
    )
    places = "\n".join(
        f"  {row['pci.bus_id'].lower()[4:]}) places={place} ;;" for place, row in enumerate(rows)
    )
    missing = f"echo 'Unable to determine the device handle for GPU{lost}: Unknown Error'; exit 255"
    return f"""
echo "$@" >> "$0.calls"
case $* in *--query-gpu=*) ;; *) exit 0 ;; esac
card=all
if [ "$1" = -i ]; then card=$2; fi
for argument in "$@"; do case $argument in --query-gpu=*) fields=${{argument#*=}} ;; esac; done
{refusals}
places="{" ".join(str(place) for place in range(len(rows)))}"
case $card in
  {lost or "none"}) {missing} ;;
  all) {missing if lost else ":"} ;;
{places}
  *) exit 6 ;;
esac
for place in $places; do
  separator=
  old=$IFS
  IFS=,
  for field in $fields; do
    printf '%s' "$separator"
    separator=', '
    case $place:$field in
{cells}
    *) printf '[N/A]' ;;
    esac
  done
  IFS=$old
  echo
done
"""


def calls(box: Box) -> list[str]:
    """Command lines that the stand-in was called with."""
    return (box.root / "bin/nvidia-smi.calls").read_text().splitlines()


def saying(text: str, status: int) -> str:
    """A stand-in that says the same to every question."""
    return f"cat <<'END'\n{text}\nEND\nexit {status}\n"


def test_healthy(box: Box) -> None:
    box.driver("595.58.03")
    box.card("0000:06:00.0")
    box.tool(answering([ROW]))
    reading = box.read()
    assert reading.state is None
    (gpu,) = reading.gpus
    assert gpu.bus_id == "0000:06:00.0"
    assert gpu.memory_used == 96721 * MIB
    assert gpu.memory_headroom == 530 * MIB
    assert gpu.said["temperature"] == "[N/A]"
    assert gpu.temperature is None
    assert len(calls(box)) == 7  # one per question, and two for its own versions and its list


def test_two_cards_keep_their_rows(box: Box) -> None:
    other = {
        **ROW,
        "index": "1",
        "uuid": ROW["uuid"].replace("a", "b"),
        "pci.bus_id": "00000000:07:00.0",
        "memory.used": "3",
    }
    box.tool(answering([ROW, other]))
    assert [gpu.memory_used for gpu in box.read().gpus] == [96721 * MIB, 3 * MIB]


def test_no_gpu(box: Box) -> None:
    box.card("0000:00:01.0", owner="ast", vendor="0x1a03", kind="0x030000")
    assert box.read().state == "no NVIDIA GPU on this host"
    assert box.ask("nvidia.gpus").status == 127


def test_no_gpu_but_a_driver_package(box: Box) -> None:
    box.card("0000:00:01.0", owner="ast", vendor="0x1a03", kind="0x030000")
    box.tool(saying(NOT_LOADED, 9))
    assert box.read().state == "no NVIDIA GPU on this host (NVIDIA driver not loaded)"


def test_no_pci_bus_to_be_seen(box: Box) -> None:
    assert box.read().state == "no NVIDIA driver on this host (nvidia-smi is not installed)"


def test_cards_without_the_tool(box: Box) -> None:
    box.card("0000:06:00.0", owner="nouveau")
    box.card("0000:07:00.0", owner="")
    box.card("0000:06:00.1", owner="snd_hda_intel", kind="0x040300")
    assert box.read().state == (
        "no NVIDIA driver on this host (nvidia-smi is not installed); "
        "NVIDIA GPUs on the PCI bus: 1 with driver nouveau, 1 with no driver"
    )
    box.driver("595.58.03")
    assert (box.read().state or "").startswith("NVIDIA driver 595.58.03 is loaded, but nvidia-smi is not")


def test_all_cards_given_to_a_virtual_machine(box: Box) -> None:
    for bus in ("21", "a1"):
        box.card(f"0000:{bus}:00.0", owner="vfio-pci")
    box.tool(saying("No devices were found", 6))
    assert box.read().state == (
        "NVIDIA driver loaded, but no GPU is bound to it; NVIDIA GPUs on the PCI bus: 2 with driver vfio-pci"
    )


def test_windows_subsystem(box: Box) -> None:
    box.card("5582:00:00.0", owner="dxgkrnl", vendor="0x1414", kind="0x030200")
    (box.root / "proc").mkdir(exist_ok=True)
    (box.root / "proc/version").write_text(
        "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x) #1 SMP\n"
    )
    assert box.read().state == "no NVIDIA driver on this host (nvidia-smi is not installed)"
    folder = box.root / "usr/lib/wsl/lib"
    folder.mkdir(parents=True)
    box.tool(answering([ROW]))
    (box.root / "bin/nvidia-smi").rename(folder / "nvidia-smi")
    assert [gpu.index for gpu in box.read().gpus] == [0]


FAILURES = [
    (9, NOT_LOADED, "NVIDIA driver not loaded"),
    (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "libnvidia-ml is missing"),
    (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.195",
        "driver/library mismatch, library 570.195",
    ),
    (
        255,
        "Mismatch in versions between nvidia-smi and NVML.",
        "nvidia-smi and libnvidia-ml are of different",
    ),
    (255, "Failed to initialize NVML: Unknown Error", "the NVIDIA driver refuses to answer"),
    (4, "", "no permission"),
    (8, "", "a GPU's external power cable is not attached"),
    (10, "", "the NVIDIA driver has an interrupt problem"),
    (13, "", "nvidia-smi asked libnvidia-ml for a function"),
    (15, "", "a GPU has fallen off the bus"),
    (77, "something new", "nvidia-smi ended with status 77: something new"),
    (0, "", "nvidia-smi answered without a row"),
    (0, "word salad", "nvidia-smi printed a line that is not understood: 'word salad'"),
]


@pytest.mark.parametrize(("status", "text", "words"), FAILURES, ids=lambda value: str(value)[:24])
def test_failures_are_told_in_words(plain_box: Box, status: int, text: str, words: str) -> None:
    plain_box.card("0000:06:00.0")
    plain_box.tool(saying(text, status))
    reading = plain_box.read()
    assert reading.gpus == ()
    assert (reading.state or "").startswith(words)
    assert plain_box.ask("nvidia.gpus").status == status


def test_mismatch_names_both_versions(box: Box) -> None:
    box.driver("570.133.20")
    box.tool(
        saying(
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.195", 18
        )
    )
    state = box.read().state or ""
    assert "library 570.195" in state
    assert state.endswith("loaded kernel module: 570.133.20")


def test_a_corrupted_inforom_is_told_beside_good_rows(box: Box) -> None:
    box.tool(answering([ROW]) + "echo 'WARNING: infoROM is corrupted at gpu 0000:06:00.0'\nexit 14\n")
    reading = box.read()
    assert [gpu.memory_used for gpu in reading.gpus] == [96721 * MIB]
    assert "infoROM is corrupted at GPU 0000:06:00.0" in reading.missing


@pytest.mark.parametrize(
    ("version", "renamed", "absent"),
    [
        ("390.157", True, ("memory.reserved", "temperature.memory", "mig.mode.current", "compute_cap")),
        ("470.256.02", True, ("memory.reserved", "compute_cap", "fabric.state", "gpu_recovery_action")),
        ("525.147.05", True, ("gpu_recovery_action",)),
        ("550.163.01", False, ("gpu_recovery_action",)),
        ("595.58.03", False, ()),
    ],
)
def test_the_field_list_follows_the_driver(
    box: Box, version: str, renamed: bool, absent: tuple[str, ...]
) -> None:
    box.driver(version)
    box.tool(answering([ROW]))
    result = box.ask("nvidia.gpus")
    (call,) = calls(box)
    fields = call.split("--query-gpu=")[1].split()[0].split(",")
    assert f"@fields {','.join(fields)}" in result.stdout.splitlines()
    assert ("clocks_throttle_reasons.active" in fields) is renamed
    assert ("clocks_event_reasons.active" in fields) is not renamed
    assert not set(absent) & set(fields)
    assert ("memory.reserved" in fields) is ("memory.reserved" not in absent)
    assert result.stdout.splitlines()[0] == f"@driver {version}"


def test_fields_that_this_tool_refuses_are_dropped_one_by_one(box: Box) -> None:
    box.tool(answering([ROW], unknown=("gpu_recovery_action", "fabric.state", "clocks_event_reasons.active")))
    result = box.ask("nvidia.gpus")
    fields = next(line for line in result.stdout.splitlines() if line.startswith("@fields"))
    assert "gpu_recovery_action" not in fields
    assert "clocks_throttle_reasons.active" in fields
    assert len(calls(box)) == 4
    (gpu,) = box.read().gpus
    assert gpu.memory_used == 96721 * MIB
    assert gpu.serial is None
    assert gpu.recovery_action is None


def test_a_tool_that_refuses_everything_ends(box: Box) -> None:
    box.tool("""
        echo x >> "$0.calls"
        for argument in "$@"; do case $argument in --query-gpu=*) fields=${argument#*=} ;; esac; done
        echo "Field \\"${fields%%,*}\\" is not a valid field to query."
        exit 2
    """)
    assert (box.read().state or "").startswith("nvidia-smi does not know the field")
    assert len(calls(box)) < 60


def test_a_refusal_of_a_field_that_was_not_asked_ends(box: Box) -> None:
    box.tool(saying('Field "cuda_version" is not a valid field to query.', 2))
    assert box.read().state == "nvidia-smi does not know the field cuda_version"


def test_one_lost_card_does_not_hide_the_others(box: Box) -> None:
    rows = [
        {**ROW, "index": str(index), "pci.bus_id": f"00000000:{bus}:00.0"}
        for index, bus in ((0, "06"), (2, "65"))
    ]
    for bus in ("06", "17", "65"):
        box.card(f"0000:{bus}:00.0")
    box.card("0000:71:00.0", owner="vfio-pci")
    box.tool(answering(rows, lost="0000:17:00.0", unknown=("gpu_recovery_action",)))
    reading = box.read()
    asked = [call.split()[1] for call in calls(box) if call.startswith("-i ")]
    assert asked == ["0000:06:00.0", "0000:17:00.0", "0000:65:00.0"]
    words = "GPU 0000:17:00.0 does not answer its driver: Unknown Error"
    assert [(gpu.index, gpu.bus_id) for gpu in reading.gpus] == [
        (0, "0000:06:00.0"),
        (2, "0000:65:00.0"),
        (None, "0000:17:00.0"),
    ]
    assert reading.gpus[1].memory_used == 96721 * MIB
    assert reading.gpus[2].said["memory_used"] == words
    assert reading.missing.count(words) == 1


def hurried(script: str) -> str:
    """The script with time limits for a test."""
    changed = re.sub(r"^ask 25$", "ask 1", script, flags=re.MULTILINE)
    changed = re.sub(r"\bask 8 -i\b", "ask 1 -i", changed)
    assert changed != script
    return changed


def test_a_hanging_card_is_cut_off(box: Box) -> None:
    box.card("0000:06:00.0")
    box.tool("exec sleep 60\n")
    result = box.ask("nvidia.gpus", hurried)
    assert result.status == 124
    state = VENDOR.read({"nvidia.gpus": result}).state or ""
    assert state.startswith("nvidia-smi did not answer within its time limit")
    assert state.endswith("NVIDIA GPUs on the PCI bus: 1 with driver nvidia")


def test_cards_after_two_that_hang_are_not_asked(box: Box) -> None:
    for bus in ("06", "17", "65"):
        box.card(f"0000:{bus}:00.0")
    box.tool("""
        case $* in *-i*) exec sleep 60 ;; esac
        echo 'Unable to determine the device handle for GPU0000:17:00.0: Unknown Error'
        exit 255
    """)
    result = box.ask("nvidia.gpus", hurried)
    assert "@skipped 0000:65:00.0" in result.stdout.splitlines()
    assert (VENDOR.read({"nvidia.gpus": result}).state or "").startswith("GPU 0000:17:00.0 does not answer")


def test_processes_and_topology(box: Box) -> None:
    box.driver("595.58.03")
    folder = box.root / "proc/driver/nvidia/gpus/0000:06:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        f"Model: \t\t NVIDIA RTX PRO 6000\nGPU UUID: \t {ROW['uuid']}\nBus Location: \t 0000:06:00.0\n"
        "Device Minor: \t 2\n"
    )
    listed = f"echo '{ROW['uuid']}, 4711, /opt/venv/bin/python3, 96700'"
    matrix = "printf '\\tGPU0\\tGPU1\\n0\\nGPU0\\t X \\tPHB\\nGPU1\\tPHB\\t X \\n'"
    box.tool(
        f"""
case $* in *compute-apps*) {listed}; exit ;; topo*) {matrix}; exit ;; esac
"""
        + answering([ROW])
    )
    reading = box.read()
    (process,) = reading.processes
    assert (process.pid, process.gpu_index, process.memory_used) == (4711, 0, 96700 * MIB)
    assert [(link.source, link.target, link.kind) for link in reading.links] == [
        ("GPU0", "GPU1", "PHB"),
        ("GPU1", "GPU0", "PHB"),
    ]
    assert reading.gpus[0].minor == 2
    assert reading.missing == ()


def test_nothing_is_written(box: Box) -> None:
    box.card("0000:06:00.0")
    box.tool("exit 9\n")
    before = sorted(str(path) for path in box.root.rglob("*"))
    box.read()
    assert sorted(str(path) for path in box.root.rglob("*")) == before


def test_without_a_time_limit_command(box: Box) -> None:
    (Path(box.path) / "timeout").unlink()
    box.tool(answering([ROW]))
    assert [gpu.index for gpu in box.read().gpus] == [0]


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox here")
def test_a_hanging_card_under_the_time_limit_of_busybox(box: Box) -> None:
    file = Path(box.path) / "timeout"
    file.unlink()
    file.symlink_to(str(shutil.which("busybox")))
    box.tool("exec sleep 60\n")
    assert box.ask("nvidia.gpus", hurried).status == 124


def test_the_environment_has_no_real_tool(tools: str) -> None:
    assert not shutil.which("nvidia-smi", path=tools)
