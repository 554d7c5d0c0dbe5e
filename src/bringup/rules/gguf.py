"""GGUF files: architectures a build does not know, tensors that do not add up, parts, the wrong file.

Source: llama.cpp 2024-01 to b11434 `src/llama-model-loader.cpp`, `llama-model.cpp`, `llama-vocab.cpp`,
`llama-arch.cpp`; vLLM 0.8 to 0.33 `model_loader/gguf_loader.py`.
"""

from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of

_FEW = 3  # tensors missing or too many: those of a newer feature, not of a bad conversion
_MESSAGES = (
    Message(
        kind="gguf.wrong_file",
        sure=0.96,
        pattern=r"unknown model architecture: '(?P<arch>clip|mmproj|siglip|llava|mtmd)'"
        r"|CLIP cannot be used as main model",
        literals=("unknown model architecture", "CLIP cannot be used as main model"),
        summary="the file is the image encoder (mmproj), not the model",
    ),
    Message(
        kind="gguf.wrong_file",
        sure=0.8,
        pattern=r"invalid magic characters:? '?(?P<arch>PK|\{|ggml|ggjt|tjgg|lmgg|(?i:<!do|<htm))"
        r"|unknown \(magic, version\) combination: \w+, \w+; is this really a GGML file",
        literals=("invalid magic characters", "unknown (magic, version)"),
        summary="the file is no GGUF file",
    ),
    Message(
        kind="gguf.wrong_file",
        sure=0.96,
        pattern=r"mismatch between text model \(n_embd = (?P<text>\d+)\) and mmproj \(n_embd = "
        r"(?P<vision>\d+)\)",
        literals=("mismatch between text model",),
        summary="the image encoder is of another model: its width is {vision}, the model's {text}",
    ),
    Message(
        kind="gguf.wrong_file",
        sure=0.93,
        pattern=r"draft model (?P<what>vocab\w*|special tokens|bos tokens"
        r"|eos tokens)[^\n]{0,80} must match target model"
        r"|draft (?:model )?vocab[^\n]{0,60} (?:differ|does not match|incompatible)",
        literals=("must match target model", "draft model vocab", "draft vocab"),
        summary="the draft model has another vocabulary than the model",
    ),
    Message(
        kind="gguf.arch",
        sure=0.95,
        pattern=r"unknown projector type: ?(?P<arch>[\w.-]*)",
        literals=("unknown projector type",),
        summary="this build does not know the image encoder {arch}",
    ),
    Message(
        kind="gguf.arch",
        sure=0.95,
        pattern=r"this GGUF file is version (?P<arch>\d+) but this software only supports up to version "
        r"(?P<other>\d+)"
        r"|GGUFv1 is no longer supported|bad GGUF version",
        literals=("GGUF file is version", "GGUFv1 is no longer", "bad GGUF version"),
        summary="the file is of another version of GGUF than this build reads",
    ),
    Message(
        kind="gguf.tensors",
        sure=0.92,
        pattern=r"unable to find tensor (?P<tensor>[\w.]+)",
        literals=("unable to find tensor",),
        summary="the file has no tensor {tensor}",
    ),
    Message(
        kind="gguf.tensors",
        sure=0.9,
        pattern=r"tensor '(?P<tensor>[\w.]+)' of type \d+ \((?P<other>\w+)\) has (?P<row>\d+) elements "
        r"per row, not a "
        r"multiple of block size \((?P<block>\d+)\)",
        literals=("not a multiple of block size",),
        summary="{tensor} has rows of {row}, which hold no whole blocks of {block}: it cannot be {other}",
    ),
    Message(
        kind="gguf.arch",
        sure=0.95,
        pattern=r"unknown (?:model )?architecture: '(?P<arch>(?!clip|mmproj|siglip|llava|mtmd)[\w.-]+)'"
        r"|GGUF model with architecture (?P<other>\S+) is not supported"
        r"|Unknown gguf model_type: (?P<third>\S+)"
        r"|unknown pre-tokenizer type: '(?P<pre>[^']+)'",
        literals=(
            "Unknown model architecture",
            "unknown model architecture",
            "unknown architecture",
            "GGUF model with architecture",
            "Unknown gguf model_type",
            "unknown pre-tokenizer type",
        ),
        summary="this build does not know the architecture {arch}{other}{third}{pre}",
    ),
    Message(
        kind="gguf.wrong_file",
        sure=0.8,
        pattern=r"unknown model architecture: '(?P<none>)'",
        literals=("unknown model architecture",),
        summary="the file names no architecture: it is no language model, or was made for another program",
    ),
    Message(
        kind="gguf.arch",
        sure=0.85,
        pattern=r"error loading model: unknown (?:model )?architecture\s*$",
        literals=("unknown architecture", "unknown model architecture"),
        summary="this build does not know the architecture that the file names",
    ),
    Message(
        kind="gguf.arch",
        sure=0.88,
        pattern=r"tensor '(?P<tensor>[\w.]+)' has invalid ggml type (?P<type>\d+)",
        literals=("has invalid ggml type",),
        summary="{tensor} is in number format {type}, which this build does not know",
    ),
    Message(
        kind="gguf.arch",
        sure=0.86,
        pattern=r"tensor '(?P<tensor>[\w.]+)' has wrong shape; expected\s+(?P<wants>[\d, ]+?), "
        r"got\s+(?P<has>[\d, ]+)",
        literals=("has wrong shape; expected",),
        summary="{tensor} has the shape [{has}], this build expects [{wants}]: it does not know this "
        "kind of model yet",
    ),
    Message(
        kind="gguf.arch",
        sure=0.8,
        pattern=r"error loading model (?:hyperparameters|vocabulary"
        r"|architecture): (?P<arch>(?!unknown model arch)[^\n]{1,120})"
        r"|key not found in model: (?P<other>\S+)",
        literals=(
            "error loading model hyperparameters",
            "error loading model vocabulary",
            "error loading model architecture",
            "key not found in model",
        ),
        summary="this build expects another description of the model: {arch}{other}",
        unless=r"unknown (?:model architecture|pre-tokenizer)",
    ),
    Message(
        kind="gguf.tensors",
        sure=0.95,
        pattern=r"wrong number of tensors; expected (?P<expected>\d+), got (?P<got>\d+)",
        literals=("wrong number of tensors",),
        summary="the file holds {expected} tensors, the build takes {got} of them",
    ),
    Message(
        kind="gguf.tensors",
        sure=0.93,
        pattern=r"(?:create_tensor|get_tensor_meta|check_tensor_dims): tensor '(?P<tensor>[\w.]+)' not "
        r"found|missing tensor '(?P<other>[\w.]+)'",
        literals=(
            "create_tensor: tensor",
            "get_tensor_meta: tensor",
            "check_tensor_dims: tensor",
            "missing tensor",
        ),
        summary="the file has no tensor {tensor}{other}",
    ),
    Message(
        kind="gguf.split",
        sure=0.95,
        pattern=r"invalid split file(?: name)?:? ?(?P<file>\S+)?|illegal split file idx: (?P<idx>\d+)"
        r"|failed to load GGUF split from (?P<other>\S+)"
        r"|invalid split (?:file )?(?:count|idx)|must be loaded with the first split"
        r"|corrupted model: (?P<expected>\d+) tensors expected"
        r" but (?P<got>\d+) found|expected \d+ (?:split|tensors?) .{0,20}split",
        literals=("split file", "GGUF split", "invalid split", "the first split", "tensors expected but"),
        summary="a part of the file is missing or is not the first, or it says it has parts and has none",
    ),
)


def _newer(case: Case) -> Fix:
    engine = engine_of(case)
    name = package_of(engine) if engine else "llama.cpp"
    return Fix(type="package", name=name, old=case.version or "old", new="a newer build")


def _wrong_file(_: Case, one: Said) -> tuple[Fix, ...]:
    if "vision" in one.values:
        return (
            Fix(type="flag", name="--mmproj", old="of another model", new="the encoder of this model"),
            Fix(type="flag", name="--no-mmproj", new="true", kind="workaround", cost="text only"),
        )
    if "draft" in one.text:
        return (
            Fix(
                type="flag",
                name="--model-draft",
                old="of another family",
                new="a model of the same vocabulary",
            ),
        )
    if "none" in one.values:
        return (Fix(type="file", name="gguf", old="no general.architecture", new="a language model's GGUF"),)
    return (
        Fix(
            type="flag",
            name="--model",
            old="the mmproj file",
            new="the model's file, and --mmproj with this one",
        ),
    )


def _arch(case: Case, _: Said) -> tuple[Fix, ...]:
    return (
        _newer(case),
        Fix(type="file", name="gguf", new="a conversion of the time of this build", kind="workaround"),
    )


def _is_few(one: Said) -> bool:
    expected, got = one.count("expected"), one.count("got")
    return expected is not None and got is not None and abs(expected - got) <= _FEW


def _tensors(case: Case, one: Said) -> tuple[Fix, ...]:
    convert = Fix(
        type="file", name="gguf", old="this conversion", new="a new conversion from the original weights"
    )
    return (_newer(case), convert) if _is_few(one) else (convert, _newer(case))


def _split(_: Case, one: Said) -> tuple[Fix, ...]:
    merge = Fix(type="file", name="gguf", old="split metadata", new="one file by llama-gguf-split --merge")
    first = Fix(
        type="flag", name="--model", old="a later part", new="the part 00001, with all others beside it"
    )
    return (first, merge) if "idx" in one.values else (merge, first)


def _explanation(one: Said) -> str:
    if "expected" not in one.values or one.message.kind != "gguf.tensors":
        return ""
    if _is_few(one):
        return "Few tensors more or less: the file is newer than the build."
    return (
        "Many tensors more or less: the conversion went wrong, or an already quantised model was converted."
    )


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "gguf.wrong_file": _wrong_file,
    "gguf.arch": _arch,
    "gguf.tensors": _tensors,
    "gguf.split": _split,
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="GGUF files",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, _FIXES, explain=_explanation),
    meaning="The file is newer than the build, was converted wrongly, is a part of several, or is "
    "another file.",
    told_apart="`clip` as architecture is the image encoder; one tensor too few a build that is too old, "
    "many a bad "
    "conversion; a wrong shape or a missing key a description that the build does not know.",
    cure="A newer build; a new conversion; `llama-gguf-split --merge`; `--mmproj` for the encoder.",
    source="llama.cpp `src/llama-model-loader.cpp` (`done_getting_tensors`, `check_tensor_dims`), "
    "`llama-model.cpp`, "
    "`llama-vocab.cpp`; vLLM `model_loader/gguf_loader.py`.",
)
