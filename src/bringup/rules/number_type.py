"""The number type of weights or activations is not there on this GPU, or not for this quantisation.

Source: vLLM 0.2 to 0.33 `worker/worker.py`, `v1/worker/gpu_worker.py` (`_check_if_gpu_supports_dtype`),
`config/model.py`; SGLang 0.2 to 0.5.23 `srt/configs/model_config.py`; PyTorch `aten/src/ATen/Dispatch.h`.
"""

from bringup.parse.log_message import Message, Said, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, value_of

_MESSAGES = (
    Message(
        kind="arch.dtype",
        sure=0.96,
        pattern=r"[Bb](?i:float)16 is only supported on GPUs with compute capability of at least "
        r"(?P<least>[\d.]+)"
        r"(?:.*?Your (?P<gpu>.{1,60}?) GPU has compute capability (?P<has>[\d.]+))?",
        literals=("loat16 is only supported on GPUs",),
        summary="bfloat16 needs capability {least}, the GPU ({gpu}) has {has}",
    ),
    Message(
        kind="arch.dtype",
        sure=0.94,
        pattern=r"torch\.(?P<type>\w+) is not supported for quantization method (?P<method>\S+?)\.? "
        r"(?:Supported dtypes: (?P<possible>\[[^\]]*\]))?",
        literals=("is not supported for quantization method",),
        summary="{method} does not work in {type}, but in {possible}",
    ),
    Message(
        kind="arch.dtype",
        sure=0.9,
        pattern=r"model type '?(?P<model>\w+)'? does not support float16|(?:BFloat16|bfloat16"
        r"|bf16) is not supported (?:on|by)"
        r"|does not support (?:bfloat16|BFloat16)|not implemented for '(?:BFloat16|Half)'"
        r"|[Ee]xpected scalar type (?:Half|BFloat16) but (?:found|got) (?:BFloat16|Half)"
        r"|to have the same dtype, but got: c10::(?:Half|BFloat16) != c10::(?:Half|BFloat16)"
        r"|only supports? fp16 and bf16 data type",
        literals=(
            "does not support",
            "loat16 is not supported",
            "bf16 is not supported",
            "for 'BFloat16'",
            "for 'Half'",
            "xpected scalar type",
            "to have the same dtype",
            "fp16 and bf16 data type",
        ),
        summary="the number type is not available here",
    ),
)


def read(case: Case) -> tuple[Match, ...]:
    """The type that does not go, with the one that does."""
    return tuple(
        Match(
            kind=one.message.kind,
            sure=one.message.sure,
            lines=with_frames(case, one.lines),
            summary=one.summary.replace(" (?)", "").replace(", but in ?", ""),
            fixes=_dtype(case, one),
        )
        for one in surest(case, _MESSAGES)
    )


def _dtype(case: Case, one: Said) -> tuple[Fix, ...]:
    name = flag_of(engine_of(case), "dtype")
    if name is None:
        return (Fix(type="env", name="DTYPE", new="half"),)
    wants_wide = one.values.get("model") is not None or "bfloat16" in one.values.get("possible", "")
    new = "bfloat16" if wants_wide else "half"
    return (
        Fix(
            type="flag",
            name=name,
            old=value_of(case, name) or "auto",
            new=new,
            cost="overflow in some models",
        ),
    )


RULE = Rule(
    kinds=("arch.dtype",),
    title="a number type that is not there",
    literals=literals_of(_MESSAGES),
    read=read,
    meaning="bfloat16 needs a GPU of capability 8.0, some quantisations take float16 only, some models "
    "overflow in it, "
    "and kernels take operands of one type.",
    told_apart="By the message; a number format of quantised weights is `arch.quant_unsupported`.",
    cure="The other half-precision type, by the engine's own flag.",
    source="vLLM `v1/worker/gpu_worker.py`, `config/model.py`; SGLang `srt/configs/model_config.py`; "
    "PyTorch.",
)
