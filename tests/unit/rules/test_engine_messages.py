"""Every message of the table is named by its kind, whatever machine, rank or prefix it comes from."""

import json
import random
import re
from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule

_TABLE = (
    Path(__file__).parents[2] / "golden" / "rules" / "messages.jsonl"
)  # in the wording of several versions
CASES: tuple[tuple[str, str], ...] = tuple(
    (row["kind"], "\n".join(row["lines"]) + "\n") for row in map(json.loads, _TABLE.read_text().splitlines())
)

_PREFIXES = (
    "",
    "Nov 12 10:00:01 gpu7 vllm[4711]: ",
    "2026-03-01T10:00:01.123456789Z stderr F ",
    "vllm-1  | ",
    "(EngineCore_DP0 pid=1234) ERROR 05-28 10:00:09 [core.py:700] ",
    "[2026-03-01 10:00:00 TP3] ",
)


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return load_rules()


def _ids(text: str, rules: dict[str, Rule]) -> list[str]:
    kept = sift([text.encode()], rules)
    return [finding.id for finding in diagnose(kept, rules, source="test").findings]


@pytest.mark.parametrize(
    ("kind", "text"), CASES, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(CASES)]
)
def test_a_message_is_named_first(kind: str, text: str, rules: dict[str, Rule]) -> None:
    assert _ids(text, rules)[0] == kind


@pytest.mark.parametrize("prefix", _PREFIXES)
def test_prefixes_and_paths_change_nothing(prefix: str, rules: dict[str, Rule]) -> None:
    chosen = random.Random(prefix).sample(CASES, 24)  # a share of all: every one takes milliseconds
    for kind, text in chosen:
        moved = text.replace("/opt/venv/lib/python3.12", "/home/x/.venv/lib64/python3.11")
        lines = "\n".join(prefix + line for line in moved.splitlines()) + "\n"
        assert _ids(lines, rules)[0] == kind, lines


def test_every_kind_of_these_families_has_a_message(rules: dict[str, Rule]) -> None:
    families = re.compile(r"(mem|shard|arch|jit|pkg|file|gguf|model)\.")
    kinds = {kind for rule in rules.values() for kind in rule.kinds if families.match(kind)}
    untested = {"shard.gguf_tp", "jit.autotune_slow", "pkg.inspect_wrapper"}  # of these see test_weak_signs
    assert kinds - untested == {kind for kind, _ in CASES}


def test_literals_stand_in_what_they_are_to_find(rules: dict[str, Rule]) -> None:
    for kind, text in CASES:
        owners = [rule for rule in rules.values() if kind in rule.kinds]
        assert any(literal in text for rule in owners for literal in rule.literals), text


@pytest.mark.parametrize(
    "healthy",
    [
        "INFO 05-28 10:00:01 [gpu_worker.py:298] Available KV cache memory: 21.30 GiB",
        "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider",
        "WARNING Failed to import from vllm._rocm_C: No module named 'vllm._rocm_C'",
        "libnccl-net.so: cannot open shared object file: No such file or directory",
        "Your GPU does not have native support for FP4 computation but FP4 quantization is being used.",
        "INFO Directly load the 3-th graph for dynamic shape from inductor",
        "peer access is not supported between these two devices",
        "The tokenizer was written with !!!!!!!!!! in it",
    ],
)
def test_lines_of_healthy_starts_are_no_cause(healthy: str, rules: dict[str, Rule]) -> None:
    text = f"INFO vLLM API server version 0.11.2\n{healthy}\nINFO:     Application startup complete.\n"
    families = ("mem.", "shard.", "arch.", "jit.", "pkg.", "file.", "gguf.", "model.")
    assert not [one for one in _ids(text, rules) if one.startswith(families)]
