"""The model is not one that this release knows: its class, its own code, its tokenizer.

Source: vLLM 0.2 to 0.33 `model_executor/models/registry.py`, `transformers_utils/config.py`; SGLang 0.3 to
0.5.23 `models/registry.py`; transformers 4.30 to 5.x `configuration_auto.py`, `dynamic_module_utils.py`,
`tokenization_utils_base.py`; tokenizers `bindings/python`; TensorRT-LLM `models/automodel.py`.
"""

from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, package_of

_MESSAGES = (
    Message(
        kind="model.arch_unknown",
        sure=0.95,
        pattern=r"(?i:model) architectures? \[?(?P<model>'?[\w.-]+'?(?:, '?[\w.-]+'?)*)\]? (?:are"
        r"|is) not supported(?: for now)?",
        literals=("not supported",),
        summary="this release has no model class {model}",
        # A class that the message itself lists is known: its import failed.
        unless=r"Error in inspecting model architecture|architectures? \['(\w+)'\] are not supported"
        r".*Supported architectures:.*'\1'",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.95,
        pattern=r"model type [`'\"]?(?P<model>[\w.-]+)[`'\"]? but Transformers does not recognize this "
        r"architecture",
        literals=("does not recognize this architecture",),
        summary="no model type {model} in what is installed",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.92,
        pattern=r"(?P<model>\w+) has no (?:vLLM|SGLang|SGlang) implementation and the Transformers "
        r"implementation is not compatible"
        r"|Cannot find model module\. '?(?P<other>\w+)'? is not a registered model"
        r"|Transformers implementation of (?P<fourth>\w+) is not compatible with"
        r"|[Uu]n(?:supported|known) (?:model )?(?:architectures?"
        r"|model type)(?: for AutoModelForCausalLM)?:? [`'\"]?(?P<third>(?!sm_|compute_)\w+)",
        literals=(
            "implementation is not compatible",
            "is not compatible with",
            "Cannot find model module",
            "Unsupported model",
            "unsupported model",
            "Unknown model",
            "unknown model",
            "Unknown architecture",
            "unknown architecture",
            "Unsupported architecture",
            "unsupported architecture",
        ),
        summary="this release has no model class {model}{other}{third}{fourth}",
        unless=r"unknown model architecture: '|GGUF",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.8,
        pattern=r"No model architectures are specified|Unrecognized (?:model"
        r"|configuration class) (?:in )?(?P<model>\S+)"
        r"|(?:has no attribute|cannot import name) '(?P<other>\w+(?:Config|ForCausalLM"
        r"|ForConditionalGeneration))'",
        literals=(
            "No model architectures are specified",
            "Unrecognized model",
            "Unrecognized configuration class",
            "has no attribute",
            "cannot import name",
        ),
        summary="the model's class is not known here: {model}{other}",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.6,
        pattern=r"KeyError: '(?P<model>(?:llama|qwen|qwq|mistral|ministral|mixtral|gemma|glm|chatglm"
        r"|deepseek|phi|gpt|kimi|"
        r"minimax|nemotron|granite|olmo|cohere|command|falcon|exaone|ernie|hunyuan|internlm|internvl|seed"
        r"|step|mimo|"
        r"ling|bailing|longcat|bert|whisper|mllama|idefics|llava|pixtral|jamba|mamba|dbrx|grok|smollm"
        r"|lfm)[a-z0-9_]*)'",
        literals=("KeyError: '",),
        summary="no model type {model} in what is installed",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.9,
        pattern=r"`?rope_scaling`? must be a dictionary with (?:with )?(?:two fields"
        r"|a minimum of two fields|keys)"
        r"[^\n]*?(?:'(?:rope_)?type': '(?P<rope>\w+)'|$)"
        r"|[Uu]nknown RoPE scaling type:? '?(?P<other_rope>\w+)|assert \"(?:factor"
        r"|type)\" in (?:self\.)?rope_scaling"
        r"|Missing required keys in `rope_(?:parameters|scaling)` for 'rope_type'='(?P<fourth_rope>\w+)'"
        r"|`?rope_scaling`?'s type field must be one of[^\n]*got (?P<third_rope>\S+)",
        literals=("ope_scaling", "RoPE scaling type", "`rope_parameters`"),
        summary="the model scales its positions in a way ({rope}{other_rope}{third_rope}{fourth_rope}) that "
        "the "
        "installed release does"
        " not know",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.75,
        pattern=r"AttributeError: '(?P<model>\w+Config)' object has no attribute '(?P<field>\w+)'"
        r"|AttributeError: module '?transformers\S* has no attribute '?(?P<other>[A-Z]\w+)"
        r"|[Cc]annot import name '(?P<third>\w+(?:Config|ForCausalLM|ForConditionalGeneration|Processor"
        r"|VideoProcessor))'"
        r" from '?transformers",
        literals=(
            "object has no attribute",
            "module transformers",
            "module 'transformers",
            "annot import name",
        ),
        summary="engine, transformers and model are of different times: {model}{other}{third} {field}",
    ),
    Message(
        kind="model.arch_unknown",
        sure=0.8,
        pattern=r"KeyError: '(?P<model>\w+(?:ForCausalLM|ForConditionalGeneration|LMHeadModel))'"
        r"|Unable to find (?:a )?model class (?P<other>\w+)|[Nn]o (?:registered )?(?:model"
        r"|TensorRT-LLM) (?:class|implementation)"
        r" (?:found )?for (?P<third>\w+)",
        literals=("KeyError: '", "Unable to find", "o registered", "o model class", "o TensorRT-LLM"),
        summary="this release has no model class {model}{other}{third}",
    ),
    Message(
        kind="model.trust_remote_code",
        sure=0.85,
        pattern=r"Failed to load the (?P<what>model config|tokenizer|processor|image processor"
        r"|feature extractor"
        r"|video processor)\. If the \S+ \S* ?is a custom",
        literals=("Failed to load the ",),
        summary="the {what} comes with code of its own, which is not run unasked, or is newer than "
        "transformers",
    ),
    Message(
        kind="model.trust_remote_code",
        sure=0.95,
        pattern=r"requires you to execute (?:execute )?(?:some|the (?:configuration|modeling"
        r"|tokenizer)?)\w* ?(?:code|file) in that"
        r"|contains custom code which must be executed|set the option `?trust_remote_code=True`?"
        r"|pass the argument `?trust_remote_code=True`?|[Dd]o you wish to run the custom code"
        r"|trust_remote_code[=`' ]+True[`' ]+ ?(?:to|is required)|set --trust-remote-code",
        literals=(
            "requires you to execute",
            "contains custom code",
            "trust_remote_code",
            "run the custom code",
            "--trust-remote-code",
        ),
        summary="the model brings its own code, which is not run unasked",
        unless=r"trust_remote_code` is not (?:needed|necessary)",
    ),
    Message(
        kind="model.trust_remote_code",
        sure=0.35,
        pattern=r"^EOFError(?:: EOF when reading a line)?$|EOFError: EOF when reading a line",
        literals=("EOFError",),
        summary="something asked for an answer on the terminal, where there is none: most often whether "
        "to run a model's code",
        unless=r"torch_compile_cache|Ran out of input|multiprocessing/connection|_recv|resource_tracker",
    ),
    Message(
        kind="model.tokenizer_old",
        sure=0.95,
        pattern=r"data did not match any variant of untagged enum (?P<what>\w+)",
        literals=("untagged enum",),
        summary="tokenizer.json is in a newer form ({what}) than the installed tokenizers reads",
    ),
    Message(
        kind="model.tokenizer_old",
        sure=0.88,
        pattern=r"Tokenizer class (?P<what>\w+) does not exist or is not currently imported"
        r"|(?i:unrecognized) tokenizer|Couldn't instantiate the backend tokenizer"
        r"|'?(?P<other>\w+)'? (?:object )?has no attribute '?(?:all_special_tokens_extended"
        r"|additional_special_tokens)\b"
        r"|'(?P<third>\w*(?:Tokenizer\w*|TokenizersBackend))' object has no attribute '\w+'"
        r"|Tokenizer\w*\.\w+\(\) got an unexpected keyword argument"
        r"|can't set attribute '?(?:eos|pad|bos|unk)_token",
        literals=(
            "object has no attribute",
            "got an unexpected keyword argument",
            "can't set attribute",
            "does not exist or is not currently imported",
            "nrecognized tokenizer",
            "the backend tokenizer",
            "special_tokens",
        ),
        summary="the tokenizer is one that the installed release does not know: {what}{other}{third}",
    ),
    Message(
        kind="model.tokenizer_old",
        sure=0.7,
        pattern=r"AttributeError: 'list' object has no attribute 'keys'|(?i:unknown) (?:pre-)?tokenizer type"
        r"|Converting from (?:SentencePiece and )?Tiktoken failed"
        r"|Unable to load (?:tokenizer model from SPM|vocabulary from file)"
        r"|[Bb]ackend tokenizer is not correctly initialized"
        r"|Cannot instantiate this tokenizer from a slow version"
        r"|expected value at line 1 column 1.*tokenizer",
        literals=(
            "tokenizer model from SPM",
            "vocabulary from file",
            "ackend tokenizer is not",
            "from a slow version",
            "'list' object has no attribute 'keys'",
            "Tiktoken failed",
            "okenizer type",
            "column 1",
        ),
        summary="the tokenizer's files are in a form that the installed release does not read",
        unless=r"unknown pre-tokenizer",
    ),
)


def _unknown(case: Case, one: Said) -> tuple[Fix, ...]:
    """The engine first: a newer transformers brings no model class of the engine's."""
    name = next((one.values[key] for key in ("model", "other", "third") if key in one.values), "it").strip(
        "'`"
    )
    new = f"a release whose list of models has {name}"
    told = engine_of(case)
    # vLLM and SGLang say it with the same words.
    engines = (told,) if told else ("vllm", "sglang")
    upgrades = tuple(Fix(type="package", name=package_of(one), old=case.version, new=new) for one in engines)
    needs_both = "Transformers" in one.text or "Config" in name
    library = (
        (Fix(type="package", name="transformers", new="the version that this release asks for"),)
        if needs_both
        else ()
    )
    return (*upgrades, *library)


def _trust(case: Case, _: Said) -> tuple[Fix, ...]:
    flag = flag_of(engine_of(case), "trust") or "--trust-remote-code"
    cost = "runs code of the model's owner: read it first"
    return (
        Fix(type="flag", name=flag, new="true", cost=cost),
        Fix(type="env", name="TRUST_REMOTE_CODE", new="True", cost=cost),
    )


def _tokenizer(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="package", name="tokenizers", new="newest that transformers allows (0.20 or newer)"),
        Fix(type="package", name="transformers", new="4.45 or newer, as the engine allows"),
    )


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "model.arch_unknown": _unknown,
    "model.trust_remote_code": _trust,
    "model.tokenizer_old": _tokenizer,
}
_EXPLANATIONS = {
    "model.arch_unknown": "An engine has its own class for every model: a newer transformers alone adds "
    "none.",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="a model that this release does not know",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, _FIXES, explain=lambda one: _EXPLANATIONS.get(one.message.kind, "")),
    meaning="The class, the type, the own code or the tokenizer of the model is not known to what is "
    "installed.",
    told_apart="`architectures ... not supported` and `does not recognize` are the class; `untagged enum` is "
    "tokenizer.json; a question for permission, or EOFError where nobody can answer it, is the model's "
    "own code.",
    cure="A release of the engine that has the class; `--trust-remote-code` after reading the code; "
    "newer tokenizers.",
    source="vLLM `model_executor/models/registry.py`; SGLang `models/registry.py`; transformers "
    "`configuration_auto.py`, "
    "`dynamic_module_utils.py`; tokenizers `tokenizer/mod.rs`.",
)
