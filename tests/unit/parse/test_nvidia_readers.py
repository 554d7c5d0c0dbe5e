"""The readers of nvidia-smi's outputs on synthetic texts in the shapes of the drivers."""

from pathlib import Path

import pytest

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_frame import module_version, read_cards, read_frame
from bringup.parse.nvidia_list import read_driver_version, read_list, read_nvlinks
from bringup.parse.nvidia_report import read_text_report, read_xml_report
from bringup.parse.nvidia_smi import read_gpus, read_processes, read_rows
from bringup.parse.nvidia_state import trouble
from bringup.parse.nvidia_table import instances_memory_used, read_table
from bringup.parse.nvidia_values import READERS, absence, bus_id
from bringup.parse.topo import read_topology
from bringup.units import MIB
from bringup.values.host import Absent, GpuInstance

FOLDER = Path(__file__).parents[2] / "golden/parse/nvidia"

NO_VALUES = (
    "[N/A]",
    "N/A",
    "[Not Supported]",
    "Not Supported",
    "[Unknown Error]",
    "[GPU requires reset]",
    "[Insufficient Permissions]",
    "[Requested functionality has been deprecated]",
    "Requested functionality has been deprecated",
    "[Function Not Found]",
    "ERR!",
    "Not available in WDDM driver model",
    "[Not Found]",
    "[GPU is lost]",
    "[words of a later driver]",
)


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("field", sorted(READERS))
@pytest.mark.parametrize("words", NO_VALUES)
def test_every_way_to_say_no_value_is_an_absence(field: str, words: str) -> None:
    assert READERS[field](words) == Absent(said=words)
    assert READERS[field](f"  {words} ") == Absent(said=words)


@pytest.mark.parametrize("field", sorted(READERS))
def test_the_empty_cell_is_an_absence(field: str) -> None:
    assert READERS[field]("") == Absent(said="(empty)")
    assert READERS[field]("  ") == Absent(said="(empty)")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("memory_used", "97887 M"),
        ("memory_used", "-1"),
        ("memory_used", "9 788"),
        ("memory_used", "0x10"),
        ("memory_used", "1e5"),
        ("memory_used", "97,887"),
        ("memory_used", "٣"),
        ("memory_total", "0"),
        ("memory_total", "0 MiB"),
        ("utilization", "101 %"),
        ("utilization", "5 MiB"),
        ("power", "84.30 %"),
        ("power", "nan"),
        ("power", "inf"),
        ("temperature", "41 F"),
        ("index", "1.5"),
        ("pcie_width", "x16"),
        ("performance_state", "P99"),
        ("clocks_event_reasons", "12"),
        ("driver_version", "Deprecated, see somewhere"),
        ("bus_id", "06:00"),
        ("uuid", "GPU-00000001"),
    ],
)
def test_what_is_no_value_of_its_kind_is_an_absence(field: str, words: str) -> None:
    assert READERS[field](words) == Absent(said=words)


def test_words_that_are_values() -> None:
    for words in ("Disabled", "Enabled", "None", "No", "E. Process", "Completed", "0000000000000"):
        assert absence(words) is None
    assert absence("???") == Absent(said="???")


def test_bus_ids() -> None:
    assert bus_id("0000:0B:00.0") == "0000:0b:00.0"
    assert bus_id("B3:00.0") == "0000:b3:00.0"
    assert bus_id("00010000:b3:00.0") == "10000:b3:00.0"
    assert bus_id("0000:b3:00.9") is None


def test_query() -> None:
    first, second = read_gpus(text("query.csv"))
    assert (first.index, first.memory_used, first.utilization, first.power) == (0, 96721 * MIB, 0.17, 84.3)
    assert first.said == {}
    assert second.name == "NVIDIA Card, with a comma"
    assert second.said == {
        "memory_used": "[N/A]",
        "utilization": "[Not Supported]",
        "power": "[Unknown Error]",
        "serial": "[N/A]",
    }


def test_power_takes_the_first_figure_there_is() -> None:
    columns = ("power.draw", "power.draw.average", "power.draw.instant")
    (gpu,) = read_gpus("[N/A], [N/A], 66.84\n", columns)
    assert (gpu.power, gpu.said) == (66.84, {})
    (gpu,) = read_gpus("ERR!, [N/A], [N/A]", columns)
    assert (gpu.power, gpu.said) == (None, {"power": "ERR!"})


def test_a_number_without_line_end_may_be_cut() -> None:
    (gpu,) = read_gpus("0, 977", ("index", "memory.used"))
    assert (gpu.index, gpu.memory_used, gpu.said) == (0, None, {"memory_used": "(line end missing)"})
    (gpu,) = read_gpus("0, 977 MiB", ("index", "memory.used"))
    assert gpu.memory_used == 977 * MIB


def test_lines_that_are_no_rows_are_kept_apart() -> None:
    rows = read_rows("0, A\nWARNING: infoROM is corrupted at gpu 0000:B3:00.0\n", ("index", "name"))
    assert len(rows.rows) == 1
    assert rows.messages == ("WARNING: infoROM is corrupted at gpu 0000:B3:00.0",)
    lost = "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error"
    assert read_rows(lost, ("serial",)).rows == ()
    with pytest.raises(UnreadableAnswer):
        read_rows("no header, here is none", ())


def test_processes() -> None:
    first, second = read_processes(text("apps.csv"))
    assert (first.pid, first.name, first.memory_used) == (4100, "/opt/my, odd, path/python", 96708 * MIB)
    assert (second.pid, second.name, second.memory_used) == (4200, None, None)
    assert read_processes("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n") == ()
    with pytest.raises(UnreadableAnswer):
        read_processes("word salad", ("pid", "process_name"))


def test_table() -> None:
    table = read_table(text("table.txt"))
    gpus = table.gpus
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    assert [gpu.name_is_cut for gpu in gpus] == [True, True, False, False]
    assert [gpu.memory_used and gpu.memory_used // MIB for gpu in gpus] == [96721, 58222, None, 16959]
    assert [gpu.power for gpu in gpus] == [84.0, None, 3.0, 295.0]
    assert [gpu.driver_version for gpu in gpus] == [None] * 4
    assert [gpu.ecc_mode for gpu in gpus] == [None, "Disabled", None, "Enabled"]
    assert [gpu.ecc_uncorrected for gpu in gpus] == [0, None, None, None]
    assert [gpu.compute_mode for gpu in gpus] == ["Default", "Default", "Default", "E. Process"]
    assert gpus[1].said == {
        "temperature": "ERR!",
        "performance_state": "ERR!",
        "power": "N/A",
        "power_limit": "N/A",
        "utilization": "ERR!",
    }
    assert gpus[2].said["memory_used"] == "Not Supported"
    assert gpus[2].bus_id == "000f:01:00.0"
    assert [process.pid for process in table.processes] == [4100, 12249, 12444]
    assert [process.name for process in table.processes] == [
        "VLLM::Worker_TP0",
        "...venv/envs/with blank/bin/python",
        None,
    ]
    assert [process.memory_used for process in table.processes] == [96708 * MIB, 2194 * MIB, None]
    assert instances_memory_used(gpus[3].instances) == (16925 + 17) * MIB


def test_a_table_that_lost_its_lines_is_refused() -> None:
    merged = "|   0  NVIDIA B300  On | 00000000:1A:00.0 Off | N/A 28C P0 185W / 1100W |  0MiB / 275040MiB |"
    with pytest.raises(UnreadableAnswer):
        read_table(merged)


def test_a_row_whose_second_line_is_missing_has_no_figures() -> None:
    lines = text("table.txt").splitlines()
    (gpu, *_) = read_table("\n".join([*lines[:9], *lines[10:]]) + "\n").gpus
    assert gpu.bus_id == "0000:06:00.0"
    assert gpu.memory_used is None
    assert gpu.mig_mode is None


def test_a_row_without_its_last_bar_is_not_read() -> None:
    lines = text("table.txt").splitlines()
    lines[9] = lines[9].rstrip(" |")
    (gpu, *_) = read_table("\n".join(lines)).gpus
    assert (gpu.memory_used, gpu.utilization) == (None, None)


def test_instances_without_figures() -> None:
    assert instances_memory_used(()) is None
    assert (
        instances_memory_used((GpuInstance(gpu_instance=1), GpuInstance(gpu_instance=2, memory_used=1)))
        is None
    )


def test_text_report() -> None:
    report = read_text_report(text("report.txt"))
    first, second = report.gpus
    assert report.driver_version == "610.43.02"
    assert (first.index, first.minor, second.minor) == (0, 2, 0)
    assert (first.memory_total, first.memory_used) == (97887 * MIB, 96721 * MIB)
    assert first.memory_headroom == 530 * MIB
    assert (first.power, first.power_limit, first.clock_sm) == (84.3, 600.0, 2370.0)
    assert (first.pcie_generation, first.pcie_generation_max) == (1, 5)
    assert (first.pcie_width, first.pcie_width_max) == (8, 16)
    assert (first.mig_mode, second.mig_mode) == ("Disabled", "Enabled")
    assert first.said["remapped_rows_pending"] == "N/A"
    assert (second.memory_total, second.memory_used) == (143771 * MIB, 55 * MIB)
    assert (second.power, second.utilization, second.serial) == (78.21, None, None)
    assert [each.memory_used for each in second.instances] == [22 * MIB, 22 * MIB]
    assert instances_memory_used(second.instances) == 22 * MIB
    assert [(each.pid, each.gpu_index, each.memory_used) for each in report.processes] == [
        (4100, 0, 96708 * MIB),
        (4200, 0, None),
    ]


def test_a_report_cut_in_a_number() -> None:
    whole = text("report.txt")
    cut = whole[: whole.index("97887") + 3]
    (gpu,) = read_text_report(cut).gpus
    assert gpu.memory_total is None
    assert gpu.performance_state == "P1"


def test_a_report_of_some_cards_has_no_index() -> None:
    part = text("report.txt").replace(
        "Attached GPUs                                          : 2", "Attached GPUs : 8"
    )
    assert [gpu.index for gpu in read_text_report(part).gpus] == [None, None]


def test_xml_report() -> None:
    report = read_xml_report(text("report.xml"))
    first, second = report.gpus
    assert report.driver_version == "580.95.05"
    assert (first.memory_total, first.memory_reserved) == (97887 * MIB, 636 * MIB)  # not the MIG device's
    assert (first.power, first.power_limit, first.minor, first.clock_sm) == (84.3, 600.0, 2, 2370.0)
    assert (first.utilization, first.pcie_width, first.index) == (0.17, 8, 0)
    assert first.said["remapped_rows_failure"] == "N/A"
    assert [each.memory_total for each in first.instances] == [19968 * MIB]
    assert (second.bus_id, second.memory_total, second.power) == ("000f:01:00.0", None, 26.16)
    assert second.said["memory_used"] == "Not Supported"
    assert second.power_limit == 140.0
    assert [(each.pid, each.name, each.memory_used) for each in report.processes] == [
        (4100, "VLLM::Worker_TP0", 96708 * MIB),
        (4200, None, None),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "NVIDIA-SMI has failed",
        "<nvidia_smi_log></nvidia_smi_log>",
        "<other><gpu id='1'/></other>",
        '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu id="1">&a;</gpu></nvidia_smi_log>',
    ],
)
def test_what_is_no_report_is_refused(wrong: str) -> None:
    with pytest.raises(UnreadableAnswer):
        read_xml_report(wrong)
    with pytest.raises(UnreadableAnswer):
        read_text_report(wrong)


def test_list() -> None:
    first, second, third = read_list(text("list.txt"))
    assert [each.profile for each in first.instances] == ["1c.3g.71gb", "2g.35gb"]
    assert (second.name, second.instances) == ("NVIDIA L40S", ())
    assert (third.name, third.uuid) == ("Orin (nvgpu)", "00000006-0000-4000-8000-000000000006")
    with pytest.raises(UnreadableAnswer):
        read_list("No devices were found\n")


def test_a_list_cut_in_a_uuid() -> None:
    whole = text("list.txt")
    gpus = read_list(whole[: whole.index("GPU-00000005") + 8])
    assert [gpu.name for gpu in gpus] == ["NVIDIA H200"]


def test_nvlinks() -> None:
    first, second = read_nvlinks(text("nvlink.txt"))
    assert first.rates == {0: 26.562e9, 1: None, 17: 26.562e9}
    assert (second.rates, second.said) == ({}, "Device does not have or support Nvlink")
    assert read_nvlinks("") == ()


def test_topology() -> None:
    found = read_topology(text("topo.txt"))
    kinds = {(link.source, link.target): link.kind for link in found.links}
    assert len(kinds) == 12
    assert (kinds["GPU0", "GPU1"], kinds["GPU1", "GPU2"], kinds["NIC0", "GPU2"]) == ("NV18", "SYS", "PHB")
    places = {each.device: (each.cpus, each.numa_nodes, each.gpu_numa_node) for each in found.affinities}
    assert places == {
        "GPU0": ("0-71", "0,3-9", 2),
        "GPU1": ("72-143", "1", None),
        "GPU2": ("0-71", None, None),  # one cell is missing: which of the two, nobody can tell
    }
    assert found.nics == {"NIC0": "mlx5_0"}
    assert found.unread == ()


def test_topology_refuses_rows_that_do_not_fit() -> None:
    shifted = "\tGPU0\tGPU1\nGPU0\tNV18\t X \nGPU1\tNV18\t X \n"
    found = read_topology(shifted)
    assert found.unread == ("GPU0",)
    assert {link.source for link in found.links} == {"GPU1"}
    with pytest.raises(UnreadableAnswer):
        read_topology("Legend:\n\n  X    = Self\n")


def test_topology_cut_in_a_cell() -> None:
    whole = text("topo.txt")
    row = whole.index("\nGPU1\t")
    found = read_topology(whole[: row + len("\nGPU1\tNV1")])
    assert {link.source for link in found.links} == {"GPU0"}
    assert len(found.unread) == 1
    found = read_topology(whole[: row + len("\nGPU1\tNV18\t X \tSYS\tSYS\t72-14")])
    assert {link.source for link in found.links} == {"GPU0", "GPU1"}
    assert [each.device for each in found.affinities] == ["GPU0"]


def test_peer_to_peer_matrix() -> None:
    links = read_topology(text("p2p.txt")).links
    assert [(link.source, link.target, link.kind) for link in links] == [
        ("GPU0", "GPU1", "GNS"),
        ("GPU1", "GPU0", "OK"),
    ]


def test_cards_of_the_kernel_module() -> None:
    cards = read_cards(
        "@version\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\n"
        "@card 0000:06:00.0\nModel: \t\t NVIDIA L40S\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"
        "Video BIOS: \t ??.??.??.??.??\nBus Location: \t 0000:06:00.0\nDevice Minor: \t 12\n"
    )
    assert cards.driver == "535.154.05"
    (gpu,) = cards.gpus
    assert (gpu.bus_id, gpu.minor, gpu.uuid, gpu.vbios) == ("0000:06:00.0", 12, None, None)
    assert read_cards("") == read_cards("@version\n")
    assert module_version("NVIDIA UNIX x86_64 Kernel Module") is None


def test_driver_version_of_a_report_and_of_the_tool() -> None:
    assert read_driver_version(text("report.txt")) == "610.43.02"
    assert (
        read_driver_version("NVIDIA-SMI version  : 610.43.02\nDRIVER version      : 570.195\n") == "570.195"
    )
    assert read_driver_version("CUDA version        : 13.0\n") is None


def test_frame_of_nothing() -> None:
    frame = read_frame("")
    assert (frame.answers, frame.pci, frame.has_pci, frame.is_whole) == ((), {}, False, False)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (6, "NVIDIA driver loaded, but no GPU is bound to it"),
        (14, "infoROM is corrupted"),
        (18, "driver/library mismatch"),
        (124, "nvidia-smi did not answer within its time limit"),
        (126, "nvidia-smi cannot be run here"),
        (99, "nvidia-smi ended with status 99"),
        (None, None),
        (0, None),
    ],
)
def test_statuses(status: int | None, words: str | None) -> None:
    found = trouble("", status)
    assert found is None if words is None else (found or "").startswith(words)


def test_lost_gpu() -> None:
    assert trouble("GPU is lost.  Reboot the system to recover this GPU") == "an NVIDIA GPU is lost"
