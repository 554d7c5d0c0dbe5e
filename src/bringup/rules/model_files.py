"""The files of the model: cut short, pointers, absent, in two forms, or not what the engine expects.

Source: safetensors `src/tensor.rs` (`SafeTensorError`); vLLM 0.4 to 0.33 `model_loader/*.py`,
`models/utils.py` (`AutoWeightsLoader`); SGLang 0.4 to 0.5.23 `model_loader/*.py`; transformers
`modeling_utils.py`, `hub.py`; PyTorch `serialization.py`, `caffe2/serialize/inline_container.cc`.
"""

import re
from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import (
    engine_of,
    flag_of,
    is_uncut,
    package_of,
    tensor_parallel_of,
    value_of,
)

# Names of Mistral's and Meta's own files, which lie beside the ones that engines read.
_OTHER_NAMES = (
    r"(?:layers\.\d+\.(?:attention\.w[qkvo]|feed_forward\.w[123]|attention_norm|ffn_norm)"
    r"|tok_embeddings|output|norm)\.weight"
)
_MESSAGES = (
    Message(
        kind="file.lfs_pointer",
        sure=0.86,
        pattern=r"deserializing header: (?i:header) ?[Tt]oo ?(?i:large)|header too large",
        literals=("eader: HeaderTooLarge", "eader: header too large", "header too large"),
        summary="a .safetensors file does not begin with a header: most likely a Git LFS pointer of "
        "about 130 bytes",
    ),
    Message(
        kind="file.lfs_pointer",
        sure=0.95,
        pattern=r"invalid load key, '(?:v|\\x76)'|invalid magic characters:? '?vers"
        r"|git-lfs\.github\.com/spec",
        literals=("invalid load key", "invalid magic characters", "git-lfs.github.com"),
        summary="the file is a Git LFS pointer, not the weights",
    ),
    Message(
        kind="file.corrupt",
        sure=0.93,
        pattern=r"deserializing header: (?P<how>Metadata ?Incomplete ?Buffer|Invalid ?Header\w*"
        r"|Header ?Too ?Small|(?i:invalid) \w+[^\n]*|"
        r"incomplete metadata[^\n]*|JSON[^\n]*)|incomplete metadata, file not fully covered"
        r"|TensorInvalidInfo|InvalidOffset",
        literals=("eserializing header", "incomplete metadata", "TensorInvalidInfo", "InvalidOffset"),
        summary="a .safetensors file is cut short or broken ({how})",
    ),
    Message(
        kind="file.corrupt",
        sure=0.92,
        pattern=r"PytorchStreamReader failed|invalid load key, '(?P<how>[^']+)'|not fully covered"
        r"|Ran out of input"
        r"|tensor '?(?P<tensor>\S+?)'? data is not within the file bounds|model is corrupted or incomplete"
        r"|failed to read tensor (?:data|info)|unexpectedly reached end of file"
        r"|invalid magic (?:characters|number)"
        r"|failed to read (?:magic|header|key-value pairs)|(?:shard|file) \S+ (?:is )?(?:corrupt"
        r"|truncated|incomplete)\w*"
        r"|Consistency check failed: file should be of size \d+ but has size \d+"
        r"|(?i:corrupted) (?:checkpoint|shard|safetensors)|[Ss]ize mismatch.{0,30}bytes on disk"
        r"|pickle data was truncated|unexpected EOF, expected \d+ more bytes"
        r"|Unable to load weights from pytorch checkpoint file|ParseFromArray\(serialized"
        r"|(?i:(?:digest|checksum|sha-?256\w*|hash|etag)[^\n]{0,20} "
        r"(?:mismatch|does not match|do not match))",
        literals=(
            "mismatch",
            "not match",
            "pickle data was",
            "unexpected EOF",
            "weights from pytorch checkpoint",
            "ParseFromArray",
            "PytorchStreamReader failed",
            "invalid load key",
            "not fully covered",
            "Ran out of input",
            "within the file bounds",
            "corrupted or incomplete",
            "failed to read",
            "reached end of file",
            "invalid magic",
            "orrupt",
            "truncated",
            "incomplete",
            "bytes on disk",
            "Consistency check failed",
        ),
        summary="a file of the model is cut short or broken",
        unless=r"invalid load key, 'v'|invalid magic characters:? '?vers|corrupted compilation artifact"
        r"|torch_compile_cache|"
        r"invalid magic characters:? '?(?:PK|\{)|has invalid ggml type",
    ),
    Message(
        kind="file.corrupt",
        sure=0.85,
        pattern=r"(?:config file|tokenizer file)[^\n]{0,80}is not a valid JSON file"
        r"|JSONDecodeError: (?:Expecting|Extra data|Unterminated)",
        literals=("is not a valid JSON file", "JSONDecodeError"),
        summary="a JSON file of the model cannot be read",
        unless=r"torch_compile_cache|/v1/|HTTP/1",
    ),
    Message(
        kind="file.corrupt",
        sure=0.7,
        pattern=r"(?:OSError|IOError): \[Errno 5\] Input/output error|^read error: Input/output error",
        literals=("Input/output error",),
        summary="a file could not be read: the disk, the network share or the mount fails",
    ),
    Message(
        kind="file.missing_shard",
        sure=0.93,
        pattern=r"(?:No such file|not found|does not exist|(?i:missing)|(?i:cannot) (?:open|find)"
        r"|(?i:failed) to open|expects)[^\n]*?"
        r"(?P<file>[\w.-]*\d{5}-of-(?P<of>\d{5})\.(?:safetensors|bin|gguf))"
        r"|(?P<other>[\w.-]*\d{5}-of-\d{5}\.(?:safetensors|bin))[^\n]{0,40}(?:not found|does not exist"
        r"|missing|No such file)",
        literals=("-of-",),
        summary="the index names {file}{other}, which is not there",
    ),
    Message(
        kind="file.missing_shard",
        sure=0.9,
        pattern=r"Cannot find any model weights|[Nn]o file named (?:pytorch_model\.bin"
        r"|model\.safetensors)|(?:(?i:missing)|missing) (?P<count>\d+)"
        r" (?:shards?|weight files?)|does not appear to have (?:a|any) files? named (?:pytorch_model"
        r"|model|tf_model)"
        r"|No (?:safetensors|weights?|\.safetensors) files? (?:found|in)|[Nn]o model weights found"
        r"|Couldn't find any (?:safetensors|weights)",
        literals=(
            "Cannot find any model weights",
            "o file named",
            "issing",
            "not appear to have",
            "No safetensors",
            "No weight",
            "No .safetensors",
            "o model weights found",
            "Couldn't find any",
        ),
        summary="there are no weights where the engine looks for them",
        unless=r"PEFT|adapter_model",
    ),
    Message(
        kind="file.missing_shard",
        sure=0.7,
        pattern=r"(?i:following) weights were not initialized from checkpoint: (?P<names>\{[^}]{0,400})"
        r"|[Ss]ome weights? (?:of the model )?(?:were|are) not (?:initialized|loaded) from",
        literals=("not initialized from", "not loaded from"),
        summary="weights that the model needs are in none of the files",
    ),
    Message(
        kind="file.format_mixed",
        sure=0.96,
        pattern=r"KeyError: ['\"](?P<name>" + _OTHER_NAMES + r")['\"]",
        literals=("KeyError: ",),
        summary="weights under another maker's names ({name}) lie beside the ones the engine reads",
    ),
    Message(
        kind="file.format_mixed",
        sure=0.7,
        pattern=r"(?:(?i:found)|[Bb]oth).{0,60}consolidated\S*\.safetensors|(?i:duplicate) (?:tensor|weight"
        r"|parameter) (?:name )?\S+ (?:in|found)",
        literals=("consolidated", "uplicate"),
        summary="two sets of weights lie side by side",
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.93,
        pattern=r"KeyError: ['\"](?P<name>(?:[\w]+\.)*(?:layers|blocks|h|model|lm_head|experts|visual"
        r"|language_model|embed_tokens|"
        r"transformer|mtp)\.[\w.-]+|[\w.-]+\.\w*(?:weight|bias|scale|zeros|g_idx|absmax|A_log"
        r"|inv_freq)\w*)['\"]",
        literals=("KeyError: ",),
        summary="the checkpoint holds {name}, which the model that was built has not",
        unless=r"KeyError: ['\"]" + _OTHER_NAMES,
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.7,
        pattern=r"^\s*'(?P<name>(?:\w+\.)*(?:layers|blocks|h)\.\d+\.[\w.]+)'\s*$",
        literals=("'layers.", "'model.", "'language_model.", "'transformer.", "'blocks.", "'visual."),
        summary="the checkpoint holds {name}, which the model that was built has not",
        unless=r"KeyError: ['\"]",
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.92,
        pattern=r"(?i:there) is no module or parameter named '?(?P<name>[\w.]+)'?(?: in (?P<model>\w+))?"
        r"|(?:Parameter|Weight|(?i:unexpected) (?:key|weight)) '?(?P<other>[\w.]+\.[\w.]+)'? (?:not found "
        r"in (?:params_dict|model)|is not)",
        literals=(
            "no module or parameter named",
            "not found in params_dict",
            "not found in model",
            "nexpected key",
            "nexpected weight",
        ),
        summary="the checkpoint holds {name}{other}, which the model that was built has not",
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.88,
        pattern=r"Attempted to load weight \(torch\.Size\(\[(?P<has>[\d, ]*)\]\)\) into parameter "
        r"\(torch\.Size\(\[(?P<wants>[\d, ]*)\]\)\)"
        r"|assert param(?:_data)?\.(?:shape|size\(\)) == loaded_weight\.(?:shape|size\(\))"
        r"|Error\(s\) in loading state_dict|size mismatch for (?P<name>[\w.]+): copying a param",
        literals=("Attempted to load weight", "== loaded_weight.", "size mismatch for"),
        summary="a weight of [{has}] meets a parameter of [{wants}]: another quantisation or another config",
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.85,
        pattern=r"Quantization method specified in the model config \((?P<in_file>\S+)\) does not match "
        r"the quantization method specified"
        r" in the `quantization` argument \((?P<given>\S+)\)",
        literals=("Quantization method specified in the model config",),
        summary="the checkpoint is quantised as {in_file}, {given} was asked for",
    ),
    Message(
        kind="file.param_mismatch",
        sure=0.85,
        pattern=r"Cannot find the config file for (?P<given>\w+)",
        literals=("Cannot find the config file for",),
        summary="{given} was asked for, and the checkpoint says nothing of a quantisation",
    ),
)
# vLLM 0.32 reads the headers itself (`transformers_utils/utils.py`), before anything is loaded.
_HUGE_HEADER = Message(
    kind="file.lfs_pointer",
    sure=0.84,
    pattern=r"^MemoryError\b",
    literals=("MemoryError",),
    summary="a .safetensors file begins with no header but with an impossible length: most likely a Git "
    "LFS pointer of about 130 bytes",
)
_UNCUT = Message(
    kind="file.param_mismatch",
    sure=0.88,
    pattern=r"size of tensor a \((?P<wants_size>\d+)\) must match the size of tensor b \((?P<has_size>\d+)\)",
    literals=("must match the size of tensor b",),
    summary="a weight of {has_size} meets a parameter of {wants_size}, and nothing is cut: config.json is "
    "of another model than the weights",
)
# Ending of a parameter's name -> what the checkpoint was quantised with. Source: the loaders of vLLM 0.33.0.
_METHODS = (
    (r"weight_packed|weight_shape|_global_scale", "compressed-tensors", None),
    (r"quant_state|absmax|nested_quant_map|quant_map", "bitsandbytes", "bitsandbytes"),
    (r"qweight|qzeros|g_idx|scales$", "gptq or awq, as config.json says", None),
    (r"weight_scale_inv", "fp8", None),
    (r"input_scale|weight_scale_2|weight_scale$|[kv]_scale$", "modelopt", None),
)


def read(case: Case) -> tuple[Match, ...]:
    """What is wrong with the files, and what puts them right."""
    found = surest(case, (*_MESSAGES, *_with_conditions(case)))
    matches = [
        Match(
            kind=one.message.kind,
            sure=one.message.sure,
            lines=with_frames(case, one.lines),
            summary=one.summary.replace("?", ""),
            explanation=_explanation(case, one),
            fixes=_FIXES[one.message.kind](case, one),
            next_measurement=_NEXT.get(one.message.kind, ""),
        )
        for one in found
    ]
    kinds = {match.kind for match in matches}
    if "file.lfs_pointer" in kinds and "file.corrupt" not in kinds and not case.says(r"git-lfs\.github"):
        first = next(match for match in matches if match.kind == "file.lfs_pointer")
        matches.append(
            Match(kind="file.corrupt", sure=0.45, lines=first.lines, fixes=_DOWNLOAD,
                  summary="or the file is broken: its size tells (about 130 bytes is a pointer)")
        )  # fmt: skip
    return tuple(matches)


def _with_conditions(case: Case) -> tuple[Message, ...]:
    """The messages that say this only where they stand in the right place."""
    reads_header = any(trace.passes(r"safetensors_\w*metadata") for trace in case.tracebacks)
    loads = any(trace.passes(r"load_weights|weight_loader|load_model") for trace in case.tracebacks)
    return (*((_HUGE_HEADER,) if reads_header else ()), *((_UNCUT,) if loads and is_uncut(case) else ()))


_DOWNLOAD = (
    Fix(type="file", name="shard", old="truncated", new="resume the download, then compare size and sha256"),
)


def _pointer(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(
            type="file",
            name="shards",
            old="pointers",
            new="git lfs pull, or `hf download`",
            cost="the download",
        ),
        Fix(type="package", name="git-lfs", new="install; then git lfs pull"),
    )


def _broken(_: Case, __: Said) -> tuple[Fix, ...]:
    return _DOWNLOAD


def _missing(_: Case, one: Said) -> tuple[Fix, ...]:
    name = one.values.get("file") or one.values.get("other") or "shards"
    if name.startswith("/") and "-of-" not in name:
        return (
            Fix(type="file", name=name, old="missing", new="the path that the engine's own process sees"),
        )
    fetched = Fix(type="file", name=name, old="missing", new="download the shards that the index names")
    if name.endswith(".gguf"):
        return (fetched,)
    return (
        fetched,
        Fix(
            type="file",
            name="model.safetensors.index.json",
            old="present",
            new="remove or regenerate, where the weights are there in another form",
            kind="workaround",
        ),
    )


def _mixed(case: Case, _: Said) -> tuple[Fix, ...]:
    return (
        Fix(
            type="file",
            name="consolidated*.safetensors",
            old="present",
            new="exclude from the download, or move away",
        ),
        Fix(
            type="package",
            name=package_of(engine_of(case)),
            old=case.version,
            new="a later release, which leaves them out",
        ),
    )


def _mismatch(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    name = one.values.get("name") or one.values.get("other") or ""
    later = Fix(type="package", name=package_of(engine), old=case.version, new="a later release")
    fixes: list[Fix] = []
    flag, loads = flag_of(engine, "quantization"), flag_of(engine, "load_format")
    method, load_format = _method(name)
    if "in_file" in one.values and flag:
        return (Fix(type="flag", name=flag, old=one.values["given"], new=one.values["in_file"].rstrip(".")),)
    if "given" in one.values and flag:
        return (Fix(type="flag", name=flag, old=one.values["given"], new=None),)
    if "has_size" in one.values:
        return (
            Fix(
                type="file",
                name="config.json",
                old="of another model",
                new="the one that came with the weights",
            ),
        )
    if method and flag:
        fixes.append(Fix(type="flag", name=flag, old=value_of(case, flag), new=method))
        if loads and (load_format or method.startswith("gptq")):
            fixes.append(
                Fix(type="flag", name=loads, old=value_of(case, loads) or "auto", new="bitsandbytes",
                    kind="cure" if load_format else "workaround", cost="only for a bitsandbytes checkpoint")
            )  # fmt: skip
            if not load_format:
                fixes.append(Fix(type="flag", name=flag, new="bitsandbytes", kind="workaround"))
    stages = flag_of(engine, "pipeline_parallel")
    if stages and re.search(r"layers\.\d+\.", name) and (_runs_stages(case, stages) or not method):
        old = value_of(case, stages) or "2"
        fixes.append(
            Fix(type="flag", name=stages, old=old, new="1", kind="workaround", cost="where stages are used")
        )
    return (*fixes, later)


def _method(name: str) -> tuple[str, str | None]:
    return next(
        ((method, loads) for ending, method, loads in _METHODS if re.search(ending, name)), ("", None)
    )


def _runs_stages(case: Case, flag: str) -> bool:
    return (value_of(case, flag) or "1") != "1"


def _explanation(case: Case, one: Said) -> str:
    name = one.values.get("name", "")
    if one.message.kind == "file.lfs_pointer":
        return (
            "The first eight bytes are read as a length; those of the text `version https://git-lfs` "
            "are a huge one."
        )
    if one.message.kind != "file.param_mismatch":
        return ""
    if _method(name)[0]:
        return "The name belongs to a quantised checkpoint: its method was not applied, or not to this layer."
    if name.startswith("lm_head"):
        return "The output head is tied to the embeddings, or kept apart, against what this release expects."
    if re.search(r"layers\.\d+\.", name) and (
        tensor_parallel_of(case, engine_of(case)) or _layer(name) >= 20
    ):
        return (
            "A layer with a number beyond the model's own is one of multi-token prediction; else it "
            "is another stage's."
        )
    return ""


def _layer(name: str) -> int:
    found = re.search(r"layers\.(\d+)\.", name)
    return int(found[1]) if found else 0


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "file.lfs_pointer": _pointer,
    "file.corrupt": _broken,
    "file.missing_shard": _missing,
    "file.format_mixed": _mixed,
    "file.param_mismatch": _mismatch,
}
_NEXT = {
    "file.lfs_pointer": "find MODEL -name '*.safetensors' -size -2k",
    "file.corrupt": "ls -lL MODEL/*.safetensors; compare with the sizes that the hub shows",
    "file.missing_shard": "compare the file names in model.safetensors.index.json with the folder",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="files of the model",
    literals=literals_of(_MESSAGES, (_HUGE_HEADER, _UNCUT)),
    read=read,
    meaning="A file of the model is a pointer, is cut short, is absent, lies there twice under other "
    "names, or holds "
    "parameters that the model as it was built has not.",
    told_apart="HeaderTooLarge and `invalid load key, 'v'` are the text of a Git LFS pointer read as data; "
    "MetadataIncompleteBuffer is a file shorter than its header says; KeyErrors tell by the name: "
    "quantisation's "
    "endings, `attention.wk` of consolidated files, a layer beyond the last one of multi-token prediction.",
    cure="Download again what is missing or broken; move the second set away; apply the quantisation the "
    "files have.",
    source="safetensors `src/tensor.rs`; vLLM `model_loader/weight_utils.py`, `models/utils.py`; "
    "transformers `hub.py`; "
    "PyTorch `serialization.py`; llama.cpp `llama-model-loader.cpp`.",
)
