"""The flags of every engine whose command line is known, for who has to find the one that was meant."""

from functools import cache

from bringup.engines.llama_cpp import flag_names as llama_cpp
from bringup.engines.sglang import flag_names as sglang
from bringup.engines.tensorrt_llm import flag_names as tensorrt_llm
from bringup.engines.vllm import flag_names as vllm


@cache
def known_flags() -> dict[str, frozenset[str]]:
    """Flags by engine, of all releases that were read."""
    return {
        "vllm": frozenset(vllm.FLAGS),
        "sglang": frozenset(sglang.KNOWN),
        "llama_cpp": frozenset(llama_cpp.KNOWN),
        "tensorrt_llm": frozenset(tensorrt_llm.KNOWN),
    }
