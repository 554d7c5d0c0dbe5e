"""Answers of AMD and Intel machines (synthetic, in the shapes of the tools) and what is read from them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bringup.flows.snapshot import Sources, read_snapshot
from bringup.planner.carriers import find_carriers, meant
from bringup.units import GIB, MIB
from bringup.values.host import CommandResult, Gpu, HostSnapshot
from bringup.vendors import GpuReading, amd, intel, nvidia

FOLDER = Path(__file__).parents[2] / "golden/vendors"
VENDORS = {"amd": amd.VENDOR, "intel": intel.VENDOR}
CASES = sorted((vendor, path.name) for vendor in VENDORS for path in (FOLDER / vendor).iterdir())


def result(vendor: str, case: str) -> CommandResult:
    how = json.loads((FOLDER / vendor / case / "status.json").read_text())
    key = f"{vendor}.gpus"
    return CommandResult(key=key, stdout=(FOLDER / vendor / case / f"{key}.txt").read_text(), **how)


def read(vendor: str, case: str) -> GpuReading:
    return VENDORS[vendor].read({f"{vendor}.gpus": result(vendor, case)})


def only(vendor: str, case: str) -> Gpu:
    (gpu,) = read(vendor, case).gpus
    return gpu


def plain(reading: GpuReading) -> object:
    """The reading without what is not told, so that a difference can be reviewed by eye."""

    def trimmed(value: object) -> object:
        if isinstance(value, dict):
            told = {key: part for key, part in value.items() if part is not None and part is not False}
            return {key: trimmed(part) for key, part in told.items() if part not in ({}, [])}
        return [trimmed(part) for part in value] if isinstance(value, list) else value

    return trimmed(json.loads(msgspec.json.encode(reading)))


@pytest.mark.parametrize(("vendor", "case"), CASES)
def test_reading(vendor: str, case: str) -> None:
    file = FOLDER / vendor / case / "expected.json"
    found = plain(read(vendor, case))
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(file.read_text())


@pytest.mark.parametrize(("vendor", "case"), CASES)
def test_what_is_not_told_is_never_nought(vendor: str, case: str) -> None:
    for gpu in read(vendor, case).gpus:
        assert gpu.memory_total != 0
        assert gpu.memory_reserved is None
        assert gpu.memory_headroom == gpu.memory_free
        assert gpu.power_limit != 0
        assert all(getattr(gpu, name) is None for name in gpu.said)


def test_numbers_without_units_of_rocm_6_0() -> None:
    told, silent = read("amd", "rocm-6.0").gpus
    assert (told.memory_total, told.memory_used) == (65520 * MIB, 60211 * MIB)
    assert told.memory_headroom == 5309 * MIB
    assert (told.power, told.power_limit) == (212, 300)
    assert (told.temperature, told.hotspot_temperature, told.memory_temperature) == (58, 71, 66)
    assert (told.utilization, told.memory_utilization) == (0.97, 0.41)
    assert (told.pcie_width, told.pcie_width_max) == (8, 16)
    assert (told.pcie_generation, told.pcie_generation_max) == (4, 4)
    assert (told.ecc_mode, told.ecc_uncorrected, told.driver_version) == ("Enabled", 0, "6.3.6")
    assert (silent.memory_used, silent.memory_free, silent.utilization, silent.power) == (None,) * 4
    assert silent.said["hotspot_temperature"] == "65535"
    (process,) = read("amd", "rocm-6.0").processes
    assert (process.pid, process.gpu_index, process.memory_used) == (4242, 0, 63128862720)


def test_mi300x_with_eight_dies_and_no_sensor_at_the_edge() -> None:
    gpu = only("amd", "rocm-6.4-mi300x")
    assert gpu.clock_sm == 2098  # the fastest die's
    assert (gpu.temperature, gpu.hotspot_temperature) == (60, 60)
    assert (gpu.power, gpu.power_limit) == (692, 700)  # the limit that is set, not the card's highest
    assert gpu.ecc_uncorrected == 2
    engine, hidden = read("amd", "rocm-6.4-mi300x").processes
    assert engine.memory_used == 184549376000  # video memory, not the sum with what is on the host
    assert (hidden.name, hidden.memory_used) == (None, None)


def test_rocm_7_with_warnings_before_the_json() -> None:
    gpu = only("amd", "rocm-7.2-warnings")
    assert (gpu.name, gpu.power_limit, gpu.vbios) == ("AMD Instinct MI355X", 1400, "00156977")
    assert (gpu.clock_sm, gpu.pcie_generation) == (132, 1)
    assert read("amd", "rocm-7.2-warnings").processes == ()


def test_the_kernel_fills_what_the_tool_does_not_tell() -> None:
    gpu = only("amd", "processor-graphics")
    assert gpu.driver_version == "7.0.14-17-pve"
    assert (gpu.power, gpu.temperature, gpu.utilization) == (9.215, 47, 0.03)
    assert "power" not in gpu.said
    assert gpu.power_limit is None
    assert gpu.said["power_limit"] == "0"
    hung = read("amd", "hung")
    assert hung.gpus[0].memory_used == 66571993088
    assert "did not answer within its time limit" in hung.missing[0]


def test_rocm_smi_where_there_is_no_amd_smi() -> None:
    old = only("amd", "rocm-smi-4")
    assert (old.memory_total, old.memory_free) == (68702699520, 68702699520 - 60129542144)
    assert (old.power, old.power_limit, old.temperature) == (91, 560, 44)
    assert (old.pcie_generation, old.pcie_width) == (1, 8)
    assert old.memory_utilization is None  # "GPU memory use" means another thing in every release
    new, silent = read("amd", "rocm-smi-7").gpus
    assert (new.power, new.clock_sm, new.memory_utilization) == (266, 173, 0.12)
    assert (silent.name, silent.memory_total, silent.power, silent.utilization) == (None,) * 4
    first, second = read("amd", "rocm-smi-7").processes
    assert (first.pid, first.name, first.memory_used) == (710898, "VLLM::Worker, TP0", 200145596416)
    assert (first.gpu_index, second.name) == (None, None)  # on one of two cards: on which is not said


def test_the_kernel_alone() -> None:
    reading = read("amd", "kernel-alone")
    (gpu,) = reading.gpus
    assert (gpu.index, gpu.bus_id, gpu.label) == (None, "0000:03:00.0", "AMD GPU 0000:03:00.0")
    assert (gpu.memory_total, gpu.memory_used) == (21458059264, 27856896)
    assert (gpu.power, gpu.power_limit, gpu.clock_sm) == (14, 315, 1700)
    assert (gpu.pcie_generation, gpu.pcie_width) == (4, 16)
    assert "neither amd-smi nor rocm-smi is installed" in reading.missing[0]


def test_statistics_of_xpu_smi_1_and_2() -> None:
    old = only("intel", "xpu-smi-1.3")
    assert old.memory_total == 128 * GIB
    assert old.memory_used == round((40960.5 + 40000) * MIB)
    assert (old.power, old.power_limit) == (412.5, 600)  # the device's own figure, not the sum of its tiles
    assert (old.temperature, old.utilization, old.ecc_mode) == (55, 0.75, "Enabled")
    (process,) = read("intel", "xpu-smi-1.3").processes
    assert process.memory_used == 84934656 * 1000
    new, second = read("intel", "xpu-smi-2.0").gpus
    assert (new.memory_used, new.power, new.power_limit) == (round(20582.6 * MIB), 121.5, 200)
    assert (new.pcie_generation_max, second.pcie_generation_max) == (None, 5)
    assert (new.memory_utilization, new.utilization) == (0.55, 0.97)
    assert second.memory_free == 25600000000
    (process,) = read("intel", "xpu-smi-2.0").processes
    assert process.memory_used == 20 * GIB


def snapshot(**cases: str) -> HostSnapshot:
    """The host with these answers; NVIDIA is asked for and not there unless a case says otherwise."""
    answers = {
        "nvidia.gpus": CommandResult(key="nvidia.gpus", status=127, stdout="@pci\n@absent\n"),
        "amd.gpus": result("amd", cases.get("amd", "none")),
        "intel.gpus": result("intel", cases.get("intel", "none")),
    }
    if "nvidia" in cases:
        for file in (FOLDER / "nvidia" / cases["nvidia"]).glob("*.txt"):
            answers[file.stem] = CommandResult(key=file.stem, status=0, stdout=file.read_text())
    asked = Sources(vendors={**VENDORS, "nvidia": nvidia.VENDOR}, subjects={})
    return read_snapshot(answers, asked, host="box", taken_at=0.0)


def test_a_host_of_two_makers_shows_both() -> None:
    host = snapshot(nvidia="case-a", amd="rocm-6.4-mi300x")
    assert sorted(gpu.label for gpu in host.gpus)[:2] == ["AMD GPU 0", "GPU 0"]
    assert len(host.gpus) == 9
    assert [gpu.vendor for gpu in host.gpus_named(("0",))] == ["nvidia"]
    assert [gpu.vendor for gpu in host.gpus_named(("amd:0",))] == ["amd"]
    assert {process.vendor for process in host.processes} == {"amd", "nvidia"}


def test_the_graphics_of_a_processor_are_not_among_the_cards_that_are_meant() -> None:
    host = snapshot(nvidia="case-a", amd="processor-graphics")
    assert [gpu.vendor for gpu in host.gpus] == ["amd", *["nvidia"] * 8]
    assert host.main_gpus == host.gpus[1:] == host.gpus_named(())
    assert snapshot(amd="processor-graphics").main_gpus == snapshot(amd="processor-graphics").gpus != ()
    engine = next(row for row in host.processes if row.gpu_index == 0)
    nameless = replace(engine, gpu_uuid=None)
    assert [gpu.label for gpu in host.gpus if nameless.is_on(gpu)] == ["GPU 0"]
    assert not any(replace(nameless, gpu_index=None).is_on(replace(gpu, index=None)) for gpu in host.gpus)


def test_an_account_has_the_cards_of_one_maker() -> None:
    host = snapshot(nvidia="case-a", amd="processor-graphics")
    found = find_carriers(host, None, None, wanted=(), count=None)
    assert {gpu.vendor for gpu in found.gpus} == {"nvidia"}
    assert [gpu.index for gpu in meant(host, None, None, count=2)] == [0, 1]


def test_the_absence_of_one_maker_is_no_trouble_where_another_has_cards() -> None:
    assert snapshot(amd="rocm-6.4-mi300x").gpu_state is None
    assert [gpu.vendor for gpu in snapshot(amd="rocm-6.4-mi300x").gpus_named(("0",))] == ["amd"]
    lost = snapshot(nvidia="driver-not-loaded", amd="processor-graphics")
    assert lost.gpu_state is not None
    assert "NVIDIA" in lost.gpu_state


def test_a_host_without_such_cards_gets_no_word_more() -> None:
    host = snapshot()
    assert (host.gpus, host.missing) == ((), ())
    assert host.gpu_state == "no NVIDIA GPU on this host"
    assert amd.VENDOR.read({}) == intel.VENDOR.read({}) == GpuReading(is_absent=True)
    assert snapshot(amd="tool-without-driver").missing != ()
    assert snapshot(intel="not-initialised").missing != ()
