"""Questions about samples, links and versions, as a real shell runs them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from busybox import PREFERS_OWN, prefers_its_own

from bringup.parse.nvidia_join import join
from bringup.parse.nvidia_loop import read_moments, read_samples
from bringup.parse.nvidia_software import read_driver
from bringup.units import MIB
from bringup.values.host import CommandResult, Gpu, MappedLibrary
from bringup.vendors.nvidia import VENDOR

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
TOOLS = ("awk", "cat", "grep", "head", "sh", "sleep", "sort", "timeout", "true")
CASE_A = Path(__file__).parents[2] / "golden/vendors/nvidia/case-a"


@pytest.fixture(params=SHELLS)
def ask(request, tmp_path):
    """Asks one question on a made-up host whose commands are these scripts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)

    def answer(key, files=None, **commands):
        for path, text in (files or {}).items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for name, body in commands.items():
            file = folder / name.replace("_", "-")
            file.write_text(f"#!/bin/sh\n{body}\n")
            file.chmod(0o755)
        question = next(one for one in (*VENDOR.questions, VENDOR.trace) if one.key == key)
        script = question.script
        for place in ("/proc/", "/sys/module", "/usr/lib/wsl", "/usr/local/nvidia"):
            script = script.replace(place, f"{tmp_path}{place}")
        script = script.replace(":/usr/sbin:/sbin", "").replace("limited 3 ", "limited 1 ")
        shell = request.param
        done = subprocess.run(
            [str(shutil.which(shell[0])), *shell[1:], "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": str(folder), "LC_ALL": "C"},
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.replace(str(tmp_path), "")

    return answer


LOOP = """
echo "$@" >> "$0.calls"
{refusal}
count=0
while [ "$count" -lt 40 ]; do
  echo "0, 96721, 139.0, 100, 1300, 61, 5, 16$extra"
  echo "1, 3, 83.0, 0, 180, 33, 1, 16$extra"
  count=$((count + 1))
  [ "$count" -lt 8 ] || sleep 0.05
done
"""


def test_five_rounds_are_taken_and_no_more(ask):
    text = ask("nvidia.samples", nvidia_smi=LOOP.format(refusal='extra=", 0x0000000000000004, 140.5"'))
    found = read_samples(text)
    assert {index: len(samples) for index, samples in found.items()} == {0: 5, 1: 5}
    assert found[0][0].power == 140.5  # the reading of the moment, not the average of a second
    assert (found[0][0].utilization, found[0][0].clock_sm, found[0][0].pcie_generation) == (1.0, 1300.0, 5)


def test_a_field_that_the_tool_refuses_is_left_out(ask):
    refusal = """
case $* in
  *power.draw.instant*) echo 'Field "power.draw.instant" is not a valid field to query.'; exit 2 ;;
esac
extra=", 0x0000000000000004"
"""
    found = read_samples(ask("nvidia.samples", nvidia_smi=LOOP.format(refusal=refusal)))
    assert [sample.power for sample in found[0]] == [139.0] * 5


def test_the_oldest_fields_are_asked_in_the_end(ask):
    refusal = """
case $* in
  *clocks_throttle_reasons*)
    echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'
    exit 2 ;;
esac
"""
    text = ask("nvidia.samples", nvidia_smi=LOOP.format(refusal=refusal))
    assert text.count("@fields") == 3
    assert [sample.pcie_generation for sample in read_samples(text)[0]] == [5] * 5


def test_the_trace_of_a_burst_is_read_from_the_same_loop(ask):
    text = ask("nvidia.trace", nvidia_smi=LOOP.format(refusal='extra=", 0x0000000000000044, 140.5"'))
    moments = read_moments(text, begun_at=2.0)[0]
    assert [moment.at for moment in moments] == [round(2 + number / 5, 1) for number in range(15)]
    first = moments[0]
    assert (first.power, first.temperature, first.memory_used) == (140.5, 61.0, 96_721 * MIB)
    assert (first.pcie_width, first.clocks_event_reasons) == (16, 0x44)


def test_readings_have_the_times_at_which_they_came(ask):
    late = """
for seconds in 500.40 500.62 500.81; do
  echo "$seconds 9.99" > "${0%/*}/../proc/uptime"
  echo "0, 96721, 139.0, 100, 1300, 61, 5, 16, 0x4, 140.5"
  echo "1, 3, 83.0, 0, 180, 33, 1, 16, 0x1, 80.0"
  sleep 0.5  # until it is read
done
"""
    text = ask("nvidia.trace", {"proc/uptime": "500.00 9.99\n"}, nvidia_smi=late)
    found = read_moments(text, begun_at=2.0)
    assert [moment.at for moment in found[0]] == [2.4, 2.62, 2.81]
    assert [moment.at for moment in found[1]] == [2.4, 2.62, 2.81]


def test_a_host_without_an_uptime_gives_readings_by_the_interval():
    text = "@fields index,power.draw\n0, 90.5\n0, 91.5\n0, 92.5\n"
    assert [one.at for one in read_moments(text, begun_at=1.0)[0]] == [1.0, 1.2, 1.4]
    told = text.replace("0, 9", "@at 7.00\n0, 9")  # all at once: held back by the tool
    assert read_moments("@at 5.00\n" + told, begun_at=1.0) == read_moments(text, begun_at=1.0)
    spread = "@at 5.00\n@fields index,power.draw\n@at 5.61\n0, 90\n@at 5.83\n0, 91\n@at no\n0, 92\n"
    assert [one.at for one in read_moments(spread, begun_at=1.0)[0]] == [1.0, 1.2, 1.4]
    spread = spread.replace("@at no", "@at 6.50")
    assert [one.at for one in read_moments(spread, begun_at=1.0)[0]] == [1.61, 1.83, 2.5]


def test_a_tool_without_a_loop_gives_what_it_gives(ask):
    text = ask("nvidia.samples", nvidia_smi='echo "0, 3, [N/A], [N/A], 180, 33, 1, 16, [N/A], [N/A]"')
    (sample,) = read_samples(text)[0]
    assert (sample.utilization, sample.power) == (None, None)


def test_a_tool_that_hangs_is_left_alone(ask):
    assert read_samples(ask("nvidia.samples", nvidia_smi="exec sleep 50")) == {}


VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build  (b@h)\n"
TELLS = """
case $* in
  --version) printf 'NVIDIA-SMI version  : 595.58\\nNVML version        : 595.58\\n'
    printf 'DRIVER version      : 595.58.03\\nCUDA Version        : 13.2\\n' ;;
  -L) printf 'GPU 0: NVIDIA H200 (UUID: GPU-1)\\n' ;;
esac
"""


def test_versions_of_every_part(ask):
    files = {
        "proc/driver/nvidia/version": VERSION,
        "proc/12/maps": "7f00-7f01 r-xp 0 08:01 9   /usr/lib/x86_64-linux-gnu/libcuda.so.595.58.03\n" * 3
        + "7f00-7f01 r-xp 0 08:01 9   /opt/venv/nvidia/cu13/lib/libcudart.so.13\n",
        "proc/34/maps": "7f00-7f01 r-xp 0 08:01 9  /opt/x.libs/libcudart-1a2b.so.12.8.90\n",
        "proc/56/maps": "7f00-7f01 r-xp 0 08:01 9  /usr/lib/libcudadevrt.so.1\n",
    }
    driver = read_driver(ask("nvidia.software", files, nvidia_smi=TELLS, modinfo="echo 610.43.02"))
    assert driver is not None
    assert (driver.module, driver.is_open, driver.installed) == ("595.58.03", True, "610.43.02")
    assert (driver.library, driver.cuda) == ("595.58", "13.2")
    assert set(driver.mapped) == {
        MappedLibrary(pid=12, name="libcuda", version="595.58.03"),
        MappedLibrary(pid=12, name="libcudart", version="13"),
        MappedLibrary(pid=34, name="libcudart", version="12.8.90"),
    }


def test_a_driver_of_610_tells_its_versions_by_other_names(ask):
    tells = """
[ "$1" = --version ] || exit 0
echo 'CUDA version        : Deprecated, see "CUDA UMD version" instead'
echo 'NVML version        : 610.43'
echo 'KMD version         : 610.43.02'
echo 'CUDA UMD version    : 13.3'
"""
    driver = read_driver(ask("nvidia.software", nvidia_smi=tells))
    assert driver is not None
    assert (driver.library, driver.cuda, driver.module, driver.installed) == ("610.43", "13.3", None, None)


def test_a_host_without_the_tool_tells_no_versions(ask):
    assert read_driver(ask("nvidia.software")) is None


SIZES = """
[ "$1" = -L ] && { echo 'GPU 0: X (UUID: GPU-1)'; echo '  MIG 3g.40gb     Device  0: (UUID: MIG-1)'; exit 0; }
[ $# -eq 0 ] || exit 0
echo '|  0    2   0   0  |           11091MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |'
"""


def test_the_sizes_of_instances_are_asked_for_where_a_card_is_cut(ask):
    (gpu,) = join([Gpu(index=0)], links="", samples="", software=ask("nvidia.software", nvidia_smi=SIZES))
    (part,) = gpu.instances
    assert (part.uuid, part.profile, part.gpu_instance) == ("MIG-1", "3g.40gb", 2)
    assert (part.memory_used, part.memory_total) == (11_091 * MIB, 40_448 * MIB)
    whole = ask("nvidia.software", nvidia_smi=SIZES.replace("MIG", "X"))
    assert "@@ table" not in whole


def test_answers_join_the_gpus_that_they_are_about():
    def result(key, text):
        return CommandResult(key=key, status=0, stdout=text)

    answers = {path.stem: result(path.stem, path.read_text()) for path in CASE_A.glob("nvidia.*.txt")}
    answers["nvidia.nvlink"] = result(
        "nvidia.nvlink", "GPU 1: X (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    )
    answers["nvidia.samples"] = result(
        "nvidia.samples", "@fields index,utilization.gpu,power.draw\n2, 50, 140\n2, 60, 150\n9, 1, 1\n2, 7"
    )
    listed = "GPU 3: X (UUID: GPU-1)\n  MIG 1g.18gb     Device  0: (UUID: MIG-1)\n"
    answers["nvidia.software"] = result(
        "nvidia.software", f"@@ installed\n595.58.03\n@@ list\n{listed}@@ mapped\n"
    )
    reading = VENDOR.read(answers)
    by_index = {gpu.index: gpu for gpu in reading.gpus}
    assert [link.rate for link in by_index[1].nvlinks] == [26.562e9, None]
    assert [sample.power for sample in by_index[2].samples] == [140.0, 150.0]
    assert [part.profile for part in by_index[3].instances] == ["1g.18gb"]
    assert by_index[0].nvlinks == by_index[0].samples == by_index[0].instances == ()
    assert reading.driver is not None
    assert reading.driver.installed == "595.58.03"
