"""Bytes per weight of every number format, and which modules keep their own."""

from dataclasses import replace

import pytest

from bringup.planner.formats import FORMATS, Matrix, matrix_bytes
from bringup.planner.ignored import format_of, is_ignored
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import Quantization

BIG = Matrix(names=("model.layers.0.mlp.down_proj",), part="mlp", outputs=(8192,), inputs=4096)
EXPERTS = Matrix(
    names=("model.layers.0.mlp.experts.0.gate_proj",), part="experts", outputs=(2880, 2880), inputs=2880,
    copies=32, is_expert=True,
)  # fmt: skip


def per_weight(scheme, rules=None, **more):
    form = Quantization(scheme=scheme, method=scheme, **more)
    return sum(matrix_bytes(BIG, form, rules or WeightRules())) / BIG.elements


@pytest.mark.parametrize(
    ("scheme", "more", "expected"),
    [
        ("fp8_tensor", {}, 1.0),
        ("fp8_channel", {}, 1 + 4 / 4096),
        ("fp8_block", {"block": (128, 128)}, 1 + 4 / 128**2),
        ("mxfp8", {"group_size": 32}, 1 + 1 / 32),
        ("nvfp4", {"group_size": 16}, 0.5 + 1 / 16),
        ("mxfp4", {"group_size": 32}, 0.5 + 1 / 32),
        ("int4_group", {"group_size": 128}, 0.5 + 2 / 128),
        ("int4_group", {"group_size": 128, "is_symmetric": False}, 0.5 + 2.5 / 128),
        ("int8", {}, 1 + 4 / 4096),
        ("int8_group", {"group_size": 128}, 1 + 2 / 128),
        ("bnb4", {}, 0.5 + 4 / 64),
    ],
)
def test_bytes_per_weight(scheme, more, expected):
    assert per_weight(scheme, **more) == pytest.approx(expected, abs=2e-6)


def test_every_format_is_covered_above():
    floats = {"fp8_tensor", "fp8_channel", "fp8_block", "mxfp8", "nvfp4", "mxfp4", "bnb4"}
    assert set(FORMATS) == floats | {"int4_group", "int8", "int8_group"}


def test_marlin_spreads_the_scales_of_fp8_blocks():
    marlin = WeightRules(has_native_fp8=False)
    assert per_weight("fp8_block", marlin, block=(128, 128)) == pytest.approx(1 + 2 / 128, abs=1e-6)


def test_scales_of_nvfp4_fill_their_tiles():
    odd = replace(BIG, outputs=(100,), inputs=48)
    weight, scales, *_ = matrix_bytes(odd, Quantization(scheme="nvfp4", method="modelopt", group_size=16))
    assert (weight, scales) == (100 * 24, 128 * 4)


@pytest.mark.parametrize(
    ("backend", "rows", "columns"),
    [
        ("marlin", 2944, 3072),
        ("flashinfer_cutlass", 2944, 2944),
        ("b12x", 2880, 2880),
        ("triton", 2880, 3072),
    ],
)
def test_mxfp4_experts_are_padded_by_the_back_end(backend, rows, columns):
    form = Quantization(scheme="mxfp4", method="mxfp4", group_size=32)
    weight, *_ = matrix_bytes(EXPERTS, form, WeightRules(mxfp4_backend=backend))
    assert weight == 32 * 2 * rows * columns // 2


def test_the_padding_of_down_proj_is_the_other_way_round():
    down = replace(EXPERTS, outputs=(2880,), inputs=1440, inputs_are_hidden=False)
    form = Quantization(scheme="mxfp4", method="mxfp4", group_size=32)
    weight, *_ = matrix_bytes(down, form, WeightRules(mxfp4_backend="marlin"))
    assert weight == 32 * 3072 * 1536 // 2


@pytest.mark.parametrize(
    ("name", "ignored", "is_in"),
    [
        ("lm_head", ("lm_head",), True),
        ("model.layers.4.self_attn.k_proj", ("model.layers.4.self_attn*",), True),
        ("model.layers.4.self_attn.k_proj", ("language_model.model.layers.4.self_attn*",), True),
        ("model.layers.4.self_attn.k_proj", ("model.layers.*.self_attn",), True),
        ("model.layers.4.self_attn.k_proj", ("model.layers.5.self_attn*",), False),
        ("model.layers.4.self_attn.k_proj", ("vision_model.model.layers.4.self_attn.k_proj",), False),
        ("model.layers.4.self_attn.q_proj", ("backbone.layers.4.mixer.q_proj",), True),
        ("model.layers.4.mlp.experts.0.up_proj", ("model.layers.4.block_sparse_moe.gate",), False),
        ("model.layers.4.mlp.experts.0.up_proj", (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",), False),
        ("model.layers.0.mlp.up_proj", (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",), True),
        ("model.layers.4.mlp.shared_experts.up_proj", ("*.mlp.shared_expert.*",), True),
        ("model.layers.12.mlp.up_proj", ("model.layers.1.*",), False),
        ("model.layers.4.mlp.up_proj", ("re:*broken(",), False),
    ],
)  # fmt: skip
def test_lists_of_what_stays(name, ignored, is_in):
    assert is_ignored((name,), ignored) is is_in


def test_a_shortened_list_speaks_for_all_layers():
    ignored = ("lm_head", "model.layers.0*", "model.layers.10.self_attn*")
    name = "model.layers.44.self_attn.q_proj"
    assert not is_ignored((name,), ignored)
    assert is_ignored((name,), ignored, is_cut=True)
    assert not is_ignored(("model.layers.44.mlp.up_proj",), ignored, is_cut=True)


def test_mixed_checkpoints_have_a_format_per_module():
    fp8 = Quantization(
        scheme="fp8_tensor", method="modelopt", targets=("model.layers.0.linear_attn.in_proj_qkv",)
    )
    both = Quantization(
        scheme="nvfp4", method="modelopt", targets=("model.layers.0.mlp.up_proj",), others=(fp8,)
    )
    assert format_of(("model.layers.0.linear_attn.in_proj_qkv",), both) is fp8
    assert format_of(("model.layers.0.mlp.up_proj",), both) is both
    assert format_of(("model.layers.0.self_attn.q_proj",), both) is None


def test_mxfp4_of_gpt_oss_is_for_experts_alone():
    form = Quantization(scheme="mxfp4", method="mxfp4")
    assert format_of(("model.layers.0.self_attn.q_proj",), form) is None
    assert format_of(("model.layers.0.mlp.experts.0.up_proj",), form, is_expert=True) is form
