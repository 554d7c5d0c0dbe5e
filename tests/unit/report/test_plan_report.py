"""What a plan looks like: the JSON that is promised, the text that people read."""

import json

from small_model import LONG

from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.memory import plan_task
from bringup.parse.hf_config import read_config
from bringup.report.plan import build_plan_report
from bringup.report.plan_json import render_plan_json
from bringup.report.text import render_text
from bringup.units import MIB
from bringup.values.engine import EngineSpec
from bringup.values.plan import Card, Gpus, Plan, PlanTask

MODEL = read_config(
    LONG,
    name="org/small",
    source="test",
)
CARD = Card(
    name="NVIDIA GeForce RTX 4090", memory_total=24564 * MIB, cuda_total=24218 * MIB, reserved=346 * MIB
)


def planned(line: str | None, *, count: int = 4) -> Plan:
    spec = read_command(line.split()) if line else EngineSpec(engine="vllm", model="org/small")
    assert spec is not None
    return plan_task(PlanTask(spec=spec, version="0.32.0", model=MODEL, gpus=Gpus(card=CARD, count=count)))


def test_the_json_has_what_is_promised() -> None:
    plan = planned("vllm serve org/small --tensor-parallel-size 2")
    body = json.loads(render_plan_json(plan))
    assert (body["schema"], body["fits"]) == ("bringup/plan/1", True)
    [layout] = body["layouts"]
    promised = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "expert_parallel": False,
    }
    assert promised.items() <= layout.items()
    assert layout["command"] == ["vllm", "serve", "org/small", "--tensor-parallel-size", "2"]
    assert layout["weights_bytes_per_gpu"] > 0
    assert layout["kv_cache"]["bytes_per_token_per_gpu"] == 2 * 16 * 4 * 64 * 2
    assert (
        layout["kv_cache"]["low_tokens"] <= layout["kv_cache"]["tokens"] <= layout["kv_cache"]["high_tokens"]
    )
    assert {"available_bytes_per_gpu", "max_concurrency"} <= layout["kv_cache"].keys()
    assert layout["smi_used_bytes_per_gpu"]["low"] < layout["smi_used_bytes_per_gpu"]["high"]
    assert sum(line["bytes"] for line in layout["ledger"]) == 24564 * MIB
    assert all(
        line.keys() == {"name", "bytes", "low", "high", "origin", "formula"} for line in layout["ledger"]
    )
    assert all({"id", "severity", "summary", "fixes"} <= finding.keys() for finding in layout["findings"])


def test_the_json_is_complete_where_nothing_fits() -> None:
    body = json.loads(render_plan_json(planned("vllm serve org/small --gpu-memory-utilization 0.05")))
    assert body["fits"] is False
    layout = body["layouts"][0]
    assert (layout["kv_cache"]["tokens"], layout["kv_cache"]["low_tokens"]) == (0, 0)
    assert layout["ledger"][-1]["name"] == "free"


def test_the_text_says_verdict_tokens_and_ledger() -> None:
    report = build_plan_report(planned("vllm serve org/small"), explain=False, tool_version="1")
    text = render_text(report, width=100, color=False)
    assert text.startswith("fits   org/small on vLLM 0.32.0, TP1 on 1 of 4 x NVIDIA GeForce RTX 4090")
    assert "nvidia-smi will show" in text
    assert "24,564" in text  # the sum of the ledger
    assert "formula" not in text


def test_explain_shows_every_line_with_its_numbers() -> None:
    report = build_plan_report(planned("vllm serve org/small"), explain=True, tool_version="1")
    text = " ".join(render_text(report, width=160, color=False).split())
    # 2 x 16 layers x 8 heads x 64 x 2 B x 16 tokens a block
    assert "524,288 B for 16 tokens" in text
    assert "sampler: 256 requests x 128,256 logits x 11 B" in text or "forward: 2,048 tokens" in text


def test_the_text_of_a_choice_lists_layouts_and_why_others_do_not_do() -> None:
    report = build_plan_report(planned(None, count=3), explain=False, tool_version="1")
    text = " ".join(render_text(report, width=120, color=False).split())
    assert "Layouts that fit, best first" in text
    assert "TP3" in text
    assert "32 query heads do not divide by 3 ranks" in text
    assert "$ vllm serve org/small" in text


def test_the_text_says_when_it_does_not_fit() -> None:
    plan = planned("vllm serve org/small --gpu-memory-utilization 0.05")
    report = build_plan_report(plan, explain=False, tool_version="1")
    assert (report.verdict, report.exit_code) == ("does not fit", 6)
    assert "nvidia-smi" not in report.paragraph


def test_the_command_is_printed_so_that_a_shell_takes_it() -> None:
    spec = read_command(["vllm", "serve", "org/small", "--speculative-config", '{"method": "ngram"}'])
    assert spec is not None
    plan = plan_task(PlanTask(spec=spec, version="0.32.0", model=MODEL, gpus=Gpus(card=CARD, count=1)))
    report = build_plan_report(plan, explain=False, tool_version="1")
    assert """--speculative-config '{"method": "ngram"}'""" in report.paragraph


def test_what_does_not_fit_names_the_flag_and_the_largest_that_fits() -> None:
    plan = planned("vllm serve org/small --kv-cache-memory-bytes 1G")
    text = render_text(build_plan_report(plan, explain=False, tool_version="0"), width=100, color=False)
    # 1 GiB / (2 x 16 layers x 8 heads x 64 x 2 B) = 32,768 tokens, less the empty block
    assert "do: --max-model-len 32752 (now 131072): shorter requests" in text
