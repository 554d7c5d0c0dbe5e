"""SGLang's start-up log: what was free at each step, what the pools took.

Source: SGLang 0.5.5, 0.5.9, 0.5.12 and 0.5.23, `srt/model_executor/model_runner.py`,
`srt/mem_cache/memory_pool.py`, `srt/managers/scheduler.py`. "GB" means 2^30 bytes.
"""

import json
from collections.abc import Mapping, Sequence

from bringup.engines import StartLogReader
from bringup.engines.sglang.flag_names import ALIASES, KNOWN, RENAMED, SWITCHES
from bringup.engines.sglang.flags import read_command
from bringup.parse.json_value import Json
from bringup.parse.log_facts import Keep, gather, literals_of, phases_of, rank_starts, shape, with_seconds
from bringup.parse.log_line import LogLine
from bringup.parse.python_repr import literal, read_names
from bringup.parse.redact import redact_argv
from bringup.values.engine import EngineSpec
from bringup.values.start_log import Phase, StartLog

_SIZE = r"-?\d+(?:\.\d+)?"
_SHAPES = (
    shape("Load weight begin.", rf"Load weight begin\. avail mem=(?P<free_at_start__gib>{_SIZE}) GB"),
    shape("Load weight end.", rf"Load weight end\..* mem usage=(?P<weights__gib>{_SIZE}) GB"),
    shape("Load weight end.", r"Load weight end\. elapsed=(?P<load_seconds__s>[\d.]+) s"),
    # Models with windows print one line a pool; the lines of a draft model come after the pools' end.
    shape(
        "#tokens: ",
        rf"KV [Cc]ache (?:is )?allocated\..*#tokens: \d+, K size: (?P<kv_pool__gib1>{_SIZE}) GB, "
        rf"V size: (?P<kv_pool__gib2>{_SIZE}) GB",
        Keep.SUM,
    ),
    shape(
        "#tokens: ",
        rf"KV [Cc]ache (?:is )?allocated\..*#tokens: \d+, KV size: (?P<kv_pool__gib>{_SIZE}) GB",
        Keep.SUM,
    ),
    shape("#tokens: ", r"KV [Cc]ache (?:is )?allocated\..*#tokens: (?P<pool_tokens__n>\d+)"),
    shape(
        "Mamba Cache is allocated.",
        r"max_mamba_cache_size: (?P<state_slots__n>\d+), "
        rf"conv_state size: (?P<state_pool__gib1>{_SIZE}) ?GB,? "
        rf"ssm_state size: (?P<state_pool__gib2>{_SIZE}) ?GB"
        rf"(?:,? intermediate_ssm_state_cache size: (?P<state_pool__gib3>{_SIZE}) ?GB)?"
        rf"(?:,? intermediate_conv_window_cache size: (?P<state_pool__gib4>{_SIZE}) ?GB)?",
    ),
    shape(
        "Memory pool end.",
        rf"Memory pool end\. avail mem=(?P<free_after_pools__gib>{_SIZE}) GB",
        closes=("kv_pool", "state_pool", "weights"),
    ),
    shape("raph end.", rf"[Cc](?:UDA|uda) graph end\..*?mem usage=(?P<graphs__gib>{_SIZE}) GB", Keep.SUM),
    shape("raph end.", r"raph end\..*?(?:elapsed=|Time elapsed: )(?P<graph_seconds__s>[\d.]+) s", Keep.SUM),
    shape(
        "max_total_num_tokens=",
        r"max_total_num_tokens=(?P<kv_tokens__n>\d+).* max_running_requests=(?P<running__n>\d+), "
        r"context_len=(?P<context_tokens__n>\d+)",
    ),
    shape("available_gpu_mem=", rf"available_gpu_mem=(?P<free_after__gib>{_SIZE}) GB"),
    shape("max_running_requests is capped to ", r"max_running_requests is capped to (?P<running__n>\d+)"),
    shape("device", r"server_args=.*[,(\s]'?device'?[=:] ?'(?P<device__text>\w+)'"),
    shape("available_cpu_mem=", r"available_(?P<device__text>cpu)_mem="),
    shape("page_size", r"server_args=.*\bpage_size'?[=:] ?(?P<block_tokens__n>\d+)"),
)
_MARKS = {
    Phase.ARGUMENTS: ("server_args=",),
    Phase.COMMUNICATORS: ("Init torch distributed begin", "Init parallel begin"),
    Phase.WEIGHTS: ("Load weight begin",),
    Phase.KV_CACHE: (
        "KV Cache is allocated",
        "KV cache allocated",
        "Mamba Cache is allocated",
        "Memory pool end",
    ),
    Phase.GRAPHS: ("aph begin.",),
    Phase.HTTP_UP: ("Uvicorn running on", "Application startup complete"),
    Phase.SERVING: ("The server is fired up and ready to roll",),
}
_OWN = (
    "server_args=",
    "Load weight begin.",
    "Load weight end.",
    "Memory pool end.",
    "max_total_num_tokens=",
    "fired up and ready to roll",
)
# What the memory rules ask about, by its name among the arguments.
_SHORT = {
    "tp_size": "--tensor-parallel-size",
    "pp_size": "--pipeline-parallel-size",
    "dp_size": "--data-parallel-size",
    "ep_size": "--expert-parallel-size",
    "attn_dp_size": "--attention-data-parallel-size",
}
_NAMES = """
attention-backend attention-data-parallel-size chunked-prefill-size context-length cpu-offload-gb
cuda-graph-backend-decode cuda-graph-bs-decode cuda-graph-max-bs-decode cuda-graph-max-bs-prefill
data-parallel-size disable-cuda-graph disable-decode-cuda-graph disable-hybrid-swa-memory
disable-overlap-schedule disable-prefill-cuda-graph disable-radix-cache enable-deepep-moe
enable-dp-attention enable-linear-replayssm-spec enable-lora enable-torch-compile
ep-num-redundant-experts expert-parallel-size kv-cache-dtype language-model-only language-only lora-paths
mamba-full-memory-ratio mamba-radix-cache-strategy mamba-ssm-dtype max-lora-rank max-loras-per-batch
max-mamba-cache-size max-prefill-tokens max-running-requests max-total-tokens mem-fraction-static
mm-enable-dp-encoder moe-a2a-backend page-size pipeline-parallel-size quantization speculative-algorithm
speculative-draft-model-path speculative-num-draft-tokens speculative-num-steps swa-full-tokens-ratio
tensor-parallel-size
"""
_ASKED = frozenset(f"--{name}" for name in _NAMES.split())
_DEFAULTS: frozenset[object] = frozenset((None, False, 1, "auto"))
_FURTHER = ("server_args=", "available_cpu_mem=")


def recognise(line: LogLine) -> bool:
    """Whether only SGLang writes such a line."""
    return any(words in line.text for words in _OWN)


def begins(line: LogLine) -> str | None:
    """The mark of a new start on this line."""
    return "arguments" if line.text.startswith("server_args=") else None


def read(lines: Sequence[LogLine]) -> StartLog:
    """One start of SGLang."""
    facts = gather(lines, _SHAPES)
    phases = phases_of(lines, _MARKS)
    ranks = rank_starts(facts)
    spec = _spec(lines)
    loads = [rank.load_seconds for rank in ranks if rank.load_seconds is not None]
    graphs = [rank.graph_seconds for rank in ranks if rank.graph_seconds is not None]
    told = {Phase.WEIGHTS: max(loads, default=None), Phase.GRAPHS: max(graphs, default=None)}
    return StartLog(
        engine="sglang",
        spec=spec,
        model=spec.model if spec else None,
        device=facts.text("device"),
        first_line=lines[0].number,
        last_line=lines[-1].number,
        ranks=ranks,
        kv_tokens=facts.number("kv_tokens") or facts.number("pool_tokens"),
        block_tokens=facts.number("block_tokens"),
        running=facts.number("running"),
        state_slots=facts.number("state_slots"),
        context_tokens=facts.number("context_tokens"),
        phases=with_seconds(phases, told),
        is_ready=any(phase.name is Phase.SERVING for phase in phases),
        cites=facts.cites,
    )


def _spec(lines: Sequence[LogLine]) -> EngineSpec | None:
    """The command behind the arguments, as far as they decide memory; the log has every default in it."""
    text = next((line.text for line in lines if line.text.startswith("server_args=")), None)
    if text is None:
        return None
    source = text.removeprefix("server_args=").removeprefix("ServerArgs")
    values = {name: literal(part) for name, part in read_names(source).items()}
    words = ["python3", "-m", "sglang.launch_server"]
    model = values.get("model_path")
    if isinstance(model, str):
        words += ["--model-path", model]
    for name, value in values.items():
        spelled = _SHORT.get(name, f"--{name.replace('_', '-')}")
        flag = ALIASES.get(RENAMED.get(spelled, spelled), RENAMED.get(spelled, spelled))
        if flag in _ASKED and flag in KNOWN:
            words += _words(flag, value)
    return read_command(redact_argv(words))


def _words(flag: str, value: Json) -> list[str]:
    if isinstance(value, list):
        return [flag, *(str(one) for one in value)] if value else []
    if isinstance(value, Mapping):
        return [flag, json.dumps(value)] if value else []
    if value in _DEFAULTS:
        return [flag] if value is True and flag in SWITCHES else []
    return [flag] if value is True else [flag, str(value)]


START_LOG = StartLogReader(
    recognise=recognise, begins=begins, read=read, literals=literals_of(_SHAPES, _MARKS, (*_OWN, *_FURTHER))
)
