"""Known bugs: told when all that they depend on was seen, and never on a guess."""

import re
from dataclasses import replace

import pytest

from bringup.checks.versions import CHECK
from bringup.engines.llama_cpp.flags import read_command as read_llama_cpp
from bringup.engines.sglang.flags import read_command as read_sglang
from bringup.engines.vllm.flags import read_command as read_vllm
from bringup.transport.catalogue import load_known_bugs
from bringup.values.engine import EngineStatus
from bringup.values.host import EngineProcess, Gpu, GpuProcess, HostSnapshot
from bringup.values.known_bug import KnownBug

BUGS = load_known_bugs()
ANY = KnownBug(
    id="any", engine="vllm", summary="s", explanation="e", action="do", sources=("example/engine#1",)
)


def judge(make, *bugs, version="0.10.0", spec=None, gpus=0, card="RTX", capability=None, **process):
    cards = tuple(
        Gpu(index=number, uuid=f"GPU-{number}", name=card, compute_capability=capability)
        for number in range(gpus)
    )
    host = HostSnapshot(
        taken_at=0.0,
        host="box",
        gpus=cards,
        processes=tuple(GpuProcess(pid=812, gpu_uuid=one.uuid) for one in cards),
        engines=(EngineProcess(pid=812, port=8000, **process),),
    )
    engine = EngineStatus(engine=bugs[0].engine, display_name="vLLM", version=version)
    under_test = replace(make.deployment(), engine=engine, host=host, spec=spec, known_bugs=bugs)
    return make.judge(CHECK, under_test)


def applies(make, bug, **seen):
    return f"versions.{bug.id}" in make.found(judge(make, bug, **seen))


@pytest.mark.parametrize(
    ("bounds", "version", "expected"),
    [
        ({}, None, True),
        ({"fixed_in": "0.13.0"}, "0.12.1", True),
        ({"fixed_in": "0.13.0"}, "0.13.0rc2", True),
        ({"fixed_in": "0.13.0"}, "0.13.0", False),
        ({"fixed_in": "0.13.0"}, "0.13.0+cu129", False),
        ({"fixed_in": "0.13.0"}, None, False),
        ({"first": "0.9.1", "last": "0.9.1"}, "0.9.1", True),
        ({"first": "0.9.1", "last": "0.9.1"}, "0.9.2", False),
        ({"first": "0.9.1"}, "0.9.0", False),
        ({"last": "0.4.4"}, "0.10.0", False),
        ({"last": "0.4.4"}, "unknown", False),
    ],
)
def test_versions_count_as_numbers(make, bounds, version, expected):
    assert applies(make, replace(ANY, **bounds), version=version) is expected


@pytest.mark.parametrize(
    ("condition", "seen", "expected"),
    [
        ({"capabilities": ("12.0",)}, {"gpus": 1, "capability": "12.0"}, True),
        ({"capabilities": ("12",)}, {"gpus": 1, "capability": "12.1"}, True),
        ({"capabilities": ("12.0",)}, {"gpus": 1, "capability": "9.0"}, False),
        ({"capabilities": ("12.0",)}, {"gpus": 1}, False),
        ({"gpu_names": ("H200",)}, {"gpus": 8, "card": "NVIDIA H200"}, True),
        ({"gpu_names": ("H200",)}, {"gpus": 8, "card": "NVIDIA H100"}, False),
        ({"gpu_count_min": 2}, {"gpus": 2}, True),
        ({"gpu_count_min": 2}, {"gpus": 1}, False),
        ({"without_gpu": True}, {"gpus": 0}, True),
        ({"without_gpu": True}, {"gpus": 1}, False),
        ({"models": ("gguf",)}, {}, False),
        ({"models": ("M",)}, {}, True),
        ({"environment": (("A", ()),)}, {"environment": {"A": "0"}}, True),
        ({"environment": (("A", ("1",)),)}, {"environment": {"A": "0"}}, False),
        ({"environment_absent": ("A",)}, {"environment": {"A": "0"}}, False),
        ({"environment_absent": ("A",)}, {"environment": {}}, True),
    ],
)
def test_conditions(make, condition, seen, expected):
    assert applies(make, replace(ANY, **condition), **seen) is expected


def test_flags_that_were_not_seen_match_nothing(make):
    for bug in (replace(ANY, flags=(("--dtype", ()),)), replace(ANY, flags_absent=("--dtype",))):
        assert make.found(judge(make, bug, spec=None)) == {}


def test_the_finding_names_fix_source_and_what_was_seen(make):
    bug = replace(ANY, fixed_in="0.13.0", flags=(("--dtype", ("half",)),), is_serious=True)
    spec = read_vllm(("vllm", "serve", "m", "--dtype", "half"))
    (finding,) = judge(make, bug, spec=spec).findings
    assert finding.severity == "warning"
    assert "version 0.13.0 has the fix" in finding.action
    assert finding.evidence[0].source == "example/engine#1"
    assert "0.10.0" in finding.evidence[0].text
    assert "--dtype half" in finding.evidence[0].text


# One command and version for each bug of the data file that must bring it up.
MET = {
    "vllm_forced_tool_call": ("vllm serve m", "0.12.0", {}),
    "vllm_parser_needs_auto": ("vllm serve m --tool-call-parser hermes", "0.28.0", {}),
    "vllm_gemma4_forced_tool_call": ("vllm serve m --tool-call-parser gemma4", "0.26.0", {}),
    "vllm_qwen3_forced_tool_call": ("vllm serve m --tool-call-parser qwen3_coder", "0.28.0", {}),
    "vllm_gguf_ranks": ("vllm serve /models/m.gguf -tp 4", "0.17.0", {}),
    "vllm_awq_ranks": ("vllm serve m --quantization awq -tp 2", "0.7.3", {}),
    "vllm_gptq_eight_ranks": ("vllm serve org/Qwen3-235B-A22B-GPTQ-Int4 -q gptq_marlin -tp 8", "0.9.1", {}),
    "vllm_qwen25_half": ("vllm serve Qwen/Qwen2.5-7B-Instruct --dtype half", "0.7.3", {}),
    "vllm_nvfp4_unaligned": ("vllm serve m-NVFP4 -tp 8", "0.25.1", {"gpus": 8, "capability": "12.0"}),
    "vllm_grouped_fp4": (
        "vllm serve m-NVFP4 --moe-backend flashinfer_cutlass",
        "0.17.0",
        {"gpus": 1, "capability": "12.0"},
    ),
    "vllm_mxfp4_bf16": (
        "vllm serve openai/gpt-oss-20b",
        "0.20.2",
        {"gpus": 1, "capability": "9.0", "environment": {"VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": "1"}},
    ),
    "vllm_cpu_expert_ranks": ("vllm serve m --enable-expert-parallel -tp 2", "0.32.0", {}),
    "sglang_reasoning_unclosed": (
        "python -m sglang.launch_server --model-path m --reasoning-parser deepseek-r1",
        "0.4.4",
        {},
    ),
    "sglang_idle_hang": (
        "python -m sglang.launch_server --model-path m --tp 8",
        "0.4.3",
        {"gpus": 8, "card": "NVIDIA H200"},
    ),
    "sglang_draft_twice": (
        "python -m sglang.launch_server --model-path m --speculative-algorithm NEXTN",
        "0.5.5",
        {},
    ),
    "sglang_fp4_race": (
        "python -m sglang.launch_server --model-path m --fp4-gemm-backend flashinfer_cutlass",
        "0.5.9",
        {"gpus": 1, "capability": "12.0"},
    ),
    "llama_cpp_row_split": ("llama-server -m m.gguf -sm row", "b6000-1a2b3c", {"gpus": 2}),
    "llama_cpp_p2p_switch": (
        "llama-server -m m.gguf",
        "b9000-1a2b3c",
        {"gpus": 2, "environment": {"GGML_CUDA_P2P": "0"}},
    ),
}
READERS = {"vllm": read_vllm, "sglang": read_sglang, "llama_cpp": read_llama_cpp}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_every_bug_of_the_file_is_found_on_a_real_command(make, bug):
    command, version, seen = MET[bug.id]
    spec = READERS[bug.engine](tuple(command.split()))
    assert applies(make, bug, version=version, spec=spec, **seen)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_no_bug_of_the_file_fires_on_a_plain_new_engine(make, bug):
    plain = {
        "vllm": "vllm serve org/model",
        "sglang": "python -m sglang.launch_server --model-path org/model",
        "llama_cpp": "llama-server -m m.gguf",
    }[bug.engine]
    spec = READERS[bug.engine](tuple(plain.split()))
    assert not applies(make, bug, version="0.99.0", spec=spec, gpus=1, capability="9.0")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_every_bug_of_the_file_has_a_source_and_short_words(bug):
    assert bug.summary
    assert bug.explanation
    assert bug.action
    assert len(bug.summary) <= 90
    assert bug.sources
    assert all(re.search(r"#\d+$|\S+ \S+ \S+", source) for source in bug.sources)
    conditions = (bug.first, bug.last, bug.fixed_in, bug.flags, bug.flags_absent, bug.environment, bug.models)
    assert any(conditions)


def test_the_names_are_unique():
    assert len({bug.id for bug in BUGS}) == len(BUGS)


def test_that_no_known_bug_is_met_is_said_where_all_was_seen(make):
    bug = replace(ANY, fixed_in="0.9.0")
    assert make.found(judge(make, bug, spec=read_vllm(("vllm", "serve", "m")))) == {"versions": "ok"}
    assert make.found(judge(make, bug, spec=None)) == {}
    assert make.found(judge(make, bug, spec=read_vllm(("vllm", "serve", "m")), version=None)) == {}
