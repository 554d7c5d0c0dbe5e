"""Cut or garbled text never makes a reader crash, and never makes a number that is not in the text."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_frame import read_cards
from bringup.parse.nvidia_list import read_list, read_nvlinks
from bringup.parse.nvidia_report import read_text_report, read_xml_report
from bringup.parse.nvidia_smi import read_gpus, read_processes
from bringup.parse.nvidia_state import trouble
from bringup.parse.nvidia_table import read_table
from bringup.parse.topo import read_topology
from bringup.units import MIB
from bringup.values.host import CommandResult, GpuProcess
from bringup.vendors.nvidia import VENDOR

GOLDEN = Path(__file__).parents[2] / "golden"
READERS: dict[str, Callable[[str], object]] = {
    "table.txt": read_table,
    "report.txt": read_text_report,
    "report.xml": read_xml_report,
    "list.txt": read_list,
    "nvlink.txt": read_nvlinks,
    "topo.txt": read_topology,
    "p2p.txt": read_topology,
    "query.csv": read_gpus,
    "apps.csv": read_processes,
}
TEXTS = {name: (GOLDEN / "parse/nvidia" / name).read_text(encoding="utf-8") for name in READERS}
CASE_A = {
    key: (GOLDEN / f"vendors/nvidia/case-a/{key}.txt").read_text(encoding="utf-8")
    for key in ("nvidia.gpus", "nvidia.processes", "nvidia.topology", "nvidia.cards")
}
WHOLE_A = VENDOR.read({key: CommandResult(key=key, status=0, stdout=text) for key, text in CASE_A.items()})
DERIVED = ("index", "gpu_index")  # the place in a report, not printed as such
LETTERS = st.sampled_from("0123456789 |,:/.%\n\t@-+[]()<>&;GPUMiBWCXNVN/AERR!\x1b\x00é٣")


def numbers(value: object, field: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record, in the units of nvidia-smi."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name != "said":
                yield from numbers(part, str(name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part, field)
    elif isinstance(value, int | float) and not isinstance(value, bool) and field not in DERIVED:
        if field.startswith("memory_") and field not in ("memory_temperature", "memory_utilization"):
            yield field, value / MIB
        elif field.endswith("utilization"):
            yield field, round(value * 100, 6)
        elif field == "clocks_event_reasons":
            return
        else:
            yield field, value / 1e9 if value >= 1e9 else value


def printed(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text, re.ASCII)}


def check(read: Callable[[str], object], text: str, whole: str = "") -> None:
    """No number that is not printed in `whole`, by default in the text itself."""
    try:
        found = read(text)
    except UnreadableAnswer:
        return
    known = printed(whole or text)
    for field, number in numbers(msgspec.to_builtins(found)):
        # A unit other than MiB is a multiple; a number of the text may start within a longer run of digits.
        near = {number, number / 1024, number * 1024, number * MIB}
        assert any(abs(each - other) < 1e-6 for each in near for other in known), (field, number)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_cut(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    check(READERS[name], text[start:stop])
    check(READERS[name], text[:stop], whole=text)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_garbled(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:place] + data.draw(st.text(LETTERS, max_size=8)) + text[place + length :]
    check(READERS[name], text)


@pytest.mark.parametrize("name", READERS)
@given(text=st.text(LETTERS, max_size=200))
def test_noise(name: str, text: str) -> None:
    check(READERS[name], text)
    trouble(text, 0)
    trouble(text, 77)
    read_cards(text)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_lines_shuffled_and_lost(name: str, data: st.DataObject) -> None:
    lines = TEXTS[name].splitlines(keepends=True)
    check(READERS[name], "".join(data.draw(st.lists(st.sampled_from(lines), max_size=60))))


@given(stops=st.tuples(*[st.floats(0, 1)] * 4))
def test_a_cut_answer_of_a_host_has_whole_cards_or_none(stops: tuple[float, ...]) -> None:
    cut = {
        key: CommandResult(key=key, status=None, stdout=text[: round(len(text) * stop)])
        for (key, text), stop in zip(CASE_A.items(), stops, strict=True)
    }
    found = VENDOR.read(cut)
    whole = {gpu.bus_id: gpu for gpu in WHOLE_A.gpus}
    for gpu in found.gpus:
        known = whole[gpu.bus_id]
        assert gpu.minor in (None, known.minor)
        figures = (gpu.index, gpu.uuid, gpu.memory_used, gpu.memory_total, gpu.power, gpu.serial)
        assert figures == (
            known.index,
            known.uuid,
            known.memory_used,
            known.memory_total,
            known.power,
            known.serial,
        )
    assert {without_index(process) for process in found.processes} <= {
        without_index(process) for process in WHOLE_A.processes
    }
    assert set(found.links) <= set(WHOLE_A.links)
    assert found.gpus or found.state


def without_index(process: GpuProcess) -> tuple[object, ...]:
    return process.pid, process.gpu_uuid, process.name, process.memory_used


@given(
    text=st.text(LETTERS, max_size=300),
    status=st.one_of(st.none(), st.integers(0, 255)),
    late=st.booleans(),
)
def test_the_vendor_never_raises(text: str, status: int | None, late: bool) -> None:
    framed = f"@fields index,uuid,pci.bus_id,memory.used\n@answer all 0\n{text}\n@end\n"
    sections = f"@@ tool\n{text}\n@@ mapped\n{text}\n@@ dmesg\nfirst {text}\n{text}\n"
    for output in (text, framed, sections):
        reading = VENDOR.read(
            {
                key: CommandResult(key=key, status=status, stdout=output, timed_out=late)
                for key in (question.key for question in VENDOR.questions)
            }
        )
        assert reading.gpus or reading.state
