"""The questions as a real shell runs them, against stand-ins for the tools and for the kernel's files."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup.values.host import CommandResult
from bringup.vendors import GpuReading, amd, intel

SHELLS = [
    pytest.param(
        argv, id=argv[-1], marks=pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]} here")
    )
    for argv in (("dash",), ("busybox", "sh"), ("bash", "--posix"))
]
VENDORS = {"amd": amd.VENDOR, "intel": intel.VENDOR}


@dataclass
class Box:
    """A folder that looks like a host to the scripts."""

    root: Path
    shell: tuple[str, ...]

    def tool(self, name: str, body: str) -> None:
        """Put a stand-in for a tool into the host's PATH."""
        file = self.root / "bin" / name
        file.write_text("#!/bin/sh\n" + body)
        file.chmod(0o755)

    def card(self, number: int, address: str, **files: str) -> None:
        """Put a card under the kernel's drivers."""
        folder = self.root / "sys/devices/pci0000:00" / address
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
        place = self.root / f"sys/class/drm/card{number}"
        place.mkdir(parents=True)
        (place / "device").symlink_to(folder)
        (self.root / f"sys/class/drm/card{number}-DP-1").mkdir()

    def sensors(self, address: str, **files: str) -> None:
        """Give a card a folder of sensors."""
        folder = self.root / "sys/devices/pci0000:00" / address / "hwmon/hwmon4"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")

    def read(self, vendor: str) -> tuple[CommandResult, GpuReading]:
        """The answer to a vendor's question and what is read from it."""
        (question,) = VENDORS[vendor].questions
        script = question.script
        for place in ("/sys/class", "/sys/module"):
            script = script.replace(place, f"{self.root}{place}")
        done = subprocess.run(
            [*self.shell, "-c", script],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PATH": f"{self.root}/bin", "LC_ALL": "C"},
        )
        result = CommandResult(
            key=question.key, status=done.returncode, stdout=done.stdout, stderr=done.stderr
        )
        return result, VENDORS[vendor].read({question.key: result})


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    (tmp_path / "bin").mkdir()
    (tmp_path / "sys/class/drm").mkdir(parents=True)
    for name in ("sh", "cat", "tr", "sed", "head"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    command, *options = request.param
    return Box(root=tmp_path, shell=(str(shutil.which(command)), *options))


@pytest.mark.parametrize("vendor", VENDORS)
def test_nothing_of_this_maker(box: Box, vendor: str) -> None:
    box.card(0, "0000:06:00.0", vendor="0x10de")
    result, reading = box.read(vendor)
    assert (result.status, result.stderr) == (0, "")
    assert reading == GpuReading(is_absent=True)


def test_the_files_of_the_kernel(box: Box) -> None:
    box.card(
        1,
        "0000:03:00.0",
        vendor="0x1002",
        mem_info_vram_total="17163091968",
        mem_info_vram_used="17453056",
        gpu_busy_percent="7",
        pp_dpm_pcie="0: 2.5GT/s, x8 310Mhz *\n1: 16.0GT/s, x16 619Mhz",
    )
    box.sensors("0000:03:00.0", power1_input="28000000", temp1_label="edge", temp1_input="43000")
    box.card(2, "0000:0e:00.0", vendor="0x1002")  # bound to another driver: no memory to see
    result, reading = box.read("amd")
    assert result.stderr == ""
    (gpu,) = reading.gpus
    assert (gpu.bus_id, gpu.memory_total, gpu.memory_used) == ("0000:03:00.0", 17163091968, 17453056)
    assert (gpu.power, gpu.temperature, gpu.utilization) == (28, 43, 0.07)
    assert (gpu.pcie_generation, gpu.pcie_width) == (1, 8)


def test_amd_smi_is_asked_before_rocm_smi(box: Box) -> None:
    box.tool("amd-smi", 'echo "[{\\"gpu\\": 0, \\"uuid\\": \\"$1 $2\\", \\"bdf\\": \\"0000:03:00.0\\"}]"\n')
    box.tool("rocm-smi", "echo '{\"card9\": {}}'\n")
    _, reading = box.read("amd")
    assert [(gpu.index, gpu.uuid) for gpu in reading.gpus] == [(0, "list --json")]
    assert reading.missing == ()


def test_rocm_smi_is_asked_where_amd_smi_fails(box: Box) -> None:
    box.tool("amd-smi", "echo 'libamd_smi.so: cannot open' >&2; exit 1\n")
    box.tool("rocm-smi", 'echo \'{"card0": {"VRAM Total Memory (B)": "1024"}}\'\n')
    _, reading = box.read("amd")
    assert [(gpu.index, gpu.memory_total) for gpu in reading.gpus] == [(0, 1024)]


def test_every_card_that_xpu_smi_discovers_is_asked(box: Box) -> None:
    box.tool(
        "xpu-smi",
        """case "$*" in
  "discovery -j") echo '{"device_list": [{"device_id": 0, "pci_device_id": "0x56c0"}, {"device_id": "1"}]}' ;;
  discovery*) echo "{\\"device_id\\": $3, \\"memory_physical_size_byte\\": \\"${3}024\\"}" ;;
  stats*) printf '{"device_id": %s, "device_level": [' "$3"
    printf '{"metrics_type": "XPUM_STATS_POWER", "value": 4%s}]}' "$3" ;;
  config*) echo "{\\"device_id\\": $3, \\"power_limit\\": 12$3}" ;;
  "ps -j") echo '{"device_util_by_proc_list": [{"device_id": 1, "process_id": 77, "mem_size": 5}]}' ;;
esac
""",
    )
    _, reading = box.read("intel")
    assert [(gpu.index, gpu.power, gpu.power_limit) for gpu in reading.gpus] == [(0, 40, 120), (1, 41, 121)]
    assert reading.gpus[1].memory_total == 1024
    assert [(process.pid, process.gpu_index) for process in reading.processes] == [(77, 1)]
    assert reading.missing == ()
