"""How sure a figure of weights is: the interval around it, and what of the model is not known."""

from collections import Counter
from collections.abc import Mapping

from bringup.planner.encoder_tensors import tower_of
from bringup.planner.formats import FORMATS, element_bytes
from bringup.planner.sizes import float_scales
from bringup.planner.weight_rules import WeightRules
from bringup.units import GIB, MIB, bytes_text
from bringup.values.finding import Finding, Severity
from bringup.values.model import ModelSpec

# The largest |predicted - logged| / logged that public start-up logs showed for a format, rounded up.
_ERROR: Mapping[str, float] = {
    "bfloat16": 0.003,
    "fp8_block": 0.007,
    "fp8_channel": 0.007,
    "fp8_tensor": 0.007,
    "nvfp4": 0.015,
    "mxfp4": 0.04,
}
_ERROR_ELSEWHERE = 0.03  # guess: formats without a log to check against
# Seen where free memory is compared: 26 and 38 MiB less than the segments that the tensors should need.
_FEWER_SEGMENTS = 48 * MIB
_ENCODER = 2 * GIB  # guess: a tower that is not known is hardly larger
_NAMED = ("embedding", "head", "norms", "rope", "router")  # parts that no format changes


def bounds(model: ModelSpec, parts: Counter[str], rules: WeightRules) -> tuple[int, int]:
    """The least and the most that one rank is likely to hold."""
    total = parts.total()
    scheme = "bfloat16" if model.quantization is None else model.quantization.scheme
    error = _ERROR.get(scheme, _ERROR_ELSEWHERE)
    low, high = round(total * (1 - error)), round(total * (1 + error))
    if rules.counts_segments:
        low, high = low - rules.libraries - _FEWER_SEGMENTS, high + rules.libraries_high - rules.libraries
    if _is_unknown(model):  # taken as bf16 in the sum: the least is four bits
        counted = sum(size for part, size in parts.items() if part not in _NAMED)
        low = total - counted * 3 // 4
    if _has_unknown_tower(model) and rules.loads_encoder:
        high += _ENCODER
    if rules.has_float_scales is None:
        high += float_scales(model, rules, parts["experts"])
    missing = 0 if model.tensors else model.missing_parameters
    if missing > 0:  # a table that nobody shares, at worst
        high += missing * element_bytes(model.dtype)
    elif missing < 0 and model.parameters:
        low = round(low * model.parameters / (model.parameters - missing))
    return low, high


def doubts(model: ModelSpec, rules: WeightRules) -> tuple[Finding, ...]:
    """What could not be counted."""
    found: list[Finding] = []
    form = model.quantization
    if _is_unknown(model) and form is not None:
        found.append(
            Finding(
                id="weights.format_unknown",
                severity=Severity.UNKNOWN,
                summary=f"number format `{form.scheme}` of `{form.method}` is not known",
                explanation="counted as 16 bits; the lower bound is 4 bits",
                action="give the folder with the weight files, whose headers tell the sizes",
            )
        )
    if _has_unknown_tower(model) and rules.loads_encoder:
        found.append(
            Finding(
                id="weights.encoder_unknown",
                severity=Severity.UNKNOWN,
                summary="the size of the vision or audio tower is not known",
                explanation=f"not counted; up to {_ENCODER // GIB} GiB more are possible",
                action="give the folder with the weight files, whose headers tell the sizes",
            )
        )
    if model.missing_parameters and not model.tensors and model.parameters:
        found.append(_parameters(model, model.parameters))
    return tuple(found)


def _parameters(model: ModelSpec, published: int) -> Finding:
    described = published - model.missing_parameters
    is_less = model.missing_parameters > 0
    return Finding(
        id="weights.parameters",
        severity=Severity.UNKNOWN,
        summary=f"the config describes {described / 1e9:,.1f} thousand million parameters, the model has "
        f"{published / 1e9:,.1f}",
        explanation="what is missing is not counted: tables or towers, which may lie in the host's memory"
        if is_less
        else "layers differ in a way that the config does not say: less will be held",
        action="give the folder with the weight files, whose headers tell the sizes",
    )


def contradiction(stored: int, promised: int) -> tuple[Finding, ...]:
    """A note where the files hold clearly more or less than the config makes one expect."""
    if abs(stored - promised) <= promised * 0.05:
        return ()
    return (
        Finding(
            id="weights.config_mismatch",
            severity=Severity.NOTE,
            summary=f"the files hold {bytes_text(stored)} per GPU, the config says {bytes_text(promised)}",
            explanation="number formats or layers differ from what config.json says; the files were counted",
        ),
    )


def _is_unknown(model: ModelSpec) -> bool:
    return model.quantization is not None and model.quantization.scheme not in FORMATS


def _has_unknown_tower(model: ModelSpec) -> bool:
    is_said = bool(model.multimodal) or model.architecture.endswith("ForConditionalGeneration")
    return is_said and tower_of(model) is None
