"""Python modules: absent, shadowed by another folder, imported with an error, or forked off too late.

Source: Python's import machinery and `multiprocessing`; PyTorch `torch/cuda/__init__.py` (`_lazy_init`);
vLLM 0.3 to 0.33 `model_executor/models/registry.py`; transformers `utils/import_utils.py`.
"""

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of, value_of

# Modules whose import may fail in a healthy start. Source: warnings of vLLM 0.8 to 0.33, SGLang 0.4 to 0.5.
_OPTIONAL_MODULES = (
    r"(?:vllm\._rocm_C|vllm\._moe_C|amdsmi|libamd|triton_kernels|deep_ep|deep_gemm|pplx_kernels|torch_npu|"
    r"habana_frameworks|"
    r"intel_extension_for_pytorch|torchao|flash_attn_interface|apex|transformer_engine|_sqlite3"
    r"|runai_model_streamer_s3)"
)
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
_MESSAGES = (
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
        r"|module '(?P<fourth>vllm|sglang)' has no attribute"
        r"|module '(?:torch|triton|flashinfer)' has no attribute '(?:version|cuda|nn|Tensor|jit|language)'",
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
        kind="pkg.fork_cuda",
        sure=0.6,
        pattern=r"CUDA error: initialization error",
        literals=("CUDA error: initialization error",),
        summary="CUDA does not start in this process: mostly it was used before the process was forked off",
    ),
    Message(
        kind="pkg.missing",
        sure=0.86,
        pattern=r"(?:ModuleNotFoundError|ImportError): No module named '(?P<module>(?!vllm\.|sglang\."
        r"|torch\.|transformers\.|triton\.|huggingface_hub\.|numpy\.|common_ops|"
        + _OPTIONAL_MODULES
        + r")[\w]+)(?:\.[\w.]+)?'"
        r"|the package (?P<other>\w+) seems to be not installed"
        r"|(?P<third>NIXL|nixl|DeepEP|deep_ep|lmcache|LMCache|Mooncake|mooncake) is not (?:available"
        r"|installed)",
        literals=("No module named", "seems to be not installed", "is not available", "is not installed"),
        summary="the Python package for {module}{other}{third} is not installed",
    ),
    Message(  # passed on by a wrapper, without its class or as the text of another error
        kind="pkg.missing",
        sure=0.7,
        pattern=r"(?:^(?:Error: |error: )?|Error\('|[Ee]rror: |exception: )"
        r"No module named '(?P<module>(?!vllm\."
        r"|sglang\.|torch\.|transformers\.|triton\.|huggingface_hub\.|numpy\.|common_ops|"
        + _OPTIONAL_MODULES
        + r")[\w]+)(?:\.[\w.]+)?'",
        literals=("No module named",),
        summary="the Python package for {module} is not installed",
        unless=r"Failed to import from vllm\._C",
    ),
    Message(
        kind="pkg.missing",
        sure=0.9,
        pattern=r"(?:ImportError|RuntimeError|ValueError|ModuleNotFoundError"
        r"|PackageNotFoundError)[^\n]{0,120}?"
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
        kind="pkg.missing",
        sure=0.85,
        pattern=r"(?:sh|bash|exec|line \d+|\d+): (?P<program>vllm|sglang|python3?|llama-server|llama-cli"
        r"|trtllm-serve"
        r"|trtllm-build|mpirun|ollama|ray|torchrun|uv|lmdeploy): (?:command )?not found"
        r"|exec: \"(?P<other>\S+)\": executable file not found in \$PATH"
        r"|env: '?(?P<third>[\w.-]+)'?: No such file or directory",
        literals=(": not found", "command not found", "executable file not found", "env: "),
        summary="the program {program}{other}{third} is not there, or its folder is not in PATH",
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


def _is_caught(case: Case, one: Said) -> bool:
    """Whether the import failed in a start that went on: a plug-in that is not needed."""
    return case.is_ready and all(line.phase is not None for line in one.lines)


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


def _absent(case: Case, one: Said) -> tuple[Fix, ...]:
    if "not there" in one.message.summary:
        return (
            Fix(type="env", name="PATH", new="with the folder of the program, in the unit too"),
            Fix(type="package", name=package_of(engine_of(case)), new="install, or the image that has it"),
        )
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


_FIXES = {
    "pkg.shadowed": _shadow,
    "pkg.fork_cuda": _fork,
    "pkg.missing": _absent,
    "pkg.inspect_wrapper": _wrapped,
}
_EXPLANATIONS = {
    "pkg.shadowed": "Python takes the folder in the working directory before the installed package.",
}
_NEXT = {
    "pkg.shadowed": "python -c 'import vllm; print(vllm.__file__)'",
    "pkg.inspect_wrapper": "python -c 'import vllm._C, vllm.model_executor.models'",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="Python modules",
    literals=literals_of(_MESSAGES),
    read=read_messages(
        _MESSAGES,
        _FIXES,
        explain=lambda one: _EXPLANATIONS.get(one.message.kind, ""),
        next_measurements=_NEXT,
        holds=lambda case, one: one.message.kind != "pkg.missing" or not _is_caught(case, one),
    ),
    meaning="What is imported is absent, is not what was installed, or was used before a fork.",
    told_apart="`No module named 'vllm._C'` without an undefined symbol or a missing library is another "
    "folder of that name; `failed to be inspected` only wraps an import error that stands above it.",
    cure="The package that the option needs; another working directory; spawn instead of fork.",
    source="CPython `importlib`; `torch/cuda/__init__.py`; vLLM `model_executor/models/registry.py`.",
)
