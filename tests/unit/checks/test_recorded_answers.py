"""Every check, swept: it has its record, says what it is for, and has cases that are well and unwell.

A case is a file, `tests/golden/checks/<check>/<case>.json`: the answers of a real or a broken engine, and the
severity of each finding. What it does not say about the deployment is as in `_USUAL`. `BRINGUP_GOLDEN=write`
renews what is expected; `tools/record_check_cases.py` records more cases.
"""

import importlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from bringup import registry
from bringup.checks import Check, Replies
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Answer, ProgramResult
from bringup.values.finding import Judgement

GOLDEN = Path(__file__).parents[2] / "golden" / "checks"
CASES = sorted(GOLDEN.glob("*/*.json"))
CHECKS = registry.load("bringup.checks", "CHECK")
WRITES = os.environ.get("BRINGUP_GOLDEN") == "write"
_USUAL = {
    "url": "http://127.0.0.1:8000",
    "engine": {"engine": "unknown", "metrics_open": True},
    "model": {"id": "m", "context_tokens": 2048},
    "ability": int(Ability.TINY),
    "depth": int(Depth.DEFAULT),
}


def read_deployment(case: dict) -> Deployment:
    said = {**_USUAL, **case.get("deployment", {})}
    said["engine"] = {**_USUAL["engine"], **said["engine"]}
    if "engine" in case:
        said["engine"]["engine"] = case["engine"]
    if "depth" in case:
        said["depth"] = int(Depth[case["depth"]])
    if "ability" in case:
        said["ability"] = int(Ability[case["ability"]])
    return msgspec.convert(said, Deployment)


def read_answers(said: dict) -> dict[str, Answer]:
    return {key: msgspec.convert({"key": key, **fields}, Answer) for key, fields in said.items()}


def judged(path: Path) -> tuple[dict, Judgement]:
    case = json.loads(path.read_text("utf-8"))
    check = CHECKS[path.parent.name]
    assert isinstance(check, Check)
    replies = Replies(
        answers=read_answers(case["answers"]),
        programs={
            key: msgspec.convert({"key": key, **fields}, ProgramResult)
            for key, fields in case.get("programs", {}).items()
        },
        everyone={name: read_answers(said) for name, said in case.get("everyone", {}).items()},
    )
    return case, check.judge(read_deployment(case), replies)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recorded(make, path):
    case, judgement = judged(path)
    found = make.found(judgement)
    if WRITES:
        text = json.dumps(case | {"expected": found}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    else:
        assert found == case["expected"]


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_has_its_record_and_says_what_it_is_for(name):
    check = CHECKS[name]
    assert isinstance(check, Check)
    assert (importlib.import_module(f"bringup.checks.{name}").__doc__ or "").count(" ") > 3
    assert check.title
    assert check.section in {"function", "resources", "capacity"}
    assert check.phase in {"shared", "exclusive", "hostile", "load", "last", "judge"}
    assert check.asks is not None or check.phase == "judge"


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_has_a_case_that_is_well_and_one_that_is_not(name):
    expected = [
        set(json.loads(path.read_text("utf-8"))["expected"].values())
        for path in (GOLDEN / name).glob("*.json")
    ]
    assert any("ok" in severities for severities in expected), f"no good case in {GOLDEN / name}"
    assert any(severities - {"ok"} for severities in expected), f"no bad case in {GOLDEN / name}"


@pytest.mark.parametrize("name", CHECKS)
def test_what_was_not_answered_is_never_ok(make, name):
    check = CHECKS[name]
    assert isinstance(check, Check)
    nothing = Replies(answers={}, programs={}, everyone={})
    if check.asks is not None and check.asks(make.deployment(), nothing):
        assert "ok" not in make.found(check.judge(make.deployment(), nothing)).values()
