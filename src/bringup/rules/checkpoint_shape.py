"""A checkpoint or adapter whose weights have other names, sizes or settings than the model that was built.

Source: vLLM 0.2 to 0.33 `model_loader/weight_utils.py` (`default_weight_loader`, `get_quant_config`),
`quantization/base_config.py` (`get_from_keys`), `lora/lora_model.py`, `lora/utils.py`; SGLang 0.2 to 0.5.23
the same; transformers 4.30 to 5.x `modeling_utils.py`; accelerate `utils/modeling.py`; TensorRT-LLM 0.8 to
1.2 `models/modeling_utils.py`; safetensors `bindings/python/src/lib.rs`.
"""

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, package_of, value_of

_KIND = "file.param_mismatch"
_NEXT = "the shapes in the file against config.json: `safetensors` headers of the first shard"
_MESSAGES = (
    Message(
        kind=_KIND,
        sure=0.88,
        pattern=r"[Tt]ried to load weights of size (?P<has>torch\.Size\(\[[\d, ]*\]\)) ?to a parameter of"
        r" size"
        r" (?P<wants>torch\.Size\(\[[\d, ]*\]\))"
        r"|Trying to set a tensor of shape (?P<has_shape>torch\.Size\(\[[\d, ]*\]\)) in \"?(?P<name>\w+)\"?"
        r" \(which has shape"
        r" (?P<wants_shape>torch\.Size\(\[[\d, ]*\]\))",
        literals=("ried to load weights of size", "Trying to set a tensor of shape"),
        summary="a weight of {has}{has_shape} meets a parameter of {wants}{wants_shape}",
    ),
    Message(
        kind=_KIND,
        sure=0.8,
        pattern=r"Missing keys (?P<fifth>[^\n]{1,80}) in loaded state"
        r"|You set `ignore_mismatched_sizes` to `False`|[Ss]hape mismatch (?:for|in"
        r"|at) (?P<name>[\w.]+\.(?:weight|bias))"
        r"|(?:[Ww]eight|[Pp]arameter|[Tt]ensor) '?\"?(?P<other>[\w.]+\.(?:weight|bias|\w*scale\w*"
        r"|qweight))'?\"?"
        r" (?:is )?(?:not found|missing|does not exist|not in)"
        r"|File does not contain tensor (?P<third>[\w.]+)|[Ff]ail(?:ed)? to (?:set"
        r"|load) (?:weight )?(?P<fourth>[\w.]+): weight"
        r" shape mismatch|Provided (?:tensor names|weights) (?:are"
        r"|is) different from those expected by the engine"
        r"|(?:(?i:required) but not provided|provided but not (?:required|expected)) tensors",
        literals=(
            "ignore_mismatched_sizes",
            "Missing keys ",
            "hape mismatch",
            ".weight",
            ".bias",
            "_scale",
            ".qweight",
            "does not contain tensor",
            "weight shape mismatch",
            "those expected by the engine",
            "but not provided",
            "but not expected",
        ),
        summary="the checkpoint has not the weights that the model wants: "
        "{name}{other}{third}{fourth}{fifth}",
    ),
    Message(
        kind=_KIND,
        sure=0.8,
        pattern=r"'(?P<layer>\w*(?:Linear|Embedding|LMHead"
        r"|FusedMoE)\w*)' object has no attribute '(?P<name>\w*weight\w*|\w*scale\w*)'"
        r"|KeyError: '(?P<other>(?:weight|input|output)_(?:scale|zero_point|packed|shape)\w*|qweight|qzeros"
        r"|g_idx)'",
        literals=("object has no attribute", "KeyError: '"),
        summary="{layer} has no {name}{other}: the layer is quantised otherwise than the code or the files "
        "say",
    ),
    Message(
        kind=_KIND,
        sure=0.85,
        pattern=r"Cannot find any of (?P<keys>\[[^\]\n]+\]) in the model's quantization config"
        r"|Cannot find 'quant_algo' in|Model quantization method is not specified in the config"
        r"|Found multiple config files for (?P<many>\w+)"
        r"|Unsupported quantization config found for (?P<method>\w+)",
        literals=(
            "in the model's quantization config",
            "quantization method is not specified",
            "'quant_algo'",
            "multiple config files for",
            "quantization config found for",
        ),
        summary="the checkpoint's own quantisation settings are not of the method that was asked for: "
        "{keys}{many}{method}",
    ),
    Message(
        kind=_KIND,
        sure=0.86,
        pattern=r"expected target modules in (?P<wants>\[?[^\n]{1,200}?) but received"
        r" (?P<has>\[?[^\n]{1,200}?)(?:\.|$)"
        r"|(?P<name>\S+) is unsupported LoRA weight|No supported LoRA modules found"
        r"|[Tt]arget modules? (?P<other>[^\n]{1,80}?) (?:is|are) not (?:supported|found in)"
        r"|embedding LoRA size\([^)]*\)+ must be consistent with the base model",
        literals=(
            "expected target modules",
            "unsupported LoRA weight",
            "No supported LoRA modules",
            "arget module",
            "embedding LoRA size",
        ),
        summary="the adapter changes parts of the model that the engine takes no adapters for: "
        "{has}{name}{other}",
    ),
)


def _fixes(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    later = Fix(type="package", name=package_of(engine), old=case.version, new="a later release")
    if "LoRA" in one.text or "target module" in one.text:
        return (
            Fix(
                type="file",
                name="adapter",
                new="trained on the modules that the engine takes, or merged into the base",
            ),
            later,
        )
    name = flag_of(engine, "quantization")
    if "uantization" in one.text and name:
        return (
            Fix(type="flag", name=name, old=value_of(case, name), new=None, cost="the file's own method"),
            later,
        )
    return (
        Fix(
            type="file", name="config.json", old="of another model", new="the one that came with the weights"
        ),
        *(
            (Fix(type="flag", name=name, old=value_of(case, name), new="the method of the files"),)
            if name
            else ()
        ),
        later,
    )


RULE = Rule(
    kinds=(_KIND,),
    title="weights that do not fit the model that was built",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, {_KIND: _fixes}, next_measurements={_KIND: _NEXT}),
    meaning="The engine builds the model from config.json and then fills it. A weight of another size or "
    "name, a "
    "quantisation of another method, or an adapter for other modules has no place in it.",
    told_apart="A KeyError with a weight's name is read beside the other files; a size that is the tensor "
    "parallel size "
    "times another is an error of the cut (`shard.model_bug`).",
    cure="config.json and weights of the same model; no forced quantisation; the adapter merged.",
    source="vLLM `model_loader/weight_utils.py`, `lora/lora_model.py`; transformers `modeling_utils.py`; "
    "TensorRT-LLM "
    "`models/modeling_utils.py`.",
)
