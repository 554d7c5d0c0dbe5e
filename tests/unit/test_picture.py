"""The pictures in README and docs are what the program makes of recordings beside the tests.

`BRINGUP_GOLDEN=write` draws them anew. The demo's recording is renewed by `bringup demo` when the checks ask
for what it does not hold; what names the machine was made anonymous in it. The eight cards are written down
after a public report; the answers are a stand-in's, whose speed says nothing and is left out.
"""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from touchstones import case_a

from bringup.flows.reach import replayed
from bringup.flows.verify import verify
from bringup.report.text import render_svg
from bringup.transport.recording import save
from bringup.values.report import Report

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/golden/recordings/demo.json.gz"
PICTURES = ROOT / "docs/images"


def report_of(recording: Path) -> Report:
    request, world = replayed(recording)
    return asyncio.run(verify(request, world)).report


def hold(name: str, drawn: str) -> None:
    """The picture is as drawn; with `BRINGUP_GOLDEN=write` it becomes so."""
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / name).write_text(drawn, encoding="utf-8")
    assert (PICTURES / name).read_text(encoding="utf-8") == drawn


def test_the_picture_of_the_demo_is_up_to_date() -> None:
    report = report_of(RECORDING)
    missing = [finding.id for finding in report.findings if "not in the recording" in str(finding)]
    assert not missing, f"the recording is older than these checks: {missing}"
    hold("verdict.svg", render_svg(replace(report, tables=()), title="bringup demo", is_brief=True))


def test_the_picture_of_eight_gpus_is_up_to_date(tmp_path: Path) -> None:
    recording = case_a()
    options = {**recording.options, "skip": ["speed", "vision"]}
    save(tmp_path / "case.json.gz", replace(recording, options=options))
    report = report_of(tmp_path / "case.json.gz")
    hold("memory.svg", render_svg(replace(report, tables=()), title="bringup verify :8000 --host gpubox"))
