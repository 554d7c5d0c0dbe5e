"""What is read of every engine's start-up log, in every wording, whatever stands before a line."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.flows.start_log import find_start, start_log_readers
from bringup.parse.log_line import read_line, read_lines
from bringup.parse.log_starts import chosen_start, split_starts
from bringup.units import GIB
from bringup.values.start_log import StartLog

ROOT = Path(__file__).parents[3]
CASES = sorted((ROOT / "tests/golden/start_log").glob("*.log"))
SHARED = ROOT.parent / "shared" / "data"
ENGINES = start_log_readers()


def engine_of(path: Path) -> str:
    return path.name.partition("-")[0]


def read(text: str, engine: str) -> StartLog:
    reader = ENGINES[engine]
    starts = [reader.read(part) for part in split_starts(tuple(read_lines(text)), reader.begins)]
    return starts[chosen_start(starts)]


def plain(start: StartLog) -> dict[str, object]:
    """What is compared: facts, and the lines that they come from."""
    fields = {name: getattr(start, name) for name in start.__slots__}
    for name in ("spec", "ranks", "cites", "phases"):
        del fields[name]
    return {
        **fields,
        "argv": list(start.spec.argv) if start.spec else None,
        "ranks": [
            {name: value for name in rank.__slots__ if (value := getattr(rank, name)) is not None}
            for rank in start.ranks
        ],
        "phases": [[phase.name.value, phase.first_line, phase.seconds] for phase in start.phases],
        "cites": {name: [cite.line, cite.within] for name, cite in sorted(start.cites.items())},
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_fact_of_a_wording_is_read(path: Path) -> None:
    expected = path.with_suffix(".expected.json")
    found = json.loads(json.dumps(plain(read(path.read_text(), engine_of(path)))))
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        expected.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(expected.read_text())


def test_the_file_says_which_engine_it_is() -> None:
    assert {path.name: find_start(path).start.engine for path in CASES} == {
        path.name: engine_of(path) for path in CASES
    }


def test_no_secret_of_the_arguments_is_kept() -> None:
    for path in CASES:
        assert "sk-0123456789abcdef" not in repr(read(path.read_text(), engine_of(path)))


def test_each_cite_is_a_line_of_the_file() -> None:
    for path in CASES:
        lines = path.read_text().split("\n")
        start = read(path.read_text(), engine_of(path))
        assert start.cites
        for name, cite in start.cites.items():
            assert cite.text[:60] in lines[cite.line - 1], name


def test_of_a_crash_loop_the_last_start_that_serves_is_meant() -> None:
    found = find_start(ROOT / "tests/golden/start_log/vllm-crash-loop.log")
    assert (found.count, found.place, found.start.is_ready) == (4, 3, True)
    assert "start 3 of 4" in found.words
    assert found.start.kv_tokens == 594_112


def test_a_start_that_never_served_is_said_to_be_one() -> None:
    found = find_start(ROOT / "tests/golden/start_log/vllm-0.8-tp4.log")
    assert not found.start.is_ready
    assert "never says that it serves" in found.words


def test_of_ranks_that_differ_the_least_tokens_count() -> None:
    start = read((ROOT / "tests/golden/start_log/vllm-0.8-tp4.log").read_text(), "vllm")
    assert (start.kv_tokens, start.max_concurrency) == (9_072, 1.11)


def test_a_draft_model_changes_neither_weights_nor_pool_of_the_target() -> None:
    start = read((ROOT / "tests/golden/start_log/sglang-0.5.23-hybrid-draft.log").read_text(), "sglang")
    rank = start.ranks[0]
    assert (rank.weights, rank.kv_pool) == (59 * GIB, round(5.16 * GIB) * 2)


def test_the_peak_of_activations_is_told_without_the_estimate_of_graphs() -> None:
    start = read((ROOT / "tests/golden/start_log/vllm-0.30-dp2.log").read_text(), "vllm")
    assert start.ranks[0].activations == round(3.05 * GIB) - round(1.31 * GIB)


PREFIXES = (
    "vllm-1  | {}",
    "Nov 30 12:00:01 gpubox vllm[4242]: {}",
    "2026-11-30T12:00:01+0000 gpubox vllm[4242]: {}",
    "2026-11-30T12:00:01.123456789Z stdout F {}",
    "2026-11-30T12:00:01.123456789Z {}",
    "[pod/llm-0/engine] {}",
    "\x1b[36m{}\x1b[0m",
    "Loading safetensors checkpoint shards:  50% | 1/2\r{}\r",
    "{}\r",
    "{} [repeated 6x across cluster] (Ray deduplicates logs by default.)",
    "JSON",
    "{}",
)


def facts(start: StartLog) -> StartLog:
    """The start without where in the file things stand and when."""
    return replace(start, cites={}, phases=(), first_line=0, last_line=0)


@given(case=st.sampled_from(CASES), data=st.data())
def test_prefixes_of_others_change_nothing(case: Path, data: st.DataObject) -> None:
    text = case.read_text()
    prefix = data.draw(st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4))
    lines = [_prefixed(line, prefix[number % len(prefix)]) for number, line in enumerate(text.split("\n"))]
    engine = engine_of(case)
    assert facts(read("\n".join(lines), engine)) == facts(read(text, engine))


def _prefixed(line: str, prefix: str) -> str:
    if prefix == "JSON":
        return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-30T12:00:01.1Z"})
    return prefix.replace("{}", line) if line else line


@given(case=st.sampled_from(CASES), data=st.data())
def test_the_order_in_which_ranks_write_changes_nothing(case: Path, data: st.DataObject) -> None:
    text = case.read_text()
    lines = text.split("\n")
    for place in data.draw(st.lists(st.integers(0, len(lines) - 2), max_size=40)):
        first, second = (read_line(0, lines[place + step]).rank for step in (0, 1))
        if first and second and first != second:
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
    engine = engine_of(case)
    assert facts(read("\n".join(lines), engine)) == facts(read(text, engine))


@given(st.text(max_size=300))
def test_any_text_is_read_without_a_crash(text: str) -> None:
    for name, reader in ENGINES.items():
        for part in split_starts(tuple(read_lines(text)), reader.begins):
            assert reader.read(part).engine == name


@given(case=st.sampled_from(CASES), cut=st.integers(1, 4000))
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(case: Path, cut: int) -> None:
    start = read(case.read_text()[:cut], engine_of(case))
    assert all(cite.line >= 1 for cite in start.cites.values())


REAL = {
    "engines/vllm/startup_full_compile.log": ("vllm", "0.32.0", 46_592, True),
    "engines/vllm/startup_enforce_eager.log": ("vllm", "0.32.0", 46_592, True),
    "engines/vllm/startup_tp2_tiny_qwen3.log": ("vllm", "0.32.0", 1_048_576, True),
    "engines/sglang/startup.log": ("sglang", None, 8_192, True),
    "engines/sglang/startup2.log": ("sglang", None, 8_192, True),
    "engines/llamacpp/startup_clean.log": ("llama_cpp", None, 8_192, True),
    "failure_logs/mem-nokv-03.log": ("vllm", "0.8.3", None, True),
    "failure_logs/mem-samp-10.log": ("vllm", None, 9_072, False),
    "failure_logs/nccl-wd-02.log": ("sglang", None, 10_240, False),
}


@pytest.mark.parametrize("name", REAL)
def test_real_logs(name: str) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {path}: the logs of real machines are kept outside the project")
    start = find_start(path).start
    assert (start.engine, start.version, start.kv_tokens, start.is_ready) == REAL[name]


def test_real_failures_are_read_without_a_crash() -> None:
    paths = sorted(SHARED.glob("failure_logs/*.log"))
    if not paths:
        pytest.skip(f"no {SHARED}: the logs of real machines are kept outside the project")
    for path in paths:
        for reader in ENGINES.values():
            for part in split_starts(tuple(read_lines(path.read_text(errors="replace"))), reader.begins):
                reader.read(part)


def test_the_marks_of_each_wording_are_known() -> None:
    for path in CASES:
        reader = ENGINES[engine_of(path)]
        lines = tuple(read_lines(path.read_text()))
        assert any(reader.begins(line) for line in lines)
        assert any(reader.recognise(line) for line in lines)
        others = [name for name in ENGINES if name != engine_of(path)]
        for other in others:
            assert not any(ENGINES[other].recognise(line) for line in lines), (path.name, other)


def test_numbers_of_lines_are_those_of_an_editor() -> None:
    lines = list(read_lines("a\u2028b\rc\n\x0bd\n"))
    assert [line.number for line in lines] == [1, 2, 3]
    assert re.fullmatch("c", lines[0].text)
