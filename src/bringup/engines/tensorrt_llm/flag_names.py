"""The flags of `trtllm-serve serve`, by what stands after them.

Source: TensorRT-LLM 1.2, `commands/serve.py`.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


# Every other spelling, and the one that is used here.
ALIASES = {
    "--tensor_parallel_size": "--tp_size",
    "--pipeline_parallel_size": "--pp_size",
    "--context_parallel_size": "--cp_size",
    "--moe_expert_parallel_size": "--ep_size",
    "--moe_cluster_parallel_size": "--cluster_size",
    "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    "--extra_llm_api_options": "--config",
}

SWITCHES = _names("trust_remote_code fail_fast_on_attention_window_too_large enable_chunked_prefill help")

VALUES = _names("""
backend chat_template cluster_size config cp_size custom_module_dirs custom_tokenizer disagg_cluster_uri
ep_size gpus_per_node host kv_cache_free_gpu_memory_fraction kv_cache_dtype log_level max_batch_size
max_beam_width max_num_tokens max_seq_len media_io_kwargs metadata_server_config_file
num_postprocess_workers otlp_traces_endpoint port pp_size reasoning_parser revision server_role
served_model_name tokenizer tool_parser tp_size
""")

KNOWN = SWITCHES | VALUES

# Keys of the file behind `--config` that decide memory, and the flags they stand for.
# Source: TensorRT-LLM 1.2, `llmapi/llm_args.py`.
SETTINGS = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "context_parallel_size": "--cp_size",
    "moe_expert_parallel_size": "--ep_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
    "max_seq_len": "--max_seq_len",
    "max_beam_width": "--max_beam_width",
    "enable_chunked_prefill": "--enable_chunked_prefill",
    "backend": "--backend",
}
