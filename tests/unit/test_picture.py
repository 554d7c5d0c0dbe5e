"""The README's picture is what the program makes of the recording beside the tests, and nothing else.

`BRINGUP_GOLDEN=write` draws it anew. The recording is renewed by `bringup demo` when the checks ask for what
it does not hold; what names the machine was made anonymous in it.
"""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from bringup.flows.reach import replayed
from bringup.flows.verify import verify
from bringup.report.text import render_svg

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/golden/recordings/demo.json.gz"
PICTURE = ROOT / "docs/images/verdict.svg"


def test_the_picture_is_up_to_date():
    request, world = replayed(RECORDING)
    report = asyncio.run(verify(request, world)).report
    missing = [finding.id for finding in report.findings if "not in the recording" in str(finding)]
    assert not missing, f"the recording is older than these checks: {missing}"
    tables = tuple(replace(table, is_detail=False) for table in report.tables[:2])
    drawn = render_svg(replace(report, tables=tables), title="bringup demo", is_brief=True)
    if os.environ.get("BRINGUP_GOLDEN") == "write":
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(drawn, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == drawn
