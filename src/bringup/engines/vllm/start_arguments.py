"""The command line behind a vLLM start, from the arguments that its log prints."""

import json
import re
from collections.abc import Mapping, Sequence

from bringup.engines.vllm.flag_names import FLAGS, Kind
from bringup.engines.vllm.flags import read_command
from bringup.parse.json_value import Json
from bringup.parse.log_line import LogLine
from bringup.parse.python_repr import literal, read_names
from bringup.parse.redact import redact_argv
from bringup.values.engine import EngineSpec

_GIVEN = re.compile(r"non-default args: (\{.*)")
_ALL = re.compile(r"\bargs: Namespace(\(.*)")
_CONFIG = re.compile(r"with config: (.*)")
_BATCH = re.compile(r"max_num_batched_tokens=(\d+)")
_DRAFTS = re.compile(r"SpeculativeConfig\((.*?)\)")
# Of the engine's own config, under the names of flags. `max_seq_len` is what became of `--max-model-len`.
_FROM_CONFIG = {
    "max_seq_len": "--max-model-len",
    "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "decode_context_parallel_size": "--decode-context-parallel-size",
    "quantization": "--quantization",
    "enforce_eager": "--enforce-eager",
    "kv_cache_dtype": "--kv-cache-dtype",
    "enable_prefix_caching": "--enable-prefix-caching",
    "dtype": "--dtype",
}
# What decides memory, of a list that has every default in it.
_NAMES = """
async-scheduling block-size compilation-config cpu-offload-gb data-parallel-size dtype
enable-chunked-prefill enable-expert-parallel enable-lora enable-prefix-caching enforce-eager
gpu-memory-utilization kv-cache-dtype limit-mm-per-prompt max-lora-rank max-loras max-model-len
max-num-batched-tokens max-num-seqs num-gpu-blocks-override num-speculative-tokens
pipeline-parallel-size quantization speculative-config speculative-model tensor-parallel-size
"""
_DECIDING = frozenset(f"--{name}" for name in _NAMES.split())
_SECRET = ("--api-key", "--hf-token", "--ssl-keyfile")


def spec_of_lines(lines: Sequence[LogLine]) -> EngineSpec | None:
    """What the engine was started with; None where the log shows no arguments.

    First what was given (`non-default args`), else every argument, else the engine's own config.
    """
    for line in lines:
        if match := _GIVEN.search(line.text):
            return _spec(read_names(match[1]), frozenset(FLAGS))
    for line in lines:
        if match := _ALL.search(line.text):
            return _spec(_chosen(read_names(match[1])), _DECIDING)
    for line in lines:
        if match := _CONFIG.search(line.text):
            return _from_config(match[1], lines)
    return None


def _chosen(names: Mapping[str, str]) -> dict[str, str]:
    """Of all arguments those that are no switch turned off, which is the default of nearly all."""
    return {name: source for name, source in names.items() if source != "False"}


def _spec(names: Mapping[str, str], asked: frozenset[str]) -> EngineSpec | None:
    values = {name: literal(source) for name, source in names.items()}
    model = values.get("model_tag") or values.get("model")
    words = ["vllm", "serve"]
    if isinstance(model, str):
        words.append(model)
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if flag in FLAGS and flag in asked and flag not in ("--model", *_SECRET):
            words += _words(flag, value)
    return read_command(redact_argv(words))


def _from_config(text: str, lines: Sequence[LogLine]) -> EngineSpec | None:
    values = {name: literal(source) for name, source in read_names(text).items()}
    model = values.get("model")
    words = ["vllm", "serve", *([model] if isinstance(model, str) else [])]
    for name, flag in _FROM_CONFIG.items():
        value = values.get(name)
        if value not in (None, 1, False, "auto", "None"):
            words += _words(flag, value.removeprefix("torch.") if isinstance(value, str) else value)
    drafts = _DRAFTS.search(str(values.get("speculative_config")))
    if drafts:
        words += ["--speculative-config", _speculation(read_names(drafts[1]))]
    batch = next((match[1] for line in lines if (match := _BATCH.search(line.text))), None)
    if batch:
        words += ["--max-num-batched-tokens", batch]
    return read_command(redact_argv(words))


def _speculation(names: Mapping[str, str]) -> str:
    values = {name: literal(source) for name, source in names.items()}
    asked: dict[str, Json] = {
        "method": values.get("method"),
        "model": values.get("model"),
        "num_speculative_tokens": values.get("num_spec_tokens") or values.get("num_speculative_tokens"),
    }
    return json.dumps({name: value for name, value in asked.items() if value is not None})


def _words(flag: str, value: Json) -> list[str]:
    """A flag and its value as they stand on a command line; none where the value is a default's."""
    kind = FLAGS[flag].kind
    if value is None or value in ([], {}):
        return []
    if isinstance(value, bool):
        if kind is not Kind.SWITCH:
            return [flag, str(value)]
        return [flag] if value else [f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        return [flag, json.dumps(value)]
    if isinstance(value, list):
        return [flag, *(str(one) for one in value)]
    is_object = isinstance(value, str) and (value.startswith("<") or re.match(r"[A-Z]\w*\(", value))
    return [] if is_object else [flag, str(value)]
