import pytest

from bringup.values.parsers import as_arguments, reasoning_fixes, tool_fixes


@pytest.mark.parametrize(
    ("model", "vllm", "sglang"),
    [
        ("MiniMaxAI/MiniMax-M2.5", "minimax_m2", "minimax"),
        ("Qwen/Qwen3-8B", "qwen3", "qwen3"),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "qwen3", "qwen3"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3", "qwen3-thinking"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek_r1", "deepseek-r1"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_k2", "kimi_k2"),
        ("openai/gpt-oss-120b", "openai_gptoss", "gpt-oss"),
        ("zai-org/GLM-4.6", "glm45", "glm45"),
    ],
)
def test_reasoning_parser_of_a_family(model, vllm, sglang):
    assert as_arguments(reasoning_fixes("vllm", model)) == f"--reasoning-parser {vllm}"
    assert as_arguments(reasoning_fixes("sglang", model)) == f"--reasoning-parser {sglang}"


@pytest.mark.parametrize(
    ("model", "vllm", "sglang"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder", "qwen3_coder"),
        ("Qwen/Qwen2.5-7B-Instruct", "hermes", "qwen25"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json", "llama3"),
        ("mistralai/Mistral-Small-3.2", "mistral", "mistral"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax_m2", "minimax-m2"),
    ],
)
def test_tool_parser_of_a_family(model, vllm, sglang):
    flags = f"--enable-auto-tool-choice --tool-call-parser {vllm}"
    assert as_arguments(tool_fixes("vllm", model)) == flags
    assert as_arguments(tool_fixes("sglang", model)) == f"--tool-call-parser {sglang}"


def test_an_unknown_family_gets_a_place_to_fill_in_and_an_unknown_engine_nothing():
    assert "<parser of this model family>" in as_arguments(reasoning_fixes("vllm", "acme/new"))
    assert reasoning_fixes("unknown", "Qwen/Qwen3-8B") == ()
    assert tool_fixes("ollama", "Qwen/Qwen3-8B") == ()
