"""`quantization_config` (or `hf_quant_config.json`) to a `Quantization`.

Source: vLLM 0.33.0, `model_executor/layers/quantization/` and, for what a KV scheme turns `auto` into,
`utils/torch_utils.py` (`get_kv_cache_quant_algo_string`).
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.parse.hf_fields import Fields
from bringup.parse.json_value import Json, at, bool_at, int_at, list_at, text_at
from bringup.values.model import Quantization

# Where a config or `hf_quant_config.json` lists what stays unquantised.
_IGNORED = (
    "ignore",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude_modules",
    "modules_in_block_to_not_quantize",
)
# ModelOpt's word -> (scheme, group size). Source: `quantization/modelopt.py`.
_MODELOPT: Mapping[str, tuple[str, int | None]] = {
    "FP8": ("fp8_tensor", None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_channel", None),
    "FP8_PB_WO": ("fp8_block", None),
    "NVFP4": ("nvfp4", 16),
    "W4A16_NVFP4": ("nvfp4", 16),
    "NVFP4_AWQ": ("nvfp4", 16),
    "W4A8_NVFP4_FP8": ("nvfp4", 16),
    "MXFP8": ("mxfp8", 32),
    "MXFP4": ("mxfp4", 32),
    "W4A16_AWQ": ("int4_group", 128),
    "W4A8_AWQ": ("int4_group", 128),
    "W8A8_SQ_PER_CHANNEL": ("int8", None),
}


def read_quantization(
    config: Mapping[str, Json], other_file: Mapping[str, Json] | None = None
) -> Quantization | None:
    """The number format that a config and `hf_quant_config.json` beside it tell; None for unquantised.

    The config wins; the other file fills in the KV format and the list of what stays unquantised.
    """
    beside = _beside(other_file)
    own = config.get("quantization_config") or config.get("compression_config")
    if isinstance(own, dict) and own:
        found = _read(own)
        return _completed(found, beside) if found and beside else found
    return _read(beside) if beside else None


def _beside(other_file: Mapping[str, Json] | None) -> dict[str, Json]:
    inner = (other_file or {}).get("quantization", other_file)
    return {"quant_method": "modelopt", **inner} if isinstance(inner, dict) and inner else {}


def _completed(found: Quantization, beside: dict[str, Json]) -> Quantization:
    extra = _read(beside)
    if extra is None:
        return found
    return replace(found, kv_cache=found.kv_cache or extra.kv_cache, ignored=found.ignored or extra.ignored)


def _read(own: dict[str, Json]) -> Quantization | None:
    method = text_at(own, "quant_method") or (
        "modelopt" if text_at(own, "quant_algo") else "compressed-tensors"
    )
    ignored = _ignored(own)
    if method.startswith("modelopt") or text_at(own, "quant_algo"):
        found = _modelopt(own, method)
    elif method == "compressed-tensors":
        found = _compressed(own, method)
    else:
        found = _by_method(own, method)
    if found is None:
        return None
    return replace(found, ignored=ignored, is_list_cut=_is_list_cut(own), kv_cache=_kv_cache(own))


def _ignored(own: dict[str, Json]) -> tuple[str, ...]:
    fields = Fields(given=own, assumed={})
    for name in _IGNORED:
        if words := fields.names(name):
            # A list that was cut when it was copied ends in a remark; a module name has no blank.
            return tuple(word for word in words if " " not in word)
    return ()


def _is_list_cut(own: dict[str, Json]) -> bool:
    """Whether the list ends in a remark, "... 283 entries in all", instead of in its last names."""
    fields = Fields(given=own, assumed={})
    return any(" " in word for name in _IGNORED for word in fields.names(name))


def _kv_cache(own: dict[str, Json]) -> str | None:
    """What `auto` becomes. An unknown word is None: the engine warns and keeps the model's own type."""
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        word = text_at(own, name)
        if word and word.upper() in ("FP8", "NVFP4"):
            return word.lower()
        bits = int_at(own, name, "num_bits")
        if text_at(own, name, "type") == "float" and bits in (4, 8):
            return "fp8" if bits == 8 else "nvfp4"
    return None


def _by_method(own: dict[str, Json], method: str) -> Quantization:
    reader = _METHODS.get(method)
    if reader:
        return reader(own, method)
    bits = int_at(own, "bits") or int_at(own, "num_bits")
    scheme = {4: "int4_group", 8: "int8"}.get(bits or 0, "unknown")
    return Quantization(scheme=scheme, method=method, group_size=int_at(own, "group_size"))


def _fp8(own: dict[str, Json], method: str) -> Quantization:
    block = _block(own)
    is_dynamic = text_at(own, "activation_scheme") != "static"
    if block == (1, 32) or text_at(own, "fmt") == "mxfp8":
        return Quantization(scheme="mxfp8", method=method, group_size=32, is_dynamic=is_dynamic)
    return Quantization(
        scheme="fp8_block" if block else "fp8_tensor",
        method=method,
        block=block,
        is_dynamic=is_dynamic,
    )


def _block(own: dict[str, Json]) -> tuple[int, int] | None:
    rows, columns = int_at(own, "weight_block_size", 0), int_at(own, "weight_block_size", 1)
    return (rows, columns) if rows and columns else None


def _mxfp4(_own: dict[str, Json], method: str) -> Quantization:
    return Quantization(scheme="mxfp4", method=method, group_size=32)


def _int4(own: dict[str, Json], method: str) -> Quantization:
    bits = int_at(own, "bits") or int_at(own, "w_bit") or 4
    group = int_at(own, "group_size") or int_at(own, "q_group_size") or 128
    symmetric = bool_at(own, "sym")
    return Quantization(
        scheme={4: "int4_group", 8: "int8_group"}.get(bits, f"int{bits}_group"),
        method=method,
        group_size=None if group < 0 else group,  # -1: one scale per column
        # AWQ stores zero points unless it says `zero_point: false`; GPTQ is symmetric unless told otherwise.
        is_symmetric=bool_at(own, "zero_point") is False if method == "awq" else symmetric is not False,
        has_act_order=bool_at(own, "desc_act") is True,
    )


def _bitsandbytes(own: dict[str, Json], method: str) -> Quantization:
    is_8bit = bool_at(own, "load_in_8bit") is True
    return Quantization(
        scheme="int8" if is_8bit else "bnb4", method=method, group_size=None if is_8bit else 64
    )


def _mxfp8(_own: dict[str, Json], method: str) -> Quantization:
    return Quantization(scheme="mxfp8", method=method, group_size=32)


def _fbgemm(_own: dict[str, Json], method: str) -> Quantization:
    return Quantization(scheme="fp8_channel", method=method)


_METHODS = {
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "gpt_oss_mxfp4": _mxfp4,
    "awq": _int4,
    "gptq": _int4,
    "auto-round": _int4,
    "intel/auto-round": _int4,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm,
}


def _modelopt(own: dict[str, Json], method: str) -> Quantization | None:
    algorithm = (text_at(own, "quant_algo") or "").upper()
    groups = _groups(own, method)
    if algorithm == "MIXED_PRECISION" or algorithm not in _MODELOPT:
        if groups:
            return _joined(groups)
        base = _fp8(own, method) if text_at(own, "quant_method") == "fp8" else None
        return base or Quantization(scheme="mixed", method=method)
    scheme, group = _MODELOPT[algorithm]
    return Quantization(
        scheme=scheme,
        method=method,
        group_size=int_at(own, "group_size") or (groups[0].group_size if groups else None) or group,
        block=(128, 128) if scheme == "fp8_block" else None,
        is_dynamic=algorithm in ("FP8_PER_CHANNEL_PER_TOKEN", "W4A16_NVFP4", "W4A16_AWQ"),
    )


def _compressed(own: dict[str, Json], method: str) -> Quantization | None:
    groups = _groups(own, method)
    return _joined(groups) if groups else None


def _joined(groups: list[Quantization]) -> Quantization:
    """The group for all linear layers, the others beside it; without one the last, as in the files seen."""
    main = next((group for group in groups if not group.targets), groups[-1])
    return replace(main, others=tuple(group for group in groups if group is not main))


def _groups(own: dict[str, Json], method: str) -> list[Quantization]:
    named = at(own, "config_groups")
    if not isinstance(named, dict):
        return []
    return [
        found
        for group in named.values()
        if (found := _group(group, text_at(group, "format") or text_at(own, "format") or "", method))
    ]


def _group(group: Json, file_format: str, method: str) -> Quantization | None:
    weights = at(group, "weights")
    bits, kind = int_at(weights, "num_bits"), text_at(weights, "type")
    if bits is None:
        return None
    size, strategy = int_at(weights, "group_size"), text_at(weights, "strategy")
    targets = tuple(word for word in list_at(group, "targets") if isinstance(word, str))
    return Quantization(
        scheme=_scheme(bits, kind, strategy, size, file_format),
        method=method,
        group_size=size,
        block=_pair(weights) if strategy == "block" else None,
        is_symmetric=bool_at(weights, "symmetric") is not False,
        is_dynamic=_is_dynamic(group),
        has_act_order=text_at(weights, "actorder") in ("group", "weight", "static"),
        targets=() if not targets or "Linear" in targets else targets,
    )


def _pair(weights: Json) -> tuple[int, int] | None:
    rows, columns = int_at(weights, "block_structure", 0), int_at(weights, "block_structure", 1)
    return (rows, columns) if rows and columns else None


def _is_dynamic(group: Json) -> bool:
    """Whether no activation scales are stored. "local" (NVFP4) keeps a global one."""
    inputs = at(group, "input_activations")
    return not isinstance(inputs, dict) or bool_at(inputs, "dynamic") is True


def _scheme(bits: int, kind: str | None, strategy: str | None, size: int | None, file_format: str) -> str:
    if kind == "float" and bits == 4:
        return "mxfp4" if size == 32 or "mxfp4" in file_format else "nvfp4"
    if kind == "float":
        if size == 32 or "mxfp8" in file_format:
            return "mxfp8"
        return {"channel": "fp8_channel", "block": "fp8_block"}.get(strategy or "", "fp8_tensor")
    if bits == 8:
        return "int8_group" if strategy == "group" else "int8"
    return f"int{bits}_group"
