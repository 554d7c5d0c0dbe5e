"""`tools/check_units.py` finds every way of spelling a binary size, and no other number."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "check_units.py"


def check(file, text):
    file.write_text(text)
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "text",
    [
        "size = 8 * 1024**3",
        "size = 1024 * 8",
        "size = 1 << 20",
        "size = count << 30",
        "size = 2**30",
        "size = 1048576",
        "shown = size / 1024",
        "shown = size // 1024",
        "def read(limit=64 * 1024): ...",
    ],
)
def test_a_size_is_found(tmp_path, text):
    done = check(tmp_path / "module.py", f"x = 1\n{text}\n")
    assert done.returncode == 1, done.stdout
    assert "module.py:2: write this size with KIB" in done.stdout


@pytest.mark.parametrize(
    "text",
    ["tokens = 1024", "steps = 2**8", "flag = 1 << 3", "size = 8 * GIB", "product = 7 * 13", "x = 'a' * 3"],
)
def test_other_numbers_are_left_alone(tmp_path, text):
    done = check(tmp_path / "module.py", f"{text}\n")
    assert done.returncode == 0, done.stdout


def test_units_itself_may(tmp_path):
    assert check(tmp_path / "units.py", "KIB = 1024\nMIB = 1024 * KIB\n").returncode == 0
