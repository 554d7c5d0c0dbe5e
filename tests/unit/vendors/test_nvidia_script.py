"""The questions as a real shell runs them, against a stand-in for nvidia-smi and for the kernel's files."""

import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup.values.host import CommandResult
from bringup.vendors import GpuReading
from bringup.vendors.nvidia import VENDOR

SHELLS = [
    pytest.param(
        argv, id=argv[-1], marks=pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]} here")
    )
    for argv in (("dash",), ("busybox", "sh"), ("bash", "--posix"))
]

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

    def ask(self, key: str) -> CommandResult:
        """The answer to one question."""
        question = next(question for question in VENDOR.questions if question.key == key)
        script = question.script
        for place in ("/proc/driver", "/sys/bus", "/usr/lib/wsl", "/usr/local/nvidia"):
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
    for name in ("cat", "readlink", "timeout", "true", "sleep", "sh"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path, tools: str) -> Box:
    root = tmp_path / "host"
    (root / "bin").mkdir(parents=True)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    shell = request.param
    return Box(root=root, shell=(str(shutil.which(shell[0])), *shell[1:]), path=tools)


def answering(rows: list[dict[str, str]], unknown: tuple[str, ...] = ()) -> str:
    """A stand-in that answers any field list, and refuses the fields that it does not know."""
    cells = "\n".join(
        f"    {place}:{name}) printf '%s' '{value}' ;;"
        for place, row in enumerate(rows)
        for name, value in row.items()
    )
    refusals = "\n".join(
        f"""case ,$fields, in *,{name},*) echo 'Field "{name}" is not a valid field to query.'; echo; exit 2 ;; esac"""
        for name in unknown
    )
    return f"""
echo "$@" >> "$0.calls"
case $* in *--query-gpu=*) ;; *) exit 0 ;; esac
for argument in "$@"; do case $argument in --query-gpu=*) fields=${{argument#*=}} ;; esac; done
{refusals}
for place in {" ".join(str(place) for place in range(len(rows)))}; do
  separator=
  IFS=,
  for field in $fields; do
    printf '%s' "$separator"
    separator=', '
    case $place:$field in
{cells}
    *) printf '[N/A]' ;;
    esac
  done
  echo
done
"""


Boxed = Callable[[], Box]


def calls(box: Box) -> list[str]:
    return (box.root / "bin/nvidia-smi.calls").read_text().splitlines()


def test_healthy(box: Box) -> None:
    box.driver("595.58.03")
    box.card("0000:06:00.0")
    box.tool(answering([ROW]))
    reading = box.read()
    assert reading.state is None
    (gpu,) = reading.gpus
    assert gpu.bus_id == "0000:06:00.0"
    assert gpu.memory_used == 96721 * 1024**2
    assert gpu.memory_headroom == 530 * 1024**2
    assert gpu.said["temperature"] == "[N/A]"
    assert gpu.temperature is None


def test_no_gpu_and_no_driver(box: Box) -> None:
    reading = box.read()
    assert reading.gpus == ()
    assert reading.state == "no NVIDIA GPU on this host"
    assert box.ask("nvidia.gpus").status == 127


def test_dropped_fields(box: Box) -> None:
    box.tool(answering([ROW], unknown=("gpu_recovery_action", "fabric.state", "clocks_event_reasons.active")))
    result = box.ask("nvidia.gpus")
    fields = next(line for line in result.stdout.splitlines() if line.startswith("@fields"))
    assert "gpu_recovery_action" not in fields
    assert "clocks_throttle_reasons.active" in fields
    assert len(calls(box)) == 4
    (gpu,) = box.read().gpus
    assert gpu.memory_used == 96721 * 1024**2


def test_the_environment_has_no_real_tool(tools: str) -> None:
    assert not shutil.which("nvidia-smi", path=tools)
    assert os.listdir(tools)
