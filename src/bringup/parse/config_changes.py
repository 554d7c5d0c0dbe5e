"""Fields of a model's config that an engine's command line sets, as `--hf-overrides` does."""

from collections.abc import Mapping

from bringup.parse.json_value import Json


def changed(config: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    """The config with the changes in it; within a part of the model only what is named, else whole values.

    Source: vLLM 0.32.0 `transformers_utils/config.py`, `get_config`: dictionaries replace dictionaries where
    they are no configs of their own. A stored config may have the language part's fields at its top.

    >>> changed({"rope_scaling": None, "text_config": {"a": 1, "b": 2}}, {"text_config": {"b": 3}})
    {'rope_scaling': None, 'text_config': {'a': 1, 'b': 3}}
    """
    result = dict(config)
    for name, value in changes.items():
        old = result.get(name)
        is_part = name.endswith("_config") and name != "quantization_config"
        if is_part and isinstance(value, dict) and isinstance(old, dict):
            result[name] = changed(old, value)
        elif name == "text_config" and isinstance(value, dict) and old is None:
            result |= changed(result, value)
        else:
            result[name] = value
    return result
