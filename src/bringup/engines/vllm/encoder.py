"""The image encoder as vLLM tries it out before it sizes the cache.

Source: vLLM 0.33.0 `v1/worker/gpu_model_runner.py`, `profile_run`, and `multimodal/profiling.py`: items of
the largest size, as many as fit max(max_num_batched_tokens, tokens of one).
"""

from typing import cast

from bringup.engines.vllm.settings import Settings
from bringup.parse.json_value import Json, int_at
from bringup.planner.encoder_tensors import tower_of
from bringup.planner.workspace import Estimate, Vision, encoder_peak, exact
from bringup.values.model import ModelSpec

# Most tokens that one image becomes where the config does not say. Source: the image processors' defaults
# (Qwen-VL: max_pixels 16384 x 28 x 28).
_LARGEST_QWEN = 16_384
_LARGEST = 4_096  # guess


def encoder_need(model: ModelSpec, settings: Settings) -> Estimate:
    """Bytes that trying out the encoder takes; 0 where the config tells nothing about it."""
    vision = vision_of(model)
    if vision is None:
        return exact(0, "no encoder")
    budget = max(settings.batch.tokens, vision.tokens_per_image)
    items = max(1, min(budget // vision.tokens_per_image, settings.batch.sequences))
    return encoder_peak(model, items, vision.tokens_per_image, vision)


def vision_of(model: ModelSpec) -> Vision | None:
    """The encoder's geometry; None where there is none, or one of a kind that is not known."""
    raw = model.multimodal.get("vision_config") or model.multimodal.get("vision_tower") or model.multimodal
    config = cast("dict[str, Json]", raw) if isinstance(raw, dict) else None
    hidden = int_at(config, "hidden_size") or int_at(config, "embed_dim") or int_at(config, "vt_hidden_size")
    if hidden is None:
        return _of_family(model)
    wide = int_at(config, "intermediate_size") or int_at(config, "vt_intermediate_size") or 4 * hidden
    is_qwen = "qwen" in model.model_type
    merge = int_at(config, "spatial_merge_size") or (2 if is_qwen else 1)
    size, patch = int_at(config, "image_size"), int_at(config, "patch_size")
    whole = cast("dict[str, Json]", model.config)
    given = int_at(whole, "mm_tokens_per_image")
    if given and size and patch:
        return Vision(
            hidden=hidden,
            intermediate=wide,
            tokens_per_image=given,
            patches_per_token=max(1, (size // patch) ** 2 // given),
        )
    if size and patch and merge == 1:
        return Vision(
            hidden=hidden, intermediate=wide, tokens_per_image=(size // patch) ** 2, patches_per_token=1
        )
    largest = _LARGEST_QWEN if is_qwen else _LARGEST
    return Vision(hidden=hidden, intermediate=wide, tokens_per_image=largest, patches_per_token=merge * merge)


def _of_family(model: ModelSpec) -> Vision | None:
    """The encoder of a config that leaves it out, by what its family is known for."""
    tower = tower_of(model)
    if tower is None:
        return None
    return Vision(
        hidden=tower.hidden,
        intermediate=tower.intermediate,
        tokens_per_image=model.encoder_tokens or _LARGEST,
        patches_per_token=1 if model.encoder_tokens else tower.merge**2,
    )
