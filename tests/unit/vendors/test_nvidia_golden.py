"""Recorded answers of whole machines (synthetic, in the shapes of the drivers) and what is read from them."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from bringup.units import MIB
from bringup.values.host import CommandResult
from bringup.vendors import GpuReading
from bringup.vendors.nvidia import VENDOR

FOLDER = Path(__file__).parents[2] / "golden/vendors/nvidia"
CASES = sorted(path.name for path in FOLDER.iterdir())


def results(case: str) -> dict[str, CommandResult]:
    statuses = json.loads((FOLDER / case / "status.json").read_text())
    found: dict[str, CommandResult] = {}
    for key, status in statuses.items():
        file = FOLDER / case / f"{key}.txt"
        found[key] = CommandResult(
            key=key,
            status=status if isinstance(status, int) else None,
            stdout=file.read_text() if file.exists() else "",
            timed_out=status == "timed out",
            skipped="an earlier question of the group ran into its time limit" if status == "skipped" else "",
        )
    return found


def read(case: str) -> GpuReading:
    return VENDOR.read(results(case))


def plain(reading: GpuReading) -> dict[str, object]:
    """The reading without what is not told, so that a difference can be reviewed by eye."""

    def trimmed(value: object) -> object:
        if isinstance(value, dict):
            told = {key: part for key, part in value.items() if part is not None and part is not False}
            return {key: trimmed(part) for key, part in told.items() if part not in ({}, [])}
        return [trimmed(part) for part in value] if isinstance(value, list) else value

    whole = trimmed(json.loads(msgspec.json.encode(reading)))
    assert isinstance(whole, dict)
    return whole


@pytest.mark.parametrize("case", CASES)
def test_reading(case: str) -> None:
    file = FOLDER / case / "expected.json"
    found = plain(read(case))
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(file.read_text())


def test_case_a() -> None:
    reading = read("case-a")
    assert reading.state is None
    assert reading.missing == ()
    assert [gpu.index for gpu in reading.gpus] == list(range(8))
    assert [(gpu.memory_used or 0) // MIB for gpu in reading.gpus] == [96721] * 4 + [3] * 4
    assert {gpu.memory_total for gpu in reading.gpus} == {97887 * MIB}
    assert {gpu.memory_reserved for gpu in reading.gpus} == {636 * MIB}
    assert [gpu.memory_headroom for gpu in reading.gpus[:4]] == [530 * MIB] * 4
    assert [gpu.power for gpu in reading.gpus] == [84.30, 84.49, 82.39, 81.89, 34.31, 33.58, 33.58, 32.60]
    assert reading.gpus[0].bus_id == "0000:06:00.0"
    assert reading.gpus[0].minor == 2  # neither the index nor the place on the bus
    assert [(process.gpu_index, process.memory_used) for process in reading.processes] == [
        (index, 96708 * MIB) for index in range(4)
    ]
    kinds = {(link.source, link.target): link.kind for link in reading.links}
    assert len(kinds) == 8 * 7
    assert (kinds["GPU0", "GPU1"], kinds["GPU0", "GPU2"], kinds["GPU3", "GPU4"]) == ("PIX", "NODE", "SYS")


def test_case_b() -> None:
    reading = read("case-b-split")
    assert [(gpu.memory_used or 0) // MIB for gpu in reading.gpus] == [79043, 78369, 78369, 78193]
    assert [gpu.bus_id for gpu in reading.gpus] == [f"0000:{bus}:00.0" for bus in ("01", "11", "61", "71")]
    assert {gpu.utilization for gpu in reading.gpus} == {0.0}


STATES = {
    "no-gpu": "no NVIDIA GPU on this host",
    "driver-not-loaded": (
        "NVIDIA driver not loaded; NVIDIA GPUs on the PCI bus: 1 with driver nouveau, 1 with no driver"
    ),
    "library-mismatch": (
        "driver/library mismatch, library 570.195: the kernel module is of another version "
        "(reboot, or reload it); loaded kernel module: 570.133.20; "
        "NVIDIA GPUs on the PCI bus: 1 with driver nvidia"
    ),
    "all-on-vfio": (
        "NVIDIA driver loaded, but no GPU is bound to it; NVIDIA GPUs on the PCI bus: 2 with driver vfio-pci"
    ),
    "hung": (
        "nvidia-smi did not answer within its time limit (a sick GPU makes it hang)"
        "; NVIDIA GPUs on the PCI bus: 1 with driver nvidia"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_state_is_words_where_there_is_no_row(case: str) -> None:
    reading = read(case)
    assert reading.state == STATES.get(case)
    assert bool(reading.gpus) is (case not in STATES)


def test_unified_memory_is_absent_and_the_process_says_what_it_holds() -> None:
    reading = read("gb10-unified-memory")
    (gpu,) = reading.gpus
    assert (gpu.bus_id, gpu.power) == ("000f:01:00.0", 11.17)
    for field in ("memory_total", "memory_reserved", "memory_used", "memory_free"):
        assert getattr(gpu, field) is None
        assert gpu.said[field] == "[N/A]"
    assert gpu.memory_headroom is None
    assert [process.memory_used for process in reading.processes] == [61440 * MIB]


def test_each_word_of_a_sick_card_is_kept() -> None:
    (gpu,) = read("sick-card").gpus
    assert gpu.memory_used == 58222 * MIB
    assert gpu.recovery_action == "GPU Reset"
    assert {field: gpu.said[field] for field in gpu.said if getattr(gpu, field) is None} == gpu.said
    assert set(gpu.said.values()) == {
        "[GPU requires reset]",
        "[Unknown Error]",
        "[Function Not Found]",
        "[Insufficient Permissions]",
        "[Requested functionality has been deprecated]",
        "ERR!",
        "N/A",
        "(empty)",
    }


def test_hidden_users_are_told_and_not_taken_for_idle() -> None:
    reading = read("container-no-pids")
    assert reading.processes == ()
    assert reading.missing == (
        "GPU processes: none shown on GPU 0 although its memory is used (container, VM or graphics)",
    )


def test_nothing_asked_is_told() -> None:
    reading = VENDOR.read({})
    assert reading.gpus == ()
    assert reading.state == "NVIDIA GPUs: not asked"
    broken = CommandResult(key="nvidia.gpus", status=255, stderr="sh: not found\n")
    assert VENDOR.read({"nvidia.gpus": broken}).state == (
        "NVIDIA GPUs: the question failed with status 255: sh: not found"
    )


def test_a_cut_answer_is_no_whole_host() -> None:
    whole = results("case-a")
    text = whole["nvidia.gpus"].stdout
    cut = text[: text.index("\n5, ") - 4]
    reading = VENDOR.read({"nvidia.gpus": CommandResult(key="nvidia.gpus", status=None, stdout=cut)})
    assert [gpu.index for gpu in reading.gpus] == [0, 1, 2, 3]
    assert "the answer of nvidia-smi was cut off: there may be more GPUs" in reading.missing


def test_a_cut_list_of_processes_has_whole_rows_only() -> None:
    whole = results("case-a")
    text = whole["nvidia.processes"].stdout
    cut = CommandResult(key="nvidia.processes", status=None, stdout=text[:-3])
    found = VENDOR.read({**whole, "nvidia.processes": cut}).processes
    assert [process.pid for process in found] == [4100, 4101, 4102]


def test_a_cut_list_of_the_bus_is_no_host_without_gpus() -> None:
    cut = CommandResult(key="nvidia.gpus", status=None, stdout="@driver 595.58.03\n@pci\n", timed_out=True)
    assert VENDOR.read({"nvidia.gpus": cut}).state == (
        "NVIDIA GPUs: nvidia-smi did not answer within its time limit (a sick GPU makes it hang)"
    )
