"""Outputs of real machines: each parses to what a person reads there, or to a typed absence.

The captures lie beside the repository and are not part of it: without them these tests are skipped. The
expected figures below were read by eye.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_list import read_driver_version, read_list, read_nvlinks
from bringup.parse.nvidia_report import read_text_report, read_xml_report
from bringup.parse.nvidia_smi import read_gpus, read_processes, read_rows
from bringup.parse.nvidia_state import trouble
from bringup.parse.nvidia_table import instances_memory_used, read_table
from bringup.parse.topo import read_topology
from bringup.values.host import Gpu, GpuProcess

FOLDER = Path(__file__).parents[4] / "shared/data/smi"
INDEX = FOLDER / "index.jsonl"
pytestmark = pytest.mark.skipif(not INDEX.exists(), reason=f"no captures in {FOLDER}")

MIB = 1024**2

# Pasted without header line or command: the columns as the index describes them.
COLUMNS = {
    "m_notsupported_old.txt": "memory.total,memory.free,memory.used,temperature.gpu,x,utilization.gpu,y",
    "m_unknown_error_fan.txt": "fan.speed",
    "m_gtx770_win.txt": "name,a,b,temperature.gpu,utilization.gpu,d,fan.speed,pstate,e,f,power.draw,h",
    "m_titanx_x8.txt": "index,uuid,name,temperature.gpu,utilization.gpu,memory.used,memory.total",
    "m_rtx2080_nounits_split.txt": (
        "enforced.power.limit,a,b,memory.total,vbios_version,driver_version,name,uuid,power.draw,temperature.gpu,"
        "temperature.memory,clocks.sm,c,clocks.mem,utilization.gpu,utilization.memory,fan.speed,"
        "pcie.link.width.current,pstate"
    ),
    "m_h100nvl_devid.txt": "name,pci.device_id",
    "m_vgpu_a40-48q_row.txt": "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu",
}

OTHER_MAKERS = ("rocm-smi", "amd-smi", "xpu-smi")
NOT_READ = ("pmon", "dmesg", "field list", "numactl -H", "/proc/cmdline")  # no value of ours comes from there


def capture(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def kinds() -> dict[str, str]:
    if not INDEX.exists():
        return {}
    rows = (json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines() if line)
    return {row["file"]: row["kind"] for row in rows}


def table(text: str) -> tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]:
    found = read_table(text)
    return found.gpus, found.processes


def text_report(text: str) -> tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]:
    found = read_text_report(text)
    return found.gpus, found.processes


def xml_report(text: str) -> tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]:
    found = read_xml_report(text)
    return found.gpus, found.processes


def csv(name: str, text: str) -> tuple[Gpu, ...]:
    return read_gpus(text, tuple(COLUMNS[name].split(",")) if name in COLUMNS else ())


def read(name: str) -> tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]:
    """GPUs and processes of a capture by its kind."""
    kind = kinds()[name]
    text = capture(name)
    if kind.startswith("query-gpu") or kind == "query-row":
        return csv(name, text), ()
    if kind == "query-compute-apps":
        return (), read_processes(text)
    if kind in ("-L", "list", "text"):
        return read_list(text), ()
    readers: dict[str, Callable[[str], tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]]] = {
        "-q -x": xml_report,
        "-q": text_report,
        "table": table,
    }
    reader = next(reader for start, reader in readers.items() if kind.startswith(start))
    return reader(text)


def reading_kinds() -> list[str]:
    starts = ("query-gpu", "query-row", "query-compute-apps", "-L", "list", "text", "-q", "table")
    return [name for name, kind in kinds().items() if kind.startswith(starts)]


UNREADABLE = {"m_table_b300_squeezed.txt"}  # both rows of a GPU merged into one line


@pytest.mark.parametrize("name", reading_kinds())
def test_every_capture_of_gpus_is_read(name: str) -> None:
    if name in UNREADABLE:
        with pytest.raises(UnreadableAnswer):
            read(name)
        return
    gpus, processes = read(name)
    assert gpus or processes or name == "m_container_no_pids.txt"
    for gpu in gpus:
        check_consistency(gpu)


def check_consistency(gpu: Gpu) -> None:
    """What holds for any card: the parts of memory add up, and what has words has no value."""
    parts = (gpu.memory_total, gpu.memory_reserved, gpu.memory_used, gpu.memory_free)
    if None not in parts:
        total, reserved, used, free = (part or 0 for part in parts)
        assert abs(total - reserved - used - free) <= 2 * MIB
    for field, words in gpu.said.items():
        assert words
        assert getattr(gpu, field) is None
    assert gpu.memory_total != 0
    assert gpu.power != 0


def test_every_capture_has_a_reader_or_a_reason() -> None:
    covered = set(reading_kinds())
    others = {name: kind for name, kind in kinds().items() if name not in covered}
    left = {
        name: kind
        for name, kind in others.items()
        if not kind.startswith(
            (*OTHER_MAKERS, *NOT_READ, "topo", "nvlink", "error", "reset", "version", "query-")
        )
    }
    assert left == {}


# name, which GPU, fields as a person reads them: memory in MiB, utilization in %, the rest as printed.
GPUS: list[tuple[str, int, dict[str, object]]] = [
    (
        "m_gb10_table.txt",
        0,
        {"bus_id": "000f:01:00.0", "memory_used": None, "memory_total": None, "power": 3},
    ),
    (
        "m_gb10_table.txt",
        0,
        {"power_limit": None, "temperature": 36, "utilization": 0, "ecc_uncorrected": None},
    ),
    ("m_gb10_table_580_95.txt", 0, {"memory_used": None, "power": 4, "temperature": 40}),
    ("m_gb10_csv.txt", 0, {"memory_used": None, "memory_total": None, "utilization": 0, "power": 11.17}),
    ("m_gb10_csv_two.txt", 0, {"memory_used": None, "memory_total": None, "memory_free": None}),
    ("m_thor_summary.txt", 0, {"index": 0, "name": "NVIDIA Thor", "uuid": None}),
    ("m_notsupported_old.txt", 0, {"memory_total": 2004, "memory_used": 0, "temperature": 44}),
    (
        "m_gtx770_win.txt",
        0,
        {"temperature": 52, "performance_state": "P0", "power": None, "utilization": None},
    ),
    ("m_titanx_x8.txt", 1, {"index": 1, "memory_used": 10032, "memory_total": 12206, "utilization": 86}),
    (
        "m_titanx_x8.txt",
        1,
        {"uuid": "GPU-7ee97db0-be54-4056-8e8d-9c87e1a29ae1", "name": "GeForce GTX TITAN X"},
    ),
    (
        "m_rtx2080_nounits_split.txt",
        0,
        {"name": "GeForce RTX 2080", "power": 176.98, "memory_temperature": None},
    ),
    (
        "m_rtx2080_nounits_split.txt",
        0,
        {"driver_version": "440.64", "performance_state": "P2", "power_limit": 200},
    ),
    (
        "m_inforom_corrupted.txt",
        0,
        {"bus_id": "0000:b3:00.0", "memory_used": 701, "memory_total": 8105, "power": 6},
    ),
    ("m_fan_err.txt", 0, {"power": None, "power_limit": None, "temperature": 43, "memory_used": 1}),
    ("m_fan_err.txt", 1, {"power": 12, "power_limit": 250, "temperature": 41, "name_is_cut": True}),
    (
        "m_rtxpro6000se_mig_mixed.txt",
        0,
        {"name_is_cut": True, "memory_total": 97887, "power": 39, "ecc_uncorrected": 0},
    ),
    (
        "m_rtxpro6000se_mig_mixed.txt",
        2,
        {"bus_id": "0001:04:00.0", "ecc_mode": "Enabled", "ecc_uncorrected": None},
    ),
    ("m_rtxpro6000se_mig_mixed.txt", 2, {"utilization": None, "mig_mode": "Enabled", "memory_used": 287}),
    ("m_rtxpro6000se_q_perf.txt", 0, {"index": None, "bus_id": "0000:42:00.0", "performance_state": "P8"}),
    (
        "m_b200_loaded.txt",
        0,
        {"memory_used": 166593, "memory_total": 183359, "power": 192, "power_limit": 1000},
    ),
    ("m_b200_loaded.txt", 1, {"memory_used": 156996, "power": 196, "bus_id": "0000:06:00.0"}),
    ("m_hami_vmem.txt", 0, {"memory_used": 2716, "memory_total": 3000, "power": 37, "power_limit": 250}),
    ("m_v100_mixed_totals.txt", 0, {"memory_used": 5, "memory_total": 16384, "name_is_cut": False}),
    (
        "m_v100_mixed_totals.txt",
        1,
        {"memory_used": 27972, "memory_total": 32510, "power": 68, "name_is_cut": True},
    ),
    ("m_rtx4090d_48g.txt", 0, {"memory_total": 49140, "power_limit": 425, "ecc_mode": "Disabled"}),
    ("m_h100nvl_devid.txt", 0, {"name": "NVIDIA H100 NVL", "memory_total": None}),
    ("m_rtx3060_pi.txt", 0, {"bus_id": "0001:01:00.0", "memory_used": 1, "memory_total": 12288}),
    ("m_rtx3080_20g_x2.txt", 0, {"memory_used": 18307, "memory_total": 20480, "utilization": 31}),
    ("m_vllm_4090_graphs.txt", 0, {"memory_used": 23859, "memory_total": 24564, "power": None}),
    ("m_vllm_4090_graphs.txt", 1, {"memory_used": 21395}),
    (
        "m_table_b300_610_load.txt",
        0,
        {"memory_used": 246718, "power": 844, "power_limit": 1100, "driver_version": None},
    ),
    ("m_table_b300_610_load.txt", 2, {"memory_used": 135555, "memory_total": 275040, "temperature": 54}),
    ("m_table_b300_580_container.txt", 0, {"index": 0, "bus_id": "0000:9a:00.0", "power_limit": 1100}),
    (
        "m_table_h100nvl_535_azure.txt",
        1,
        {"bus_id": "0002:00:00.0", "memory_used": 29814, "memory_total": 95830},
    ),
    ("m_table_h100nvl_535_full.txt", 0, {"memory_used": 95247, "power": 372, "utilization": 100}),
    (
        "m_table_h200nvl_595_topo.txt",
        1,
        {"bus_id": "0000:f1:00.0", "memory_used": 0, "memory_total": 143771, "power": 74},
    ),
    ("m_table_gh200_535.txt", 0, {"bus_id": "0009:01:00.0", "utilization": 2, "memory_total": 97871}),
    (
        "m_table_gh200_120gb_narrow.txt",
        2,
        {"bus_id": "0029:01:00.0", "compute_mode": "E. Process", "power": 83},
    ),
    ("m_table_h20_535.txt", 1, {"index": 1, "power": 71}),
    ("m_table_h20_535.txt", 2, {"index": 7, "bus_id": "0000:e4:00.0", "memory_total": 97871}),
    (
        "m_table_rtx5880ada_535.txt",
        0,
        {"name": "NVIDIA RTX 5880 Ada Gene...", "name_is_cut": True, "memory_used": 337},
    ),
    ("m_table_rtx5880ada_535.txt", 0, {"ecc_uncorrected": 0, "mig_mode": None, "bus_id": "0000:52:00.0"}),
    ("m_table_pro4500_590.txt", 0, {"ecc_mode": "Disabled", "ecc_uncorrected": None, "memory_total": 32623}),
    ("m_vgpu_a40-48q_row.txt", 0, {"memory_used": 43770, "memory_total": 49152, "temperature": None}),
    ("m_list_jetson_uuid.txt", 1, {"name": "NVIDIA Thor", "uuid": "54d0709b-558d-5a59-9c65-0c5fc14a21a4"}),
    (
        "h100-590_table-load.txt",
        0,
        {"memory_used": 19818, "power": 629, "temperature": 59, "utilization": 100},
    ),
    (
        "h100-590_csv-idle.txt",
        0,
        {"memory_reserved": 479, "memory_free": 81081, "power": 69.85, "power_limit": 700},
    ),
    (
        "h100-590_csv-load.txt",
        0,
        {"memory_used": 19818, "power": 631.95, "memory_temperature": 54, "pcie_generation": 5},
    ),
    ("h100mig-590_csv-load.txt", 0, {"utilization": None, "mig_mode": "Enabled", "memory_used": 11125}),
    (
        "h100mig-590_table-load.txt",
        0,
        {"utilization": None, "memory_used": 11125, "power": 432, "mig_mode": "Enabled"},
    ),
    (
        "h100mig-590_q-idle.txt",
        0,
        {"memory_total": 81559, "memory_used": 59, "memory_reserved": 479, "utilization": None},
    ),
    (
        "h200-590_csv-idle.txt",
        0,
        {"memory_free": 143158, "memory_used": 0, "clocks_event_reasons": 1, "serial": "0" * 13},
    ),
    ("h200-590_csv-load.txt", 0, {"memory_used": 32362, "power": 627.4, "fabric_state": "Completed"}),
    (
        "h200-590_q-idle.txt",
        0,
        {"memory_free": 143158, "power": 77.67, "power_limit": 700, "minor": 0, "index": 0},
    ),
    (
        "h200-590_q-idle.txt",
        0,
        {"memory_temperature": 32, "clock_sm": 345, "pcie_width": 16, "driver_version": "590.48.01"},
    ),
    ("h200mig-590_q-idle.txt", 0, {"memory_total": 143771, "memory_used": 55, "memory_free": 143103}),
    (
        "h200mig-590_csv-idle.txt",
        0,
        {"memory_total": 143771, "utilization": None, "remapped_rows_pending": None},
    ),
    (
        "l40s-595_csv-idle.txt",
        0,
        {"utilization": 100, "memory_used": 0, "memory_free": 45460, "power": 144.97},
    ),
    (
        "l40s-595_csv-load.txt",
        0,
        {"mig_mode": None, "memory_temperature": None, "power": 110.23, "compute_capability": "8.9"},
    ),
    (
        "l40s-595_q-idle.txt",
        0,
        {"power": 183.28, "power_limit": 350, "memory_reserved": 609, "ecc_mode": "Enabled"},
    ),
    (
        "l40s-595_table-idle.txt",
        0,
        {"power": 242, "utilization": 100, "mig_mode": None, "name_is_cut": False},
    ),
    (
        "rtx2080s-595_csv-idle.txt",
        0,
        {"clocks_event_reasons": 4, "persistence_mode": "Disabled", "ecc_mode": None},
    ),
    ("rtx2080s-610_csv-idle.txt", 0, {"driver_version": "610.57.04", "memory_reserved": 400, "serial": None}),
    (
        "rtx2080s-610_csv-load.txt",
        0,
        {"clock_sm": 2070, "clock_memory": 7500, "performance_state": "P2", "power": 98.14},
    ),
    (
        "rtx2080s-610_q-idle.txt",
        0,
        {"driver_version": "610.57.04", "power": 38.89, "power_limit": 250, "clock_sm": 300},
    ),
    (
        "rtx2080s-610_table-load.txt",
        0,
        {"driver_version": None, "memory_used": 815, "power": 97, "persistence_mode": "Disabled"},
    ),
    ("rtx2080s-win-591_csv-load.txt", 0, {"persistence_mode": None, "memory_used": 1296, "power_limit": 250}),
    ("rtx2080s-win-610_table-load.txt", 0, {"memory_used": 1366, "persistence_mode": None, "utilization": 7}),
    (
        "rtx2080s-win-610_csv-load.txt",
        0,
        {"memory_used": 1366, "memory_reserved": 205, "recovery_action": "None"},
    ),
    (
        "rtx4080s-595_csv-idle.txt",
        0,
        {"power": 26.2, "memory_free": 15348, "pcie_generation": 1, "pcie_generation_max": 4},
    ),
    ("rtx4080s-595_table-load.txt", 0, {"memory_used": 1474, "memory_total": 16376, "temperature": 45}),
    (
        "rtxpro6000se_x8_q.txt",
        0,
        {"index": 0, "bus_id": "0000:06:00.0", "minor": 2, "memory_free": 97252, "power": 39.17},
    ),
    (
        "rtxpro6000se_x8_q.txt",
        0,
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "power_limit": 600,
            "serial": "6333199418824",
        },
    ),
    ("rtxpro6000se_x8_q.txt", 1, {"index": 1, "minor": 3, "bus_id": "0000:07:00.0"}),
    (
        "xml_nd_a100-sxm4-mig.txt",
        0,
        {"memory_total": 40960, "memory_used": 38, "memory_reserved": 605, "power": 66.92},
    ),
    (
        "xml_nd_a100-sxm4-mig.txt",
        0,
        {"mig_mode": "Enabled", "remapped_rows_pending": None, "utilization": None},
    ),
    (
        "xml_nd_rtx-2080-win.txt",
        0,
        {"minor": None, "pcie_width": 8, "pcie_width_max": 16, "power": 14.5, "utilization": 2},
    ),
    ("xml_nd_rtx-3060.txt", 0, {"power": 8.7, "power_limit": None, "memory_used": 5, "pcie_generation": 1}),
    (
        "xml_nd_rtx-4090-driver-535.txt",
        0,
        {"bus_id": "0000:84:00.0", "power": 26.84, "power_limit": 450, "memory_used": 2},
    ),
    (
        "xml_nd_rtx-pro-6000-driver-580.txt",
        0,
        {"power": 66.84, "memory_total": None, "temperature": 37, "index": None},
    ),
    (
        "xml_nd_tesla-p100.txt",
        0,
        {"memory_total": 16384, "memory_reserved": 103, "power": 26.16, "memory_temperature": None},
    ),
    (
        "xml_tg_a100-sxm4-v12.txt",
        0,
        {"index": None, "minor": 1, "memory_total": 81920, "memory_used": 50, "power": 67.03},
    ),
    (
        "xml_tg_a10g.txt",
        0,
        {"bus_id": "0000:00:1e.0", "memory_total": 23028, "memory_used": 22, "power": 25.58},
    ),
    (
        "xml_tg_gtx-1070-ti.txt",
        0,
        {"memory_total": 4096, "power": None, "driver_version": None, "clock_sm": 135},
    ),
    (
        "xml_tg_gtx-1660-ti.txt",
        0,
        {"name": "Graphics Device", "memory_total": 5912, "memory_reserved": None, "power": 8.93},
    ),
    (
        "xml_tg_quadro-p2000-v12.txt",
        0,
        {"power": 4.61, "power_limit": 75, "memory_reserved": 66, "ecc_mode": None},
    ),
    ("xml_tg_quadro-p400.txt", 0, {"power": None, "power_limit": None, "memory_total": 1998}),
    (
        "xml_tg_rtx-3060-v12.txt",
        0,
        {"power": 11.6, "recovery_action": "None", "memory_used": 116, "power_limit": 170},
    ),
    (
        "xml_tg_rtx-3080-v12.txt",
        0,
        {"power": 22.78, "persistence_mode": None, "memory_used": 1128, "memory_utilization": 37},
    ),
    (
        "xml_tg_rtx-3080-v13.txt",
        0,
        {"power": 139.62, "memory_used": 9184, "utilization": 65, "clock_sm": 1950},
    ),
    ("xml_tg_rtx-3090-v12.txt", 0, {"clock_sm": 0, "power_limit": 200, "memory_free": 24258}),
    (
        "xml_tg_rtx-4000-sff-ada-v13.txt",
        0,
        {"ecc_mode": "Disabled", "memory_used": 3534, "remapped_rows_pending": "No"},
    ),
    ("xml_tg_tesla-t4.txt", 0, {"memory_used": 1032, "driver_version": "515.105.01", "pcie_width": 8}),
]


def as_printed(gpu: Gpu, field: str) -> object:
    """A field in the units of nvidia-smi."""
    value = getattr(gpu, field)
    if value is None:
        return None
    if field.startswith("memory_") and field not in ("memory_temperature", "memory_utilization"):
        return value / MIB
    return round(value * 100, 6) if field.endswith("utilization") else value


@pytest.mark.parametrize(("name", "place", "expected"), GPUS)
def test_values_a_person_reads(name: str, place: int, expected: dict[str, object]) -> None:
    gpu = read(name)[0][place]
    assert {field: as_printed(gpu, field) for field in expected} == expected


SAID: list[tuple[str, int, str, str]] = [
    ("m_gb10_table.txt", 0, "memory_used", "Not Supported"),
    ("m_gb10_csv.txt", 0, "memory_total", "[N/A]"),
    ("m_gtx770_win.txt", 0, "power", "[Not Supported]"),
    ("m_fan_err.txt", 0, "power", "N/A"),
    ("m_rtx2080_nounits_split.txt", 0, "memory_temperature", "N/A"),
    ("m_vgpu_a40-48q_row.txt", 0, "temperature", "[N/A]"),
    ("h200mig-590_csv-load.txt", 0, "utilization", "[N/A]"),
    ("h200mig-590_csv-load.txt", 0, "remapped_rows_pending", "[N/A]"),
    ("xml_nd_tesla-p100.txt", 0, "remapped_rows_failure", "N/A"),
    ("xml_tg_quadro-p400.txt", 0, "power_limit", "N/A"),
    ("rtx2080s-win-610_csv-load.txt", 0, "serial", "[N/A]"),
]


@pytest.mark.parametrize(("name", "place", "field", "words"), SAID)
def test_the_words_of_an_absence_are_kept(name: str, place: int, field: str, words: str) -> None:
    assert read(name)[0][place].said[field] == words


PROCESSES: list[tuple[str, list[tuple[int, float | None]]]] = [
    ("h100-590_apps-load.txt", [(11327, 2566), (11328, 1542), (11345, 15690)]),
    ("h200mig-590_apps-load.txt", [(12249, 2194), (12250, 1170), (12267, 13526)]),
    ("rtx2080s-win-610_apps-load.txt", [(2140, None), (13264, None), (13504, None), (13160, None)]),
    ("rtx4080s-595_apps-load.txt", [(2165, 25), (5022, 503), (5021, 360)]),
    ("h200-590_table-load.txt", [(10291, 2566), (10293, 1542), (10309, 28234)]),
    ("h200mig-590_table-load.txt", [(12249, 2194), (12250, 1170), (12267, 13526)]),
    ("rtx2080s-win-591_table-load.txt", [(2056, None), (4680, None), (12332, None), (12444, None)]),
    ("m_table_h100nvl_535_full.txt", [(5240, 94482)]),
    ("m_table_gh200_535.txt", []),
    ("m_container_no_pids.txt", []),
    ("m_wsl_wddm_procs.txt", [(2936, None)]),
    ("rtx2080s-610_q-idle.txt", [(1720, 173), (4556, 3)]),
    ("xml_nd_rtx-2080-win.txt", [(7724, None), (10808, None)]),
    ("xml_tg_tesla-t4.txt", [(675, 22), (5762, 1005)]),
    ("xml_tg_rtx-4000-sff-ada-v13.txt", [(1842, 410), (3190, 451), (4937, 160), (34626, 183)]),
]


@pytest.mark.parametrize(("name", "expected"), PROCESSES)
def test_processes(name: str, expected: list[tuple[int, float | None]]) -> None:
    found = read(name)[1]
    assert [(each.pid, each.memory_used and each.memory_used / MIB) for each in found] == expected


def test_compute_instances_of_one_gpu_instance_are_counted_once() -> None:
    (gpu,) = read("h200mig-590_table-load.txt")[0]
    assert [each.gpu_instance for each in gpu.instances] == [2, 2, 3, 9, 10]
    assert instances_memory_used(gpu.instances) == (16925 + 17 + 9 + 9) * MIB
    (gpu,) = read("h200mig-590_q-idle.txt")[0]
    assert instances_memory_used(gpu.instances) == (22 + 17 + 9 + 9) * MIB
    (gpu,) = read("xml_nd_a100-sxm4-mig.txt")[0]
    assert [each.memory_total for each in gpu.instances] == [19968 * MIB] * 2
    (gpu,) = read("m_mig_a100_460.txt")[0]
    assert [each.memory_used for each in gpu.instances] == [14366 * MIB, 9826 * MIB]
    (gpu,) = read("h200mig-590_list.txt")[0]
    assert [each.profile for each in gpu.instances] == [
        "1c.3g.71gb",
        "2c.3g.71gb",
        "2g.35gb",
        "1g.18gb",
        "1g.18gb",
    ]


def test_a_sick_card_keeps_a_numeric_memory_cell() -> None:
    (gpu,) = read_table(capture("m_sick_rtxpro6000_err_cells.txt")).gpus
    assert gpu.memory_used == 58222 * MIB
    assert gpu.memory_total == 97887 * MIB
    assert gpu.said == {
        "temperature": "ERR!",
        "performance_state": "ERR!",
        "power": "N/A",
        "power_limit": "N/A",
    }


LINKS: list[tuple[str, int, dict[tuple[str, str], str | None]]] = [
    (
        "rtxpro6000se_x8_topo.txt",
        56,
        {("GPU0", "GPU1"): "PIX", ("GPU0", "GPU4"): "SYS", ("GPU7", "GPU6"): "PIX"},
    ),
    ("h200-590_topo.txt", 0, {}),
    ("m_table_h200nvl_595_topo.txt", 2, {("GPU0", "GPU1"): "NV18"}),
    ("m_gb200_topo.txt", 27, {("GPU2", "GPU3"): "NV18", ("GPU0", "NIC5"): "SYS"}),
    (
        "m_b200_topo_broken_nvlink.txt",
        20,
        {("GPU2", "GPU0"): "NODE", ("GPU2", "GPU4"): "SYS", ("GPU0", "GPU1"): "NV18"},
    ),
    (
        "m_b200_topo_4numa.txt",
        12,
        {("GPU5", "GPU6"): "NV18", ("NIC0", "NIC1"): "NODE", ("GPU6", "NIC0"): "SYS"},
    ),
    ("m_topo_dgxa100.txt", 27, {("GPU2", "NIC0"): "SYS", ("GPU0", "NIC0"): "PXB", ("GPU1", "GPU7"): "NV12"}),
    ("m_topo_v100_2017.txt", 40, {("GPU0", "mlx4_0"): "PHB", ("GPU4", "GPU5"): "PIX"}),
    ("m_topo_a100_525.txt", 13, {("GPU4", "NIC0"): "SYS", ("GPU0", "GPU1"): "NV8"}),
    ("m_topo_rtxpro6000_x2.txt", 2, {("GPU0", "GPU1"): "PHB"}),
    ("m_topo_2x5090_p2p_gns.txt", 2, {("GPU0", "GPU1"): "GNS"}),
    ("m_topo_p2p_ok8.txt", 12, {("GPU0", "GPU3"): "OK"}),
    ("m_topo_mixed_5gpu.txt", 20, {("GPU1", "GPU2"): "PHB", ("GPU0", "GPU1"): "SYS"}),
]


@pytest.mark.parametrize(("name", "count", "expected"), LINKS)
def test_links(name: str, count: int, expected: dict[tuple[str, str], str | None]) -> None:
    found = read_topology(capture(name))
    kinds_of = {(link.source, link.target): link.kind for link in found.links}
    assert {pair: kinds_of.get(pair) for pair in expected} == expected
    assert len(found.links) == count
    assert found.unread == ()


AFFINITIES: list[tuple[str, str, tuple[str | None, str | None, int | None]]] = [
    ("rtxpro6000se_x8_topo.txt", "GPU7", ("64-127,192-238", "1", None)),
    ("h100mig-590_topo.txt", "GPU0", ("0-19", "0", None)),
    ("m_table_h200nvl_595_topo.txt", "GPU0", ("224-231,480-487", "28", None)),
    ("m_gb200_topo.txt", "GPU1", ("0-71", "0,3-9,11-17", 10)),
    ("m_topo_v100_2017.txt", "GPU4", ("10-19,30-39", None, None)),
    ("m_topo_a100_525.txt", "GPU4", ("48-95,144-191", "1", None)),
    ("m_topo_dgxa100.txt", "GPU2", ("16-31,144-159", "1", None)),
    ("m_b200_topo_4numa.txt", "GPU5", ("56-83", "2", None)),
    ("m_b200_topo_broken_nvlink.txt", "GPU4", ("56-111,168-223", "1", None)),
    ("m_topo_mixed_5gpu.txt", "GPU0", ("8-15,24-31", "1", None)),
]


@pytest.mark.parametrize(("name", "device", "expected"), AFFINITIES)
def test_affinities(name: str, device: str, expected: tuple[str | None, str | None, int | None]) -> None:
    found = {each.device: each for each in read_topology(capture(name)).affinities}
    assert (found[device].cpus, found[device].numa_nodes, found[device].gpu_numa_node) == expected


def test_nvlinks() -> None:
    (gpu,) = read_nvlinks(capture("h200-590_nvlink.txt"))
    assert list(gpu.rates) == list(range(18))
    assert set(gpu.rates.values()) == {26.562e9}
    (gpu,) = read_nvlinks(capture("m_gb200_nvlink.txt"))
    assert gpu.rates == {0: 53.125e9, 1: 53.125e9, 2: 53.125e9, 17: 53.125e9}
    assert read_nvlinks(capture("nvlink_status_a10.txt")) == ()
    a100 = read_nvlinks(capture("nvlink_status_a100.txt"))
    assert {len(gpu.rates) for gpu in a100} == {12}
    for name, words in (
        ("l40s-595_nvlink.txt", "Device does not have or support Nvlink"),
        ("h100mig-590_nvlink.txt", "Nvlink queries are not supported for Devices in MIG mode"),
        ("h200mig-590_nvlink.txt", "Nvlink queries are not supported for Devices in MIG mode"),
        ("rtx2080s-610_nvlink.txt", "NVML: Unable to retrieve Nvlink information as all links are inActive"),
    ):
        (gpu,) = read_nvlinks(capture(name))
        assert gpu.rates == {}
        assert gpu.said == words


TROUBLES = [
    ("m_device_handle_unknown.txt", "GPU 0000:17:00.0 does not answer its driver: Unknown Error"),
    ("m_device_handle_space.txt", "GPU 0000:0b:00.0 does not answer its driver: Unknown Error"),
    (
        "m_gpu_lost.txt",
        "GPU 0000:02:00.0 does not answer its driver: GPU is lost. Reboot the system to recover this GPU",
    ),
    ("m_gpu_lost_hgx.txt", "GPU 0000:20:00.0 does not answer its driver: Unknown Error"),
    ("m_mismatch.txt", "driver/library mismatch, library 570.195"),
    ("m_nvml_unknown.txt", "the NVIDIA driver refuses to answer"),
    ("m_couldnt_communicate.txt", "NVIDIA driver not loaded"),
    ("m_no_devices.txt", "NVIDIA driver loaded, but no GPU is bound to it"),
    ("m_inforom_corrupted.txt", "infoROM is corrupted at GPU 0000:b3:00.0"),
    ("m_err_query_cuda_version_field.txt", "nvidia-smi does not know the field cuda_version"),
    *((f"m_real_rc9_{version}.txt", "NVIDIA driver not loaded") for version in (390, 470, 550)),
    *((f"m_real_rc12_{version}.txt", "libnvidia-ml is missing") for version in (390, 470, 550)),
    ("m_real_rc255_versionmix.txt", "nvidia-smi and libnvidia-ml are of different versions"),
    ("m_topo_i_flag.txt", "nvidia-smi ended with status 2"),
    ("m_reset_in_use.txt", "nvidia-smi ended with status 2"),
]


@pytest.mark.parametrize(("name", "words"), TROUBLES)
def test_troubles(name: str, words: str) -> None:
    status = 2 if words.endswith("status 2") else 0  # the text alone must do where it can
    assert (trouble(capture(name), status) or "").startswith(
        words.removesuffix("nvidia-smi ended with status 2")
    )


def test_every_error_capture_is_trouble_and_no_gpu() -> None:
    errors = [name for name, kind in kinds().items() if kind == "error" and "err_cells" not in name]
    assert len(errors) > 15
    for name in errors:
        assert trouble(capture(name), 255)
        assert trouble(capture(name), 0) or name == "m_topo_i_flag.txt"
        with pytest.raises(UnreadableAnswer):
            read_gpus(capture(name), ("index", "name"))
        with pytest.raises(UnreadableAnswer):
            read_xml_report(capture(name))


def test_driver_version_is_not_the_deprecation_text() -> None:
    assert read_driver_version(capture("m_banner_610_versions.txt")) == "610.43.02"


def test_generic_rows_of_other_queries() -> None:
    rows = read_rows(capture("l40s-595_accounted.txt")).rows
    assert [(row["pid"], row["time"]) for row in rows] == [
        ("15727", "5270 ms"),
        ("17439", "5096 ms"),
        ("18679", "153712 ms"),
    ]
    retired = read_rows(capture("l40s-595_retired.txt")).rows
    assert [row["retired_pages.cause"] for row in retired] == ["Single Bit ECC", "Double Bit ECC"]
    assert read_rows(capture("rtx2080s-win-610_retired.txt")).rows
    assert read_rows(capture("rtx2080s-win-610_accounted.txt")).rows == ()
