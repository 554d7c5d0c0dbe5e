"""The score of bench/weights_score.py over the reports of real machines, where they are at hand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared/data/memory.jsonl"


def test_nearly_all_reports_come_out():
    if not SHARED.exists():
        pytest.skip(f"reports of real machines are not at {SHARED}")
    done = subprocess.run(
        [sys.executable, ROOT / "bench/weights_score.py", "--worst", "5"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stdout)
    line = done.stdout.splitlines()[-1]
    said = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", line)}
    assert said["n"] >= 60
    assert said["unanswered"] == 0
    assert said["median"] < 0.2  # percent
    assert said["p90"] < 2.5
    assert said["inside"] > 85
