"""A built engine of TensorRT that does not belong to this machine or this release.

Source: TensorRT 8.6 to 10 (`runtime.cpp`, `stdArchiveReader.cpp`, `virtualMemoryBuffer.cpp`,
`defaultAllocator.cpp`), as TensorRT-LLM 0.5 to 1.2 and the Triton backend print it; TensorRT-LLM
`runtime/tllmRuntime.cpp`.
"""

from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix

_MESSAGES = (
    Message(
        kind="arch.no_kernel_image",
        sure=0.95,
        pattern=r"engine plan file is (?:generated"
        r"|created) on an incompatible device, expecting compute (?P<has>[\d.]+)"
        r" got compute (?P<built>[\d.]+)|engine plan file is generated on an incompatible device",
        literals=("engine plan file is",),
        summary="the engine file was built for compute capability {built}, this GPU has {has}",
    ),
    Message(
        kind="pkg.abi",
        sure=0.95,
        pattern=r"engine plan file is not compatible with this version of TensorRT, expecting (?:library"
        r" )?version"
        r" (?P<has>[\d.]+) got (?:version )?(?P<built>[\d.]*\d)|stdVersionRead == (?:kSERIALIZATION_VERSION"
        r"|serializationVersion)(?:[^\n]*Current Version: (?P<now>\d+), Serialized Engine Version:"
        r" (?P<then>\d+))?"
        r"|Version tag does not match",
        literals=("engine plan file is not compatible", "stdVersionRead", "Version tag does not match"),
        summary="the engine file was built by TensorRT {built}{then}, this one is {has}{now}",
    ),
    Message(
        kind="pkg.abi",
        sure=0.7,
        pattern=r"plan->header\.magicTag == rt::kPLAN_MAGIC_TAG",
        literals=("kPLAN_MAGIC_TAG",),
        summary="the engine file is none of this release of TensorRT, or no engine file at all",
    ),
    Message(
        kind="file.missing_shard",
        sure=0.88,
        pattern=r"Error opening engine file:? (?P<file>\S+)|[Ee]ngine file (?P<other>\S+) (?:does not exist"
        r"|not found)",
        literals=("opening engine file", "ngine file "),
        summary="the engine file {file}{other} is not there",
    ),
    Message(
        kind="mem.weights_oom",
        sure=0.7,
        pattern=r"\[defaultAllocator\.cpp::allocate\S*\][^\n]*(?:out of memory|OutOfMemory)"
        r"|Error Code 2: OutOfMemory|Could not allocate memory for (?:the )?(?:engine|weights)",
        literals=("defaultAllocator.cpp", "OutOfMemory", "Could not allocate memory for"),
        summary="TensorRT could not allocate GPU memory for the engine",
        unless=r"Tried to allocate",
    ),
)


def _built_anew(_: Case, one: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="file", name="engine file", old=one.values.get("built"),
            new="built anew on this machine: trtllm-build", cost="minutes to an hour"),
    )  # fmt: skip


def _same_release(case: Case, one: Said) -> tuple[Fix, ...]:
    built = one.values.get("built")
    return (
        *_built_anew(case, one),
        Fix(type="package", name="tensorrt", old=one.values.get("has"),
            new=built or "the one that built the file", kind="workaround"),
    )  # fmt: skip


def _path(_: Case, one: Said) -> tuple[Fix, ...]:
    path = one.values.get("file") or one.values.get("other")
    return (
        Fix(type="file", name="engine folder", old=path, new="one that holds a rank file for every rank"),
    )


def _smaller(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="flag", name="--max_batch_size", new="smaller, built anew", cost="fewer requests at once"),
        Fix(type="flag", name="--max_num_tokens", new="smaller, built anew", cost="slower prefill"),
        Fix(type="flag", name="--tp_size", new="twice", cost="more GPUs"),
    )


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "arch.no_kernel_image": _built_anew,
    "pkg.abi": _same_release,
    "file.missing_shard": _path,
    "mem.weights_oom": _smaller,
}
_EXPLANATIONS = {
    "arch.no_kernel_image": "A built engine holds machine code of one compute capability only.",
    "pkg.abi": "A built engine is read by the release that built it only.",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="a built engine of TensorRT that does not fit",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, _FIXES, explain=lambda one: _EXPLANATIONS.get(one.message.kind, "")),
    meaning="TensorRT builds a model into a file for one GPU architecture and one release. The file here is "
    "of another "
    "of either, or is not there, or does not fit into the memory.",
    told_apart="By the message: device, version, opening, memory.",
    cure="The engine built anew where it runs, with the release that runs it.",
    source="TensorRT `runtime.cpp`, `stdArchiveReader.cpp`; TensorRT-LLM "
    "`cpp/tensorrt_llm/runtime/tllmRuntime.cpp`.",
)
