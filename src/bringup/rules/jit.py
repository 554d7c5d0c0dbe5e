"""Code is compiled while the engine starts: a tool is missing, too old, killed, or the compiler says no.

Source: FlashInfer 0.2 to 0.6 `jit/cpp_ext.py`, `jit/core.py`; PyTorch `torch/utils/cpp_extension.py`,
`torch/_inductor/cpp_builder.py`; Triton 2.1 to 3.6 `runtime/build.py`, `backends/nvidia/compiler.py`;
DeepGEMM `csrc/jit_kernels`, `csrc/jit/kernel_runtime.hpp`, `csrc/apis/layout.hpp`; vLLM 0.8 to 0.33
`compilation/backends.py`.
"""

from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of
from bringup.planner.kv_versions import read_version
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, package_of

_DEEP_GEMM_WORDS = (
    r"Unknown recipe|Unknown SF transformation|Unknown cases: sf\.dtype"
    r"|kernel_runtime\.hpp:\d+\)?: exit_code == 0"
    r"|(?:AssertionError|RuntimeError|Assertion error)[^\n]*deep_?gemm|DG_HOST_(?:UNREACHABLE|ASSERT)"
    r"|Assertion error \((?:\S*/)?csrc/(?:apis|jit|jit_kernels|utils)/"
    r"|deep_gemm[^\n]*(?:Failed|failed|NVCC compilation|error)|DeepGEMM[^\n]*(?:failed|crash|Assertion)"
    r"|DeepGEMM backend is not available or outdated"
    r"|(?:CUDA (?:driver|runtime) error|NVCC compilation failed)[^\n]{0,80}(?:csrc/|deep_gemm)"
    r"|(?:Failed|failed) to (?:compile|build|launch)[^\n]*deep_?gemm"
)
_MESSAGES = (
    Message(
        kind="jit.deepgemm",
        sure=0.95,
        pattern=_DEEP_GEMM_WORDS,
        literals=(
            "Unknown recipe",
            "Unknown SF transformation",
            "Unknown cases",
            "exit_code == 0",
            "deep_gemm",
            "deepgemm",
            "DeepGEMM",
            "DG_HOST_",
            "CUDA driver error",
            "CUDA runtime error",
            "NVCC compilation failed",
            "Assertion error (",
        ),
        summary="DeepGEMM refuses this GPU, layout or shape",
    ),
    Message(
        kind="jit.nvcc_missing",
        sure=0.95,
        pattern=r"Could not find nvcc|nvcc'?: No such file or directory"
        r"|No such file or directory: '?[^'\n]*\bnvcc'?|NVCC (?:compiler )?not found|nvcc (?:is "
        r"|was )?not found"
        r"|CUDA_HOME environment variable is not set|CUDA_HOME is None|assert CUDA_HOME"
        r"|CUDA_HOME (?:is )?not (?:set|found|defined)"
        r"|(?i:cannot) find nvcc|NVCC_NOT_FOUND|requires nvcc|(?i:cannot find) CUDA toolkit"
        r"|Command '\['which', 'nvcc'\]' returned non-zero",
        literals=("nvcc", "NVCC", "CUDA_HOME", "CUDA toolkit"),
        summary="a kernel is compiled at run time and there is no nvcc",
        unless=r"nvcc fatal|Using nvcc from|nvcc error",
    ),
    Message(
        kind="jit.nvcc_missing",
        sure=0.9,
        pattern=r"nvcc: (?:command )?not found",
        literals=("nvcc",),
        summary="a kernel is compiled at run time and there is no nvcc",
        # What the shell says is a cause only where the engine does not fail of something else.
        unless=r"Could not find nvcc|^(?:\w+\.)*(?!RuntimeError|CalledProcessError|ImportError"
        r"|FileNotFoundError|OSError)\w*Error(?::|$)",
    ),
    Message(
        kind="jit.cc_missing",
        sure=0.95,
        pattern=r"Failed to find C compiler|No working C\+\+ compiler found|InvalidCxxCompiler"
        r"|(?:^|[ /:'])(?:gcc|g\+\+|cc|c\+\+|clang): (?:command )?not found"
        r"|No such file or directory: '(?:/\S*/)?(?:gcc|g\+\+|cc|c\+\+|clang\+*|x86_64-linux-gnu-g\w+\+*)'"
        r"|unable to execute '?(?:gcc|g\+\+|cc|x86_64-linux-gnu-gcc)'?|(?i:cannot) find (?:a )?(?:C|C\+\+"
        r"|host) compiler"
        r"|Cannot find compiler '(?:g\+\+|gcc|cl\.exe)' in PATH|Please specify via CC environment variable",
        literals=(
            "Failed to find C compiler",
            "compiler found",
            "InvalidCxxCompiler",
            "not found",
            "gcc",
            "g++",
            "'cc'",
            "c++",
            "clang",
            "host compiler",
            "C compiler",
            "C++ compiler",
            "via CC environment",
        ),
        summary="a kernel is compiled at run time and there is no C compiler",
    ),
    Message(
        kind="jit.ninja_missing",
        sure=0.95,
        pattern=r"No such file or directory: '(?:\S*/)?ninja'|ninja: (?:command )?not found"
        r"|Ninja is required to load C\+\+"
        r"|Could not find ninja|(?i:ninja) (?:is )?not (?:found|installed|available)",
        literals=("ninja", "Ninja"),
        summary="a kernel is compiled at run time and there is no ninja",
    ),
    Message(
        kind="jit.ptxas_old",
        sure=0.95,
        pattern=r"ptxas fatal\s*:?.{0,40}Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'"
        r"|fatal\s*:\s*Unsupported \.version (?P<ptx>[\d.]+); current version is '?(?P<known>[\d.]+)",
        literals=("ptxas fatal", "for option 'gpu-name'", "Unsupported .version"),
        summary="Triton's own ptxas is older than {arch}{ptx}",
    ),
    Message(
        kind="arch.dtype",
        sure=0.92,
        pattern=r"Feature '\.(?P<feature>bf16\w*)' requires \.target sm_(?P<needs>\d+) or higher",
        literals=("' requires .target sm_",),
        summary="this GPU has no {feature}: the compiled code needs sm_{needs}",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.85,
        pattern=r"(?:Feature|Instruction) '(?!\.bf16)(?P<feature>[^']+)' requires \.target sm_(?P<needs>\d+) "
        r"or higher|Type '?\.?(?P<other>e[45]m[23]\w*)'? requires \.target sm_(?P<least>\d+)",
        literals=("requires .target sm_",),
        summary="this GPU has no {feature}{other}: the compiled code needs sm_{needs}{least}",
    ),
    Message(
        kind="jit.ptxas_old",
        sure=0.88,
        pattern=r"(?P<arch>SM ?\d+(?:\.\w)?) requires CUDA >= (?P<ptx>[\d.]+)",
        literals=("requires CUDA >=",),
        summary="the CUDA toolkit that compiles kernels is older than {ptx}, which {arch} needs",
    ),
    Message(
        kind="jit.ptxas_old",
        sure=0.72,
        pattern=r"nvcc fatal\s*:\s*Unsupported gpu architecture '(?P<arch>compute_\w+)'"
        r"|(?:unsupported|Unsupported) gpu architecture '?(?P<other>compute_\w+)",
        literals=(
            "Unsupported gpu architecture",
            "unsupported gpu architecture",
        ),
        summary="nvcc is older than the GPU: it does not know {arch}{other}",
    ),
    Message(
        kind="jit.ptxas_old",
        sure=0.6,
        pattern=r"Internal Triton PTX codegen error|PTXASError|No valid triton configs"
        r"|Ptx assembly aborted due to errors",
        literals=("Triton PTX codegen", "PTXASError", "No valid triton configs", "Ptx assembly aborted"),
        summary="Triton's assembler refuses the code that was made for this GPU",
        unless=r"kernel requires \d|OutOfResources|out of resource: |out of memory|requires \.target sm_",
    ),
    Message(
        kind="jit.compile_oom",
        sure=0.94,
        pattern=r"'?(?:cicc|ptxas|cudafe\+\+|cc1plus|nvcc|fatbinary)'? died due to signal 9"
        r"|internal compiler error: Killed|fatal error: Killed signal terminated program|(?:cicc|ptxas"
        r"|cc1plus|nvcc).{0,20}: Killed"
        r"|Killed\s+.{0,60}(?:nvcc|cicc|ptxas)"
        r"|Out of memory: Killed process \d+ \((?:cicc|ptxas|cc1plus|nvcc|cudafe\+\+|ninja)\)",
        literals=("died due to signal", "Killed"),
        summary="the kernel ended a compiler: too many ran side by side for the memory of the host",
    ),
    Message(
        kind="jit.compile_error",
        sure=0.93,
        pattern=r"fatal error: (?P<header>\S+): No such file or directory",
        literals=("fatal error:",),
        summary="a kernel cannot be compiled: the header {header} is missing",
    ),
    Message(
        kind="jit.compile_error",
        sure=0.9,
        pattern=r"cannot find -l(?P<library>\w+)",
        literals=("cannot find -l",),
        summary="a kernel cannot be linked: lib{library} is missing",
    ),
    Message(
        kind="jit.compile_error",
        sure=0.8,
        pattern=r"\.(?:cu|cuh|cpp|cc|c|h|hpp)[(:]\d+(?:[:,]\d+)?\)?: (?:fatal )?error:? "
        r"(?P<error>[^\n]{1,120})"
        r"|ninja: build stopped|Ninja build failed|Error building extension '(?P<extension>\w+)'"
        r"|nvcc fatal\s*:\s*(?P<fatal>[^\n]+)|\d+ errors? detected in the compilation of"
        r"|CppCompileError|C\+\+ compile error|NVRTC (?:compilation|error)|(?:NVCC|nvcc) compilation failed",
        literals=(
            "error",
            "ninja: build stopped",
            "Ninja build failed",
            "Error building extension",
            "nvcc fatal",
            "CppCompileError",
            "NVRTC",
            "compilation failed",
        ),
        summary="a kernel cannot be compiled: {error}{fatal}{extension}",
        unless=r"died due to signal|Killed signal|nsupported gpu architecture"
        r"|fatal error: \S+: No such file|nvcc: (?:command )?not found"
        r"|cannot find -l|ggml|deep_gemm",
    ),
    Message(
        kind="jit.compile_error",
        sure=0.82,
        pattern=r"CalledProcessError: Command '\['(?:\S*/)?(?:\S*-)?(?:gcc|g\+\+|cc|c\+\+|clang)',"
        r"[^\n]*(?:main\.c|\.c'|\.cpp'|launcher)",
        literals=("CalledProcessError",),
        summary="Triton's launcher cannot be compiled or linked; the compiler's own lines say why",
    ),
    Message(
        kind="jit.compile_error",
        sure=0.6,
        pattern=r"triton\.compiler\.errors\.\w+: |triton\.compiler\.code_generator\.CompilationError"
        r"|PassManager::run failed|LLVM ERROR: Cannot select: (?P<error>[^\n]{1,60})"
        r"|torch\._inductor\.exc\.(?:LoweringException|InductorError: (?:LoweringException"
        r"|AssertionError|NotImplementedError|KeyError|AttributeError|CppCompileError))"
        r"|CUDA error: a PTX JIT compilation failed|torch\._dynamo\.exc\.(?:Unsupported"
        r"|InternalTorchDynamoError|BackendCompilerFailed"
        r"|TorchRuntimeError|UserError)|DSL\w*Error: (?P<fatal>[^\n]{1,80})",
        literals=(
            "triton.compiler.",
            "PassManager::run failed",
            "PTX JIT compilation failed",
            "LLVM ERROR: Cannot select",
            "torch._inductor.exc.",
            "torch._dynamo.exc.",
            "DSLRuntimeError",
            "DSLError",
        ),
        summary="a kernel or graph cannot be compiled for this GPU: {error}{fatal}",
        unless=r"out of memory|OutOfMemory|C compiler|nvcc",
    ),
    Message(
        kind="jit.autotune_slow",
        sure=0.5,
        pattern=r"[Aa]uto-?tun(?:ing|er)[^\n]{0,60}(?:process starts|starting|take|minutes|first)"
        r"|requires kernel autotuning"
        r"|DeepGEMM JIT (?:compil|Pre-?compil|warm)[^\n]*|Entering DeepGEMM JIT Pre-Compile",
        literals=("utotun", "uto-tun", "DeepGEMM JIT"),
        summary="the first start tunes or compiles kernels, which takes minutes and is kept",
    ),
)


def _holds(case: Case, one: Said) -> bool:
    """Lines of healthy starts mean something only where the start ends with them."""
    if one.message.sure <= 0.5:
        return not case.is_ready
    return one.message.kind != "jit.compile_error" or not _is_build_of_a_package(case)


def _is_build_of_a_package(case: Case) -> bool:
    return case.says(r"Building wheel for|Failed building wheel|pip install")


def _nvcc(case: Case, _: Said) -> tuple[Fix, ...]:
    toolkit = Fix(type="package", name="cuda-toolkit", new="install nvcc of PyTorch's CUDA version")
    home = Fix(type="env", name="CUDA_HOME", new="/usr/local/cuda", cost="none once the toolkit is there")
    path = Fix(
        type="env", name="PATH", new="with $CUDA_HOME/bin", cost="also in the unit, where one starts it"
    )
    if engine_of(case) == "sglang":
        sampling = Fix(
            type="flag",
            name="--sampling-backend",
            old="flashinfer",
            new="pytorch",
            kind="workaround",
            cost="slower sampling",
        )
        return (toolkit, home, path, sampling)
    return (
        Fix(type="env", name="VLLM_USE_FLASHINFER_SAMPLER", old="1", new="0", kind="workaround",
            cost="PyTorch's sampler; only where the sampler is what compiles"),
        toolkit,
        home,
        path,
        Fix(type="package", name="flashinfer-jit-cache", new="the version of flashinfer-python that is "
        "installed"),
    )  # fmt: skip


def _compiler(case: Case, _: Said) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), "no_graphs")
    slow = (
        (Fix(type="flag", name=name, new="true", kind="workaround", cost="slower decoding"),) if name else ()
    )
    return (
        Fix(type="package", name="gcc", new="install gcc, g++ and the headers of Python (python3-dev)"),
        Fix(type="env", name="CC", new="/usr/bin/gcc"),
        *slow,
    )


def _ninja(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="package", name="ninja", new="pip install ninja"),
        Fix(
            type="env",
            name="PATH",
            new="with the bin folder of the virtual environment",
            cost="also in the unit",
        ),
    )


def _ptxas(_: Case, one: Said) -> tuple[Fix, ...]:
    toolkit = Fix(
        type="package",
        name="cuda-toolkit",
        new="one that knows this GPU (12.8 or newer for sm_120, 12.9 for sm_121)",
    )
    if "compute_" in one.text:
        return (toolkit, Fix(type="env", name="CUDA_HOME", new="the folder of that toolkit"))
    return (
        Fix(type="env", name="TRITON_PTXAS_PATH", new="/usr/local/cuda/bin/ptxas"),
        toolkit,
        Fix(type="package", name="triton", new="a later release"),
    )


def _compile(case: Case, one: Said) -> tuple[Fix, ...]:
    if one.message.sure < 0.7:
        eager = flag_of(engine_of(case), "no_graphs")
        later = Fix(
            type="package",
            name=package_of(engine_of(case)),
            old=case.version,
            new="a later release, with the Triton and PyTorch that it pins",
        )
        slow = Fix(type="flag", name=eager, new="true", kind="workaround", cost="slower") if eager else None
        return (later, slow) if slow else (later,)
    if "CalledProcessError" in one.text:
        return (
            Fix(type="package", name="python3-dev", new="install the headers of this Python"),
            Fix(type="env", name="LIBRARY_PATH", new="with the folder of libcuda.so"),
            Fix(type="package", name="gcc", new="install gcc and g++"),
        )
    header = one.values.get("header", "")
    if header == "Python.h":
        return (Fix(type="package", name="python3-dev", new="install the headers of this Python"),)
    extra = (
        Fix(type="env", name="FLASHINFER_EXTRA_CUDAFLAGS", new="-I<site-packages>/nvidia/cu13/include",
            kind="workaround", cost="where the headers lie in pip's CUDA packages"),
    ) if header else ()  # fmt: skip
    return (
        Fix(type="package", name="cuda-toolkit", new="full, with its headers, of PyTorch's CUDA version"),
        Fix(type="env", name="CUDA_HOME", new="the folder of that toolkit"),
        *extra,
        Fix(type="env", name="LIBRARY_PATH", new="with the folder of libcuda.so and libcudart.so"),
    )


def _deep_gemm(case: Case, _: Said) -> tuple[Fix, ...]:
    later = Fix(
        type="package",
        name=package_of(engine_of(case)),
        old=case.version,
        new="a later release or its own image",
    )
    if engine_of(case) == "sglang":
        version = read_version(case.version)
        name = (
            "SGL_ENABLE_JIT_DEEPGEMM"
            if version is not None and version < (0, 5, 0)
            else "SGLANG_ENABLE_JIT_DEEPGEMM"
        )
        return (Fix(type="env", name=name, old="1", new="0", cost="slower FP8 kernels"), later)
    return (
        Fix(type="env", name="VLLM_USE_DEEP_GEMM", old="1", new="0", cost="slower FP8 kernels"),
        later,
        Fix(type="package", name="image", new="vllm/vllm-openai of the release"),
    )


def _killed(_: Case, __: Said) -> tuple[Fix, ...]:
    return (Fix(type="env", name="MAX_JOBS", new="4", cost="a slower first start: about 4 GiB per compiler"),)


def _unsupported(case: Case, one: Said) -> tuple[Fix, ...]:
    dtype = flag_of(engine_of(case), "dtype") or "--dtype"
    if one.message.kind == "arch.dtype":
        return (Fix(type="flag", name=dtype, new="half"),)
    return (Fix(type="package", name="checkpoint", new="in a number format that this GPU has"),)


def _wait(_: Case, __: Said) -> tuple[Fix, ...]:
    return (Fix(type="file", name="systemd TimeoutStartSec", old="90s", new="infinity", cost="none"),)


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "jit.deepgemm": _deep_gemm,
    "jit.nvcc_missing": _nvcc,
    "jit.cc_missing": _compiler,
    "jit.ninja_missing": _ninja,
    "jit.ptxas_old": _ptxas,
    "jit.compile_error": _compile,
    "jit.compile_oom": _killed,
    "jit.autotune_slow": _wait,
    "arch.dtype": _unsupported,
    "arch.quant_unsupported": _unsupported,
}
_EXPLANATIONS = {
    "jit.nvcc_missing": "CUDA's pip wheels hold libraries, no compiler.",
    "jit.autotune_slow": "Not a hang: CPU is busy with compilers, later starts take it from the cache.",
}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="compiling at run time",
    literals=literals_of(_MESSAGES),
    read=read_messages(
        _MESSAGES,
        _FIXES,
        explain=lambda one: _EXPLANATIONS.get(one.message.kind, ""),
        holds=_holds,
        notes=frozenset({"jit.autotune_slow"}),
    ),
    meaning="FlashInfer, Triton, DeepGEMM and torch.compile build code while the engine starts. A tool "
    "is missing or "
    "too old, the compiler found an error or was ended.",
    told_apart="A tool that is not found is named; `fatal error: X: No such file` means the tool ran and "
    "a header is "
    "missing; `signal 9` and `Killed` mean the host's memory; `is not defined for option 'gpu-name'` an "
    "old ptxas; "
    "assertions below deep_gemm and csrc/apis are DeepGEMM's.",
    cure="Install what is missing, name it by CUDA_HOME, CC or TRITON_PTXAS_PATH, or switch the kernel "
    "off that needs it.",
    source="FlashInfer `jit/cpp_ext.py`; `torch/utils/cpp_extension.py`; "
    "`torch/_inductor/cpp_builder.py`; Triton "
    "`runtime/build.py`, `backends/nvidia/compiler.py`; DeepGEMM `csrc/`; vLLM `compilation/`.",
)
