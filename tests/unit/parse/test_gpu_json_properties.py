"""Whatever the tools of AMD and Intel print, reading it never fails, and never makes a number up."""

import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.amd_smi import read_amd_processes, read_amd_smi
from bringup.parse.amdgpu import read_amdgpu
from bringup.parse.gpu_figures import BYTES, CELSIUS, MEBIBYTES, WATTS, measure, word
from bringup.parse.json_documents import json_documents
from bringup.parse.rocm_smi import read_rocm_processes, read_rocm_smi
from bringup.parse.xpu_smi import read_xpu_processes, read_xpu_smi
from bringup.units import MIB
from bringup.values.host import Absent, CommandResult, Gpu
from bringup.vendors import amd, intel

GOLDEN = Path(__file__).parents[2] / "golden/vendors"
FILES = sorted((*GOLDEN.glob("amd/*/amd.gpus.txt"), *GOLDEN.glob("intel/*/intel.gpus.txt")))
VENDORS = {"amd": amd.VENDOR, "intel": intel.VENDOR}
NAMES = """
gpu gpu_data usage power socket_power value unit mem_usage total_vram used_vram clock gfx_0 clk pcie speed
process_list process_info pid memory_usage vram_mem limit ppt0 ras ecc_block_state card0 system PID1
device_list device_id device_level metrics_type tile_level data_list power_limit uuid bdf
"""
KEYS = st.sampled_from(NAMES.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["N/A", "300 W", "(1090Mhz)", "Gen 4", "XPUM_STATS_POWER", "x, 1, 2, 3, 4", "0x1"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=6), inner, max_size=5)
    ),
    max_leaves=25,
)


def read_everything(text: str) -> tuple[Gpu, ...]:
    gpus = (
        *read_amd_smi(text, text, text),
        *read_rocm_smi(text),
        *read_amdgpu(text),
        *read_xpu_smi(text, text, text, text),
    )
    processes = (
        *read_amd_processes(text, gpus),
        *read_rocm_processes(text, gpus),
        *read_xpu_processes(text, text, gpus),
    )
    msgspec.json.encode((gpus, processes))  # nothing that a report cannot write
    return gpus


def check(gpus: tuple[Gpu, ...]) -> None:
    for gpu in gpus:
        for share in (gpu.utilization, gpu.memory_utilization):
            assert share is None or 0 <= share <= 1
        for figure in (gpu.power, gpu.power_limit, gpu.temperature, gpu.clock_sm):
            assert figure is None or (math.isfinite(figure) and figure >= 0)
        assert gpu.memory_total is None or gpu.memory_total > 0
        assert gpu.memory_reserved is None


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    check(read_everything(text))
    for vendor in VENDORS.values():
        key = vendor.questions[0].key
        vendor.read({key: CommandResult(key=key, status=0, stdout=text, stderr=text)})


@given(JSON, JSON)
def test_any_json(first: object, second: object) -> None:
    check(read_everything(f"WARNING: slow\n{json.dumps([first])}\n{json.dumps({'gpu_data': second})}"))


@given(st.integers(0, 2), JSON, JSON)
def test_any_json_where_a_card_is_expected(index: int, part: object, other: object) -> None:
    names = ("usage", "power", "clock", "temperature", "mem_usage", "limit", "pcie", "ecc", "process_list")
    check(read_everything(json.dumps([{"gpu": index, "device_id": index, **dict.fromkeys(names, part)}])))
    labels = ("GPU use (%)", "PCI Bus", "VRAM Total Memory (B)", "pcie clock level", "Device Name")
    check(read_everything(json.dumps({f"card{index}": dict.fromkeys(labels, part), "system": other})))


@given(st.sampled_from(FILES), st.data())
def test_recorded_answers_cut_off_anywhere(file: Path, data: st.DataObject) -> None:
    text = file.read_text()
    cut = text[: data.draw(st.integers(0, len(text)))]
    vendor = VENDORS[file.name.split(".")[0]]
    key = vendor.questions[0].key
    whole = vendor.read({key: CommandResult(key=key, status=0, stdout=text)})
    part = vendor.read({key: CommandResult(key=key, status=0, stdout=cut)})
    known = {gpu.memory_total for gpu in whole.gpus} | {None}
    assert {gpu.memory_total for gpu in part.gpus} <= known


def test_documents_between_other_lines() -> None:
    text = 'WARNING: x\n[INFO] y\n  {"a": [1]}\ntrailing {"b": 2}\n[{"c": "\\ud800"}]\n{"cut": '
    assert json_documents(text) == ({"a": [1]}, [{"c": "�"}])
    assert json_documents("[" * 5000) == ()
    assert json_documents("[\n" * 100_000) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (300, 300.0),
        ("300", 300.0),
        ("300 W", 300.0),
        ({"value": 300, "unit": "W"}, 300.0),
        ({"value": "300", "unit": "W"}, 300.0),
        (0, 0.0),
        ({"value": 0, "unit": "W"}, 0.0),
    ],
)
def test_one_figure_in_many_shapes(value: object, expected: float) -> None:
    assert measure(value, WATTS) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        "N/A",
        "",
        "300 mW",
        "3e2",
        "-3",
        True,
        [],
        {},
        {"unit": "W"},
        {"value": None},
        65535,
        math.nan,
        10**400,
    ],
)
def test_what_is_no_figure_keeps_its_words(value: object) -> None:
    assert isinstance(measure(value, WATTS), Absent)  # type: ignore[arg-type]


def test_units_of_sizes_count_in_steps_of_1024() -> None:
    assert measure({"value": 65520, "unit": "MB"}, BYTES) == 65520 * MIB
    assert measure(65520, MEBIBYTES) == 65520 * MIB
    assert measure(65520, BYTES) == 65520
    assert measure("47 °C", CELSIUS) == 47
    assert word("N/A") == Absent(said="N/A")
    assert word(" AMD Instinct MI210 ") == "AMD Instinct MI210"
