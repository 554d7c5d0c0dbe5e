"""Rotary tables: cosines and sines for every position, kept for the life of the process."""

from collections.abc import Mapping
from typing import cast

from bringup.planner.held import Vector
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec


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
        tables, size = tables[:1] * 2, 4
    return tuple(Vector(part="rope", bytes=rows * dims * size) for dims, rows in tables)


def _rows(model: ModelSpec) -> tuple[int, ...]:
    """Positions in each table of `model.rotary_dims`."""
    scaling = _scaling(model)
    count, longest = len(model.rotary_dims), model.max_position or 0
    if isinstance(nested := scaling.get("full_attention"), Mapping):
        # One rope per kind of layer: only that of full attention is stretched.
        full = _stretched(longest, cast("Mapping[str, object]", nested))
        return (longest,) * (count - 1) + (full,) if count else ()
    return (_stretched(longest, scaling),) + (longest,) * (count - 1) if count else ()


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
