"""Rotary tables: cosines and sines for every position, kept for the life of the process."""

from collections.abc import Mapping
from typing import cast

from bringup.planner.held import Vector
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec

_GEMMA3_POSITIONS = 131_072


def rope_tables(model: ModelSpec, rules: WeightRules) -> tuple[Vector, ...]:
    """One table per distinct rope, (positions, rotary width) each.

    Positions are the model's own longest context, whatever `--max-model-len` says.
    Source: vLLM 0.33.0 `layers/rotary_embedding/`, `_compute_cos_sin_cache` of each class.
    """
    if model.max_position is None or not rules.has_rope_table:
        return ()
    size = rules.rope_element_bytes
    tables = list(zip(model.rotary_dims, _rows(model), strict=True))
    if any(layer.attention is not None and layer.attention.compress_ratio for layer in model.layers):
        # DeepSeek-V4: windows and compressed keys have a base of their own, and both tables are float32.
        # Source: vLLM 0.32.0 `models/deepseek_v4/common/rope.py`, `deepseek_scaling_rope.py`.
        # SGLang keeps the same once more as complex numbers. Source: `models/deepseek_v4.py`, `freqs_cis`.
        tables, size = tables[:1] * (4 if rules.engine == "sglang" else 2), 4
    return tuple(Vector(part="rope", bytes=rows * dims * size) for dims, rows in tables)


def rope_scratch(model: ModelSpec, rules: WeightRules) -> tuple[tuple[int, ...], ...]:
    """What the making of each table takes beside it and gives back, in bytes.

    Angles, cosines and sines in float32, half a table each, and the float32 table where the kept one is
    shorter; a stretched table is joined from pieces, which takes it once more.
    Source: vLLM 0.33.0 `rotary_embedding/base.py`, `linear_scaling_rope.py`, `_compute_cos_sin_cache`.
    """
    if model.max_position is None or not rules.has_rope_table:
        return ()
    scratch: list[tuple[int, ...]] = []
    for dims, rows in zip(model.rotary_dims, _rows(model), strict=True):
        whole = 4 * rows * dims
        is_joined = rows > _longest(model) and (_is_linear(model) or model.model_type == "gemma3")
        joined = (whole,) if is_joined else ()
        shortened = (whole,) if rules.rope_element_bytes < 4 else ()
        scratch.append((whole // 2, whole // 2, whole // 2, *shortened, *joined))
    return tuple(scratch)


def _is_linear(model: ModelSpec) -> bool:
    scaling = _scaling(model)
    return str(scaling.get("rope_type") or scaling.get("type")) == "linear"


def _longest(model: ModelSpec) -> int:
    """Positions before any stretching. Some configs of Gemma 3 give them stretched.

    Source: transformers 5.19.0, `Gemma3TextConfig`: 131072; the released 4B, 12B and 27B stretch it by 8.
    """
    longest = model.max_position or 0
    return min(longest, _GEMMA3_POSITIONS) if model.model_type == "gemma3" else longest


def _rows(model: ModelSpec) -> tuple[int, ...]:
    """Positions in each table of `model.rotary_dims`."""
    scaling = _scaling(model)
    count, longest = len(model.rotary_dims), _longest(model)
    if isinstance(nested := scaling.get("full_attention"), Mapping):
        # One rope per kind of layer: only that of full attention is stretched.
        full = _stretched(longest, cast("Mapping[str, object]", nested))
        return (longest,) * (count - 1) + (full,) if count else ()
    first = _stretched(longest, scaling)
    if (said := model.max_position or 0) > longest:
        first = max(first, said)  # a config that gives them stretched means the rope that is
    return (first,) + (longest,) * (count - 1) if count else ()


def _stretched(longest: int, scaling: Mapping[str, object]) -> int:
    """Positions of a table whose rope is scaled.

    >>> _stretched(131072, {"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096})
    131072
    >>> _stretched(131072, {"rope_type": "linear", "factor": 8})
    1048576
    >>> _stretched(262144, {"rope_type": "default", "mrope_section": [11, 11, 10]})
    1048576
    """
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor, original = (
        _number(scaling.get("factor")),
        _number(scaling.get("original_max_position_embeddings")),
    )
    if scaling.get("mrope_section") and kind != "yarn":
        return 4 * longest  # Source: `mrope.py`, `cache_max_position_num`
    if kind == "longrope" and original:
        return longest + int(original)  # a short and a long table, one after the other
    if kind in ("linear", "dynamic") and factor:
        return int(longest * factor)
    if kind in ("yarn", "deepseek_yarn", "su", "telechat3-yarn") and factor and original:
        return int(original * factor)
    return longest


def _scaling(model: ModelSpec) -> Mapping[str, object]:
    for key in ("rope_scaling", "rope_parameters"):
        found = model.config.get(key)
        if isinstance(found, Mapping):
            return cast("Mapping[str, object]", found)
    return {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
