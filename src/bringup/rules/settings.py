"""Settings that the engine refuses because of each other, of the model, or of what it can do at all.

Source: vLLM 0.2 to 0.33 `config/*.py` (before 0.9 `config.py`), `engine/arg_utils.py`,
`lora/worker_manager.py`,
`model_executor/model_loader/bitsandbytes_loader.py`; SGLang 0.3 to 0.5.23 `srt/server_args.py`,
`srt/arg_groups/*.py`, `srt/lora/lora_manager.py`; TensorRT-LLM 0.8 to 1.2 `llmapi/llm_args.py`.
"""

import re
from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, tensor_parallel_of, value_of

_KIND = "pkg.cli_flag"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM 0.10 and newer takes. Source: `config/lora.py`


def _message(pattern: str, literals: tuple[str, ...], summary: str, *, sure: float = 0.9) -> Message:
    return Message(kind=_KIND, sure=sure, pattern=pattern, literals=literals, summary=summary)


_STEP = _message(
    r"max_num_batched_tokens \((?P<step>\d+)\) is smaller than max_model_len \((?P<length>\d+)\)"
    r"|max_num_batched_tokens \((?P<rows_step>\d+)\) must be greater than or equal to max_num_seqs"
    r" \((?P<rows>\d+)\)",
    ("max_num_batched_tokens (",),
    "a step of {step}{rows_step} tokens is smaller than a request ({length}) or than the requests that run "
    "({rows})",
    sure=0.95,
)
_RANK = _message(
    r"LoRA rank (?P<rank>\d+) is greater than max_lora_rank:? (?P<most>\d+)"
    r"|max_lora_rank \((?P<given>\d+)\) must be one of"
    r"|LoRA (?:adapter|buffer)[^\n]{0,120}(?:incompatible|rank)[^\n]{0,160}--max-lora-rank",
    ("LoRA rank", "max_lora_rank", "--max-lora-rank"),
    "the adapter's rank ({rank}{given}) is above the largest that the engine was started for ({most})",
    sure=0.94,
)
_STAGES = _message(
    r"[Pp]ipeline parallelism is (?:not supported|only supported)[^\n]{0,80}"
    r"|does not support pipeline parallelism|[Pp]ipeline parallel (?:is )?not supported",
    ("ipeline parallelism", "ipeline parallel not", "ipeline parallel is"),
    "this model, or this way to start, has no pipeline stages",
)
_DRAFT = _message(
    r"num_speculative_tokens was provided but without speculative model"
    r"|(?:speculative_)?draft_tensor_parallel_size ?=? ?\d* cannot be (?:other|another)"
    r"|[Tt]arget and draft model should have the same vocabulary size[^\n]*?vocab_size=(?P<target>\d+)"
    r"[^\n]*?vocab_size=(?P<draft>\d+)"
    r"|[Ss]peculative decoding (?:with \w[\w ]* )?(?:is not (?:yet )?(?:supported|compatible)|requires"
    r"|not supported)"
    r"|speculative model was provided, but|Either prompt_lookup_max or prompt_lookup_min"
    r"|num_speculative_tokens:? ?\d+ must be divisible by|[Uu]nsupported speculative (?:method|algorithm)"
    r"|[Uu]nknown speculative (?:decoding )?(?:method|algorithm)"
    r"|(?:EAGLE|NEXTN|MTP|DFLASH|NGRAM|STANDALONE)\w* (?:speculative )?\w* ?(?:requires|is not supported"
    r"|does not support)"
    r"|num_speculative_tokens must be provided",
    (
        "peculative",
        "draft_tensor_parallel_size",
        "draft model",
        "prompt_lookup",
        "Error: ",
    ),
    "the speculative settings do not fit: target vocabulary {target}, draft {draft}",
    sure=0.85,
)
_BITSANDBYTES = _message(
    r"BitsAndBytes[^\n]{0,60}only support (?P<only>'bitsandbytes') (?P<what>quantization|load format)"
    r"|[Pp]requant BitsAndBytes models with (?P<cut>tensor parallelism) is not supported"
    r"|only support 'bitsandbytes' (?:quantization|load)",
    ("BitsAndBytes", "'bitsandbytes'"),
    "a bitsandbytes checkpoint needs its load format and quantisation together, and no cut by tensors in "
    "old releases",
    sure=0.93,
)
_VERSION_ONE = _message(
    r"VLLM_USE_V1=1 is not supported with (?P<what>[^\n]{1,80}?)\.?$"
    r"|VLLM_USE_V1 is (?:explicitly )?(?:set|enabled)[^\n]*not supported",
    ("VLLM_USE_V1",),
    "the V1 engine of this release does not take {what}",
    sure=0.9,
)
_WORLD = _message(
    r"world[_ ]size \(?(?P<ranks>\d+)?\)? ?is not equal to tensor[_ ](?:model[_ ])?parallel[_ ]size",
    ("is not equal to tensor",),
    "{ranks} processes run, and the sizes of the parts multiply to another number",
    sure=0.88,
)
_VALUE = _message(
    r"(?:[Uu]nknown|[Uu]nsupported|[Uu]nrecognized|[Ii]nvalid) (?P<what>kv[ _-]cache[ _-]dtype"
    r"|KV cache (?:data ?type|dtype)"
    r"|load[ _]format|distributed executor backend|(?:MLA prefill )?attention backend(?!:? for)"
    r"|tokenizer[ _]mode|quantization method(?=: [\w-]+\. Available)"
    r"|config format|scheduling policy|moe backend|guided decoding backend|structured output backend"
    r"|compilation mode"
    r"|mm encoder attention backend|sampling backend|grammar backend"
    r"|cudagraph[ _]mode)s?:? ?[`'\"]?(?P<given>[\w./-]+)"
    r"|[Ll]oad format `(?P<format>\w+)` is not supported",
    ("nknown ", "nsupported ", "nrecognized ", "nvalid ", "oad format `"),
    "{given}{format} is no {what} of this release",
    sure=0.86,
)
_TASK = _message(
    r"does not support (?:the )?'?(?P<task>\w+)'? (?:task\b|runner)|does not support `--(?:runner|task"
    r"|convert) (?P<runner>\w+)"
    r"|(?:LLM\.\w+\(\)|[\w.]+\(\)) (?:API )?is only supported for (?P<kind>[\w() ]+) models"
    r"|(?P<only>\w+) is only used for (?:embedding|rerank)\w*|does not appear to be an embedding model"
    r"|CUDAGraphMode\.\w+ is not supported with (?P<graphs>[^\n;(]{1,60})"
    r"|does not support (?P<other>[Cc]hat [Cc]ompletions|[Cc]ompletions|[Ee]mbeddings?|[Pp]ooling"
    r"|[Ss]coring|[Cc]lassification)"
    r"(?: API)?\b",
    (
        "does not support",
        "is only supported for",
        "is only used for",
        "does not appear to be an",
        "CUDAGraphMode.",
    ),
    "the model, or its backend, has no such task or mode: {task}{runner}{kind}{other}{only}{graphs}",
    sure=0.85,
)
_NUMBER = _message(
    r"(?:ValueError|Value error)[:,] (?P<what>GPU memory utilization must be|Too large swap space)[^\n]{0,80}"
    r"|(?P<both>[\w-]+ and [\w-]+) are mutually exclusive|(?P<pair>`?[\w-]+`? and `?[\w-]+`?) (?:cannot"
    r"|can't|can not) be (?:used|set"
    r"|enabled|specified) (?:together|at the same time|both)|Unsupported kv_role|specify kv_(?:role"
    r"|disagg_role) when",
    (
        "GPU memory utilization must",
        "Too large swap space",
        "mutually exclusive",
        " together",
        "at the same time",
        "kv_role",
        "kv_disagg_role",
    ),
    "a setting is out of its range, or two exclude each other: {what}{both}{pair}",
    sure=0.8,
)
_RAISED = (
    r"(?:^|[\s\]:|])(?:ValueError|AssertionError|NotImplementedError|RuntimeError|TypeError|Value error"
    r"|Assertion error"
    r"|argparse\.ArgumentTypeError)[:,] "
)
_REFUSAL = (
    r"(?i:must|cannot|can't|can not|requires?\b|(?:not|un)(?: currently| yet)? ?support(?:t|)ed|incompatible"
    r"|not included|does not appear"
    r"|not compatible"
    r"|mutually exclusive|should (?:be|not)|only (?:supports?|supported|valid|works|one)|does(?:n't"
    r"| not)(?: yet)? "
    r"support|not allowed|larger than|smaller than|greater than|less than|exceeds?|in progress"
    r"|please (?:set|specify"
    r"|use|disable|remove)|invalid|not applicable|not valid|can only|conflicts?|has no effect|not both"
    r"|either\b)"
)
# A message that names a flag, or a setting by its name in Python, and refuses it.
_FLAGS = _message(
    _RAISED
    + r"(?=[^\n]{0,400}?(?<![\w-])--[a-z][a-z0-9-]+[a-z0-9])(?P<said>[^\n]{0,400}?"
    + _REFUSAL
    + r"[^\n]{0,200})",
    ("Error: ", "error, "),
    "the settings exclude each other, or the model: {said}",
    sure=0.52,
)
_NAMES = _message(
    _RAISED + r"(?=[^\n]{0,400}?(?<![\w.'/-])`?(?:tp_size|dp_size|ep_size|pp_size|nnodes|node_rank"
    r"|moe_dense_tp_size|page_size"
    r"|chunked_prefill_size|max_prefill_tokens|max_running_requests|context_length|mem_fraction_static"
    r"|schedule_policy"
    r"|speculative_\w+|enable_\w+|disable_\w+|max_num_seqs|max_num_batched_tokens|max_model_len|block_size"
    r"|gpu_memory_utilization|tensor_parallel_size|pipeline_parallel_size|data_parallel_size\w*"
    r"|num_gpu_blocks_override"
    r"|kv_cache_dtype|max_loras|max_cpu_loras|max_lora_rank|cuda_graph_\w+|cudagraph_\w+|compilation_config"
    r"|limit_mm_per_prompt|distributed_executor_backend|kv_transfer_config|max_batch_size|max_num_tokens"
    r"|max_seq_len"
    r"|max_beam_width|tensor parallel size|expert parallel size|data parallel size"
    r"|[Mm]ulti-node data parallel"
    r"|dp attention|DP attention|expert parallel(?:ism)?|[Cc]hunked prefill|[Pp]refix caching"
    r"|[Rr]adix (?:cache|attention)"
    r"|[Ss]liding window|LoRA|EPLB|\bPP\b|\bMTP\b|\bDBO\b|\bDCP\b|[Dd]ual[- ]batch overlap"
    r"|[Aa]sync scheduling)`?)"
    r"(?P<said>[^\n]{0,400}?"
    + _REFUSAL
    + r"[^\n]{0,200}|[^\n]{0,200}must be divisible by (?:number of nodes|page_size)[^\n]*)",
    ("Error: ", "error, "),
    "the settings exclude each other, or the model: {said}",
    sure=0.51,
)
_MESSAGES = (
    _STEP,
    _RANK,
    _STAGES,
    _DRAFT,
    _BITSANDBYTES,
    _VERSION_ONE,
    _WORLD,
    _VALUE,
    _TASK,
    _NUMBER,
)
_GENERAL = (_FLAGS, _NAMES)
# What names settings and is no refusal of them: memory, requests of clients, time, peers, the number of GPUs.
_OTHER_MATTER = re.compile(
    r"(?i:memory|cache blocks|kv cache|timed? ?out|maximum context length|your (?:prompt|request)"
    r"|requested \d+ (?:output )?tokens"
    r"|placement group|in the current cluster|total number of gpus|heads?\b|divisible by weight|min_thread"
    r"|group_size"
    r"|\brequest\b|out of resource|\bmax_tokens\b|prompt (?:is|contains|\()|derived max_model_len"
    r"|derived context_length|stored in kv|minimum capability|current gpu|this device|compute capability"
    r"|\bsm_?\d\d)"
    r"|no module or parameter|object has no attribute|unexpected keyword"
)


def read(case: Case) -> tuple[Match, ...]:
    """The refusal that is known best, with what takes its place."""
    if case.is_ready:
        return ()
    known = surest(case, _MESSAGES)
    one = known[0] if known else next((one for one in surest(case, _GENERAL) if _is_of_settings(one)), None)
    if one is None:
        return ()
    return (
        Match(
            kind=_KIND,
            sure=one.message.sure,
            lines=with_frames(case, one.lines),
            summary=re.sub(r" ?\(\?\)|: target vocabulary \?, draft \?", "", one.summary).replace("?", ""),
            fixes=_CURES.get(id(one.message), _named)(case, one),
        ),
    )


def _is_of_settings(one: Said) -> bool:
    return _OTHER_MATTER.search(one.values.get("said", "")) is None


def _flag(name: str, old: str | None, new: str | None, cost: str = "", kind: str = "cure") -> Fix:
    return Fix(type="flag", name=name, old=old, new=new, cost=cost, kind=kind)


def _larger_step(_: Case, one: Said) -> tuple[Fix, ...]:
    step, length = one.values.get("step"), one.values.get("length")
    if length is not None:
        return (
            _flag("--max-num-batched-tokens", step, length, "a larger peak while profiling"),
            _flag("--max-model-len", length, step, "shorter requests"),
            _flag(
                "--enable-chunked-prefill", None, "true", "none to speak of; the default of newer releases"
            ),
        )
    rows, step = one.values.get("rows"), one.values.get("rows_step")
    return (
        _flag("--max-num-seqs", rows, step, "fewer requests run at once"),
        _flag("--max-num-batched-tokens", step, rows, "a larger peak while profiling"),
    )


def _larger_rank(_: Case, one: Said) -> tuple[Fix, ...]:
    wanted = one.count("rank") or one.count("given")
    fits = next((rank for rank in _RANKS if wanted is not None and rank >= wanted), None)
    old = one.values.get("most") or one.values.get("given")
    new = str(fits) if fits else "the rank of the adapter (`r` of adapter_config.json)"
    return (_flag("--max-lora-rank", old, new, "more memory per adapter"),)


def _no_stages(case: Case, _: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    stages, cut = flag_of(engine, "pipeline_parallel"), flag_of(engine, "tensor_parallel")
    old = value_of(case, stages) if stages else None
    fixes = [_flag(stages, old, "1")] if stages else []
    parts = tensor_parallel_of(case, engine)
    if cut and old and old.isdigit() and parts:
        fixes.append(_flag(cut, str(parts), str(parts * int(old)), "more traffic between GPUs"))
    return tuple(fixes)


def _draft(case: Case, one: Said) -> tuple[Fix, ...]:
    name = "--speculative-algorithm" if engine_of(case) == "sglang" else "--speculative-config"
    new = (
        "a draft model with the target's tokenizer"
        if one.values.get("target")
        else "none, or as the message says"
    )
    return (_flag(name, value_of(case, name), new, "slower decoding without it"),)


def _bitsandbytes(case: Case, one: Said) -> tuple[Fix, ...]:
    if one.values.get("cut"):
        parts = tensor_parallel_of(case, engine_of(case))
        old = str(parts) if parts else None
        return (
            _flag("--pipeline-parallel-size", "1", old or "the number of GPUs"),
            _flag("--tensor-parallel-size", old, "1"),
        )
    return (
        _flag("--quantization", value_of(case, "--quantization"), "bitsandbytes"),
        _flag("--load-format", value_of(case, "--load-format") or "auto", "bitsandbytes"),
    )


def _without_version(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="env", name="VLLM_USE_V1", old="1", new="0", kind="workaround", cost="the older engine"),
    )


def _of_one_product(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        _flag(
            "--tensor-parallel-size", None, "so that its product with the stages is the number of processes"
        ),
    )


def _another_value(_: Case, one: Said) -> tuple[Fix, ...]:
    what = (one.values.get("what") or "load format").lower().replace("_", " ").replace("-", " ")
    name = "--" + what.replace("data type", "dtype").replace("mla prefill ", "").replace(" ", "-")
    old = one.values.get("given") or one.values.get("format")
    return (_flag(name, old, "one that `--help` of this release lists"),)


def _another_task(case: Case, one: Said) -> tuple[Fix, ...]:
    if one.values.get("graphs"):
        return (_flag("--compilation-config", None, '{"cudagraph_mode": "PIECEWISE"}', "slower decoding"),)
    if one.values.get("only") or "embedding model" in one.text:
        return (_flag("--is-embedding", None, "true"),)
    name = next((flag for flag in ("--task", "--runner", "--convert") if flag in case.flags), "--runner")
    return (_flag(name, case.flags.get(name), "auto, or the task that the requests want"),)


_FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*[a-z0-9]")


def _named(case: Case, one: Said) -> tuple[Fix, ...]:
    """The flags that the message names; those that were given first."""
    said = one.values.get("said", "")
    words = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+", said))
    names = [*_FLAG.findall(said)]
    names += [flag for flag in case.flags if flag.lstrip("-").replace("-", "_") in words]
    known = case.known_flags.get(engine_of(case) or "", frozenset[str]())
    names += sorted(flag for flag in known if flag.lstrip("-").replace("-", "_") in words)
    names.sort(key=lambda name: name not in case.flags)
    return tuple(_flag(name, value_of(case, name), "as the message says") for name in dict.fromkeys(names))[
        :3
    ]


_CURES: dict[int, Callable[[Case, Said], tuple[Fix, ...]]] = {
    id(_STEP): _larger_step,
    id(_RANK): _larger_rank,
    id(_STAGES): _no_stages,
    id(_DRAFT): _draft,
    id(_BITSANDBYTES): _bitsandbytes,
    id(_VERSION_ONE): _without_version,
    id(_WORLD): _of_one_product,
    id(_VALUE): _another_value,
    id(_TASK): _another_task,
}

RULE = Rule(
    kinds=(_KIND,),
    title="settings that the engine refuses",
    literals=literals_of(_MESSAGES, _GENERAL),
    read=read,
    meaning="Every flag is one that the release has, and together, or with this model, they are not "
    "possible.",
    told_apart="Unknown flags and values are told by the parser of the command line. Sizes that do not "
    "divide are "
    "`shard.*`, refusals of a device are `arch.*`, and memory is `mem.*`: this rule leaves their words "
    "alone.",
    cure="Computed where the message has the numbers (step, length, rank); else the flags that it names, "
    "those of the "
    "command first.",
    source="vLLM `config/scheduler.py`, `config/lora.py`, `config/speculative.py`, `engine/arg_utils.py`; "
    "SGLang "
    "`srt/server_args.py`; TensorRT-LLM `llmapi/llm_args.py`.",
)
