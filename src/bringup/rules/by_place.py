"""An error whose message no other rule knows: the place in the engine where it was raised tells the kind.

Engines check far more than any table of messages holds: vLLM 0.32 raises about 700 different errors of its
settings alone. But they check a thing in one place, and the places move little between releases.

Source: the folders of vLLM 0.2 to 0.33 (`config/`, `engine/arg_utils.py`, `platforms/`, `v1/attention/`,
`attention/`, `model_executor/`), SGLang 0.2 to 0.5.23 (`srt/server_args.py`, `srt/arg_groups/`,
`srt/layers/`, `srt/model_loader/`), TensorRT-LLM 0.8 to 1.2 (`llmapi/`, `models/`), transformers 4 and 5.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bringup.parse.log_message import with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case, CaseLine, Frame, Traceback
from bringup.values.finding import Fix, Severity
from bringup.values.setting_names import engine_of, flag_of, package_of, value_of

_MOST_WORDS = 240  # characters of a message in a summary
# Errors that say nothing of the place where they show: memory, devices, peers, packages, the network, files.
_NOT_OF_THE_PLACE = re.compile(
    r"(?i:out ?of ?memory|\bcuda (?:error|runtime)|\bhip error|cublas|cudnn|nccl|gloo|no kernel image"
    r"|cudagetdevicecount"
    r"|timed? ?out|connection|no module named|cannot import|undefined symbol|\.so\b|no such file"
    r"|shared memory"
    r"|no space left|permission denied|too many open files|ninja|nvcc|torchinductor|compilation|triton"
    r"|assert_async"
    r"|engine core init|worker.*(?:died|failed)|see (?:root cause|stack trace)|gpu blocks|kv cache memory"
    r"|enginedead|subprocess|actor)"
    r"|^(?:ImportError|ModuleNotFoundError|FileNotFoundError|OSError|PermissionError|KeyboardInterrupt"
    r"|SystemExit"
    r"|EOFError|BrokenPipeError|MemoryError|TimeoutError|torch\.|ray\.|requests\.|urllib3\."
    r"|huggingface_hub\.|http"
    r"|safetensors|asyncio|zmq|UserWarning|DeprecationWarning|FutureWarning|subprocess)"
)
_HARDWARE = re.compile(
    r"(?i:compute capabilit|on (?:this|current|the current) (?:device|gpu|platform)|\bsm_?\d{2,3}\b|hopper"
    r"|blackwell"
    r"|ampere|requires? (?:an? )?(?:nvidia|amd|cuda|rocm)\b|(?:only|not) supported on (?:cuda|rocm|nvidia"
    r"|amd|cpu|gpu))"
)
_SETTINGS = (
    r"^(?:vllm/(?:config(?:/\w+)*\.py|engine/arg_utils\.py|engine/\w*config\w*\.py|entrypoints/cli/"
    r"|utils/argparse_utils\.py"
    r"|entrypoints/openai/cli_args\.py|entrypoints/(?:serve/)?utils/(?:api|cli)\w*\.py"
    r"|platforms/\w+\.py:check_and_update_config"
    r"|platforms/\w+\.py:verify_)"
    r"|sglang/srt/(?:server_args\.py|arg_groups/|configs/(?:model_config|load_config|device_config)\.py)"
    r"|sglang/srt/utils/server_args\w*\.py"
    r"|tensorrt_llm/(?:llmapi/(?:llm_args|llm_utils|build_cache)\.py|commands/\w+\.py|builder\.py"
    r"|plugin/plugin\.py))"
)
_CHECKPOINT = (
    r":(?:load_weights\w*|_load_weights\w*|\w*weight_loader\w*|_load_module|load_\w*weight\w*|_load_w13"
    r"|_load_w2"
    r"|load_(?:column|row|merged|qkv|expert)\w*|load_state_dict)$"
)
_ATTENTION = (
    r"^(?:vllm/(?:v1/)?attention/(?:selector\.py|layer\.py|backends?/.*:(?:__init__|validate_\w+|get_\w+"
    r"|supports_\w+)$)"
    r"|vllm/model_executor/layers/attention/.*:__init__$"
    r"|vllm/platforms/\w+\.py:get_(?:attn_backend_cls|valid_backends|vit_attn_backend)$"
    r"|sglang/srt/layers/attention/.*:__init__$|sglang/srt/model_executor/\w+\.py:(?:init_attention_backend"
    r"|_get_attention_backend\w*)$"
    r"|tensorrt_llm/_torch/attention_backend/.*:(?:__init__|create_attention|get_attention_backend)$)"
)
_QUANTIZATION = (
    r"/(?:quantization|kernels)/.*:(?:__init__|from_config|get_quant_method|get_scheme\w*|_get_scheme\w*"
    r"|create_weights"
    r"|get_min_capability|validate_\w+|verify_\w+|check_\w+|_check_\w+|choose_\w+"
    r"|override_quantization_method)$"
)
_TOKENIZER = (
    r"^vllm/(?:transformers_utils/tokenizer\w*(?:/\w+)?\.py|tokenizers/)"
    r"|^transformers/(?:models/auto/tokenization_auto"
    r"|tokenization_utils\w*|convert_slow_tokenizer|models/\w+/tokenization_\w+)\.py"
    r"|^sglang/srt/(?:hf_transformers_utils|utils/hf_transformers_utils)\.py:get_(?:tokenizer|processor)$"
    r"|:(?:get_tokenizer|get_cached_tokenizer|cached_tokenizer_from_config|init_tokenizer)$"
)
_TEMPLATE = (
    r"^jinja2/|:(?:apply_chat_template|apply_hf_chat_template|render_jinja_template|_compile_jinja_template"
    r"|_apply_jinja_template|safe_apply_chat_template|resolve_chat_template\w*)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A part of an engine and what its errors mean."""

    kind: str
    frames: str  # of `file:function`
    sure: float
    means: str  # of the summary, before the message
    errors: str = ""  # of the exception; any where empty
    is_start: bool = True  # an engine that came up got past it
    is_inner: bool = True  # the engine's innermost frame must be it; else any frame
    severity: Severity = Severity.FAILURE


# The first that fits speaks: what stands further in comes first.
_PLACES = (
    Place(
        kind="api.chat_template",
        frames=_TEMPLATE,
        errors=r"(?i)jinja2|template|undefined|roles?\b|not iterable|concatenate",
        sure=0.6,
        means="the chat template cannot be used for this request",
        is_start=False,
        is_inner=False,
    ),
    Place(
        kind="api.reasoning_parser",
        frames=r"^(?:vllm/reasoning/\S*:__init__|sglang/srt/(?:parser/)?reasoning_parser\.py:\w+)$",
        errors=r"^(?:ValueError|RuntimeError|KeyError|AttributeError|TypeError|NotImplementedError)",
        sure=0.55,
        means="the reasoning parser does not fit this model",
        is_start=False,
    ),
    Place(
        kind="api.tool_parser",
        frames=r"^(?:vllm/(?:entrypoints/openai/)?(?:tool_parsers|parser)/\S*:__init__"
        r"|sglang/srt/function_call/function_call_parser\.py:__init__)$",
        errors=r"^(?:ValueError|RuntimeError|KeyError|AttributeError|TypeError|NotImplementedError)",
        sure=0.55,
        means="the tool parser does not fit this model",
        is_start=False,
    ),
    Place(
        kind="file.param_mismatch",
        frames=r"^(?:vllm|sglang/srt)/lora/\S*:(?:from_\w*(?:checkpoint|tensors|config)|_?load_adapter\w*"
        r"|load_lora\w*|validate_\w+"
        r"|initialize_weights|normalize_\w+|parse_\w+|check_\w+|__init__|__post_init__|from_local_dir)$"
        r"|/weight_utils\.py:(?:get_quant_config|get_sparse_\w+|check_\w+)$",
        errors=r"^(?:ValueError|RuntimeError|KeyError|AttributeError|AssertionError)",
        sure=0.55,
        means="the adapter, or the quantisation of the files, is none that the engine takes",
        is_start=False,
    ),
    Place(
        kind="arch.backend_gate",
        frames=r"/fused_moe/oracle/|/fused_moe/\S*:(?:select_\w+|_?check_\w+|is_supported\w*"
        r"|make_\w*kernel\w*)$",
        errors=r"^(?:ValueError|NotImplementedError|AssertionError|RuntimeError)",
        sure=0.55,
        means="the chosen backend for experts does not take this model or device",
    ),
    Place(
        kind="file.param_mismatch",
        frames=_CHECKPOINT,
        errors=r"^(?:KeyError|AssertionError|ValueError|RuntimeError|AttributeError|IndexError|TypeError)",
        sure=0.6,
        means="what the checkpoint holds does not fit the model that was built",
        is_inner=False,
    ),
    Place(
        kind="arch.backend_gate",
        frames=_ATTENTION,
        errors=r"^(?:ValueError|NotImplementedError|AssertionError|RuntimeError)",
        sure=0.6,
        means="the attention backend does not take this model, device or setting",
    ),
    Place(
        kind="arch.quant_unsupported",
        frames=_QUANTIZATION,
        errors=r"^(?:ValueError|NotImplementedError|AssertionError|RuntimeError)",
        sure=0.55,
        means="this quantisation is not implemented for this model or device",
    ),
    Place(
        kind="model.tokenizer_old",
        frames=_TOKENIZER,
        errors=r"^(?:ValueError|AttributeError|KeyError|TypeError|Exception|RuntimeError"
        r"|NotImplementedError)",
        sure=0.55,
        means="the tokenizer cannot be built by what is installed",
    ),
    Place(
        kind="model.arch_unknown",
        frames=r"^(?:vllm/(?:model_executor/models/|model_executor/layers/rotary_embedding"
        r"|transformers_utils/configs/)"
        r"|sglang/srt/(?:models/|layers/rotary_embedding|configs/)|tensorrt_llm/(?:_torch/)?models/)"
        r".*:(?:__init__|get_rope|from_hugging_face|from_hf\w*|get_model)$",
        errors=r"^(?:AttributeError: '\w*Config' object has no attribute|KeyError|ValueError: [Uu]n(?:known"
        r"|supported"
        r"|recognized)|TypeError: .*(?:unexpected keyword|missing \d+ required))",
        sure=0.55,
        means="the model's configuration is not of the form that this release reads",
    ),
    Place(
        kind="pkg.cli_flag",
        frames=_SETTINGS,
        errors=r"^(?:ValueError|AssertionError|NotImplementedError|TypeError|RuntimeError"
        r"|\w*ArgumentTypeError"
        r"|\S*ValidationError)",
        sure=0.55,
        means="the settings exclude each other, or the model",
    ),
)
_INVALID = re.compile(r"validation errors? for (?P<what>\w*(?:Config|Args|Parameters))\b")
_WHY = re.compile(r"^\s*(?:Value|Assertion) error, (?P<why>.+?)(?: \[type=\w+error\b|$)")
_FIELD = re.compile(
    r"^\s+(?P<why>Extra inputs are not permitted|Field required|Input should be [^\[]+"
    r"|Unexpected keyword argument"
    r"|String should [^\[]+) \[type="
)


def read(case: Case) -> tuple[Match, ...]:
    """What the places of the errors tell, of each kind once."""
    found: dict[str, Match] = {}
    for match in (*_by_frames(case), *_by_validation(case)):
        found.setdefault(match.kind, match)
    return tuple(found.values())


def _by_frames(case: Case) -> Iterator[Match]:
    for trace in case.tracebacks:
        if trace.error is None or _NOT_OF_THE_PLACE.search(trace.error.text):
            continue
        if _INVALID.search(trace.error.text):
            continue  # the lines after it say why
        place = next((one for one in _PLACES if _fits(case, trace, one)), None)
        if place is not None:
            yield _match(case, place, trace.error, _said(case, trace))


def _fits(case: Case, trace: Traceback, place: Place) -> bool:
    inner, error = trace.innermost, trace.error
    if inner is None or error is None or (case.is_ready and place.is_start):
        return False
    if place.errors and not re.search(place.errors, error.text):
        return False
    if place.is_inner:
        return re.search(place.frames, _name(inner)) is not None
    return any(re.search(place.frames, _name(frame)) for frame in trace.frames)


def _name(frame: Frame) -> str:
    return f"{frame.file}:{frame.function}"


def _said(case: Case, trace: Traceback) -> str:
    """The message; of a bare assertion the condition that did not hold."""
    name, _, words = (trace.error.text if trace.error else "").partition(":")
    if words.strip():
        return words.strip()
    inner = trace.innermost
    number = inner.number + 1 if inner is not None else -1
    source = next((line.text.strip() for line in case.lines if line.number == number), "")
    return source or name


def _by_validation(case: Case) -> Iterator[Match]:
    """Of pydantic's errors of the engine's own records: where frames are cut away the record's name tells."""
    head = case.first(_INVALID)
    if head is None or case.is_ready:
        return
    place = next(one for one in _PLACES if one.kind == "pkg.cli_flag")
    for pattern, is_field in ((_WHY, False), (_FIELD, True)):
        for line, match in case.matches(pattern):
            if line.number > head[0].number and not _NOT_OF_THE_PLACE.search(match["why"]):
                name = _line_before(case, line) if is_field else ""
                yield _match(case, place, line, f"{name} {match['why']}".strip())
                return


def _line_before(case: Case, line: CaseLine) -> str:
    return next((one.text.strip() for one in case.lines if one.number == line.number - 1), "")


def _match(case: Case, place: Place, line: CaseLine, said: str) -> Match:
    kind, means = place.kind, place.means
    if kind == "pkg.cli_flag" and _HARDWARE.search(said):
        kind, means = "arch.backend_gate", "a chosen setting is refused on this device"
    if kind == "arch.quant_unsupported" and re.search(r"divisib|multiple of|aligned|group.?size", said):
        kind, means = "shard.quant_group", "the part of one GPU does not fit the quantisation's groups"
    return Match(
        kind=kind,
        sure=place.sure,
        lines=with_frames(case, (line,)),
        summary=f"{means}: {said[:_MOST_WORDS]}",
        explanation="No rule knows this message: the place where it was raised tells its kind.",
        fixes=_FIXES[kind](case, said),
        severity=place.severity,
    )


def _later(case: Case) -> Fix:
    return Fix(type="package", name=package_of(engine_of(case)), old=case.version, new="a later release")


_FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*[a-z]")


def _settings(case: Case, said: str) -> tuple[Fix, ...]:
    """The flags that the message names, and those that the command gives of what it names."""
    named = list(dict.fromkeys(_FLAG.findall(said)))
    words = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+", said))
    named += [flag for flag in case.flags if flag.lstrip("-").replace("-", "_") in words]
    return tuple(
        Fix(type="flag", name=flag, old=value_of(case, flag), new="as the message says")
        for flag in dict.fromkeys(named)
    )[:3]


def _mismatch(case: Case, _: str) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), "quantization")
    fixes = (
        (Fix(type="flag", name=name, old=value_of(case, name), new="the method of the files"),)
        if name
        else ()
    )
    return (*fixes, _later(case))


def _backend(case: Case, said: str) -> tuple[Fix, ...]:
    engine = engine_of(case)
    fixes: list[Fix] = []
    narrow = flag_of(engine, "kv_dtype")
    if narrow and re.search(r"(?i)kv.?cache|fp8", said):
        fixes.append(
            Fix(
                type="flag", name=narrow, old=value_of(case, narrow), new="auto", cost="more memory per token"
            )
        )
    name = flag_of(engine, "attention_backend")
    if name:
        new = "triton" if engine == "sglang" else "TRITON_ATTN"
        fixes.append(
            Fix(type="flag", name=name, old=value_of(case, name) or "auto", new=new, cost="maybe slower")
        )
    return (*fixes, _later(case))


def _format(case: Case, _: str) -> tuple[Fix, ...]:
    return (
        Fix(type="file", name="checkpoint", new="another quantisation, or bf16", cost="another download"),
        _later(case),
    )


def _group(case: Case, _: str) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), "tensor_parallel")
    old = value_of(case, name) if name else None
    new = str(int(old) // 2) if old and old.isdigit() and int(old) > 1 else "half"
    return (Fix(type="flag", name=name, old=old, new=new, cost="fewer GPUs per layer"),) if name else ()


def _tokenizer(case: Case, _: str) -> tuple[Fix, ...]:
    return (
        Fix(type="package", name="transformers", old=case.versions.get("transformers"),
            new="the version that the model's config.json names, as the engine allows"),
    )  # fmt: skip


def _model(case: Case, _: str) -> tuple[Fix, ...]:
    return (_later(case), *_tokenizer(case, ""))


def _template(_: Case, __: str) -> tuple[Fix, ...]:
    return (
        Fix(type="flag", name="--chat-template", new="file.jinja", cost="of this model only"),
        Fix(type="package", name="model", old="its files", new="those with the newest template"),
    )


def _parser(case: Case, _: str) -> tuple[Fix, ...]:
    names = ("--tool-call-parser", "--reasoning-parser")
    return tuple(
        Fix(type="flag", name=name, old=case.flags.get(name), new="the one of the model's family, or none")
        for name in names
        if name in case.flags
    ) or (_later(case),)


_FIXES: dict[str, Callable[[Case, str], tuple[Fix, ...]]] = {
    "pkg.cli_flag": _settings,
    "file.param_mismatch": _mismatch,
    "arch.backend_gate": _backend,
    "arch.quant_unsupported": _format,
    "shard.quant_group": _group,
    "model.tokenizer_old": _tokenizer,
    "model.arch_unknown": _model,
    "api.chat_template": _template,
    "api.tool_parser": _parser,
    "api.reasoning_parser": _parser,
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="an error that its place explains",
    literals=("Traceback (most recent call last)", 'File "', "File /", "File ~/", "validation error"),
    read=read,
    meaning="The engine refused something in a part of its code that checks one kind of thing only: its "
    "settings, "
    "the files, a backend, a quantisation, the tokenizer, the chat template.",
    told_apart="Only where no rule knows the message: those are surer. Errors of memory, devices, peers, "
    "packages "
    "and the network show in any place and are left out, and so is a start that came up.",
    cure="What the message names: it is quoted, with the flags of the command that it is about.",
    source="vLLM `config/`, `engine/arg_utils.py`, `v1/attention/`, `model_executor/layers/quantization/`; "
    "SGLang "
    "`srt/server_args.py`, `srt/arg_groups/`; pydantic's ValidationError.",
)
