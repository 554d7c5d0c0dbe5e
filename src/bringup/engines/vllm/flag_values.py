"""What vLLM takes after the flags that decide memory.

Source: vLLM 0.32.0 `engine/arg_utils.py` (which integers may be written as 32k), `config/cache.py`,
`config/parallel.py` and `config/offload.py` (which may be 0).
"""

from collections.abc import Mapping

from bringup.engines.vllm.flags import count
from bringup.parse.flag_values import AMOUNT, COUNT, JSON, NUMBER, WHOLE, Want, either, one_of

_TOKENS = Want("a number of tokens, like 32768 or 32k", lambda text: count(text) is not None)
_BYTES = Want("a number of bytes, like 10G", lambda text: count(text) is not None)
# `image=2` was the spelling up to 0.9.
_LIMITS = Want("JSON", lambda text: "=" in text or JSON.accepts(text))

WANTS: Mapping[str, Want] = {
    "--tensor-parallel-size": COUNT,
    "--pipeline-parallel-size": COUNT,
    "--data-parallel-size": COUNT,
    "--decode-context-parallel-size": COUNT,
    "--nnodes": COUNT,
    "--max-model-len": either(_TOKENS, one_of("auto", "-1")),
    "--max-num-batched-tokens": _TOKENS,
    "--max-num-seqs": COUNT,
    "--block-size": COUNT,
    "--num-gpu-blocks-override": COUNT,
    "--gpu-memory-utilization": NUMBER,
    "--kv-cache-memory-bytes": _BYTES,
    "--cpu-offload-gb": AMOUNT,
    "--offload-group-size": WHOLE,
    "--offload-num-in-group": COUNT,
    "--offload-prefetch-step": WHOLE,
    "--max-loras": COUNT,
    "--max-lora-rank": COUNT,
    "--dtype": one_of("auto", "half", "float16", "bfloat16", "float", "float32"),
    "--compilation-config": JSON,
    "--speculative-config": JSON,
    "--hf-overrides": JSON,
    "--limit-mm-per-prompt": _LIMITS,
}
