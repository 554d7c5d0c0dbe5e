"""What each engine calls a setting, and how its present value is read from a case."""

import re

from bringup.values.case import Case

# Our name -> engine -> its flag. Source: the argument parsers of vLLM 0.8.5 to 0.33.0, SGLang 0.4.0 to
# 0.5.23, llama.cpp b3985 to b11434 and TensorRT-LLM 0.20 to 1.2 (`trtllm-serve`).
_FLAGS: dict[str, dict[str, str]] = {
    "tensor_parallel": {
        "vllm": "--tensor-parallel-size",
        "sglang": "--tp-size",
        "tensorrt_llm": "--tp_size",
        "tgi": "--num-shard",
        "lmdeploy": "--tp",
        "llama_cpp": "--tensor-split",
    },
    "pipeline_parallel": {
        "vllm": "--pipeline-parallel-size",
        "sglang": "--pp-size",
        "tensorrt_llm": "--pp_size",
    },
    "expert_parallel": {
        "vllm": "--enable-expert-parallel",
        "sglang": "--ep-size",
        "tensorrt_llm": "--ep_size",
    },
    "memory_share": {
        "vllm": "--gpu-memory-utilization",
        "sglang": "--mem-fraction-static",
        "tensorrt_llm": "--kv_cache_free_gpu_memory_fraction",
        "tgi": "--cuda-memory-fraction",
        "lmdeploy": "--cache-max-entry-count",
    },
    "running": {
        "vllm": "--max-num-seqs",
        "sglang": "--max-running-requests",
        "tensorrt_llm": "--max_batch_size",
        "llama_cpp": "--parallel",
        "lmdeploy": "--max-batch-size",
    },
    "step_tokens": {
        "vllm": "--max-num-batched-tokens",
        "sglang": "--chunked-prefill-size",
        "tensorrt_llm": "--max_num_tokens",
        "llama_cpp": "--ubatch-size",
        "tgi": "--max-batch-prefill-tokens",
    },
    "context": {
        "vllm": "--max-model-len",
        "sglang": "--context-length",
        "tensorrt_llm": "--max_seq_len",
        "llama_cpp": "--ctx-size",
        "tgi": "--max-total-tokens",
        "lmdeploy": "--session-len",
    },
    "graphs": {"vllm": "--max-cudagraph-capture-size", "sglang": "--cuda-graph-max-bs"},
    "no_graphs": {"vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"},
    "attention_backend": {"vllm": "--attention-backend", "sglang": "--attention-backend"},
    "expert_backend": {"vllm": "--moe-backend", "sglang": "--moe-runner-backend"},
    "quantization": {"vllm": "--quantization", "sglang": "--quantization", "tgi": "--quantize"},
    "load_format": {"vllm": "--load-format", "sglang": "--load-format"},
    "dtype": {"vllm": "--dtype", "sglang": "--dtype", "tgi": "--dtype"},
    "trust": {
        "vllm": "--trust-remote-code",
        "sglang": "--trust-remote-code",
        "tensorrt_llm": "--trust_remote_code",
        "tgi": "--trust-remote-code",
        "lmdeploy": "--trust-remote-code",
    },
    "kv_dtype": {
        "vllm": "--kv-cache-dtype",
        "sglang": "--kv-cache-dtype",
        "llama_cpp": "--cache-type-k",
    },
}
_PACKAGES = {
    "llama_cpp": "llama.cpp",
    "tensorrt_llm": "tensorrt-llm",
    "tgi": "text-generation-inference",
}
# Words of a line that only one engine writes, for excerpts without a banner.
_WORDS: tuple[tuple[str, str], ...] = (
    ("sglang", r"sglang|mem-fraction-static|sgl[-_]kernel|SGLANG_|SGL_|moe_tp_size"),
    ("tensorrt_llm", r"TRT-LLM|tensorrt_llm|TensorRT|trtllm|PagedKvCache"),
    (
        "llama_cpp",
        r"error: invalid argument: --|while handling argument|llama_|ggml|gguf_init|error loading model",
    ),
    ("vllm", r"vllm|VLLM|gpu_memory_utilization|max_num_seqs|EngineCore|Engine core"),
)
# Longer spellings under which flags of a case may be kept.
_SPELLINGS = {
    "--tp-size": ("--tensor-parallel-size", "--tp"),
    "--pp-size": ("--pipeline-parallel-size", "--pp"),
    "--ep-size": ("--expert-parallel-size", "--ep"),
    "--cuda-graph-max-bs": ("--cuda-graph-max-bs-decode",),
    "--ctx-size": ("-c",),
    "--ubatch-size": ("-ub",),
    "--tensor-split": ("-ts",),
    "--n-gpu-layers": ("-ngl", "--gpu-layers"),
}


def engine_of(case: Case, text: str = "") -> str | None:
    """The case's engine, else the one whose words stand in the lines; None: not told.

    >>> engine_of(Case(lines=()), "Please try to increase --mem-fraction-static.")
    'sglang'
    """
    if case.engine is not None:
        return case.engine
    said = text or " ".join(line.text for line in case.lines[:200])
    return next((engine for engine, words in _WORDS if re.search(words, said)), None)


def flag_of(engine: str | None, setting: str) -> str | None:
    """The flag of a setting in this engine's spelling, vLLM's where the engine is not known.

    >>> flag_of("sglang", "memory_share"), flag_of(None, "running"), flag_of("llama_cpp", "dtype")
    ('--mem-fraction-static', '--max-num-seqs', None)
    """
    return _FLAGS[setting].get(engine or "vllm")


def value_of(case: Case, flag: str | None) -> str | None:
    """What the case's command line gives this flag, under any of its spellings."""
    if flag is None:
        return None
    names = (flag, *_SPELLINGS.get(flag, ()))
    return next((case.flags[name] for name in names if name in case.flags), None)


def package_of(engine: str | None) -> str:
    """The name that the engine is installed by."""
    return _PACKAGES.get(engine or "vllm", engine or "vllm")


def tensor_parallel_of(case: Case, engine: str | None) -> int | None:
    """Over how many GPUs each layer is cut, as the command line says."""
    text = value_of(case, flag_of(engine, "tensor_parallel"))
    return int(text) if text and text.isdigit() else None


def is_uncut(case: Case) -> bool:
    """Whether the log shows a command line, and it cuts no layer over GPUs."""
    told = tensor_parallel_of(case, engine_of(case))
    spec = case.facts.spec if case.facts is not None and case.flags else None
    return told == 1 or (told is None and spec is not None and spec.tensor_parallel_size == 1)
