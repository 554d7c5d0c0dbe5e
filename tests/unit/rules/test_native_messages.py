"""Messages from below and beside Python: driver, loader, compilers, NCCL, kernel, container, unit, GGUF.

Every row is a message in the words of its source, with numbers and paths of our own. Rows without a kind are
lines that name no cause.
"""

import json
import random
from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Severity

_TABLE = Path(__file__).parents[2] / "golden" / "rules" / "native_messages.jsonl"
ROWS = [json.loads(row) for row in _TABLE.read_text().splitlines()]
TOLD = [(row["kind"], "\n".join(row["lines"]), row["fix"]) for row in ROWS if row["kind"]]
UNTOLD = ["\n".join(row["lines"]) for row in ROWS if not row["kind"]]
PREFIXES = (
    "Nov 12 10:00:01 gpu7 engine[4711]: ",
    "2026-03-01T10:00:01.123456789Z stderr F ",
    "engine-1  | ",
)


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return load_rules()


def _read(text: str, rules: dict[str, Rule]) -> Diagnosis:
    return diagnose(sift([text.encode()], rules), rules, source="test")


@pytest.mark.parametrize(
    ("kind", "text", "fix"), TOLD, ids=[f"{kind}-{place}" for place, (kind, _, _) in enumerate(TOLD)]
)
def test_a_message_is_named_first_with_its_cure(
    kind: str, text: str, fix: list[str] | None, rules: dict[str, Rule]
) -> None:
    first = _read(text + "\n", rules).findings[0]
    assert first.id == kind
    if fix is not None:
        assert tuple(fix) in {(one.type, one.name) for one in first.fixes}


@pytest.mark.parametrize("text", UNTOLD)
def test_a_line_that_names_no_cause_is_not_blamed(text: str, rules: dict[str, Rule]) -> None:
    first = _read(text + "\n", rules).findings[0]
    assert first.severity in (Severity.UNKNOWN, Severity.NOTE, Severity.OK)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_collectors_change_nothing(prefix: str, rules: dict[str, Rule]) -> None:
    for kind, text, _ in random.Random(prefix).sample(TOLD, 40):
        lines = "\n".join(prefix + line for line in text.split("\n")) + "\n"
        assert _read(lines, rules).findings[0].id == kind, lines
