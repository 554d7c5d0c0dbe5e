import gzip
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.case_lines import case_lines, read_kept
from bringup.parse.literals import Literals
from bringup.parse.log_stream import KeptLine, KeptLines, LineSieve

TEXTS = ("out of memory", "Traceback", 'File "')


def sieved(data: bytes, cuts: list[int] | None = None) -> KeptLines:
    sieve = LineSieve(TEXTS)
    edges = [0, *sorted(cuts or []), len(data)]
    for begin, end in pairwise(edges):
        sieve.feed(data[begin:end])
    return sieve.finish()


def test_all_texts_are_found_also_where_they_overlap_and_as_json_writes_them():
    literals = Literals(("of mem", "memory", 'say "x"'))
    assert [place for place, _, _ in literals.find(b"out of memory")] == [0, 1]
    assert [place for place, _, _ in literals.find(json.dumps('say "x"').encode())] == [2]
    assert list(Literals(()).find(b"anything")) == []


def test_a_line_is_kept_with_neighbours_and_its_number():
    lines = [f"line {number}" for number in range(1, 1001)]
    lines[499] = "CUDA out of memory"
    kept = sieved("\n".join(lines).encode())
    numbers = [one.number for one in kept.lines]
    assert kept.total_lines == 1000
    assert {498, 499, 500, 501, 505} <= set(numbers)
    assert not {400, 497, 506, 600} & set(numbers)
    assert next(one.raw for one in kept.lines if one.number == 500) == "CUDA out of memory"


@given(
    lines=st.lists(st.sampled_from(["", "x", "out of memory", 'File "a"', "a longer line"]), max_size=400),
    cuts=st.lists(st.integers(0, 4000), max_size=8),
)
def test_how_the_bytes_are_cut_does_not_matter(lines, cuts):
    data = "\n".join(lines).encode()
    assert sieved(data, [min(cut, len(data)) for cut in cuts]) == sieved(data)


def test_numbers_hold_over_many_blocks():
    filler = b"nothing to see here\n" * 60_000
    kept = sieved(filler + b"out of memory\n" + filler + b"out of memory\n" + filler)
    hits = [one.number for one in kept.lines if one.raw == "out of memory"]
    assert hits == [60_001, 120_002]
    assert kept.total_lines == 180_002


def test_of_one_text_only_so_many_lines_are_kept_and_a_new_one_is_not_lost():
    kept = sieved(b"out of memory\n" * 50_000 + b"Traceback\n" + b"x\n" * 500)
    assert len(kept.lines) < 2_000
    assert any(one.raw == "Traceback" for one in kept.lines)


def test_a_line_of_many_megabytes_is_cut_around_what_matters():
    kept = sieved(b"x" * 9_000_000 + b"CUDA out of memory" + b"y" * 100_000)
    assert kept.total_lines == 1
    assert max(len(one.raw) for one in kept.lines) < 100_000
    short = sieved(b"x" * 200_000 + b"CUDA out of memory" + b"y" * 100_000)
    assert "CUDA out of memory" in short.lines[0].raw


def test_bytes_that_are_no_text_are_told():
    assert sieved(b"\0" * 1000).has_zeros
    assert not sieved(b"text\n" * 1000).has_zeros
    assert sieved(gzip.compress(b"x" * 10_000)).total_lines >= 0


def kept_of(*lines: str) -> KeptLines:
    return KeptLines(
        lines=tuple(KeptLine(number=number, raw=line) for number, line in enumerate(lines, start=1)),
        total_lines=len(lines),
        total_bytes=0,
    )


def test_prefixes_go_and_the_rank_stays():
    log = read_kept(kept_of("vllm-1  | [rank3]: torch.OutOfMemoryError: CUDA out of memory"))
    (line,) = case_lines(log.lines, None)
    assert line.text == "torch.OutOfMemoryError: CUDA out of memory"
    assert line.rank == "rank 3"
    assert line.raw.startswith("vllm-1")


def test_a_message_of_several_lines_in_one_of_json_becomes_several_lines():
    packed = json.dumps({"message": 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 7'})
    log = read_kept(kept_of("before", packed, "after"))
    assert [(one.line.number, one.line.text) for one in log.lines][1:4] == [
        (2, "Traceback (most recent call last):"),
        (2, '  File "a.py", line 1'),
        (2, "KeyError: 7"),
    ]


@pytest.mark.parametrize("stamp", ["2026-03-04T05:06:0{}Z ", "Mar 04 05:06:0{} box vllm[1]: "])
def test_a_log_with_the_newest_line_first_is_turned(stamp):
    lines = [f"{stamp.format(number)}line {number}" for number in range(1, 8)]
    log = read_kept(kept_of(*reversed(lines)))
    assert log.is_newest_first
    assert [one.line.text for one in log.lines] == [f"line {number}" for number in range(1, 8)]
    assert [one.line.number for one in log.lines] == list(range(1, 8))
    assert log.original(log.lines[0].line.number) == 7
    assert not read_kept(kept_of(*lines)).is_newest_first


def test_without_a_clock_a_traceback_tells_the_order():
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()", "KeyError: 1"]
    assert read_kept(kept_of(*reversed(lines))).is_newest_first
    assert not read_kept(kept_of(*lines)).is_newest_first
