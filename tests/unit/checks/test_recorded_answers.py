"""Answers of real engines, recorded: what each check says about them. A case is a file."""

import json
from pathlib import Path

import pytest

from bringup import registry
from bringup.checks import Check
from bringup.values.deployment import Ability, Depth
from bringup.values.exchange import Answer, Problem

GOLDEN = Path(__file__).parents[2] / "golden" / "checks"
CASES = sorted(path for path in GOLDEN.glob("*/*.json") if "answers" in json.loads(path.read_text()))
CHECKS = registry.load("bringup.checks", "CHECK")


def read_answer(key, said):
    problem = said.get("problem")
    return Answer(
        key=key,
        status=said["status"],
        headers=tuple((name, value) for name, value in said["headers"]),
        body=said["body"],
        problem=Problem(problem) if problem else None,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recorded(make, path):
    case = json.loads(path.read_text())
    check = CHECKS[path.parent.name]
    assert isinstance(check, Check)
    under_test = make.deployment(
        engine=case["engine"], ability=Ability.TINY, depth=Depth[case.get("depth", "DEFAULT")]
    )
    answers = [read_answer(key, said) for key, said in case["answers"].items()]
    assert make.found(make.judge(check, under_test, *answers)) == case["expected"]


def test_there_are_cases():
    assert len(CASES) >= 20
