"""What an earlier start compiled and kept is broken, or is not this process's to read.

Source: vLLM 0.8 to 0.33 `compilation/backends.py`, `compilation/compiler_interface.py`; Triton 2.1 to 3.6
`runtime/cache.py`; PyTorch `torch/_inductor/codecache.py`, `torch/_functorch`; FlashInfer 0.2 to 0.6 `jit/`.
"""

import re

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Match, Rule, read_messages
from bringup.values.case import Case, Traceback
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of

_EXPLANATION = (
    "The advice to delete the cache helps only where an artifact was kept: look for "
    "an earlier "
    "error, and for TORCHINDUCTOR_FORCE_DISABLE_CACHES in the environment."
)
_MESSAGES = (
    Message(
        kind="jit.cache_corrupt",
        sure=0.85,
        pattern=r"leading to a corrupted compilation artifact|corrupted compilation artifact",
        literals=("corrupted compilation artifact",),
        summary="vLLM could not compile the model; a kept artifact or switched-off caches are behind it",
    ),
    Message(
        kind="jit.cache_corrupt",
        sure=0.8,
        pattern=r"(?:\.triton/cache|torch_compile_cache|torchinductor_\w+|inductor_cache|deep_gemm/cache"
        r"|\.cache/flashinfer)"
        r"[^\n]*(?:file too short|invalid ELF header|No such file or directory|(?i:corrupt)|EOFError"
        r"|UnpicklingError|Permission)"
        r"|(?:FileNotFoundError|EOFError|UnpicklingError|JSONDecodeError|OSError)[^\n]*"
        r"(?:\.triton/cache|torch_compile_cache|torchinductor_|inductor_cache|vllm_compile_cache)",
        literals=(
            ".triton/cache",
            "torch_compile_cache",
            "torchinductor_",
            "inductor_cache",
            "deep_gemm/cache",
            ".cache/flashinfer",
            "vllm_compile_cache",
        ),
        summary="what an earlier start compiled and kept is broken",
        unless=r"undefined symbol|No space left|Read-only file system",
    ),
    Message(
        kind="jit.cache_corrupt",
        sure=0.4,
        pattern=r"Directly load the \S+ (?:compiled )?graph",
        literals=("Directly load the",),
        summary="the start uses what an earlier one compiled, and ends there",
        unless=r"^(?:\w+\.)*\w*(?:Error|Exception)(?::|$)",
    ),
)
_BROKEN = re.compile(
    r"^(?:\w+\.)*(?:EOFError|JSONDecodeError|UnpicklingError|BadZipFile|UnicodeDecodeError|OSError|KeyError"
    r"|FileNotFoundError|RuntimeError: (?:PytorchStreamReader|unexpected EOF))"
)
_READS_CACHE = (
    r"triton/runtime/cache\.py|torch/_inductor/(?:codecache|runtime/\w*cache\w*|async_compile)\.py"
    r"|torch/_functorch/\S*cache\S*\.py|vllm/compilation/(?:compiler_interface|caching)\.py:load"
    r"|flashinfer/jit/\S*:(?:load|get_cubin)"
)
_DEPTH = 6  # frames of pickle and json below the reader
_TOOLS = re.compile(r"(?i)nvcc|g?cc'|g\+\+|ninja|no space left|errno 28")


def _cached(case: Case) -> tuple[Match, ...]:
    """A traceback that ends in reading what an earlier start compiled."""
    for trace in case.tracebacks:
        error = trace.error
        if (
            error is not None
            and _BROKEN.search(error.text)
            and not _TOOLS.search(error.text)
            and (reader := _reader(trace)) is not None
        ):
            return (
                Match(
                    kind="jit.cache_corrupt",
                    sure=0.96,
                    lines=(error,),
                    summary="what an earlier start compiled and kept cannot be read",
                    explanation=_EXPLANATION,
                    fixes=_kept_files(case, reader),
                ),
            )
    return ()


def _reader(trace: Traceback) -> str | None:
    """The file that read a cache, where the traceback ends in it or in what it called."""
    called = (
        frame for frame in trace.frames[-_DEPTH:] if re.search(_READS_CACHE, f"{frame.file}:{frame.function}")
    )
    return next((frame.file for frame in called), None)


def _cache(case: Case, one: Said) -> tuple[Fix, ...]:
    folder = "~/.triton/cache" if "triton" in one.text else "$VLLM_CACHE_ROOT/torch_compile_cache"
    fixes = [Fix(type="file", name=folder, old="reused", new="delete", cost="compiles again once")]
    if "corrupted compilation artifact" in one.text:
        # With Inductor's caches switched off there is no artifact, and the message comes just so.
        fixes.insert(0, Fix(type="env", name="TORCHINDUCTOR_FORCE_DISABLE_CACHES", old="1", new=None,
                            cost="where it is set, the message comes of it"))  # fmt: skip
        fixes.append(Fix(type="package", name="torch", new="2.8 or newer"))
    if engine_of(case) != "sglang":
        fixes.append(
            Fix(
                type="env",
                name="VLLM_DISABLE_COMPILE_CACHE",
                new="1",
                kind="workaround",
                cost="slower starts",
            )
        )
    return tuple(fixes)


def _kept_files(case: Case, reader: str) -> tuple[Fix, ...]:
    """The folder that the reader reads, to be emptied."""
    folders = (
        ("triton", "~/.triton/cache"),
        ("flashinfer", "~/.cache/flashinfer"),
        ("vllm", "$VLLM_CACHE_ROOT/torch_compile_cache"),
        ("torch", "/tmp/torchinductor_$USER"),  # noqa: S108 the default's name
    )
    folder = next(path for part, path in folders if part in reader)
    fixes = [Fix(type="file", name=folder, old="reused", new="delete", cost="compiles again once")]
    if engine_of(case) != "sglang":
        fixes.append(
            Fix(type="env", name="VLLM_DISABLE_COMPILE_CACHE", new="1", kind="workaround",
                cost="slower starts")
        )  # fmt: skip
    return tuple(fixes)


_told = read_messages(
    _MESSAGES,
    {"jit.cache_corrupt": _cache},
    explain=lambda _: _EXPLANATION,
    holds=lambda case, one: one.message.sure > 0.5 or not case.is_ready,
)

RULE = Rule(
    kinds=("jit.cache_corrupt",),
    title="compiled code that was kept",
    literals=(
        *literals_of(_MESSAGES),
        "runtime/cache.py",
        "codecache.py",
        "_functorch",
        "compiler_interface.py",
        "flashinfer/jit",
    ),
    read=lambda case: (*_told(case), *_cached(case)),
    meaning="Triton, Inductor, FlashInfer and vLLM keep what they compile. A file of it is cut off, from "
    "another machine, or gone.",
    told_apart="By the folder in the message, or by a traceback that ends in the reader of a cache. A broken "
    "file of the model is `file.corrupt`.",
    cure="The folder emptied: everything is compiled again once.",
    source="vLLM `compilation/backends.py`; Triton `runtime/cache.py`; `torch/_inductor/codecache.py`.",
)
