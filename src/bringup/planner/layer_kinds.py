"""The layers of a model that differ: what holds for one of a kind holds for all of it."""

from functools import lru_cache

from bringup.values.model import Layer, ModelSpec


@lru_cache(maxsize=64)  # models
def layer_kinds(model: ModelSpec) -> tuple[Layer, ...]:
    """The first layer of each kind, in their order. Layers of a kind differ in their index only."""
    found: dict[tuple[object, ...], Layer] = {}
    for layer in model.layers:
        found.setdefault((layer.mixer, layer.attention, layer.state, layer.side_state, layer.mlp), layer)
    return tuple(found.values())
