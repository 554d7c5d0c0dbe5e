"""Lines that mean something only beside others."""

import pytest

from bringup.parse.oom import read_out_of_memory
from bringup.rules import shard
from bringup.rules.jit import RULE as JIT
from bringup.rules.python_imports import RULE as IMPORTS
from bringup.units import GIB
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Severity


def _case(*texts: str, is_ready: bool = False) -> Case:
    lines = tuple(CaseLine(number=place, text=text) for place, text in enumerate(texts, start=1))
    return Case(lines=lines, is_ready=is_ready, flags={"--tensor-parallel-size": "4"})


def test_exclamation_marks_need_a_gguf_file() -> None:
    marks = 'text: "!!!!!!!!!!!!"'
    assert not shard.read(_case(marks))
    (match,) = shard.read(_case(marks, "loading /m/x.gguf"))
    assert match.kind == "shard.gguf_tp"
    assert match.fixes[0].new == "2"


def test_tuning_is_a_note() -> None:
    line = "[AutoTuner]: Autotuning process starts ..."
    (match,) = JIT.read(_case(line))
    assert (match.kind, match.severity) == ("jit.autotune_slow", Severity.NOTE)
    assert not JIT.read(_case(line, is_ready=True))


def test_a_wrapper_stays_below_half() -> None:
    (match,) = IMPORTS.read(_case("Model architectures ['X'] failed to be inspected. Please check the logs."))
    assert match.kind == "pkg.inspect_wrapper"
    assert match.sure < 0.5


@pytest.mark.parametrize(("own", "others"), [("37.80", 41), ("78.00", 0)])
def test_a_process_that_holds_what_this_one_does_is_this_one(own: str, others: int) -> None:
    mine = f"Process 1 has {own} GiB memory in use. " + (
        "Process 2 has 41.00 GiB memory in use. " if others else ""
    )
    text = (
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.00 GiB of "
        "which 0.10 GiB is free. "
        f"{mine}Of the allocated memory {float(own) - 0.6:.2f} GiB is allocated by PyTorch, and 0.10 GiB "
        f"is reserved by "
        "PyTorch but unallocated."
    )
    assert read_out_of_memory(text).held_by_others == others * GIB
