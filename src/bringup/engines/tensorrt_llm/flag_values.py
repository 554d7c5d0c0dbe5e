"""What trtllm-serve takes after the flags that decide memory.

Source: TensorRT-LLM 1.2, `commands/serve.py`.
"""

from collections.abc import Mapping

from bringup.parse.flag_values import COUNT, NUMBER, Want

WANTS: Mapping[str, Want] = {
    "--tp_size": COUNT,
    "--pp_size": COUNT,
    "--ep_size": COUNT,
    "--max_batch_size": COUNT,
    "--max_num_tokens": COUNT,
    "--max_seq_len": COUNT,
    "--max_beam_width": COUNT,
    "--kv_cache_free_gpu_memory_fraction": NUMBER,
}
