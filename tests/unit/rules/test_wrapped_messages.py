"""Messages as other versions and the programs around engines word them, and lines of starts that go well."""

import json
from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.values.finding import Finding, Severity

FILE = Path(__file__).parents[2] / "golden" / "rules" / "wrapped_messages.jsonl"
ROWS = [json.loads(row) for row in FILE.read_text(encoding="utf-8").splitlines()]
RULES = load_rules()
STARTS = "INFO 06-01 10:00:00 [model_runner.py:1110] Starting to load model /m/x...\n"


def _first(text: str) -> Finding:
    return diagnose(sift([f"{text}\n".encode()], RULES), RULES, source="x").findings[0]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(row["kind"], row["text"]) for row in ROWS if row["kind"] != "none"],
    ids=[f"{row['kind']}-{place}" for place, row in enumerate(ROWS) if row["kind"] != "none"],
)
def test_the_kind_is_told_whoever_says_it(kind: str, text: str) -> None:
    assert _first(text).id == kind


@pytest.mark.parametrize("text", [row["text"] for row in ROWS if row["kind"] == "none"])
def test_lines_of_good_starts_break_nothing(text: str) -> None:
    calm = {Severity.OK, Severity.NOTE, Severity.UNKNOWN}
    assert {_first(text).severity, _first(STARTS + text).severity} <= calm


def test_rays_memory_monitor_says_how_full_it_was() -> None:
    found = _first(
        "Memory on the node (IP: 192.0.2.7, ID: ab) where the task (actor ID: cd, name=Worker, pid=308, "
        "memory used=11.15GB) was running was 12.49GB / 13.15GB (0.950003), which exceeds the memory "
        "usage threshold of 0.95. Ray killed this worker (ID: ef): the most recently scheduled task"
    )
    assert found.id == "host.ram_oom"
    assert "12.49 of 13.15 GB" in found.summary


def test_rays_list_of_possible_reasons_is_no_cause() -> None:
    assert (
        _first(
            "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due "
            "to high memory usage. (2) ray stop --force is called."
        ).severity
        is not Severity.FAILURE
    )


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("warmup_engine", "mem.profile_oom"),
        ("load_checkpoint", "mem.weights_oom"),
        ("recompute_w_u_fwd", "mem.runtime_oom"),
        ("do_prefill", "mem.runtime_oom"),
    ],
)
def test_functions_of_unknown_code_tell_the_step_by_their_names(function: str, kind: str) -> None:
    frame = f'  File "/opt/other/engine/core.py", line 12, in {function}\n    x = empty()\n'
    assert (
        _first(f"{frame}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 180.00 MiB.").id == kind
    )


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("gguf_init_from_file: invalid magic number 73726576", "file.lfs_pointer"),
        ("gguf_init_from_file: invalid magic number 4f44213c", "gguf.wrong_file"),
        ("gguf_init_from_file: invalid magic number 67676a74", "gguf.wrong_file"),
        ("error loading model: unknown (magic, version) combination: 46554747, 00000002", "gguf.arch"),
        ("gguf_init_from_file: invalid magic number 00000000", "file.corrupt"),
    ],
)
def test_a_bad_magic_number_tells_what_the_file_is(line: str, kind: str) -> None:
    assert _first(line).id == kind


def test_a_pointers_text_read_as_a_length_is_told() -> None:
    length = int.from_bytes(b"<!DOCTYP", "little")
    assert "a web page" in _first(f"Error while deserializing header: header too large: {length}").summary


def test_a_first_collective_that_nobody_ended_is_a_hang() -> None:
    watch = (
        "[rank{0}]:[E1001 16:06:04.5 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=128) ran for 600009 milliseconds.\n"
        "[rank{0}]:[E1001 16:06:04.5 ProcessGroupNCCL.cpp:1664] Exception detected by watchdog at work: 1, "
        "last enqueued NCCL work: 1, last completed NCCL work: -1."
    )
    head = "node0:29:29 [0] NCCL INFO comm 0x55 rank 0 nranks 4 cudaDev 0 busId 41000 - Init COMPLETE\n"
    assert _first(head + "\n".join(watch.format(rank) for rank in range(3))).id == "nccl.p2p_hang"
