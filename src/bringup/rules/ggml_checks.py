"""Checks inside llama.cpp that fail: which operation, its text says; why, the model or the option.

Seen in: llama.cpp 2024-01 to b11434 `ggml/src/ggml.c` (`GGML_ASSERT(...) failed`), before 2024-06 `ggml.h`
(`GGML_ASSERT: file:line: ...`), glibc `assert.c` in `src/llama-*.cpp`.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix


def _ggml(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    """A newer build, and the option off that the failing file belongs to."""
    later = Fix(type="package", name="llama.cpp", old=case.version, new="a newer build")
    text = found.group()
    options = (
        (r"fattn|flash_attn", "--flash-attn", "off", "slower, and more memory"),
        (r"mtmd|clip", "--no-mmproj", "true", "text only"),
        (r"speculative|draft", "--model-draft", "left out", "slower decoding"),
        (r"rpc", "--rpc", "left out", "one machine only"),
    )
    fixes = (
        Fix(type="flag", name=flag, new=new, kind="workaround", cost=cost)
        for words, flag, new, cost in options
        if re.search(words, text)
    )
    return (later, *fixes)


SIGNS = (
    Sign(
        kind="engine.bug_request",
        pattern=re.compile(
            r"(?:(?P<file>[\w.-]+\.(?:cpp|cuh?|c|h|m|mm)):\d+: )?GGML_ASSERT(?:\((?P<check>.+)\) failed"
            r"|: \S+:\d+: (?!!\"CUDA error)(?P<old>.+))"
            r"|(?:llama|server|ggml|mtmd|clip)[\w.-]*\.cpp:\d+: .{0,200}Assertion `(?P<plain>.+)' failed"
        ),
        unless=re.compile(
            r"CUDA error|failed to allocate|out of memory|no kernel image|invalid device function"
            r"|llama_model_load: error"
        ),
        sure=0.55,
        summary="a check of llama.cpp's own code failed ({file}: {check})",
        explanation="It says which operation, not why: a model, a card or an option that this build does not "
        "handle.",
        fixes=_ggml,
        next_measurement="the same model with another build; with --flash-attn off; with --n-gpu-layers 0",
    ),
    Sign(
        kind="pkg.abi",
        pattern=re.compile(
            r"^(?:\S+ line \d+: +\d+ )?Illegal instruction\b|signal: illegal instruction|\bSIGILL\b"
            r"|exit code:? -4\b"
            r"|status=4/ILL|Fatal Python error: Illegal instruction|^exited with code 132"
        ),
        sure=0.8,
        summary="the program was built for a processor that can more than this one (no AVX, say)",
        explanation="The processor met an instruction that it does not have. Virtual machines often hide "
        "AVX: the "
        "processor type `host` passes it through.",
        fixes=(
            Fix(
                type="package", name="llama.cpp", new="a build with GGML_CPU_ALL_VARIANTS or GGML_NATIVE=OFF"
            ),
            Fix(type="file", name="VM processor type", old="kvm64", new="host"),
        ),
        next_measurement="lscpu | grep -oE 'avx2?|avx512f|fma|f16c' | sort -u",
    ),
)

RULE = Rule(
    kinds=("engine.bug_request", "pkg.abi"),
    title="checks inside llama.cpp, and its instructions",
    literals=(
        "GGML_ASSERT",
        "' failed",
        "llegal instruction",
        "SIGILL",
        "code -4",
        "code: -4",
        "status=4/ILL",
        "code 132",
    ),
    read=read_signs(SIGNS),
    meaning="A program of llama.cpp ended itself at a check, or was ended at an instruction that the "
    "processor "
    "has not.",
    told_apart="Where a CUDA error or a failed allocation stands before the check, that is the cause.",
    cure="A newer build; the option off that the check belongs to; a build for this processor.",
    source="llama.cpp `ggml/src/ggml.c`, `ggml/include/ggml.h`; glibc assert.c",
)
