"""Vision towers: numbers by family, each with its arithmetic, and where a config leaves the tower out."""

import pytest

from bringup.parse.hf_config import read_config
from bringup.planner.encoder_tensors import encoder_tensors, has_encoder, tower_of
from bringup.planner.formats import Matrix
from bringup.planner.spread import WHOLE
from bringup.planner.weight_rules import WeightRules

TEXT: dict[str, object] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 1000,
}


def read(**config):
    return read_config({**TEXT, **config}, name="model", source="test")


def numbers(model) -> int:
    """Numbers in all matrices of the tower."""
    held = encoder_tensors(model, WHOLE, WeightRules())
    return sum(one.elements for one in held if isinstance(one, Matrix))


def block(hidden, wide, *, inner=None, pieces=2):
    """Query, key, value and output; `pieces` matrices of the MLP."""
    return 4 * hidden * (inner or hidden) + pieces * hidden * wide


def test_minimax_m3_joins_patches_between_two_pairs_of_layers():
    model = read(model_type="minimax_m3_vl", hidden_size=6144)
    joined = 6144 * 1280 + 6144 * 6144 + 6144 * 4 * 6144 + 6144 * 6144
    assert numbers(model) == 32 * block(1280, 5120) + joined


def test_glm_names_the_projectors_width_and_its_blocks_are_as_wide_as_its_output():
    vision = {
        "hidden_size": 1536,
        "depth": 24,
        "out_hidden_size": 4096,
        "intermediate_size": 13696,
        "spatial_merge_size": 2,
    }
    model = read(model_type="glm4v", vision_config=vision)
    joined = 4096 * 4 * 1536 + 4096 * 4096 + 3 * 4096 * 13696
    # 0.68 of the 0.89 thousand million that GLM-4.1V-9B has above the text model.
    assert 24 * block(1536, 4096, pieces=3) == pytest.approx(0.68e9, rel=0.01)
    assert numbers(model) == 24 * block(1536, 4096, pieces=3) + joined


def test_step_is_narrowed_by_two_convolutions():
    vision = {"model_type": "perception_encoder", "width": 1536, "layers": 47, "patch_size": 14}
    architectures = ["Step3p7ForConditionalGeneration"]
    text = {**TEXT, "model_type": "step3p5"}
    model = read_config(
        {
            "architectures": architectures,
            "model_type": "step3p7",
            "text_config": text,
            "vision_config": vision,
        },
        name="model",
        source="test",
    )
    joined = 9 * 1536 * 3072 + 9 * 3072 * 6144 + 6144 * 4096
    assert numbers(model) == 47 * block(1536, 8960) + joined


def test_kimi_k3_has_attention_wider_than_its_blocks():
    architectures = ["KimiK3ForConditionalGeneration"]
    model = read_config(
        {
            "architectures": architectures,
            "text_config": {**TEXT, "model_type": "llama", "hidden_size": 7168},
            "vision_config": {"patch_size": 14},
        },
        name="model",
        source="test",
    )
    joined = 4096 * 4096 + 4096 * 7168
    assert numbers(model) == 27 * block(1024, 4096, inner=1536) + joined


def test_internvl_and_llava_join_with_two_layers():
    vision = {"model_type": "intern_vit_6b", "hidden_size": 3200, "num_hidden_layers": 45}
    vision |= {"intermediate_size": 12800}
    model = read(architectures=["InternVLChatModel"], model_type="qwen2", vision_config=vision)
    assert numbers(model) == 45 * block(3200, 12800) + 4096 * 4 * 3200 + 4096 * 4096
    model = read(model_type="llama", vision_config={"model_type": "clip_vision_model"})
    assert numbers(model) == 24 * block(1024, 4096) + 4096 * 1024 + 4096 * 4096


def test_mllamas_layers_over_all_tiles_come_on_top():
    vision = {"hidden_size": 1280, "num_hidden_layers": 32, "num_global_layers": 8, "intermediate_size": 5120}
    given = read(model_type="mllama", vision_config=vision)
    silent = read(model_type="mllama", architectures=["MllamaForConditionalGeneration"])
    assert numbers(given) == numbers(silent) == 40 * block(1280, 5120) + 4096 * 6 * 1280


def test_a_ratio_tells_the_width_of_the_blocks():
    vision = {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 4096, "spatial_merge_size": 2}
    assert numbers(read(model_type="qwen2_vl", vision_config=vision)) == numbers(
        read(model_type="qwen2_vl", vision_config={**vision, "mlp_ratio": None})
    )
    wider = read(model_type="qwen2_vl", vision_config={**vision, "mlp_ratio": 5})
    assert tower_of(wider).intermediate == 6400


@pytest.mark.parametrize(
    ("config", "is_one"),
    [
        ({"model_type": "gemma3"}, True),
        ({"model_type": "dots_ocr", "architectures": ["DotsOCRForCausalLM"]}, True),
        ({"model_type": "qwen3_vl"}, True),
        ({"model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"]}, False),
        ({"model_type": "llama"}, False),
        ({"model_type": "qwen2", "vision_config": {"patch_size": 14}}, True),  # of a kind that is not known
    ],
)
def test_a_model_takes_images_where_its_config_its_family_or_its_class_says_so(config, is_one):
    assert has_encoder(read(**config)) is is_one
