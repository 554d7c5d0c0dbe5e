"""What a diagnosis offers can be done: changes change something, and commands are commands."""

import ast
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.cli.diagnose import command as diagnose_command
from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Finding, Fix, Severity, same_value

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data"
RULES = load_rules()
# A word that stands for something the reader has to fill in.
BLANK = re.compile(r"\b(?:FILE|LOG|UNIT|PID|CONTAINER|NODE|BUS|ADDRESS|USER@HOST)\b")
PROGRAMS = {
    "bringup",
    "vllm",
    "python",
    "python3",
    "llama-server",
    "docker",
    "nvidia-smi",
    "py-spy",
    "trtllm-serve",
}
VALUES = st.one_of(st.none(), st.sampled_from(["1", "1.0", "0.9", "0.90", ".9", "true", "True", "x", " X"]))


def texts() -> list[tuple[str, str]]:
    """Every log of a failure at hand, by name."""
    found = [(path.name, path.read_text(errors="replace")) for path in (ROOT / "tests/golden").rglob("*.log")]
    logs = (*SHARED.glob("failure_logs/*.log"), *SHARED.glob("engines/*/failures/*.log"))
    found += [(path.name, path.read_text(errors="replace")) for path in logs]
    if (SHARED / "failures.jsonl").is_file():
        for line in (SHARED / "failures.jsonl").read_text().splitlines():
            record = json.loads(line)
            found.append((record["id"], "\n".join(record["symptom_lines"])))
    return found


def read(text: str, name: str = "engine log.txt") -> Diagnosis:
    return diagnose(sift([text.encode()], RULES), RULES, source=name)


@pytest.fixture(scope="module")
def everything() -> list[Diagnosis]:
    return [read(text) for _, text in texts()]


@given(st.lists(st.tuples(st.sampled_from(["--a", "--b"]), VALUES, VALUES), max_size=8))
def test_no_finding_holds_a_change_of_nothing_or_one_twice(made):
    fixes = tuple(Fix(type="flag", name=name, old=old, new=new) for name, old, new in made)
    kept = Finding(id="x", severity=Severity.FAILURE, summary="x", fixes=fixes).fixes
    assert not any(same_value(fix.old, fix.new) for fix in kept)
    assert len({(fix.name, fix.new) for fix in kept}) == len(kept)
    lost = [fix for fix in fixes if fix not in kept]
    assert all(
        same_value(fix.old, fix.new)
        or any(fix.name == one.name and (fix.new == one.new or same_value(fix.new, one.new)) for one in kept)
        for fix in lost
    )


def test_every_known_failure_gets_changes_that_change_something(everything):
    assert len(everything) > 15
    for found in everything:
        for finding in found.findings:
            kept = [(fix.type, fix.name, fix.new) for fix in finding.fixes]
            assert len(set(kept)) == len(kept), finding
            assert not [fix for fix in finding.fixes if fix.old is not None and same_value(fix.old, fix.new)]


def runs_as_printed(text: str) -> None:
    """That a shell takes it, that nothing is left to fill in, and that our own program knows its options."""
    assert not BLANK.search(text), text
    assert subprocess.run(["sh", "-n", "-c", text], check=False).returncode == 0, text
    for part in text.split("; "):
        words = shlex.split(part.replace("2>&1 | tee start.log", ""))
        while re.fullmatch(r"[A-Z][A-Z0-9_]*=\S*", words[0]):
            words.pop(0)
        assert words[0].rsplit("/", 1)[-1] in PROGRAMS, text
        if words[:2] == ["bringup", "diagnose"]:
            diagnose_command.make_context("diagnose", words[2:])


STARTS = {
    "a command": "$ vllm serve m/x --port 8000 --max-model-len 8192\n",
    "a path with a space": "$ vllm serve '/my models/x' --port 8000 --max-model-len 8192\n",
    "a container": "$ docker run --gpus all --rm vllm/vllm-openai:v0.11.0 --model m/x --max-model-len 8192\n",
    "a hint how to start it": "Example: sglang serve --model-path <model> [options], vllm serve with x\n",
    "no command": "",
}
ERRORS = (
    "ZeroDivisionError: nobody knows this one",
    "torch.OddError: CUDA error: of a kind that nobody knows",
    "",
)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("start", sorted(STARTS))
def test_an_undecided_finding_names_a_command_that_runs_as_printed(start, error):
    banner = "(EngineCore pid=9) INFO 03-04 05:06:07 [core.py:1] Initializing a V1 LLM engine (v0.11.0)\n"
    found = read(f"{STARTS[start]}{banner}{error}\n").findings[0]
    assert found.severity is Severity.UNKNOWN
    runs_as_printed(found.next_measurement)


def test_every_undecided_case_at_hand_does_so(everything):
    for found in everything:
        for finding in found.findings:
            if finding.severity is Severity.UNKNOWN:
                runs_as_printed(finding.next_measurement)


def commands_of_rules() -> list[str]:
    """Parts of the rules' next measurements that begin with a program's name."""
    found: list[str] = []
    programs = (
        r"(?:nvidia-smi|journalctl|systemctl|systemd-analyze|df|ls|ss|grep|cat|ldconfig|dmesg|lspci|free) "
    )
    for path in (ROOT / "src/bringup/rules").glob("*.py"):
        keywords = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.keyword)]
        told = [one.value for one in keywords if one.arg in ("next_measurement", "then")]
        texts = [one.value for one in told if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        found += [part for text in texts for part in text.split("; ") if re.match(programs, part)]
    return found


@pytest.mark.parametrize("text", sorted(set(commands_of_rules())))
def test_commands_that_rules_name_are_taken_by_a_shell(text):
    assert subprocess.run(["sh", "-n", "-c", text], check=False, capture_output=True).returncode == 0, text
