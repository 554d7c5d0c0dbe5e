"""The GPU's architecture: no machine code for it, a selector that refuses it, too little shared memory.

Source: CUDA's error strings; vLLM 0.3 to 0.33 `platforms/cuda.py`, `fused_moe/oracle/*.py`,
`quantization/base_config.py`; SGLang 0.2 to 0.5.23; Triton 2.1 to 3.6 `compiler/errors.py`,
`runtime/errors.py`; PyTorch `torch/cuda/__init__.py`; llama.cpp `ggml-cuda/common.cuh` (`no_device_code`).
"""

import re
from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.planner.kv_versions import read_version
from bringup.rules import Match, Rule
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, package_of, value_of

# What of the name tells the architecture. Source: NVIDIA's list of compute capabilities.
_CAPABILITIES = (
    (r"sm_?12[01]a?|compute_12[01]|capability (?:12\.|12[01])", ""),
    (r"GB10\b|DGX Spark", "12.1"),
    (r"RTX (?:PRO \d000|50[5-9]0)|RTX PRO", "12.0"),
    (r"\bG?B[23]00\b", "10.0"),
    (r"\bG?H(?:100|200|20|800)\b", "9.0"),
    (r"\bL40S?\b|\bL4\b|RTX 40[5-9]0|RTX \d000 Ada", "8.9"),
    (r"\bA(?:10G?|40|16|2|[2-6]000)\b|RTX 30[5-9]0", "8.6"),
    (r"\bA(?:100|800|30)\b", "8.0"),
    (r"\bT4\b|RTX 20[6-8]0|GTX 16[5-6]0|Quadro RTX", "7.5"),
    (r"\bV100\b|TITAN V\b", "7.0"),
    (r"\bP100\b", "6.0"),
    (r"\bP(?:40|4)\b|GTX 10[5-8]0", "6.1"),
)
_OLDEST_OF_WHEELS = 7.0  # prebuilt vLLM holds code from here on
_NO_IMAGE = (
    r"no kernel image is available|(?:CUDA|HIP) error: invalid device function"
    r"|cudaErrorNoKernelImageForDevice"
    r"|CUDA_ERROR_NO_BINARY_FOR_GPU"
    r"|CUDA_ERROR_INVALID_IMAGE|device kernel image is invalid|no binary for GPU|hipErrorNoBinaryForGpu"
)
# The help of a flag names devices too; it stands deep in its line.
_NO_HELP = r"^(?! {6,}).*?"
_MESSAGES = (
    Message(
        kind="arch.no_kernel_image",
        sure=0.95,
        pattern=_NO_IMAGE,
        literals=(
            "no kernel image",
            "invalid device function",
            "NoKernelImageForDevice",
            "NO_BINARY_FOR_GPU",
            "ERROR_INVALID_IMAGE",
            "kernel image is invalid",
            "no binary for GPU",
            "NoBinaryForGpu",
        ),
        summary="a library holds no machine code for this GPU{capability}",
    ),
    Message(
        kind="arch.no_kernel_image",
        sure=0.9,
        pattern=r"(?:CUDA kernel )?(?P<op>\w+) has no device code compatible with CUDA arch (?P<arch>\d+)"
        r"|was compiled for: (?P<built>[\d,]+)",
        literals=("no device code compatible", "was compiled for:"),
        summary="llama.cpp holds no machine code for architecture {arch}",
    ),
    Message(
        kind="arch.no_kernel_image",
        sure=0.7,
        pattern=r"with CUDA capability sm_(?P<sm>\d+a?) is not compatible with the current PyTorch "
        r"installation",
        literals=("not compatible with the current PyTorch",),
        summary="this PyTorch holds no machine code for sm_{sm}",
    ),
    Message(
        kind="arch.no_kernel_image",
        sure=0.55,
        pattern=r"SASS: ?(?P<built>(?:sm_\d+a?[ ,]*)+).*PTX",
        literals=("SASS:",),
        summary="the library was built for {built} only",
    ),
    Message(
        kind="arch.no_kernel_image",
        sure=0.72,
        pattern=r"\[sgl_kernel\] CRITICAL: Could not load any common_ops|No sm\d+/? directory present",
        literals=("Could not load any common_ops",),
        summary="sgl-kernel holds no library that loads on this GPU{capability}",
        unless=r"undefined symbol|cannot open shared object|ABI mismatch",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.96,
        pattern=r"(?P<what>\S+ (?:MoE|GEMM|linear)) backend '?(?P<backend>\w+)'? does not support the "
        r"deployment"
        r" configuration(?: since (?P<why>[^.\n]+))?",
        literals=("does not support the deployment configuration",),
        summary="the {what} backend {backend} is refused: {why}",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.96,
        pattern=r"No (?P<what>\S+ (?:MoE|GEMM|linear)) backend supports the deployment configuration",
        literals=("backend supports the deployment configuration",),
        summary="no {what} backend takes this device and layout",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.88,
        pattern=r"(?P<what>\S+(?: \w+)?) kernel does not support (?:current|this) device(?: (?P<sm>sm_\w+))?",
        literals=("kernel does not support",),
        summary="the {what} kernel is refused on this device ({sm})",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.9,
        pattern=r"SGLang only supports (?P<least>sm\d+) and above|kernel requires (?P<need>\d+\.[\dx]"
        r"|sm_?\d+\w*|SM ?\d+\w*) architecture"
        r"|No supported CUDA architectures found for major versions (?P<majors>\[[\d, ]+\])",
        literals=("SGLang only supports sm", "kernel requires", "No supported CUDA architectures"),
        summary="what was chosen is for architecture {need}{majors}{least} only",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.93,
        pattern=r"Selected (?:attention )?backend (?:AttentionBackendEnum\."
        r"|_Backend\.)?(?P<backend>\w+) is not valid for"
        r" this configuration\.? ?(?:Reason: (?P<why>\[[^\]]*\]))?"
        r"|No valid (?:attention|MLA|MLA prefill|CPU MLA prefill) backend found"
        r"|[Ii]nvalid attention backend(?: for|:)(?! '?\w+'?[.,;]? [Vv]alid) (?P<device>[^\n]{1,80})"
        r"|(?:Cannot|can't) use (?P<cannot>\w+)(?:-\d)? backend (?:for|with|on|because)"
        r"|backend ?=? ?'?(?P<moe>\w+)'? is not supported for (?P<what>[\w ]+?) MoE",
        literals=(
            "is not valid for this configuration",
            "backend found",
            "nvalid attention backend",
            "backend for",
            "backend with",
            "backend on",
            "backend because",
            "is not supported for",
        ),
        summary="backend {backend}{cannot}{moe} is refused: {why}{device}{what}",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.88,
        pattern=_NO_HELP
        + r"(?P<backend>FlashAttention(?:[- ]?[234v]+)?|FA[234]|FlashMLA|fa3|flashmla|CutlassMLA"
        r"|cutlass_mla|trtllm\w*|"
        r"TRTLLM[ \w]*|FlashInfer[ \w]*|DeepEP|(?i:sinks?))[^.\n]{0,60}(?:only supports?|is only supported"
        r"|are only supported|"
        r"is not supported|requires|not supported on)[^.\n]{0,50}(?:Ampere|Hopper|Blackwell"
        r"|[Ss][Mm]_?>?=?\d|capability|GPUs?"
        r"|device|FlashAttention 3|SM ?\d)",
        literals=(
            "FlashAttention",
            "FA2",
            "FA3",
            "FA4",
            "FlashMLA",
            "fa3",
            "flashmla",
            "utlass",
            "trtllm",
            "TRTLLM",
            "FlashInfer",
            "DeepEP",
            "inks",
        ),
        summary="{backend} does not take this GPU",
        unless=r"MoE backend|" + _NO_IMAGE,
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.86,
        pattern=r"does not support backend '(?P<backend>[\w-]+)' with capability (?P<has>\d+)"
        r"|BackendSupportedError|requires device with capability > \(\d, \d\)"
        r"|No operator found for `?memory_efficient_attention",
        literals=(
            "does not support backend",
            "BackendSupportedError",
            "requires device with capability",
            "No operator found for",
        ),
        summary="the chosen kernel library does not take this GPU",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.8,
        pattern=r"[Hh]ead.?size (?P<size>\d+) is not supported by (?P<backend>\w+)"
        r"|FlashAttention (?:forward |backward )?only supports? head"
        r"|[Tt]his flash attention build does not support"
        r"|(?P<requires>\w*(?:[Aa]ttention|MLA|FlashInfer|Infer)\w*) requires head_?dim"
        r"|[Uu]nsupported (?:max_frags_z|max_mma_kv|head_?dim)|(?:FP8|fp8|NVFP4|nvfp4) (?:KV"
        r"|kv)[ -]?cache is only supported"
        r"|backend currently only supports models in which|require an attention backend with"
        r"|requires one of [^\n]{1,120} attention backends?,? but got|only supports kv-cache-dtype"
        r"|does not support (?:Flash ?Attention|an attention implementation)"
        r"|`attn_implementation=[^`]{1,40}` is not supported"
        r"|Only Hopper supports|(?:only|Only) supports? head[ _]?dim\w*"
        r"|(?P<other>XFormers|FlashInfer|FlashAttention|FlashMLA|Triton\w*|TORCH_SDPA|ROCmFlashAttention"
        r"|\w+_ATTN|\w+_MLA)"
        r" (?:backend )?(?:currently )?does not (?:yet |currently )?support (?:attention|head|KV|fp8|FP8"
        r"|block|sliding|MLA|alibi"
        r"|logits|sinks?|quantized|encoder|non-causal|one of the following)",
        literals=(
            "is not supported by",
            "does not support",
            "supports head",
            "support head",
            "requires head",
            "nsupported max_",
            "nsupported head",
            "cache is only supported",
            "Only Hopper supports",
            "attn_implementation=",
            "requires one of",
            "only supports kv-cache-dtype",
            "currently only supports models",
            "require an attention backend",
        ),
        summary="{backend}{other} has no kernel for this shape of attention",
    ),
    Message(
        kind="arch.backend_gate",
        sure=0.75,
        pattern=r"(?:cutlass|CUTLASS)[^\n]{0,60}(?:[Gg]emm|GEMM|gemm)[^\n]{0,60}(?:Error Internal"
        r"|on sm\s?_?\d+)"
        r"|Failed to (?:initialize|run) (?:the )?cutlass"
        r"|Assertion failed: [Uu]nsupported arch(?:itecture)?\b"
        r"|Unsupported (?:GPU )?arch(?:itecture)?:? ?(?:sm"
        r"|SM|compute)_?(?P<has>\d+)",
        literals=("utlass", "CUTLASS", "nsupported arch", "Unsupported GPU arch"),
        summary="the chosen matrix kernel does not run on this GPU",
    ),
    Message(
        kind="arch.smem",
        sure=0.94,
        pattern=r"out of resource: (?P<what>shared memory|tensor memory"
        r"|threads),? ?Required: (?P<need>\d+),? ?"
        r"Hardware limit: (?P<has>\d+)",
        literals=("out of resource:",),
        summary="a Triton kernel needs {need} bytes of {what}, the GPU has {has}",
    ),
    Message(
        kind="arch.smem",
        sure=0.85,
        pattern=r"raise OutOfResources|OutOfResources\(|uses too much shared data \((?P<need>0x\w+"
        r"|\d+) bytes, (?P<has>\w+) max",
        literals=("OutOfResources", "uses too much shared data"),
        summary="a kernel needs more shared memory than the GPU has",
    ),
)


def read(case: Case) -> tuple[Match, ...]:
    """What this GPU cannot do, with another backend, build or format."""
    found: list[Match] = []
    for one in surest(case, _MESSAGES):
        capability = _capability(case)
        if capability is not None:
            one.values.setdefault("capability", f" (capability {capability:g})")
        one.values.setdefault("capability", "")
        found.append(
            Match(
                kind=one.message.kind,
                sure=one.message.sure,
                lines=_lines(case, one),
                summary=re.sub(r":? \?|\(\?\)|\?(?=\?)", "", one.summary),
                explanation=_EXPLANATIONS.get(one.message.kind, ""),
                fixes=_FIXES[one.message.kind](case, one),
                next_measurement=_NEXT.get(one.message.kind, ""),
            )
        )
    return tuple(found)


def _lines(case: Case, one: Said) -> tuple[CaseLine, ...]:
    """The message's lines; with shared memory also where it is raised."""
    if one.message.kind != "arch.smem":
        return with_frames(case, one.lines)
    raised = [line for line in case.lines if "raise OutOfResources" in line.text]
    return tuple(dict.fromkeys((*one.lines, *raised[:3])))


def _capability(case: Case) -> float | None:
    """Of the GPU, by what the lines call it."""
    for pattern, capability in _CAPABILITIES:
        for line in case.lines:
            found = re.search(pattern, line.text)
            if found is None or "SASS" in line.text:
                continue
            if capability:
                return float(capability)
            digits = re.findall(r"\d+", found.group())[0]
            return int(digits) / 10 if int(digits) > 100 else float(digits)
    return None


def _package(case: Case, new: str, name: str | None = None) -> Fix:
    engine = engine_of(case)
    return Fix(type="package", name=name or package_of(engine), old=case.version, new=new)


def _arch_list(capability: float | None) -> str:
    """What PyTorch's builds call an architecture; from Hopper on with its own instructions (a)."""
    if capability is None:
        return "this GPU's"
    return f"{capability:.1f}a" if capability >= 9 else f"{capability:.1f}"


def _backend_flags(case: Case, setting: str, new: str) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), setting)
    if name is None:
        return ()
    return (Fix(type="flag", name=name, old=value_of(case, name) or "auto", new=new, cost="maybe slower"),)


def _no_image(case: Case, one: Said) -> tuple[Fix, ...]:
    engine, capability = engine_of(case), _capability(case)
    source = f"source build with TORCH_CUDA_ARCH_LIST={_arch_list(capability)}"
    fixes: list[Fix] = []
    if case.says(r"flashinfer|BatchDecodeWithPagedKVCache|BatchPrefillWith"):
        fixes.extend(
            _backend_flags(case, "attention_backend", "triton" if engine == "sglang" else "TRITON_ATTN")
        )
        if engine == "sglang":
            fixes.append(
                Fix(
                    type="flag",
                    name="--sampling-backend",
                    old="flashinfer",
                    new="pytorch",
                    cost="slower sampling",
                )
            )
        if capability is not None and capability < 8:
            fixes.extend(_half(case))
    if "sm" in one.values or case.says(r"not compatible with the current PyTorch"):
        fixes.append(_package(case, "a wheel for CUDA 12.8 or newer (sm_100, sm_120)", "torch"))
    if engine == "llama_cpp":
        digits = one.values.get("arch", "")[:2] or (f"{capability * 10:.0f}" if capability else "native")
        fixes.append(_package(case, f"built with -DCMAKE_CUDA_ARCHITECTURES={digits}"))
    elif engine == "sglang":
        fixes.append(
            _package(case, f"build with this architecture (CUDA 12.8 or newer), or a {source}", "sgl-kernel")
        )
        fixes.append(_package(case, "lmsysorg/sglang of CUDA 12.8 or newer", "docker image"))
    else:
        fixes.append(_package(case, f"a wheel or image that holds this architecture, or a {source}"))
    if capability is None or capability < _OLDEST_OF_WHEELS:
        kind = "cure" if capability else "workaround"
        fixes.append(
            Fix(type="hardware", name="GPU", new="sm_70 or newer", kind=kind,
                cost="another card; only where the wheels hold nothing older")
        )  # fmt: skip
    return tuple(fixes)


def _half(case: Case) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), "dtype")
    return (
        (
            Fix(
                type="flag",
                name=name,
                old=value_of(case, name) or "auto",
                new="half",
                cost="overflow in some models",
            ),
        )
        if name
        else ()
    )


def _gate(case: Case, one: Said) -> tuple[Fix, ...]:
    text = one.text + " ".join(line.text for line in one.lines)
    later = _package(case, "a later release")
    if re.search(r"MoE|kernel requires|mm_fp4|[Ff][Pp]4|DeepEP|deployment configuration", text):
        version = read_version(case.version)
        older: tuple[Fix, ...] = ()
        if engine_of(case) in {"vllm", None} and version is not None and version < (0, 15, 0):
            older = (
                Fix(
                    type="env",
                    name="VLLM_USE_FLASHINFER_MOE_FP4",
                    old="1",
                    new="0",
                    cost="before --moe-backend",
                ),
            )
        new = "marlin" if engine_of(case) != "sglang" else "triton"
        return (*_backend_flags(case, "expert_backend", new), *older, later)
    new = "triton" if engine_of(case) == "sglang" else "TRITON_ATTN"
    version = read_version(case.version)
    by_name: tuple[Fix, ...] = ()
    if engine_of(case) in {"vllm", None} and (version is None or version < (0, 14, 0)):
        by_name = (Fix(type="env", name="VLLM_ATTENTION_BACKEND", new="TRITON_ATTN", cost="up to 0.13"),)
    return (*_backend_flags(case, "attention_backend", new), *by_name, later)


def _shared_memory(case: Case, _: Said) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    if case.says(r"inductor|torch[._]compile"):
        is_sglang = engine_of(case) == "sglang"
        name, old, new = (
            ("--enable-torch-compile", "true", "false") if is_sglang else ("--enforce-eager", None, "true")
        )
        fixes.append(Fix(type="flag", name=name, old=old, new=new, cost="slower decoding"))
    new = "flashinfer" if engine_of(case) == "sglang" else "FLASHINFER"
    fixes.extend(_backend_flags(case, "attention_backend", new))
    fixes.append(_package(case, "a later release with tile sizes for this architecture"))
    return tuple(fixes)


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "arch.no_kernel_image": _no_image,
    "arch.backend_gate": _gate,
    "arch.smem": _shared_memory,
}
_EXPLANATIONS = {
    "arch.no_kernel_image": "The operation that is named is only the first that came; the library as a "
    "whole was not "
    "built for this GPU.",
    "arch.backend_gate": "A check in the engine refuses it; kernels for the device may exist under "
    "another backend.",
}
_NEXT = {"arch.no_kernel_image": "cuobjdump --list-elf LIBRARY.so | grep -o 'sm_[0-9a-z]*' | sort -u"}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="not for this GPU's architecture",
    literals=(*literals_of(_MESSAGES), "flashinfer", "BatchDecodeWith", "BatchPrefillWith", "inductor"),
    read=read,
    meaning="A library holds no code for the GPU, the GPU lacks the number format, or a check refuses "
    "the device.",
    told_apart="`no kernel image` comes from the driver and no option gets round it; `does not support` "
    "comes from a "
    "check in Python and another backend may work. An earlier warning `not compatible with the current "
    "PyTorch` makes "
    "it PyTorch's wheel, else the engine's own. `no native FP4` is only a warning on sm_120.",
    cure="A wheel, image or source build that holds the architecture; another backend; another format; "
    "half precision.",
    source="CUDA error strings 209, 200; vLLM `fused_moe/oracle/nvfp4.py`, `platforms/cuda.py`, "
    "`quantization/base_config.py`; Triton `compiler/errors.py`, `runtime/errors.py`; llama.cpp "
    "`ggml-cuda/common.cuh`.",
)
