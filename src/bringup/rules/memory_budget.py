"""The engine counted its memory and found too little, before anything failed to allocate.

Source: vLLM 0.2 to 0.33 `v1/worker/utils.py` (`request_memory`), `v1/core/kv_cache_utils.py`,
`worker/worker.py` (`raise_if_cache_size_invalid`); SGLang 0.3 to 0.5.23 `model_runner.py`
(`init_memory_pool`); TensorRT-LLM 0.5 to 1.2 `_util.py` and `py_executor_creator.py`.
"""

import re

from bringup.parse.log_message import Message, Said, literals_of, said, with_frames
from bringup.planner.fitting import share_in_use
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.planner.memory_cures import Shortage, cures_of, nothing_left, too_short
from bringup.planner.vllm_figures import default_utilization
from bringup.rules import Match, Rule
from bringup.units import GIB, bytes_text
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, value_of

_GIB = r"-?[\d.]+"
_MESSAGES = (
    Message(
        kind="mem.startup_free_low",
        sure=0.96,
        pattern=rf"Free memory on device (?P<device>\S+ )?\((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on "
        rf"startup is less"
        rf" than desired GPU memory utilization \((?P<share>[\d.]+), (?P<need>{_GIB}) GiB\)",
        literals=("is less than desired GPU memory utilization",),
        summary="{free} of {total} GiB are free before the start, {need} GiB (share {share}) are wanted",
    ),
    Message(
        kind="mem.startup_free_low",
        sure=0.96,
        pattern=rf"Available memory on node (?P<node>\d+) \((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on "
        rf"startup is less than desired CPU memory utilization \((?P<share>[\d.]+), (?P<need>{_GIB}) GiB\)",
        literals=("is less than desired CPU memory utilization",),
        summary="{free} of {total} GiB of the host's memory are free before the start, {need} GiB (share "
        "{share}) are wanted",
    ),
    Message(
        kind="mem.startup_free_low",
        sure=0.9,
        pattern=r"[Tt]he memory capacity is unbalanced.*?(?:pre_model_load_memory=(?P<free>[\d.]+))?"
        r"(?:.*?local_gpu_memory=(?P<total>[\d.]+))?(?:.*?local_gpu_memory \* 0\.9=[\d.]+)?$",
        literals=("memory capacity is unbalanced",),
        summary="GPUs of one group have very different amounts of free memory: another process holds one "
        "of them",
    ),
    Message(
        kind="mem.profile_race",
        sure=0.95,
        pattern=r"Error in memory profiling\. Initial (?:free|used) memory (?P<before>[\d.]+)[^,]*,"
        r" current(?:ly)? (?:free|used) memory:? (?P<after>[\d.]+)",
        literals=("Error in memory profiling",),
        summary="memory of the GPU changed from {before} to {after} by another process while the engine "
        "measured",
    ),
    Message(
        kind="mem.profile_race",
        sure=0.9,
        pattern=r"Error in memory profiling",
        literals=("Error in memory profiling",),
        summary="memory of the GPU changed by another process while the engine measured",
        unless=r"Error in memory profiling\. Initial (?:free|used) memory [\d.]+",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.93,
        pattern=r"No available memory for the cache blocks",
        literals=("No available memory for the cache blocks",),
        summary="weights and the peak of a step leave nothing for the KV cache",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.9,
        pattern=r"raise_if_cache_size_invalid\(|processing method initialize_cache\b"
        r"|executing method initialize_cache\b",
        literals=("raise_if_cache_size_invalid", "method initialize_cache"),
        summary="the KV cache came out with no blocks",
        unless=r"maximum number of tokens that can be stored in KV cache|out of memory"
        r"|No available memory for the cache",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.94,
        pattern=r"Not enough memory[.;]? ?Please try (?:to increase|increasing) --mem-fraction-static"
        r"|Loaded weights leave no GPU memory for the KV cache(?:.*?mem[-_]fraction[-_]static=(?P<share>["
        r"\d.]+))?",
        literals=("Not enough memory", "Loaded weights leave no GPU memory"),
        summary="the share for weights and cache leaves nothing for the cache",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.9,
        pattern=r"is larger than the profiled value (?P<tokens>-\d+|0)\b",
        literals=("is larger than the profiled value",),
        summary="weights leave room for {tokens} tokens of KV cache",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.85,
        pattern=r"Not enough (?:GPU )?memory.{0,80}(?:mamba|KV|kv cache|cache)|mamba.{0,60}(?:not enough"
        r"|too small)"
        r"|max_num_seqs \((?P<rows>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
        literals=("Not enough memory", "Not enough GPU memory", "mamba", "Mamba cache blocks"),
        summary="the cache of recurrent states has no room",
        unless=r"try (?:to increase|increasing) --mem-fraction-static",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.9,
        pattern=r"Available memory on node \d+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on kv cache "
        r"allocation is less than"
        r" requested memory for kv \((?P<asked>[\d.]+)(?:/[\d.]+)? GiB\)",
        literals=("less than requested memory for kv",),
        summary="{asked} GiB of KV cache are asked for, {free} GiB are there",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.88,
        pattern=r"The following component could not be created: (?P<part>(?:(?i:initial) )?KV cache[^\n]*)"
        r"|Failed to create KV cache|[Nn]o enough (?:gpu )?memory for (?:kv|runtime)",
        literals=(
            "could not be created",
            "Failed to create KV cache",
            "enough memory for",
            "enough gpu memory for",
        ),
        summary="no room for the KV cache",
    ),
    Message(
        kind="mem.weights_oom",
        sure=0.85,
        pattern=r"The following component could not be created: (?P<part>(?i:model)[^\n]*)",
        literals=("could not be created",),
        summary="no room for {part}",
    ),
    Message(
        kind="mem.kv_none",
        sure=0.7,
        pattern=r"Available KV cache memory: (?P<available>-[\d.]+) GiB|# (?:GPU|CUDA|cuda) blocks: 0\b",
        literals=("Available KV cache memory: -", "blocks: 0"),
        summary="weights and the peak of a step leave nothing for the KV cache",
        unless=r"No available memory for the cache blocks",
    ),
    Message(
        kind="mem.kv_too_small",
        sure=0.96,
        pattern=rf"models?'s max(?:imum)? seq(?:uence)? len(?:gth)? \((?P<length>\d+)\)[,. "
        rf"]*\(?(?P<need>{_GIB}) GiB KV"
        rf" cache is needed,? which is larger than the available KV cache memory \((?P<available>{_GIB}) "
        rf"GiB\)"
        r"(?:.*?estimated maximum model length is (?P<printed>\d+))?",
        literals=("is larger than the available KV cache memory",),
        summary="one request of {length} tokens needs {need} GiB of KV cache, {available} GiB are there",
    ),
    Message(
        kind="mem.kv_too_small",
        sure=0.95,
        pattern=r"max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can "
        r"be stored in KV"
        r" cache \((?P<printed>\d+)\)",
        literals=("tokens that can be stored in KV cache",),
        summary="the KV cache holds {printed} tokens, one request may be {length} long",
    ),
    Message(
        kind="mem.kv_too_small",
        sure=0.92,
        pattern=r"maxTokensInPagedKvCache(?: \((?P<printed>\d+)\))? must be large enough to process at "
        r"least 1 sequence"
        r"|max_num_tokens_in_paged_kv_cache.{0,40}too small|(?i:kv[ -]cache)[^\n]{0,40}(?:is )?too small"
        r"|(?i:too small[^\n]{0,30}kv[ -]cache)|cannot hold even one request"
        r"|max_seq_len ?(?:=|:)? ?(?P<length>\d+).{0,60}(?:larger|greater|exceeds).{0,40}(?:kv cache"
        r"|KV cache)",
        literals=(
            "must be large enough to process",
            "paged_kv_cache",
            "too small",
            "cannot hold even one request",
            "max_seq_len",
        ),
        summary="the KV cache is smaller than one request",
    ),
    Message(
        kind="mem.comm_buffer_oom",
        sure=0.94,
        pattern=r"Failed to CUDA (?:calloc|malloc|host alloc)(?: async)? (?P<size>\d+) bytes"
        r"|NCCL WARN Cuda failure (?:\d+ )?'out of memory'|Failed to cuMem\w+ .{0,40}out of memory",
        literals=("Failed to CUDA", "failure 'out of memory'", "'out of memory'", "Failed to cuMem"),
        summary="NCCL could not allocate its buffers ({size} bytes)",
    ),
    Message(
        kind="mem.weights_oom",
        sure=0.6,
        pattern=r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|HIPBLAS_STATUS_ALLOC_FAILED",
        literals=("BLAS_STATUS_NOT_INITIALIZED", "BLAS_STATUS_ALLOC_FAILED"),
        summary="no memory was left for the workspace of the matrix library",
        unless=r"Tried to allocate|no kernel image|illegal memory access",
    ),
    Message(
        kind="mem.weights_oom",
        sure=0.82,
        pattern=r"CUDA runtime error in .{0,80}cudaMalloc\w*.{0,80}out of memory"
        r"|Requested amount of GPU memory \((?P<size>\d+) bytes\) could not be allocated",
        literals=("CUDA runtime error in", "Requested amount of GPU memory"),
        summary="the engine's own memory did not fit",
    ),
    Message(
        kind="mem.runtime_oom",
        sure=0.9,
        pattern=r"(?P<step>Prefill|Decode|Extend) out of memory\. (?:Please )?[Tt]ry to (?:lower"
        r"|decrease) your batch size",
        literals=("out of memory. Try to lower", "out of memory. Please try to lower"),
        summary="the cache had no room for the requests that ran: {step} out of memory",
    ),
    Message(
        kind="mem.runtime_oom",
        sure=0.92,
        pattern=r"alloc_\w+ runs out of memory\. Please set a smaller number for `?(?P<flag>--[\w-]+)",
        literals=("runs out of memory. Please set a smaller number",),
        summary="more requests run than the tables have room for ({flag})",
    ),
    Message(
        kind="mem.runtime_oom",
        sure=0.85,
        pattern=r"Not enough memory to handle (?P<tokens>\d+)? ?(?:prefill tokens|max_total_tokens)",
        literals=("Not enough memory to handle",),
        summary="the largest step does not fit: {tokens} tokens",
    ),
)
_TINY = GIB // 2  # a shortage below this is a larger context of a newer PyTorch, no other process


def read(case: Case) -> tuple[Match, ...]:
    """Every refusal that the case holds, each with the settings that fit."""
    found: dict[str, Match] = {}
    for one in said(case, _MESSAGES):
        kind = one.message.kind
        if kind not in found:
            found[kind] = Match(
                kind=kind,
                sure=one.message.sure,
                lines=with_frames(case, one.lines),
                summary=one.summary,
                explanation=_explanation(one),
                fixes=_fixes(case, one),
                next_measurement=_next(one),
            )
    return tuple(found.values())


def _shortage(case: Case, one: Said) -> Shortage:
    free, total = one.number("free"), one.number("total")
    return Shortage(
        kind=one.message.kind,
        free=round(free * GIB) if free is not None else None,
        total=round(total * GIB) if total is not None else _total(case),
        share=one.number("share") or _share(case),
    )


def _total(case: Case) -> int | None:
    ranks = case.facts.ranks if case.facts else ()
    return next((rank.total for rank in ranks if rank.total), None)


def _share(case: Case) -> float | None:
    engine = engine_of(case)
    given = value_of(case, flag_of(engine, "memory_share"))
    if given is not None and re.fullmatch(r"0?\.\d+|1(?:\.0+)?", given):
        return float(given)
    known = {"sglang": share_in_use(case.facts), "llama_cpp": None, "tensorrt_llm": 0.9}
    return known.get(engine or "", default_utilization(read_version(case.version) or NEWEST))


def _fixes(case: Case, one: Said) -> tuple[Fix, ...]:
    shortage = _shortage(case, one)
    kind = one.message.kind
    if kind == "mem.kv_none":
        return _for_nothing(case, one, shortage)
    if kind == "mem.kv_too_small":
        return _for_short(case, one, shortage)
    if kind == "mem.profile_race":
        return (
            Fix(type="service", name="start engines one after the other", cost="a slower start"),
            Fix(type="flag", name="--kv-cache-memory-bytes", new="what the last good start printed",
                cost="the cache does not adapt any more; vLLM 0.11 and newer"),
        )  # fmt: skip
    if kind == "mem.startup_free_low":
        return _for_taken(case, one, shortage)
    return cures_of(case, shortage)


def _for_taken(case: Case, one: Said, shortage: Shortage) -> tuple[Fix, ...]:
    """A tiny shortage has no other process behind it: only the share helps."""
    need = one.number("need")
    fixes = cures_of(case, shortage)
    if need is None or shortage.free is None or need * GIB - shortage.free >= _TINY:
        return fixes
    return tuple(fix for fix in fixes if fix.type == "flag")


def _for_nothing(case: Case, one: Said, shortage: Shortage) -> tuple[Fix, ...]:
    """Raise the share; TensorRT-LLM's is of the free memory and its pool may be too large."""
    blocks = one.count("blocks")
    if blocks is not None:
        return (
            Fix(type="flag", name="--max-num-seqs", old=one.values.get("rows"), new=str(max(1, blocks)),
                cost="fewer requests run at once"),
            *nothing_left(case, shortage),
        )  # fmt: skip
    if one.values.get("asked"):
        fits = str(max(1, int(one.number("free") or 0) - 1))
        return (
            Fix(
                type="env",
                name="VLLM_CPU_KVCACHE_SPACE",
                old=one.values["asked"],
                new=fits,
                cost="a smaller KV cache",
            ),
            Fix(type="flag", name="--kv-cache-memory-bytes", new=f"{fits}G", cost="a smaller KV cache"),
        )
    fixes = nothing_left(case, shortage)
    if engine_of(case) != "tensorrt_llm":
        return fixes
    smaller = Fix(type="flag", name="kv_cache_config.free_gpu_memory_fraction", old="0.9", new="0.7")
    return (smaller, *(fix for fix in fixes if fix.name != "--kv_cache_free_gpu_memory_fraction"))


def _for_short(case: Case, one: Said, shortage: Shortage) -> tuple[Fix, ...]:
    length = one.count("length") or 0
    fixes = too_short(
        case,
        shortage,
        length=length,
        need=one.number("need"),
        available=one.number("available"),
        printed=one.count("printed"),
    )
    if engine_of(case) == "tensorrt_llm":
        old = value_of(case, "kv_cache_free_gpu_mem_fraction")
        return (Fix(type="flag", name="kv_cache_free_gpu_mem_fraction", old=old, new="0.85"), *fixes)
    version = read_version(case.version)
    if "stored in KV cache" in one.text and (version is None or version < (0, 8, 0)):
        # Before the V1 engine prompts up to 32 Ki tokens were measured in one piece.
        chunks = Fix(type="flag", name="--enable-chunked-prefill", new="true", cost="none to speak of")
        return (*fixes[:1], chunks, *fixes[1:])
    return fixes


def _explanation(one: Said) -> str:
    need, free = one.number("need"), one.number("free")
    if one.message.kind == "mem.startup_free_low" and need is not None and free is not None:
        missing = round((need - free) * GIB)
        if "node" in one.values:
            return (
                f"{bytes_text(missing)} are missing. On a CPU the share is one of the host's memory, "
                "whatever its flag is called; VLLM_CPU_KVCACHE_SPACE sets the cache apart from it."
            )
        if missing < _TINY:
            return (
                f"Only {bytes_text(missing)} are missing: contexts of a newer PyTorch or driver, no "
                f"other process."
            )
        return f"{bytes_text(missing)} are missing: another process, an orphan, or a desktop holds them."
    if one.message.kind == "mem.kv_none":
        return (
            "The share is what weights, the peak of a step and the cache share: raise it, or lower the peak."
        )
    if one.message.kind == "mem.kv_too_small":
        return "There is a cache, but one request of the longest length does not fit into it."
    return ""


def _next(one: Said) -> str:
    if "node" in one.values:
        return "free -g; ps -eo pid,rss,args --sort=-rss | head"
    if one.message.kind in {"mem.startup_free_low", "mem.profile_race"}:
        return "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv"
    return ""


RULE = Rule(
    kinds=tuple(dict.fromkeys(message.kind for message in _MESSAGES)),
    title="the engine's own count of its memory does not work out",
    literals=literals_of(_MESSAGES),
    read=read,
    meaning="The engine adds up weights, the peak of a step and what is free, and refuses to go on: too "
    "little was "
    "free from the start, nothing is left for the cache, or less than one request needs.",
    told_apart="By the message. Three look alike and have opposite cures: nothing left for the cache "
    "(raise the "
    "share), a cache shorter than one request (lower the length), memory gone while serving (lower the "
    "share).",
    cure="Free too low: stop the other process, or a share of (free - 0.5 GiB) / total. No cache: a "
    "larger share, a "
    "smaller step, more GPUs. Cache too small: the length that fits, as printed or computed.",
    source="vLLM 0.2 to 0.33 `v1/worker/utils.py`, `v1/core/kv_cache_utils.py`, `worker/worker.py`; "
    "SGLang 0.3 to "
    "0.5.23 `srt/model_executor/model_runner.py`; TensorRT-LLM "
    "`_torch/pyexecutor/py_executor_creator.py`; NCCL "
    "`src/include/alloc.h`.",
)
