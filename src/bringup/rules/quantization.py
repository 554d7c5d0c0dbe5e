"""A quantisation that this GPU, this platform or this release of the engine does not have.

Source: vLLM 0.3 to 0.33 `model_executor/layers/quantization/` (`base_config.py`, `compressed_tensors/`,
`gptq*.py`, `awq*.py`, `utils/marlin_utils.py`), `config/model.py` (`_verify_quantization`), `platforms/*.py`
(`verify_quantization`); SGLang 0.3 to 0.5.23 `srt/layers/quantization/`, `srt/configs/model_config.py`;
transformers 4.40 to 5.x `quantizers/quantizer_*.py`; Triton `fp8e4nv`.
"""

import re

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of

_KIND = "arch.quant_unsupported"
# The help of a flag names devices too; it stands deep in its line.
_NO_HELP = r"^(?! {6,}).*?"
_MESSAGES = (
    Message(
        kind="arch.quant_unsupported",
        sure=0.94,
        pattern=r"type (?P<type>fp8e\w+|float8\w+|bf16|fp4\w*|e2m1\w*) not supported in this architecture",
        literals=("not supported in this architecture",),
        summary="the GPU has no {type}",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.95,
        pattern=r"quantization method (?P<method>\S+) is not supported for the current GPU\.? "
        r"?(?:Minimum capability: "
        r"(?P<least>\d+)\.? ?(?:Current capability: (?P<has>\d+))?)?",
        literals=("is not supported for the current GPU",),
        summary="{method} needs capability {least}, the GPU has {has}",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.88,
        pattern=r"_scaled_mm is only supported on CUDA devices|No compiled \w+ for (?:a "
        r"|CUDA )?(?:compute|device)"
        r"|No compiled nvfp4|[Nn][Vv]?[Ff][Pp]4 .{0,60}(?:requires|only (?:supported|works)"
        r"|not supported).{0,40}"
        r"(?:(?i:blackwell)|SM ?10|sm_?10|compute capability)"
        r"|(?:FP8|fp8|mxfp4|MXFP4|MxFP4|int8|awq|gptq)\w* (?:\w+ ){0,3}(?:is|are) (?:not supported"
        r"|only supported)"
        r" (?:on|for|by) (?:\S+ ){0,4}(?:GPU|device|capability|compute|arch|Hopper|sm|SM|ROCm|hardware)"
        r"|FP8 (?:quantized models|computation|GEMM)?.{0,20}(?:only|not) supported on (?:GPUs|devices)",
        literals=(
            "_scaled_mm is only supported",
            "No compiled",
            "Supported",
            "supported",
            "requires",
            "only works",
        ),
        summary="the number format is not implemented for this architecture",
        unless=r"no kernel image|INVALID_IMAGE|NO_BINARY_FOR_GPU",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.6,
        pattern=_NO_HELP
        + r"(?i:fp8|fp4|mxfp|int4|awq|gptq|quantiz)[^\n]{0,80}requires? [^\n]{0,40}(?:compute "
        r"capability|sm_?\d\d)",
        literals=("compute capability", "sm_", "sm8", "sm9", "sm10"),
        summary="the number format needs a newer architecture",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.94,
        pattern=r"[Qq]uantization scheme is not supported for [\s',(]*the current GPU\.[\s',]*"
        r"Min(?:imum)? capability: (?P<least>\d+)\.[\s',]*Current capability: (?P<has>\d+)",
        literals=("uantization scheme is not supported for",),
        summary="the checkpoint's scheme needs capability {least}, the GPU has {has}",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.9,
        pattern=r"Detected some but not all shards of \S+ are quantized"
        r"|Found a different quantization (?:scheme|configuration)"
        r"|Unable to find matching target for \S+ in the compressed-tensors"
        r"|No \S+ compatible scheme was found"
        r"|Failed to find a kernel that can implement"
        r"|[Uu]nsupported (?:WNA16|FusedMoe|FusedMoE|quant) scheme"
        r"|[Cc]urrently,? only (?P<bits>[\d/, ]+(?: and \d+)?)-?bit weight quantization is supported for"
        r" (?P<method>[\w ]+)"
        r"|[Uu]nsupported quant(?:ization)? (?:config|type|algo\w*|mode|strategy|scheme|spec)\w*"
        r"|[Uu]nsupported (?:GPTQ|AWQ|FP8|fp8|MXFP4|NVFP4|bitsandbytes|modelopt|quark)\w* "
        r"(?:config|type|bits|format|scheme)"
        r"|Unsupported (?:num_bits|weight_bits|bits|bit width|wbits)\b|Unknown ModelOpt quant",
        literals=(
            "scheme was found",
            "Detected some but not all shards",
            "Found a different quant",
            "find matching target",
            "Failed to find a kernel",
            "nsupported",
            "urrently",
            "Unknown ModelOpt",
        ),
        summary="the scheme of the checkpoint is none that this release has ({method}: {bits} bits)",
        unless=r"gguf|GGUF|ggml|cannot implement due to: [^\n]*(?:divid|divisib|multiple of)",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.88,
        pattern=r"(?P<model>\w+) does not support (?P<method>BitsAndBytes|bitsandbytes|AWQ|GPTQ|FP8|GGUF|\w+)"
        r" quantization(?: yet)?|[Qq]uantization (?:method )?(?P<other>\S+) is not supported (?:for|by"
        r"|with) (?:the )?(?:this"
        r" )?model",
        literals=("does not support", "uantization "),
        summary="{model} has no {method}{other} form in this release",
        unless=r"current GPU",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.93,
        pattern=r"(?P<method>[\w-]+) quantization is (?:currently )?not supported (?:in|on|for) "
        r"(?P<platform>(?i:rocm|cuda|cpu|xpu|tpu|hpu|neuron|npu|musa|hip)\w*)",
        literals=(
            "quantization is currently not supported in",
            "quantization is not supported",
            "quantization is currently not",
        ),
        summary="{method} is not there on {platform}",
    ),
    Message(
        kind="arch.quant_unsupported",
        sure=0.8,
        pattern=r"(?:block-wise quantization|ModelOpt\w*|moe_wna16|AWQMoEMethod|QoQ|\w*(?:Linear|MoE)Method"
        r"|[Qq]uark\w*) (?:currently )?"
        r"(?:only supports?|does not support) (?P<what>[^\n]{1,60})|(?:Unknown"
        r"|Unsupported) (?:weight )?(?:quantization )?strategy"
        r"|Unsupported activation scheme|num_bits must be \d"
        r"|only group[ _]size \S+ [^\n]{0,30}is supported for"
        r"|not support (?P<format>mxfp4|nvfp4|fp8) computation|Only (?:per-tensor|symmetric"
        r"|per-channel) \w+ (?:is|are) supported"
        r"|[Oo]nly support per-tensor scaling factor|[Cc]urrently supported kv cache quantization",
        literals=(
            "only support",
            "does not support",
            "nknown strategy",
            "nsupported strategy",
            "nknown quantization strategy",
            "weight strategy",
            "nsupported quantization strategy",
            "Unsupported activation scheme",
            "num_bits must be",
            "is supported for",
            "4 computation",
            "fp8 computation",
            "supported for",
            "is supported",
            "nly support per-tensor",
            "kv cache quantization",
        ),
        summary="the scheme of the checkpoint is none that this release has ({what}{format})",
    ),
)
_EXPLANATION = "The kernels of this number format are not there for this device, or not in this release."


def read(case: Case) -> tuple[Match, ...]:
    """The refusal of the format, with formats that go."""
    return tuple(
        Match(
            kind=_KIND,
            sure=one.message.sure,
            lines=with_frames(case, one.lines),
            summary=re.sub(r" \(\?: \? bits\)|\?", "", one.summary),
            explanation=_EXPLANATION,
            fixes=_format(case, one),
        )
        for one in surest(case, _MESSAGES)
    )


def _format(case: Case, one: Said) -> tuple[Fix, ...]:
    text = " ".join((one.text, *(line.text for line in one.lines))).lower()
    is_fp4 = "fp4" in text
    is_fp8 = not is_fp4 and re.search(r"fp8|float8|_scaled_mm|w8a8", text) is not None
    least = one.values.get("least")
    old = "FP4" if is_fp4 else "FP8" if is_fp8 else one.values.get("method")
    new = "weight-only (W4A16), INT4 or INT8" if is_fp4 else "INT4 or INT8 (AWQ, GPTQ), or bf16"
    card = f"sm_{least} or newer" if least else "sm_100 or newer" if is_fp4 else "sm_89 or newer (L40S, H100)"
    fixes = [Fix(type="file", name="checkpoint", old=old, new=new, cost="another download")]
    if is_fp4 or is_fp8 or least:
        fixes.append(Fix(type="hardware", name="GPU", new=card))
    later = "a later release, where kernels for this architecture came later"
    return (*fixes, Fix(type="package", name=package_of(engine_of(case)), old=case.version, new=later))


RULE = Rule(
    kinds=(_KIND,),
    title="a quantisation that is not there on this device",
    literals=literals_of(_MESSAGES),
    read=read,
    meaning="The number format of the checkpoint, or the one that was asked for, has no kernels for this "
    "GPU or "
    "platform, or no implementation for this model in this release.",
    told_apart="By the message: a size that does not divide is `shard.quant_group`, a backend that refuses "
    "and "
    "another that may do it is `arch.backend_gate`, a library without code for the GPU is "
    "`arch.no_kernel_image`. "
    "`does not have native FP4` is only a warning on sm_120.",
    cure="A checkpoint in another format (INT4, INT8, bf16), a newer GPU, or a later release of the engine.",
    source="vLLM `quantization/base_config.py`, `compressed_tensors/compressed_tensors.py`, "
    "`platforms/interface.py`; "
    "SGLang `srt/layers/quantization/`; transformers `quantizers/quantizer_finegrained_fp8.py`; Triton.",
)
