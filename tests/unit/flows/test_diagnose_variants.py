"""A cause does not depend on the machine: every known failure, printed in other ways, has the same answer."""

import json
from collections import Counter
from pathlib import Path

import pytest
from log_variants import VARIANTS

from bringup.flows.diagnose import diagnose, load_rules, sift

SHARED = Path(__file__).parents[4] / "shared" / "data"
RECORDS = SHARED / "failures.jsonl"
RULES = load_rules()
_SIDES = 5  # each record is varied in every fifth way, all ways are seen over all records

pytestmark = pytest.mark.skipif(not RECORDS.is_file(), reason=f"no collection of failures at {RECORDS}")


def _records() -> list[dict]:
    if not RECORDS.is_file():
        return []
    found = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    sure = [one for one in found if one["verbatim"] and not one["cause_open"]]
    return [one for one in sure if one.get("log") or one.get("excerpt_decides") is not False]


def _lines(record: dict) -> list[str]:
    if record.get("log"):
        text = (SHARED / "failure_logs" / record["log"]).read_text(encoding="utf-8", errors="replace")
        return text.rstrip("\n").split("\n")
    lines = [*record["symptom_lines"], *record.get("distractor_lines", [])]
    return [part for line in lines for part in line.split("\n")]


def _answer(lines: list[str]) -> list[str]:
    kept = sift([("\n".join(lines) + "\n").encode()], RULES)
    return [finding.id for finding in diagnose(kept, RULES, source="log").findings]


def test_rules_read_every_case_without_failing():
    failed = [one["id"] for one in _records() if "rule.failed" in _answer(_lines(one))]
    assert not failed


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_answer_does_not_depend_on_how_it_is_printed(name):
    place = sorted(VARIANTS).index(name)
    others = Counter()
    checked = 0
    for number, record in enumerate(_records()):
        if (number + place) % _SIDES:
            continue
        lines = _lines(record)
        wanted, found = _answer(lines)[0], _answer(VARIANTS[name](lines))[0]
        checked += 1
        if wanted != found:
            others[f"{record['id']}: {wanted} became {found}"] += 1
    assert checked > 10
    assert not others, "\n".join(others)
