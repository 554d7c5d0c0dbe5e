"""Packages and command line: built for another PyTorch, absent, shadowed; flags that a release has not.

Source: the loader of glibc (`undefined symbol`, `cannot open shared object file`); Python's import
machinery and argparse; PyTorch `torch/cuda/__init__.py` (`_lazy_init`); vLLM 0.3 to 0.33
`model_executor/models/registry.py`, `utils/__init__.py` (`FlexibleArgumentParser`); SGLang
`sgl_kernel/__init__.py`; llama.cpp `common/arg.cpp`.
"""

import difflib
import re
from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of, value_of

# Plug-ins that are looked for and not needed: their absence stands in every healthy log.
_OPTIONAL_LIBRARIES = (
    r"libnccl-net|libibverbs|libnvidia-nscq|libnccl-tuner|libcufile|libmlx|librdmacm"
    r"|libtorchcodec|libavutil|libsox"
)
# Modules whose import may fail in a healthy start. Source: warnings of vLLM 0.8 to 0.33, SGLang 0.4 to 0.5.
_OPTIONAL_MODULES = (
    r"(?:vllm\._rocm_C|vllm\._moe_C|amdsmi|libamd|triton_kernels|deep_ep|deep_gemm|pplx_kernels|torch_npu|"
    r"habana_frameworks|"
    r"intel_extension_for_pytorch|torchao|flash_attn_interface|apex|transformer_engine|_sqlite3|runai_model_streamer_s3)"
)
# What a flag of another engine or of another time is called now, where its name is not near.
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "vllm": {
        "--lora-path": "--enable-lora --lora-modules name=path",
        "--max-seq-len": "--max-model-len",
        "--context-length": "--max-model-len",
        "--mem-fraction-static": "--gpu-memory-utilization",
        "--model-path": "--model",
        "--tp-size": "--tensor-parallel-size",
        "--max-running-requests": "--max-num-seqs",
        "--chunked-prefill-size": "--max-num-batched-tokens",
        "--disable-log-requests": "--no-enable-log-requests",
        "--enable-reasoning": "--reasoning-parser NAME",
        "--guided-decoding-backend": "--structured-outputs-config.backend",
        "--swap-space": "--kv-offloading-size",
        "--num-scheduler-steps": "nothing: one step per schedule since 0.11",
    },
    "sglang": {
        "--max-model-len": "--context-length",
        "--gpu-memory-utilization": "--mem-fraction-static",
        "--max-num-seqs": "--max-running-requests",
        "--enable-ep-moe": "--ep-size",
        "--enable-flashinfer-mla": "--attention-backend flashinfer",
        "--enable-flashmla": "--attention-backend flashmla",
        "--enable-deepep-moe": "--moe-a2a-backend deepep",
        "--enforce-eager": "--disable-cuda-graph",
        "--max-num-batched-tokens": "--chunked-prefill-size",
    },
    "llama_cpp": {
        "--max-model-len": "--ctx-size",
        "--tensor-parallel-size": "--tensor-split",
        "--ngl": "--n-gpu-layers",
    },
}
# Module -> what is installed for it, where the names differ.
_INSTALLED_AS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "flash_attn": "flash-attn",
    "sgl_kernel": "sgl-kernel",
    "flashinfer": "flashinfer-python",
    "google": "protobuf",
    "pkg_resources": "setuptools<81",
    "bitsandbytes": "bitsandbytes",
    "qwen_vl_utils": "qwen-vl-utils",
    "mistral_common": "mistral-common",
    "fast_safetensors": "fastsafetensors",
    "auto_gptq": "auto-gptq",
    "gptqmodel": "gptqmodel",
    "ray": "ray",
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
        ),
        summary="packages that were built for different versions of one another lie together",
    ),
    Message(
        kind="pkg.lib_missing",
        sure=0.94,
        pattern=r"(?:^|[\s'\"(:])(?P<library>(?!"
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
        r"|DLL load failed while importing (?P<module>\w+)",
        literals=("lib", "DLL load failed"),
        summary="the shared library {library}{other}{module} is not found",
    ),
    Message(
        kind="pkg.shadowed",
        sure=0.94,
        pattern=r"No module named '(?P<module>(?:vllm\._(?:C|version|core_C|C_stable_libtorch)"
        r"|sglang\.(?:version|srt)|torch\._C|triton\._C\S*|flash_attn_2_cuda))'",
        literals=("No module named",),
        summary="the folder that was found is not the installed package: {module} is not in it",
        unless=r"Failed to import from vllm\._C.{0,40}(?:undefined symbol|shared object)|undefined symbol"
        r"|cannot open shared object file: No such file",
    ),
    Message(
        kind="pkg.shadowed",
        sure=0.9,
        pattern=r"partially initialized module '(?P<module>\w[\w.]*)' has no attribute"
        r"|\(most likely due to a circular import\)"
        r"|cannot import name '\w+' from '(?P<other>vllm|sglang|torch|triton|transformers"
        r"|flashinfer)' \(unknown location\)"
        r"|(?i:module) '?(?P<third>vllm|sglang|torch|triton|flashinfer|transformers|pynvml"
        r"|ray)'? has no attribute '__?(?:version|path|file)__?'"
        r"|module '(?P<fourth>vllm|sglang|torch|triton|flashinfer)' has no attribute",
        literals=(
            "partially initialized module",
            "circular import",
            "(unknown location)",
            "has no attribute",
        ),
        summary="another {module}{other}{third}{fourth} than the installed one is imported",
    ),
    Message(
        kind="pkg.fork_cuda",
        sure=0.96,
        pattern=r"Cannot re-initialize (?:CUDA|XPU|HPU) in forked subprocess",
        literals=("in forked subprocess",),
        summary="CUDA was used before the worker processes were forked off",
    ),
    Message(
        kind="pkg.fork_cuda",
        sure=0.85,
        pattern=r"attempt has been made to start a new process before the\s*(?:current process|$)"
        r"|not using fork to start your child processes"
        r"|daemonic processes are not allowed to have children",
        literals=(
            "attempt has been made to start a new process",
            "not using fork to start",
            "daemonic processes",
        ),
        summary="workers are started while the main program is still being imported",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.96,
        pattern=r"error: (?:unrecognized|unknown|unexpected|invalid) arguments?:? "
        r"'?(?P<flag>--?[\w.-]+)(?P<rest>[^\n`']*)"
        r"|error: argument (?P<named>-[\w./, -]*?): (?P<why>invalid choice: '?(?P<value>[^'\n ]+)'?[^\n]*"
        r"|expected \w+ arguments?|invalid [^\n]*|not allowed[^\n]*)"
        r"|[Nn]o such option:? '?(?P<option>--?[\w-]+)",
        literals=("error: ", "o such option"),
        summary="the command line is not one of this release: {flag} {named} {option} {why}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.85,
        pattern=r"(?:EngineArgs|ServerArgs|LLM|LlmArgs|AsyncEngineArgs"
        r"|ModelConfig)\S*?\)? got an unexpected keyword argument '(?P<flag>\w+)'"
        r"|error: the following arguments are required: (?P<named>[^\n]+)"
        r"|Unknown quantization method: (?P<value>[\w-]+)|Invalid (?:value"
        r"|choice) for '?(?P<option>--?[\w-]+)"
        r"|(?i:invalid) (?P<what>[\w ]{3,30}): '?(?P<other>[\w.-]+)'?\.? (?:[Mm]ust be one of"
        r"|(?i:valid) (?:values|choices|options)|(?i:supported))",
        literals=(
            "unexpected keyword argument",
            "arguments are required",
            "Unknown quantization method",
            "nvalid ",
        ),
        summary="the command line is not one of this release: {flag} {named} {option} {value} {other}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.94,
        pattern=r"(?:max_model_len|ValueError: (?:Warning: )?User-specified context_length) "
        r"\((?P<value>\d+)\) is greater than the derived (?:max_model_len|context_length) \(\D*(?P<most>\d+)",
        literals=("is greater than the derived",),  # a warning of SGLang where it is allowed
        summary="requests of {value} tokens are asked for, the model takes {most}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.9,
        pattern=r"SGLANG_CPU_OMP_THREADS_BIND is not set, in this case, the total number of ranks "
        r"\([^)]*= (?P<ranks>\d+)\)",
        literals=("SGLANG_CPU_OMP_THREADS_BIND is not set",),
        summary="{ranks} ranks are asked for on fewer memory nodes, and no cores are named for them",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.9,
        pattern=r"error while handling argument \"(?P<option>--?[\w-]+)\": (?P<why>[^\n]+)",
        literals=("error while handling argument",),
        summary="the value of {option} is none of this release: {why}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.6,
        pattern=r"Value error, invalid literal for \w+\(\) with base 10: '(?P<other>[^']*)'",
        literals=("Value error, invalid literal for",),
        summary="a setting has the value {other}, which is no whole number",
    ),
    Message(
        kind="pkg.missing",
        sure=0.86,
        pattern=r"(?:ModuleNotFoundError|ImportError): No module named '(?P<module>(?!vllm\.|sglang\."
        r"|torch\.|common_ops|" + _OPTIONAL_MODULES + r")[\w]+)(?:\.[\w.]+)?'",
        literals=("No module named",),
        summary="the Python package for {module} is not installed",
    ),
    Message(
        kind="pkg.missing",
        sure=0.9,
        pattern=r"(?:ImportError|RuntimeError|ValueError|ModuleNotFoundError|PackageNotFoundError)[^\n]{0,120}?"
        r"(?:(?i:please) install|pip install|(?i:please) `?pip install) `?(?:the )?'?(?P<module>(?!or |it"
        r"|and |a |an |with |from )[A-Za-z][\w-]*(?:\[\w+\])?)"
        r"|(?:ImportError|RuntimeError): (?:Using |The )?`?(?P<other>(?!Ninja|nvcc)[\w-]+)`? (?:package "
        r"|library )?(?:is not installed|is required|requires the)"
        r"|PackageNotFoundError: No package metadata was found for (?P<third>[\w-]+)",
        literals=(
            "lease install",
            "pip install",
            "is not installed",
            "is required",
            "requires the",
            "PackageNotFoundError",
        ),
        summary="{module}{other}{third} is needed for a chosen option, and is not installed",
    ),
    Message(
        kind="pkg.inspect_wrapper",
        sure=0.9,
        pattern=r"(?i:model) architectures? \['(?P<model>\w+)'\] are not supported for now\."
        r".*Supported architectures:.*'(?P=model)'",
        literals=("are not supported for now",),
        summary="this release knows {model}, but importing its class failed; the cause stands above",
    ),
    Message(
        kind="pkg.inspect_wrapper",
        sure=0.45,
        pattern=r"(?i:model) architectures? \[?'?(?P<model>[\w, ']+?)'?\]? failed to be inspected"
        r"|Error in inspecting model architecture '?(?P<other>\w+)",
        literals=("failed to be inspected", "Error in inspecting model architecture"),
        summary="importing the model's class failed; the cause stands in the traceback above",
    ),
)


def read(case: Case) -> tuple[Match, ...]:
    """What of the packages or of the command line does not fit."""
    return tuple(
        Match(
            kind=one.message.kind,
            sure=one.message.sure,
            lines=with_frames(case, one.lines),
            summary=re.sub(r"\s*\?+", "", one.summary).strip(),
            explanation=_EXPLANATIONS.get(one.message.kind, ""),
            fixes=_FIXES[one.message.kind](case, one),
            next_measurement=_NEXT.get(one.message.kind, ""),
        )
        for one in surest(case, _MESSAGES)
        if one.message.kind != "pkg.missing" or not _is_caught(case, one)
    )


def _is_caught(case: Case, one: Said) -> bool:
    """Whether the import failed in a start that went on: a plug-in that is not needed."""
    return case.is_ready and all(line.phase is not None for line in one.lines)


def _abi(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
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


def _owner(library: str) -> str | None:
    """The package that a library lies in, or is named after."""
    return next((package for name, package in _OWNERS if name in library), None)


def _library(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    name = one.values.get("library") or one.values.get("other") or "the library"
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


def _shadow(case: Case, one: Said) -> tuple[Fix, ...]:
    package = next(
        (one.values[key] for key in ("module", "other", "third", "fourth") if key in one.values), ""
    )
    name = package.split(".")[0] or package_of(engine_of(case))
    return (
        Fix(
            type="file",
            name="working directory",
            old=f"one that holds a folder {name}",
            new="any other directory",
        ),
        Fix(
            type="package",
            name=name,
            old="source without build, or a placeholder",
            new=f"pip install {name} anew",
        ),
    )


def _fork(_: Case, one: Said) -> tuple[Fix, ...]:
    spawn = Fix(
        type="env", name="VLLM_WORKER_MULTIPROC_METHOD", old="fork", new="spawn", cost="a slower start"
    )
    guard = Fix(
        type="file", name="the script that starts the engine", new="under `if __name__ == '__main__':`"
    )
    return (spawn, guard) if "forked" in one.text else (guard, spawn)


def _flag(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case) or "vllm"
    if "most" in one.values:
        flag, variable = (
            ("--context-length", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
            if "context_length" in one.text
            else ("--max-model-len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
        )
        return (
            Fix(type="flag", name=flag, old=one.values["value"], new=one.values["most"]),
            Fix(
                type="env",
                name=variable,
                new="1",
                kind="workaround",
                cost="wrong answers beyond",
            ),
        )
    if "ranks" in one.values:
        return (
            Fix(type="env", name="SGLANG_CPU_OMP_THREADS_BIND", new="the cores of each rank: 0-15|16-31"),
            Fix(type="flag", name="--tensor-parallel-size", old=one.values["ranks"], new="1"),
        )
    given = {**case.flags, **case.environment}
    wrong = next((key for key, value in given.items() if value == one.values.get("other")), None)
    if wrong is not None:
        return (
            Fix(
                type="flag" if wrong.startswith("-") else "env",
                name=wrong,
                old=given[wrong],
                new="a whole number",
            ),
        )
    name = next((one.values[key] for key in ("flag", "named", "option") if key in one.values), "")
    name = name.split("/")[-1].split(",")[0].strip()
    if not name and "value" in one.values:
        name = "--quantization"
    if not name.startswith("-"):
        name = "--" + name.replace("_", "-")
    if "value" in one.values:
        return (Fix(type="flag", name=name, old=one.values["value"], new=_choice(case, one)),)
    if "handling argument" in one.text:
        given = one.values.get("why", "").rpartition(": ")[2]
        return (Fix(type="flag", name=name, old=given or None, new="one of the values that `--help` lists"),)
    new = _OTHER_NAMES.get(engine, {}).get(name) or _near(name, engine, case)
    return (
        Fix(
            type="flag",
            name=name,
            old=value_of(case, name) or one.values.get("rest", "").strip() or None,
            new=new,
        ),
        Fix(
            type="package",
            name=package_of(engine),
            old=case.version,
            new="a release that has the flag",
            kind="workaround",
        ),
    )


def _choice(case: Case, one: Said) -> str | None:
    """The nearest of the choices that the message lists."""
    for line in one.lines or case.lines:
        listed = re.split(r"choose from|[Mm]ust be one of", line.text, maxsplit=1)[1:]
        choices = re.findall(r"[\w.-]+", listed[0]) if listed else []
        near = difflib.get_close_matches(one.values["value"], choices, n=1, cutoff=0.3)
        if choices:
            return near[0] if near else choices[0]
    return None


def _near(name: str, engine: str, case: Case) -> str | None:
    """The nearest flag of the engine; where the engine is not told, of those that the usage text names."""
    known = case.known_flags.get(engine) or {
        word
        for line in case.lines
        for word in re.findall(r"(?<![\w-])--[a-z][\w-]+", line.text)
        if word != name
    }
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return near[0] if near else None


def _absent(case: Case, one: Said) -> tuple[Fix, ...]:
    module = next(
        (one.values[key] for key in ("module", "other", "third") if key in one.values), "the package"
    )
    name = _INSTALLED_AS.get(module, module)
    fixes = [Fix(type="package", name=name, new="pip install")]
    loads = value_of(case, "--load-format")
    if loads and loads.replace("-", "_").startswith(module[:6]):
        fixes.append(
            Fix(
                type="flag",
                name="--load-format",
                old=loads,
                new="auto",
                kind="workaround",
                cost="slower loading",
            )
        )
    return tuple(fixes)


def _wrapped(case: Case, _: Said) -> tuple[Fix, ...]:
    return (
        Fix(
            type="package",
            name=package_of(engine_of(case)),
            old=case.version,
            new="reinstall with what it pins",
        ),
    )


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "pkg.abi": _abi,
    "pkg.lib_missing": _library,
    "pkg.shadowed": _shadow,
    "pkg.fork_cuda": _fork,
    "pkg.cli_flag": _flag,
    "pkg.missing": _absent,
    "pkg.inspect_wrapper": _wrapped,
}
_EXPLANATIONS = {
    "pkg.abi": "A compiled extension fits exactly the PyTorch, CUDA and compiler that it was built with.",
    "pkg.shadowed": "Python takes the folder in the working directory before the installed package.",
}
_NEXT = {
    "pkg.abi": "pip list | grep -iE 'torch|vllm|sglang|sgl|flash|triton|xformers'",
    "pkg.shadowed": "python -c 'import vllm; print(vllm.__file__)'",
    "pkg.inspect_wrapper": "python -c 'import vllm._C, vllm.model_executor.models'",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="packages and the command line",
    literals=literals_of(_MESSAGES),
    read=read,
    meaning="What is installed does not fit together, is absent or is not what is imported; or the "
    "command line has a "
    "flag that this release has not.",
    told_apart="`undefined symbol` is a build for another version; `cannot open shared object file` a "
    "library that is "
    "not there; `No module named 'vllm._C'` without either of them another folder of that name; `failed "
    "to be inspected` "
    "only wraps an import error that stands above it. Libraries of plug-ins (libnccl-net, libibverbs) "
    "may be absent.",
    cure="The versions that the engine pins, in a clean environment; the nearest flag of the release.",
    source="glibc `dl-lookup.c`, `dl-load.c`; `torch/cuda/__init__.py`; Python `argparse.py`; llama.cpp "
    "`common/arg.cpp`; "
    "vLLM `model_executor/models/registry.py`.",
)
