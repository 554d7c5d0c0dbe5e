"""Weights where free memory is compared: what the driver gave, not what the tensors take."""

import pytest

from bringup.parse.hf_config import read_config
from bringup.planner.allocation import Segments
from bringup.planner.rope import rope_scratch, rope_tables
from bringup.planner.sizes import Tally
from bringup.planner.weight_rules import sglang_rules, vllm_rules
from bringup.planner.weights import weights_per_rank
from bringup.units import GIB, MIB
from bringup.values.plan import Layout

# The published sizes of google/gemma-3-27b-it; many copies leave the vision part and the rope's factor out.
GEMMA3_27B: dict[str, object] = {
    "model_type": "gemma3",
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "tie_word_embeddings": True,
}
FP8_CHANNEL: dict[str, object] = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["re:.*lm_head.*", "re:.*vision_tower.*", "re:.*multi_modal_projector.*"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
        }
    },
}


def gemma(**changed):
    return read_config({**GEMMA3_27B, **changed}, name="gemma", source="test")


def test_a_tensor_of_ten_mebibytes_has_a_segment_and_smaller_ones_share():
    segments = Segments()
    blocks = [segments.take(int(size * MIB)) / MIB for size in (56.25, 7.5, 7.5, 7.5)]
    # 58 MiB with 1.75 split off; two of 7.5 in 20 MiB leave 5, too little for the third: 20 more.
    assert blocks == [56.25, 7.5, 7.5, 7.5]
    assert segments.held == (58 + 20 + 20) * MIB


def test_a_rest_of_up_to_a_mebibyte_stays_with_its_tensor():
    segments = Segments()
    assert segments.take(int(43.5 * MIB)) == 44 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken():
    segments = Segments()
    for block in [segments.take(size * MIB) for size in (64, 32)]:
        segments.give(block)
    segments.take(30 * MIB)
    assert segments.take(64 * MIB) == 64 * MIB
    assert segments.held == 96 * MIB


@pytest.mark.parametrize(
    ("changed", "tables"),
    [
        # 131,072 positions x 8, and the windows' own; 128 numbers of two bytes each.
        ({}, (256 * MIB, 32 * MIB)),
        # A config may give the stretched positions: they are not stretched again, and not the windows'.
        ({"max_position_embeddings": 1_048_576}, (256 * MIB, 32 * MIB)),
        ({"max_position_embeddings": 1_048_576, "rope_scaling": None}, (256 * MIB, 32 * MIB)),
    ],
)
def test_gemma_3_stretches_one_of_its_two_ropes(changed, tables):
    assert tuple(table.bytes for table in rope_tables(gemma(**changed), vllm_rules("0.13.0"))) == tables


def test_making_a_rope_table_takes_more_than_the_table():
    # float32: 512 MiB; angles, cosines, sines half of it each, the table, and once more when it is joined.
    scratch = rope_scratch(gemma(), vllm_rules("0.13.0"))
    assert [size // MIB for size in scratch[0]] == [256, 256, 256, 512, 512]
    assert [size // MIB for size in scratch[1]] == [32, 32, 32, 64]
    # SGLang keeps the float32 table itself.
    assert [size // MIB for size in rope_scratch(gemma(), sglang_rules())[1]] == [32, 32, 32]


def test_what_a_rope_took_while_it_was_made_is_used_by_the_layers():
    rules = vllm_rules("0.13.0", is_rocm=True)
    sizes = [int(28.125 * MIB)] * 10  # each alone would take a segment of 30 MiB

    def held(scratch):
        tally = Tally(rules, scratch=scratch)
        tally.add("mlp", sizes)
        tally.add("rope", [32 * MIB])  # made before the layers, whenever it is counted
        return tally.closed().total() - rules.libraries

    assert held(()) == 332 * MIB
    assert held(((64 * MIB, 256 * MIB),)) == 320 * MIB  # 32 + 281.25 fit into what was given back


@pytest.mark.parametrize(
    ("tp", "changed", "logged"),
    [
        (2, {}, 14.2812),
        (2, {"max_position_embeddings": 1_048_576, "rope_scaling": None}, 14.2812),
        (
            2,
            {
                "num_hidden_layers": 48,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 256,
                "hidden_size": 3840,
                "intermediate_size": 15360,
            },
            7.1152,
        ),
        (
            1,
            {
                "num_hidden_layers": 48,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 256,
                "hidden_size": 3840,
                "intermediate_size": 15360,
            },
            13.5273,
        ),
    ],
)
def test_the_logged_weights_of_gemma_3_on_amd_come_out(tp, changed, logged):
    # vLLM 0.13 on Radeon AI PRO R9700: "Model loading took {logged} GiB".
    model = gemma(quantization_config=FP8_CHANNEL, **changed)
    weights = weights_per_rank(model, Layout(tensor_parallel=tp), vllm_rules("0.13.0", is_rocm=True))
    assert weights.total == pytest.approx(logged * GIB, rel=0.005)
    assert weights.low <= logged * GIB <= weights.high


V4_EXPERTS: dict[str, object] = {  # the published sizes of DeepSeek-V4-Pro as far as its experts go
    "model_type": "deepseek_v4",
    "num_hidden_layers": 2,
    "num_attention_heads": 128,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "hidden_size": 7168,
    "moe_intermediate_size": 3072,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "q_lora_rank": 1536,
    "o_lora_rank": 1024,
    "o_groups": 16,
    "qk_rope_head_dim": 64,
    "vocab_size": 129280,
    "max_position_embeddings": 1048576,
    "compress_ratios": [128, 4],
    "expert_dtype": "fp4",
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def test_float_scales_of_four_bit_experts_stay_behind_where_they_are_repacked():
    model = read_config(V4_EXPERTS, name="v4", source="test")

    def held(capability, version):
        rules = sglang_rules(compute_capability=capability, version=version)
        return weights_per_rank(model, Layout(tensor_parallel=8), rules)

    numbers = 384 * 3 * 384 * 7168  # of one layer on one of eight ranks
    scales = 2 * numbers // 32
    experts = 2 * numbers // 2 + scales
    old, new, unknown = (held("9.0", version) for version in ("0.5.9", "0.5.23", None))
    # Three bytes more for every scale, and one of the two layers twice while it is repacked.
    assert old.total - new.total == pytest.approx(3 * scales + experts, rel=0.001)
    assert unknown.total == new.total
    assert unknown.high - new.high == pytest.approx(3 * scales + experts, rel=0.001)
    assert held("10.0", "0.5.9").total == pytest.approx(held("10.0", "0.5.23").total)


def test_sglang_keeps_the_positions_of_deepseek_v4_twice():
    model = read_config(V4_EXPERTS, name="v4", source="test")
    # 1,048,576 x 64 x 4 B, for windows and for compressed keys; the same as complex numbers.
    assert [table.bytes // MIB for table in rope_tables(model, sglang_rules())] == [256] * 4
    assert [table.bytes // MIB for table in rope_tables(model, vllm_rules("0.32.0"))] == [256] * 2
