"""Which reasoning parser and tool-call parser of an engine belongs to which family of models.

Source: vLLM's `vllm/reasoning/__init__.py` and `vllm/tool_parsers/__init__.py`, SGLang's
`srt/parser/reasoning_parser.py` and `srt/function_call/function_call_parser.py`, read 2026-11-30.
"""

import re
from dataclasses import dataclass

from bringup.values.finding import Fix

_PLACEHOLDER = "<parser of this model family>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Parser names of one model family; empty where the engine has none or none is needed."""

    name: str  # regular expression over the model id, lower case; the first family that matches counts
    vllm_reasoning: str = ""
    sglang_reasoning: str = ""
    vllm_tools: str = ""
    sglang_tools: str = ""


def _family(name: str, vllm: tuple[str, str], sglang: tuple[str, str]) -> _Family:
    """One row: (reasoning, tools) of vLLM and of SGLang."""
    return _Family(
        name=name,
        vllm_reasoning=vllm[0],
        vllm_tools=vllm[1],
        sglang_reasoning=sglang[0],
        sglang_tools=sglang[1],
    )


_FAMILIES = (
    _family(r"qwen-?3.*coder", ("", "qwen3_coder"), ("", "qwen3_coder")),
    _family(r"qwen-?3\.[5-9]", ("qwen3", "qwen3_coder"), ("qwen3", "qwen3_coder")),
    _family(r"qwen-?3.*thinking", ("qwen3", "hermes"), ("qwen3-thinking", "qwen25")),
    _family(r"qwen-?3|qwq", ("qwen3", "hermes"), ("qwen3", "qwen25")),
    _family(r"qwen", ("", "hermes"), ("", "qwen25")),
    _family(r"minimax-?m2", ("minimax_m2", "minimax_m2"), ("minimax", "minimax-m2")),
    _family(r"minimax-?m3", ("minimax_m3", "minimax_m3"), ("minimax-m3", "minimax-m3")),
    _family(r"deepseek-?r1", ("deepseek_r1", "deepseek_v3"), ("deepseek-r1", "deepseekv3")),
    _family(r"deepseek-?v4", ("deepseek_v4", "deepseek_v4"), ("deepseek-v4", "deepseekv4")),
    _family(r"deepseek-?v3\.2", ("deepseek_v3", "deepseek_v32"), ("deepseek-v3", "deepseekv32")),
    _family(r"deepseek-?v3\.1", ("deepseek_v3", "deepseek_v31"), ("deepseek-v3", "deepseekv31")),
    _family(r"deepseek-?v3", ("", "deepseek_v3"), ("", "deepseekv3")),
    _family(r"glm-?4\.7|glm-?5", ("glm47", "glm47"), ("glm45", "glm47")),
    _family(r"glm-?4\.[56]", ("glm45", "glm45"), ("glm45", "glm45")),
    _family(r"kimi-?k3", ("kimi_k3", "kimi_k3"), ("kimi_k3", "kimi_k3")),
    _family(r"kimi-?k2", ("kimi_k2", "kimi_k2"), ("kimi_k2", "kimi_k2")),
    _family(r"gpt-?oss", ("openai_gptoss", "openai"), ("gpt-oss", "gpt-oss")),
    _family(r"step-?3\.5", ("step3p5", "step3p5"), ("step3p5", "step3p5")),
    _family(r"step-?3", ("step3", "step3"), ("step3", "step3")),
    _family(r"gemma-?4", ("gemma4", "gemma4"), ("gemma4", "gemma4")),
    _family(r"nemotron-?3|nemotron.*v3", ("nemotron_v3", "qwen3_coder"), ("nemotron_3", "qwen3_coder")),
    _family(r"mimo", ("mimo", "mimo"), ("mimo", "mimo")),
    _family(r"magistral|mistral|devstral|ministral", ("mistral", "mistral"), ("mistral", "mistral")),
    _family(r"llama-?4", ("", "llama4_pythonic"), ("", "pythonic")),
    _family(r"llama-?3", ("", "llama3_json"), ("", "llama3")),
    _family(r"seed-?oss", ("seed_oss", "seed_oss"), ("", "")),
    _family(r"olmo-?3", ("olmo3", "olmo3"), ("", "")),
    _family(r"granite", ("granite", "granite"), ("", "")),
    _family(r"hermes", ("", "hermes"), ("", "hermes")),
)


def reasoning_fixes(engine: str, model: str) -> tuple[Fix, ...]:
    """The setting that makes `engine` take the reasoning trace out of the answer.

    >>> [f"{fix.name} {fix.new}" for fix in reasoning_fixes("vllm", "MiniMaxAI/MiniMax-M2.5")]
    ['--reasoning-parser minimax_m2']
    """
    family = _find(model)
    match engine:
        case "vllm":
            return (_flag("--reasoning-parser", family.vllm_reasoning),)
        case "sglang":
            return (_flag("--reasoning-parser", family.sglang_reasoning),)
        case "llama_cpp":
            return (_flag("--reasoning-format", "deepseek"),)
        case "tensorrt_llm":
            return (_flag("--reasoning_parser", family.sglang_reasoning),)
        case "lmdeploy":
            return (_flag("--reasoning-parser", _PLACEHOLDER),)
        case _:
            return ()


def tool_fixes(engine: str, model: str) -> tuple[Fix, ...]:
    """The settings that make `engine` turn what the model writes into tool calls.

    >>> [f"{fix.name} {fix.new or ''}".strip() for fix in tool_fixes("vllm", "Qwen/Qwen3-8B")]
    ['--enable-auto-tool-choice', '--tool-call-parser hermes']
    """
    family = _find(model)
    match engine:
        case "vllm":
            return (
                Fix(type="flag", name="--enable-auto-tool-choice", new=""),
                _flag("--tool-call-parser", family.vllm_tools),
            )
        case "sglang":
            return (_flag("--tool-call-parser", family.sglang_tools),)
        case "llama_cpp":
            return (Fix(type="flag", name="--jinja", new=""),)
        case "tensorrt_llm":
            return (_flag("--tool_parser", _PLACEHOLDER),)
        case "lmdeploy":
            return (_flag("--tool-call-parser", _PLACEHOLDER),)
        case _:
            return ()


def as_arguments(fixes: tuple[Fix, ...]) -> str:
    """Fixes as one types them, for a sentence; empty when there are none."""
    return " ".join(f"{fix.name} {fix.new}".strip() if fix.new else fix.name for fix in fixes)


def _find(model: str) -> _Family:
    name = model.lower()
    return next((family for family in _FAMILIES if re.search(family.name, name)), _Family(name=""))


def _flag(name: str, value: str) -> Fix:
    return Fix(type="flag", name=name, new=value or _PLACEHOLDER)
