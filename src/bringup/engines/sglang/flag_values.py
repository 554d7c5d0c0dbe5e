"""What SGLang takes after the flags that decide memory. Source: SGLang 0.5.23 `server_args.py`."""

from collections.abc import Mapping

from bringup.parse.flag_values import AMOUNT, COUNT, JSON, NUMBER, WHOLE, Want

WANTS: Mapping[str, Want] = {
    "--tensor-parallel-size": COUNT,
    "--pipeline-parallel-size": COUNT,
    "--data-parallel-size": COUNT,
    "--expert-parallel-size": COUNT,
    "--nnodes": COUNT,
    "--context-length": COUNT,
    "--max-running-requests": COUNT,
    "--max-total-tokens": COUNT,
    "--max-prefill-tokens": COUNT,
    "--chunked-prefill-size": WHOLE,  # -1: off
    "--page-size": COUNT,
    "--mem-fraction-static": NUMBER,
    "--cuda-graph-max-bs-decode": COUNT,
    "--cuda-graph-max-bs-prefill": COUNT,
    "--max-mamba-cache-size": COUNT,
    "--mamba-full-memory-ratio": AMOUNT,
    "--swa-full-tokens-ratio": AMOUNT,
    "--cpu-offload-gb": AMOUNT,
    "--offload-group-size": WHOLE,
    "--max-lora-rank": COUNT,
    "--max-loras-per-batch": COUNT,
    "--speculative-num-steps": COUNT,
    "--speculative-num-draft-tokens": COUNT,
    "--json-model-override-args": JSON,
}
