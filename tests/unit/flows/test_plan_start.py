"""What a plan loads: nothing that it does not need."""

import subprocess
import sys
from pathlib import Path

_PLAN = """
import sys
from bringup.flows.plan import PlanRequest, plan
from bringup.report.plan_json import render_plan_json
found = plan(PlanRequest(argv=("vllm", "serve", "Qwen/Qwen3-32B", "-tp", "2"), gpus="2x H100 SXM"))
render_plan_json(found)
assert found.layouts
print(*sys.modules)
"""


def test_a_plan_of_a_model_of_the_catalogue_loads_no_large_library(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[3] / "src")
    environment = {"PYTHONPATH": source, "HF_HUB_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", _PLAN], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "bringup.engines.vllm.memory" in loaded
    heavy = {
        "rich",
        "yaml",
        "httpx",
        "httpx2",
        "requests",
        "huggingface_hub.file_download",
        "packaging.version",
    }
    assert not loaded & heavy
    assert not loaded & {"bringup.parse.redact", "bringup.engines.sglang.memory", "importlib.resources"}
