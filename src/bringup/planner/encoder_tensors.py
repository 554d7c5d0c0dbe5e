"""The vision tower of a multimodal model on one rank: its config's sizes, its family's layout."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, Vector
from bringup.planner.spread import Spread, share
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A vision tower. The numbers are those of the released checkpoints; a config's own come first."""

    hidden: int
    layers: int
    intermediate: int
    patch: int = 14
    frames: int = 1  # patches span this many
    positions: int = 0  # learned ones
    is_gated: bool = False  # gate and up beside down
    has_bias: bool = True
    merge: int = 1  # patches per side that the projector joins
    mergers: int = 1  # Qwen3-VL: one more per deep layer
    projector: str = "merger"  # which of _projector's shapes
    is_whole: bool = False  # on every rank, whatever the layout
    extra: int = 0  # numbers of other tables
    attention: int = 0  # width of queries, keys and values where it is not `hidden`
    joint: int = 0  # inner width of the projector, where it has one of its own


_SIGLIP = Tower(hidden=1152, layers=27, intermediate=4304, positions=4096, projector="linear", merge=1)
_QWEN3 = Tower(hidden=1152, layers=27, intermediate=4304, patch=16, frames=2, positions=2304, merge=2)
_QWEN2_5 = Tower(hidden=1280, layers=32, intermediate=3420, frames=2, is_gated=True, merge=2)
_MOON = Tower(
    hidden=1152, layers=27, intermediate=4304, positions=4096, merge=2, projector="merger", is_whole=False
)

_GLM = Tower(
    hidden=1536,
    layers=24,
    intermediate=4096,
    frames=2,
    positions=576,
    is_gated=True,
    has_bias=False,
    merge=2,
    projector="gated",
    joint=13696,
)

# Source of sizes: transformers 5.19.0 and vLLM 0.33.0, the vision config class of each model type, and for
# gemma3 and mllama the released configs, whose sizes the class does not carry.
TOWERS: Mapping[str, Tower] = {
    "qwen2_vl": Tower(hidden=1280, layers=32, intermediate=5120, frames=2, merge=2),
    "qwen2_5_vl": _QWEN2_5,
    "qwen2_5_omni": _QWEN2_5,
    "qwen3_vl": replace(_QWEN3, mergers=4),
    "qwen3_vl_moe": replace(_QWEN3, mergers=4),
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "qwen4_exp": _QWEN3,
    "gemma3": _SIGLIP,
    "gemma4": Tower(
        hidden=1152,
        layers=27,
        intermediate=4304,
        patch=16,
        positions=2 * 10240,
        is_gated=True,
        has_bias=False,
        projector="linear",
    ),
    "mistral3": Tower(
        hidden=1024, layers=24, intermediate=4096, is_gated=True, has_bias=False, merge=2, projector="joined"
    ),
    "kimi_k2": _MOON,
    "kimi_k25": _MOON,
    "llama4": Tower(hidden=1408, layers=34, intermediate=5632, positions=577, merge=2, projector="shuffled"),
    "mllama": Tower(
        hidden=1280,
        layers=40,  # 32, and 8 over all tiles
        intermediate=5120,
        positions=1601,
        projector="mllama",
        extra=9 * 4 * 1601 * 1280,  # places within each arrangement of tiles
    ),
    "dots_ocr": Tower(hidden=1536, layers=42, intermediate=4224, is_gated=True, has_bias=False, merge=2),
    "glm4v": _GLM,
    "glm4v_moe": replace(_GLM, joint=10944, intermediate=4096),
    "minimax_m3": Tower(
        hidden=1280, layers=32, intermediate=5120, frames=2, merge=2, projector="twice", joint=6144
    ),
    "kimi_k3": Tower(
        hidden=1024,
        layers=27,
        intermediate=4096,
        positions=64 * 64,
        has_bias=False,
        merge=2,
        attention=1536,
    ),
    "step3p7": Tower(hidden=1536, layers=47, intermediate=8960, positions=2704, projector="narrowed"),
    "internvl": Tower(hidden=1024, layers=24, intermediate=4096, positions=1025, merge=2, projector="mlp"),
}
# Towers that many models share, by the vision config's own type; what joins them is two layers.
_SHARED: Mapping[str, Tower] = {
    "clip_vision_model": Tower(hidden=1024, layers=24, intermediate=4096, positions=577, projector="mlp"),
    "siglip_vision_model": replace(_SIGLIP, projector="mlp"),
    "intern_vit_6b": TOWERS["internvl"],
    "internvl_vision": TOWERS["internvl"],
    "perception_encoder": TOWERS["step3p7"],
}
# Models whose language part does not tell what they are.
_CLASSES = {
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "InternVLChatModel": "internvl",
    "Step3p7ForConditionalGeneration": "step3p7",
}
_ALWAYS = ("dots_ocr", "step3p7", "minimax_m3")  # with a tower, whatever the class is called
_HIDDEN = ("embed_dim", "hidden_size", "width", "vt_hidden_size")
_LAYERS = ("depth", "num_hidden_layers", "layers", "vt_num_hidden_layers")
_WIDTH = ("intermediate_size", "vt_intermediate_size")


def tower_of(model: ModelSpec) -> Tower | None:
    """The vision tower; None for a text model, or where nothing is known of its shape."""
    config = model.multimodal.get("vision_config")
    fields = cast("Mapping[str, object]", config) if isinstance(config, Mapping) else None
    known = _known(model, fields)
    if fields is None:
        return known if known is not None and _is_multimodal(model) else None
    known = known or Tower(hidden=0, layers=0, intermediate=0)
    hidden = _first(fields, _HIDDEN, known.hidden)
    tower = replace(
        known,
        hidden=hidden,
        # Mllama: those over all tiles come on top.
        layers=_first(fields, _LAYERS, known.layers) + _first(fields, ("num_global_layers",), 0),
        intermediate=_intermediate(fields, known, hidden),
        joint=_first(fields, _WIDTH, known.joint) if known.projector == "gated" else known.joint,
        attention=_first(fields, ("qkv_hidden_size",), known.attention),
        patch=_first(fields, ("patch_size",), known.patch),
        merge=_first(fields, ("spatial_merge_size",), known.merge),
    )
    if isinstance(deep := fields.get("deepstack_visual_indexes"), list):
        tower = replace(tower, mergers=1 + len(cast("list[object]", deep)))
    return tower if tower.hidden and tower.layers and tower.intermediate else None


def has_encoder(model: ModelSpec) -> bool:
    """Whether the model takes images or sound, as far as its config, its family or its class says.

    A config may be partial: what its family is known for counts as said.
    """
    return bool(model.multimodal) or tower_of(model) is not None


def _is_multimodal(model: ModelSpec) -> bool:
    said = f"{model.architecture} {model.config.get('model_type')} {model.config.get('architecture')}".lower()
    if "unified" in said:  # Gemma-4-12B takes patches as they are, without a tower
        return False
    return "forcausallm" not in said or bool({model.model_type, model.config.get("model_type")} & {*_ALWAYS})


def _known(model: ModelSpec, fields: Mapping[str, object] | None) -> Tower | None:
    """The tower of the family; else of the type that the vision config gives itself."""
    words = (model.config.get("model_type"), model.model_type, _CLASSES.get(model.architecture))
    for word in words:
        if isinstance(word, str) and word in TOWERS:
            return TOWERS[word]
    own = fields.get("model_type") if fields is not None else None
    return _SHARED.get(own) if isinstance(own, str) else None


def _intermediate(fields: Mapping[str, object], known: Tower, hidden: int) -> int:
    """Inner width of the blocks. GLM gives the projector's so, and its blocks are as wide as its output."""
    if known.projector == "gated":
        return _first(fields, ("out_hidden_size",), known.intermediate)
    ratio = fields.get("mlp_ratio")
    if isinstance(ratio, int | float) and not isinstance(ratio, bool) and ratio > 0:
        return _first(fields, _WIDTH, round(hidden * ratio))
    return _first(fields, _WIDTH, known.intermediate)


def _first(fields: Mapping[str, object], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = fields.get(name)
        # Qwen2-VL calls the language model's width `hidden_size` and its own `embed_dim`.
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if is_number and not (name == "hidden_size" and "embed_dim" in fields):
            return cast("int", value)
    return default


def encoder_tensors(model: ModelSpec, ranks: Spread, rules: WeightRules) -> Iterator[Held]:
    """The tower and what joins it to the language model; in the model's own type unless the engine quantises.

    Source: vLLM 0.33.0 `models/qwen3_vl.py`, `siglip.py`, `pixtral.py`, `kimi_k25_vit.py`.
    """
    tower = tower_of(model) if rules.loads_encoder else None
    if tower is None:
        return
    hidden, size = tower.hidden, element_bytes(model.dtype)
    over = 1 if tower.is_whole else ranks.encoder
    patches = 3 * tower.frames * tower.patch * tower.patch
    yield Vector(part="encoder", bytes=(patches + 1) * hidden * size)
    if tower.positions or tower.extra:
        yield Vector(part="encoder", bytes=(tower.positions * hidden + tower.extra) * size)
    wide = share(tower.intermediate, over)
    inner = share(tower.attention or hidden, over)
    up = (wide, wide) if tower.is_gated else (wide,)
    for _ in range(tower.layers):
        yield _linear(model, (inner,) * 3, hidden, has_bias=tower.has_bias)
        yield _linear(model, (hidden,), inner, has_bias=tower.has_bias)
        yield _linear(model, up, hidden, has_bias=tower.has_bias)
        yield _linear(model, (hidden,), wide, has_bias=tower.has_bias)
        yield Vector(part="encoder", bytes=hidden * size, count=4 if tower.has_bias else 2)
    yield from _projector(model, tower, over)


def _projector(model: ModelSpec, tower: Tower, over: int) -> Iterator[Held]:
    joined, out = tower.hidden * tower.merge * tower.merge, model.hidden_size
    if tower.projector == "linear":
        yield _linear(model, (out,), tower.hidden)
    elif tower.projector == "mllama":
        yield _linear(model, (out,), 6 * tower.hidden, has_bias=True)  # five inner layers and the last
    elif tower.projector == "joined":
        yield _linear(model, (tower.hidden,), joined)
        yield _linear(model, (out,), tower.hidden)
        yield _linear(model, (out,), out)
    elif tower.projector in _MORE_PROJECTORS:
        yield from _MORE_PROJECTORS[tower.projector](model, tower, over)
    elif tower.projector == "shuffled":
        yield _linear(model, (share(4096, over),), joined)
        yield _linear(model, (4096,), share(4096, over))
        yield _linear(model, (out,), 4096)
    else:
        for _ in range(tower.mergers):
            yield _linear(model, (share(joined, over),), joined, has_bias=True)
            yield _linear(model, (out,), share(joined, over), has_bias=True)


def _mlp(model: ModelSpec, tower: Tower, over: int) -> Iterator[Held]:
    """Two layers: Llava, InternVL. Source: vLLM 0.33.0 `llava.py`, `internvl.py`."""
    out = model.hidden_size
    yield _linear(model, (share(out, over),), tower.hidden * tower.merge**2, has_bias=True)
    yield _linear(model, (out,), share(out, over), has_bias=True)


def _gated(model: ModelSpec, tower: Tower, over: int) -> Iterator[Held]:
    """GLM: a convolution that joins patches, a layer, a gated MLP. Source: vLLM 0.33.0 `glm4_1v.py`."""
    out, wide = tower.intermediate, share(tower.joint, over)
    yield _linear(model, (out,), tower.hidden * tower.merge**2, has_bias=True)
    yield _linear(model, (share(out, over),), out)
    yield _linear(model, (wide, wide), out)
    yield _linear(model, (out,), wide)


def _twice(model: ModelSpec, tower: Tower, over: int) -> Iterator[Held]:
    """MiniMax-M3: two layers for every patch, two for those that were joined.

    Source: transformers 5.19.0 `minimax_m3_vl`, `MiniMaxM3VLMultiModalProjector`.
    """
    out, wide = model.hidden_size, share(tower.joint or model.hidden_size, over)
    for inputs in (tower.hidden, out * tower.merge**2):
        yield _linear(model, (wide,), inputs, has_bias=True)
        yield _linear(model, (out,), wide, has_bias=True)


def _narrowed(model: ModelSpec, tower: Tower, over: int) -> Iterator[Held]:
    """Step-3.7: two convolutions over nine patches, whole on every rank, and a layer.

    Source: vLLM 0.33.0 `step_vl.py`, `vit_downsampler1`, `vit_large_projector`.
    """
    width = tower.hidden
    yield _linear(model, (2 * width,), 9 * width, has_bias=True)
    yield _linear(model, (4 * width,), 9 * 2 * width, has_bias=True)
    yield _linear(model, (share(model.hidden_size, over),), 4 * width)


_MORE_PROJECTORS: Mapping[str, Callable[[ModelSpec, Tower, int], Iterator[Held]]] = {
    "mlp": _mlp,
    "gated": _gated,
    "twice": _twice,
    "narrowed": _narrowed,
}


def _linear(model: ModelSpec, outputs: tuple[int, ...], inputs: int, *, has_bias: bool = False) -> Matrix:
    return Matrix(
        names=("vision_tower",),
        part="encoder",
        outputs=outputs,
        inputs=inputs,
        has_bias=has_bias,
        dtype=model.dtype,
    )
