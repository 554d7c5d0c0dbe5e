"""Compiled packages that do not fit together, and shared libraries that are not there.

Source: the loader of glibc (`undefined symbol`, `cannot open shared object file`, `version ... not found`);
NumPy `numpy/_core`; transformers `utils/versions.py`; Protobuf `runtime_version.py`; PyTorch
`utils/cpp_extension.py`, `_library`; SGLang `sgl_kernel/__init__.py`; FlashInfer `__init__.py`.
"""

import re

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of

# Plug-ins that are looked for and not needed: their absence stands in every healthy log.
_OPTIONAL_LIBRARIES = (
    r"libnccl-net|libibverbs|libnvidia-nscq|libnccl-tuner|libcufile|libmlx|librdmacm"
    r"|libtorchcodec|libavutil|libsox"
)
# Module -> the package it is installed by, where the names differ.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "flashinfer": "flashinfer-python",
    "pynvml": "nvidia-ml-py",
    "cutlass": "nvidia-cutlass-dsl",
    "vllm._custom_ops": "vllm",
}
# What a library's name holds -> the package that it comes from; the first that fits.
_OWNERS = (
    ("flash_attn", "flash-attn"),
    ("sgl_kernel", "sgl-kernel"),
    ("flashinfer", "flashinfer-python"),
    ("xformers", "xformers"),
    ("torchvision", "torchvision"),
    ("torchaudio", "torchaudio"),
    ("deep_ep", "deep-ep"),
    ("deep_gemm", "deep-gemm"),
    ("vllm", "vllm"),
    ("torch", "torch"),
)
_MESSAGES = (
    Message(
        kind="pkg.abi",
        sure=0.95,
        pattern=r"(?P<library>[\w./+-]+\.so[\w.]*): undefined symbol:? (?P<symbol>\w+)",
        literals=("undefined symbol",),
        summary="{library} was built against another version of what it uses",
    ),
    Message(
        kind="pkg.abi",
        sure=0.86,
        pattern=r"undefined symbol:? (?P<symbol>\w+)|version `(?P<version>(?:GLIBCXX|GLIBC"
        r"|CXXABI)_[\d.]+)' not found"
        r"|operator torchvision::nms does not exist|'_OpNamespace' '(?P<name>\w+)' object has no "
        r"attribute '(?P<op>\w+)'"
        r"|numpy\.(?:dtype|ufunc) size changed|may indicate binary incompatibility"
        r"|(?P<what>flashinfer-\w+) version \((?P<has>[\w.+]+)\) does not match"
        r"|compiled with different CUDA major versions|The detected CUDA version \(?[\d.]+\)? mismatches"
        r"|cuDNN version incompatibility|symbol \w+,? version [\w.]+ not defined"
        r"|Tried to instantiate class '[\w.]+', but it does not exist"
        r"|DLL load failed while importing \w+: The specified procedure could not be found"
        r"|(?P<lib>sgl-kernel|sgl_kernel|flashinfer\w*) (?:is installed with version"
        r"|version) (?P<is>[\w.]+)\D{0,40}(?:less than|does not match|older)"
        r"|DSO needs to be rebuilt|compiled with a different version of (?:PyTorch|CUDA)"
        r"|detected CUDA version .{0,40}mismatch",
        literals=(
            "undefined symbol",
            "version `",
            "torchvision::nms",
            "_OpNamespace",
            "size changed",
            "binary incompatibility",
            "does not match",
            "less than",
            "needs to be rebuilt",
            "compiled with a different",
            "mismatch",
            "different CUDA major versions",
            "version incompatibility",
            "not defined",
            "Tried to instantiate class",
            "specified procedure could not be found",
        ),
        summary="packages that were compiled for different versions of one another lie together",
    ),
    Message(
        kind="pkg.abi",
        sure=0.93,
        pattern=r"(?P<wants>[A-Za-z][\w.-]*[<>=!~]=?[\w.,<>=!~*]+) is required for a normal functioning of "
        r"this module, but found (?P<found>[\w.-]+)==(?P<has>[\w.+]+)",
        literals=("is required for a normal functioning",),
        summary="{found} {has} lies where {wants} is needed",
    ),
    Message(
        kind="pkg.abi",
        sure=0.92,
        pattern=r"(?:Contextual)?VersionConflict: \((?P<found>[\w.-]+) (?P<has>[\w.+]+)[^)]*\), "
        r"Requirement\.parse\('(?P<wants>[^']+)'\)",
        literals=("VersionConflict",),
        summary="{found} {has} lies where {wants} is needed",
    ),
    Message(
        kind="pkg.abi",
        sure=0.92,
        pattern=r"(?P<what>flashinfer-[\w-]+) version \((?P<has>[\w.+]+)\) does not match \S+ version "
        r"\((?P<is>[\w.+]+)\)",
        literals=("does not match",),
        summary="{what} is {has}, and what uses it is {is}",
    ),
    Message(
        kind="pkg.abi",
        sure=0.9,
        pattern=r"(?P<what>Numba|numba) needs NumPy (?P<numpy>[\d.]+) or less"
        r"|numpy\.(?:_?core\.)multiarray failed to import|RuntimeError: (?i:numpy) is not available"
        r"|compiled using NumPy 1\.x cannot be run in",
        literals=("needs NumPy", "multiarray failed", "umpy is not available", "compiled using NumPy"),
        summary="a module was built for another NumPy than the one that is installed",
    ),
    Message(
        kind="pkg.abi",
        sure=0.9,
        pattern=r"TypeError: Descriptors cannot be created directly"
        r"|incompatible Protobuf Gencode/Runtime versions"
        r"|Error: cannot import name '(?:runtime_version|builder|_message"
        r"|service_reflection)' from 'google\.protobuf",
        literals=("Descriptors cannot", "Protobuf Gencode", "from 'google.protobuf"),
        summary="generated code was made for another protobuf than the one that is installed",
    ),
    Message(
        kind="pkg.abi",
        sure=0.88,
        pattern=r"(?:^|Error: )cannot import name '(?!\w*(?:Config|ForCausalLM"
        r"|ForConditionalGeneration)' from 'transformers)(?P<name>\w+)' from "
        r"'(?P<found>\w+)[\w.]*'(?: \((?:[A-Z]:|/)|$)",
        literals=("cannot import name",),
        summary="the installed {found} has no {name}: it is older or newer than what imports it",
        unless=r"most likely due to a circular import",
    ),
    Message(
        kind="pkg.abi",
        sure=0.82,
        pattern=r"(?:^|Error: |Error\(\")module '(?P<found>torch|transformers|triton|sgl_kernel"
        r"|flashinfer|flash_attn|numpy"
        r"|pynvml|PIL"
        r"|xgrammar|outlines|tokenizers|huggingface_hub|ray|pydantic|openai|mistral_common|compressed_tensors"
        r"|deep_gemm|cutlass|tvm_ffi|torchao|vllm\._custom_ops)(?:\.[\w.]+)?' has no attribute "
        r"'(?P<name>(?!__|\w*(?:Config|ForCausalLM|ForConditionalGeneration)')\w+)'",
        literals=("has no attribute",),
        summary="the installed {found} has no {name}: it is older or newer than what uses it",
    ),
    Message(
        kind="pkg.abi",
        sure=0.88,
        pattern=r"No module named '(?P<found>torch|transformers|triton|huggingface_hub|numpy|pydantic|openai"
        r"|flashinfer|xgrammar|tokenizers|ray)\.(?P<name>(?!_C\b|version\b)[\w.]+)'",
        literals=("No module named '",),
        summary="the installed {found} has no {name}: it is older or newer than what imports it",
        unless=r"is not a package",
    ),
    Message(
        kind="pkg.abi",
        sure=0.92,
        pattern=r"(?i:exec format error)|no matching manifest for (?P<platform>linux/\w+)"
        r"|is not a supported wheel on this platform"
        r"|doesn't have a source distribution or wheel for the current platform",
        literals=(
            "xec format error",
            "no matching manifest",
            "supported wheel on",
            "wheel for the current platform",
        ),
        summary="the program or image was built for another kind of processor or Python",
    ),
    Message(
        kind="pkg.lib_missing",
        sure=0.94,
        pattern=r"(?P<library>PTX JIT compiler library) not found|libnvidia-ptxjitcompiler\S*: cannot open",
        literals=("PTX JIT compiler library", "ptxjitcompiler"),
        summary="the driver's library libnvidia-ptxjitcompiler is not in the container",
    ),
    Message(
        kind="pkg.lib_missing",
        sure=0.94,
        pattern=r"(?:^|[\s'\"(:/])(?P<library>(?!"
        + _OPTIONAL_LIBRARIES
        + r")lib[\w+-]+\.so[\w.]*): cannot open shared object file",
        literals=("cannot open shared object file",),
        summary="the shared library {library} is not found",
        unless=r"libnvidia-ml\.so\S*: cannot open|libcuda\.so\.1: cannot open.{0,80}(?:docker|container)",
    ),
    Message(
        kind="pkg.lib_missing",
        sure=0.85,
        pattern=r"(?:Could not|Unable to|(?i:cannot)|Failed to) (?:load|find|open|dlopen)(?: dynamic"
        r"| shared)? (?:library )?'?"
        r"(?P<library>(?!"
        + _OPTIONAL_LIBRARIES
        + r")lib(?:cuda|cudart|cudnn|cublas|nvrtc|torch|c10|mpi|numa|nvinfer|h[s]a|amdhip|ze_)[\w.]*)"
        r"|(?P<other>libcuda\.so|libcudart\.so)(?:\.\d+)? (?:cannot|not) (?:be )?found"
        r"|Unable to load any of \{(?P<third>lib[\w.]+)|failed to (?:open"
        r"|load) (?P<fourth>libnv\w+[\w.-]*\.so[\w.]*)"
        r"|^(?:\w+Error: )?(?P<fifth>libnccl\.so\S*|libcud\S+\.so\S*) not found$"
        r"|DLL load failed while importing (?P<module>\w+)(?!: The specified procedure)",
        literals=("lib", "DLL load failed"),
        summary="the shared library {library}{other}{module}{third}{fourth}{fifth} is not found",
    ),
)


def _abi(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    if "found" in one.values:
        return _another_version(case, one)
    if "another kind of processor" in one.message.summary:
        return (
            Fix(
                type="package", name=package_of(engine), new="the image or wheel of this processor and Python"
            ),
        )
    if "NumPy" in one.text or "umpy" in one.text:
        most = one.values.get("numpy")
        return (
            Fix(
                type="package", name="numpy", new=f"<={most}" if most else "<2, or later builds of the others"
            ),
        )
    if "rotobuf" in one.text or "Descriptors" in one.text:
        return (
            Fix(type="package", name="protobuf", new="the version that the other package pins"),
            Fix(
                type="env",
                name="PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
                new="python",
                kind="workaround",
                cost="slower parsing",
            ),
        )
    library = one.values.get("library", "")
    if ".triton" in library or one.values.get("symbol", "").startswith("cu"):
        return (
            Fix(
                type="file",
                name="~/.triton/cache",
                old="stale",
                new="delete; one folder per machine",
                cost="compiles again",
            ),
            Fix(type="env", name="LD_LIBRARY_PATH", new="with the folder of the driver's libcuda first"),
        )
    wanted = _owner(library) or one.values.get("what") or one.values.get("lib")
    fixes = [
        Fix(
            type="package",
            name="torch",
            old=case.versions.get("torch", "mismatched"),
            new="the version that the engine pins",
        ),
        Fix(
            type="package",
            name=package_of(engine),
            old=case.version,
            new="reinstall a wheel for this PyTorch, or rebuild",
        ),
    ]
    if wanted and wanted != package_of(engine):
        fixes.insert(0, Fix(type="package", name=wanted, new="a wheel for this PyTorch and CUDA"))
    return tuple(fixes)


def _another_version(case: Case, one: Said) -> tuple[Fix, ...]:
    """The package that is of another time than what uses it, and the engine with what it pins."""
    found = one.values["found"]
    name = _DISTRIBUTIONS.get(found, found.replace("_", "-"))
    engine = package_of(engine_of(case))
    return (
        Fix(
            type="package",
            name=name,
            old=one.values.get("has") or case.versions.get(found),
            new=one.values.get("wants", f"the version that {engine} pins"),
        ),
        Fix(type="package", name=engine, old=case.version, new="reinstall with what it pins"),
    )


def _owner(library: str) -> str | None:
    """The package that a library lies in, or is named after."""
    return next((package for name, package in _OWNERS if name in library), None)


def _library(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    name = next(
        (one.values[key] for key in ("library", "other", "third", "fourth", "fifth") if key in one.values),
        "the library",
    )
    package = package_of(engine)
    if re.match(r"libcud|libcublas|libnv|libcurand|libcusparse|libcufft", name):
        new = "the wheel for this platform (CUDA or ROCm) and for its CUDA version"
        return (
            Fix(type="package", name=package, old=case.version or "another platform's wheel", new=new),
            Fix(type="env", name="LD_LIBRARY_PATH", new=f"with the folder of {name}"),
        )
    return (
        Fix(type="package", name=name.split(".so")[0], new=f"install what brings {name}"),
        Fix(type="env", name="LD_LIBRARY_PATH", new=f"with the folder of {name}"),
        Fix(type="package", name=package, new="the wheel for this platform"),
    )


_FIXES = {"pkg.abi": _abi, "pkg.lib_missing": _library}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="packages that do not fit together",
    literals=literals_of(_MESSAGES),
    read=read_messages(
        _MESSAGES,
        _FIXES,
        explain=lambda one: (
            "A compiled extension fits exactly the PyTorch, CUDA and compiler that it was built with."
            if "compiled" in one.message.summary
            else ""
        ),
        next_measurements={"pkg.abi": "pip list | grep -iE 'torch|vllm|sglang|sgl|flash|triton|xformers'"},
    ),
    meaning="Parts that were built for different versions of one another lie together, or a library that "
    "one of them needs is not installed.",
    told_apart="`undefined symbol` is a build for another version; `cannot open shared object file` a "
    "library that is "
    "not there. Libraries of plug-ins (libnccl-net, libibverbs) may be absent.",
    cure="The versions that the engine pins, in a clean environment.",
    source="glibc `dl-lookup.c`, `dl-load.c`; `transformers/utils/versions.py`; "
    "`torch/utils/cpp_extension.py`.",
)
