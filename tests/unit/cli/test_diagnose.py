import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LINE = (
    "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
)
SOURCE = Path(__file__).parents[3] / "src"


def run(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "bringup", "diagnose", *arguments]
    return subprocess.run(argv, input=text, capture_output=True, env=environment, check=False)


def test_json_is_the_contract(tmp_path):
    path = tmp_path / "vllm.log"
    path.write_text(f"some line\n{LINE}\n")
    done = run("--json", str(path))
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert said["schema"] == "bringup/diagnosis/1"
    (finding,) = said["findings"]
    assert list(finding) == [
        "id", "severity", "summary", "evidence", "explanation", "fixes", "next_measurement",
    ]  # fmt: skip
    assert finding["evidence"][0] == {"source": "log", "text": LINE, "line": 2}
    assert finding["fixes"][0]["from"] == "8000"
    assert {"type", "name", "from", "to", "kind", "cost"} == set(finding["fixes"][0])


def test_the_text_has_verdict_line_number_and_change():
    done = run("-", text=f"vllm serve m --port=8000\n{LINE}\n".encode())
    text = done.stdout.decode()
    assert done.returncode == 1
    assert text.startswith("broken")
    assert "log:2:" in text
    assert "--port" in text


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (("-",), b"", 0),
        (("-",), bytes(range(256)) * 4000, 0),
        (("-", "--quiet"), b"x" * 3_000_000, 0),
        (("/",), b"", 2),
        (("/nowhere/a.log",), b"", 2),
        (("a.log", "--unit", "vllm"), b"", 2),
        (("--container", "-x"), b"", 2),
    ],
)
def test_no_input_gives_a_traceback(arguments, text, code):
    done = run(*arguments, text=text)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
