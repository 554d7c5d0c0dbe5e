"""Weights per GPU against what engines logged: each figure stands in a public start-up log."""

from dataclasses import replace

import pytest

from bringup.planner.weight_rules import WeightRules, sglang_rules, vllm_rules
from bringup.planner.weights import weights_per_rank
from bringup.units import GIB, MIB
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec, Quantization
from bringup.values.plan import Layout

FP8_BLOCK = Quantization(scheme="fp8_block", method="fp8", block=(128, 128))


def dense(*, layers, hidden, heads, kv_heads, head_dim, size, vocabulary, position, qk_norm=None, **more):
    attention = Attention(
        query_heads=heads, kv_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim, qk_norm=qk_norm
    )
    mlp = more.pop("mlp", Mlp(intermediate_size=size))
    return ModelSpec(
        name="model",
        architecture="",
        model_type="",
        layers=tuple(
            Layer(index=index, mixer=Mixer.FULL, attention=attention, mlp=mlp) for index in range(layers)
        ),
        hidden_size=hidden,
        vocabulary=vocabulary,
        max_position=position,
        rotary_dims=more.pop("rotary_dims", (head_dim,)),
        **more,
    )


def llama_8b():
    return dense(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        size=14336,
        vocabulary=128256,
        position=131072,
    )


def qwen3_32b(quantization=None):
    return dense(
        layers=64,
        hidden=5120,
        heads=64,
        kv_heads=8,
        head_dim=128,
        size=25600,
        vocabulary=151936,
        position=40960,
        qk_norm="head",
        quantization=quantization,
    )


def qwen3_30b():
    return dense(
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        head_dim=128,
        size=0,
        vocabulary=151936,
        position=40960,
        qk_norm="head",
        mlp=Mlp(intermediate_size=768, experts=128, experts_per_token=8),
    )


def minimax_m25():
    return dense(
        layers=62,
        hidden=3072,
        heads=48,
        kv_heads=8,
        head_dim=128,
        size=0,
        vocabulary=200064,
        position=196608,
        rotary_dims=(64,),
        qk_norm="layer",
        mlp=Mlp(
            intermediate_size=1536,
            experts=256,
            experts_per_token=8,
            has_correction_bias=True,
            router_dtype="float32",
        ),
        quantization=FP8_BLOCK,
    )


LOGGED = [
    ("Llama-3.1-8B, vLLM 0.11", llama_8b(), 1, 14.9889, 0.3),
    ("Qwen3-32B, vLLM 0.13", qwen3_32b(), 1, 61.0347, 0.3),
    ("Qwen3-32B TP2, vLLM 0.13", qwen3_32b(), 2, 30.5855, 0.3),
    ("Qwen3-32B-FP8, vLLM 0.13", qwen3_32b(FP8_BLOCK), 1, 32.0418, 0.3),
    ("Qwen3-32B-FP8 TP2, vLLM 0.13", qwen3_32b(FP8_BLOCK), 2, 16.1203, 0.3),
    ("Qwen3-30B-A3B, vLLM 0.13", qwen3_30b(), 1, 56.8814, 0.3),
    ("MiniMax-M2.5 FP8 TP4, vLLM 0.16", minimax_m25(), 4, 53.75, 20),  # logged with two decimals: +-5 MiB
]


@pytest.mark.parametrize(
    ("name", "model", "tp", "logged", "within"), LOGGED, ids=[case[0] for case in LOGGED]
)
def test_the_logged_weights_come_out(name, model, tp, logged, within):
    weights = weights_per_rank(model, Layout(tensor_parallel=tp), WeightRules())
    assert abs(weights.total - logged * GIB) / MIB < within, weights.formula


def total(model, rules=None, **layout):
    return weights_per_rank(model, Layout(**layout), rules or WeightRules()).total


def test_more_ranks_never_hold_more():
    for model in (llama_8b(), qwen3_32b(FP8_BLOCK), minimax_m25()):
        sizes = [total(model, tensor_parallel=tp) for tp in (1, 2, 4, 8, 16)]
        assert sizes == sorted(sizes, reverse=True)


def test_key_and_value_heads_are_copied_where_ranks_outnumber_them():
    model = qwen3_30b()  # four of them
    at = {tp: dict(weights_per_rank(model, Layout(tensor_parallel=tp), WeightRules()).parts) for tp in (4, 8)}
    query_and_output = 2 * 48 * 2048 * 32 * 128 * 2
    key_and_value = 2 * 48 * 2048 * 128 * 2
    assert at[4]["attention"] == query_and_output // 4 + key_and_value
    assert at[8]["attention"] == query_and_output // 8 + key_and_value


def test_stages_hold_all_layers_once_and_the_heaviest_decides():
    weights = weights_per_rank(minimax_m25(), Layout(pipeline_parallel=4), WeightRules())
    assert [len(stage.layers) for stage in weights.stages] == [15, 16, 16, 15]
    assert sorted(index for stage in weights.stages for index in stage.layers) == list(range(62))
    assert weights.total == max(stage.total for stage in weights.stages)
    first, *_, last = (dict(stage.parts) for stage in weights.stages)
    assert "embedding" in first
    assert "head" not in first
    assert "head" in last
    assert "embedding" not in last


def test_a_tied_head_is_held_once_but_by_both_ends_of_a_pipeline():
    untied, tied = llama_8b(), replace(llama_8b(), is_tied=True)
    table = 128256 * 4096 * 2
    assert total(untied) - total(tied) == table
    stages = weights_per_rank(tied, Layout(pipeline_parallel=2), WeightRules()).stages
    assert [dict(stage.parts)["embedding"] for stage in stages] == [table, table]


def test_the_vocabulary_is_padded_before_it_is_split():
    model = replace(llama_8b(), vocabulary=128001)
    parts = dict(weights_per_rank(model, Layout(tensor_parallel=2), WeightRules()).parts)
    assert parts["embedding"] >= 128064 // 2 * 4096 * 2
    assert parts["embedding"] < 128192 // 2 * 4096 * 2 + 2 * MIB


def test_expert_parallel_ranks_hold_whole_experts():
    by_width = weights_per_rank(qwen3_30b(), Layout(tensor_parallel=8), WeightRules())
    by_number = weights_per_rank(
        qwen3_30b(), Layout(tensor_parallel=8, has_expert_parallel=True), WeightRules()
    )
    assert dict(by_number.parts)["experts"] == dict(by_width.parts)["experts"]
    uneven = WeightRules(redundant_experts=4)  # 132 experts on 8 ranks: the first hold 17
    more = weights_per_rank(qwen3_30b(), Layout(tensor_parallel=8, has_expert_parallel=True), uneven)
    grown = dict(more.parts)["experts"] / dict(by_number.parts)["experts"]
    assert 17 / 16 <= grown < 17 / 16 * 1.01


def test_data_parallel_ranks_share_the_experts_and_copy_the_rest():
    alone = dict(weights_per_rank(qwen3_30b(), Layout(tensor_parallel=2), WeightRules()).parts)
    beside = dict(
        weights_per_rank(qwen3_30b(), Layout(tensor_parallel=2, data_parallel=4), WeightRules()).parts
    )
    assert beside["attention"] == alone["attention"]
    assert abs(beside["experts"] * 4 - alone["experts"]) < alone["experts"] * 0.02


def test_attention_data_parallelism_of_sglang_copies_attention_and_not_experts():
    plain = dict(weights_per_rank(qwen3_30b(), Layout(tensor_parallel=4), sglang_rules()).parts)
    rules = replace(sglang_rules(), attention_data_parallel=4)
    spread = dict(weights_per_rank(qwen3_30b(), Layout(tensor_parallel=4), rules).parts)
    assert spread["attention"] > 3.5 * plain["attention"]
    assert spread["experts"] == plain["experts"]


def test_draft_layers_are_held_only_where_they_are_used():
    extra = Layer(
        index=48, mixer=Mixer.FULL, attention=qwen3_30b().layers[0].attention, mlp=Mlp(intermediate_size=6144)
    )
    model = replace(qwen3_30b(), mtp_layers=(extra,))
    added = total(model, WeightRules(loads_mtp=True)) - total(model)
    layer = 2 * 2048 * (32 + 4 + 4 + 32) * 128 + 2 * 3 * 2048 * 6144
    projection = 2 * 2 * 2048 * 2048
    assert layer + projection < added < layer + projection + 4 * MIB
    assert total(model) == total(qwen3_30b())


def test_a_vision_tower_can_be_left_out_and_can_be_whole_on_every_rank():
    vision = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 5120}
    model = replace(qwen3_32b(), model_type="qwen3_vl", multimodal={"vision_config": vision})
    tower = total(model) - total(qwen3_32b())
    # 576,268,272 numbers in Qwen3-VL-32B's tower and mergers, by its published total
    assert abs(tower / 2 - (33_357_377_000 - 32_762_123_264)) < 10_000_000  # rounded up
    assert total(model, WeightRules(loads_encoder=False)) == total(qwen3_32b())
    shared, whole = (
        total(model, WeightRules(encoder_is_sharded=sharded), tensor_parallel=4) for sharded in (True, False)
    )
    assert 0.7 * tower < whole - shared < 0.8 * tower


def test_quantising_while_loading_halves_what_it_may_touch():
    plain = dict(weights_per_rank(qwen3_32b(), Layout(), WeightRules()).parts)
    online = dict(weights_per_rank(qwen3_32b(), Layout(), WeightRules(online_quantization="fp8")).parts)
    assert abs(online["mlp"] * 2 / plain["mlp"] - 1) < 0.01
    assert online["head"] == plain["head"]
    assert online["embedding"] == plain["embedding"]


def test_offloaded_bytes_leave_the_gpu_and_no_more_than_there_are():
    assert total(llama_8b()) - total(llama_8b(), WeightRules(offloaded=4 * GIB)) == 4 * GIB
    assert total(llama_8b(), WeightRules(offloaded=400 * GIB)) == 0


def test_adapters_take_the_room_that_a_log_shows():
    # Qwen3-8B at TP2 with --enable-lora: 7.70 GiB logged, 7.639 without the slots
    model = dense(
        layers=36, hidden=4096, heads=32, kv_heads=8, head_dim=128, size=12288, vocabulary=151936,
        position=40960, qk_norm="head",
    )  # fmt: skip
    weights = weights_per_rank(model, Layout(tensor_parallel=2), WeightRules(lora_slots=1))
    assert abs(weights.total / GIB - 7.70) < 0.01


def test_a_rope_that_is_stretched_has_a_longer_table():
    model = replace(llama_8b(), config={"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    assert total(model) - total(llama_8b()) == 3 * 131072 * 128 * 2


def test_the_parts_add_up_and_the_interval_holds_the_figure():
    for model, tp in ((llama_8b(), 1), (qwen3_32b(FP8_BLOCK), 2), (minimax_m25(), 4)):
        for rules in (WeightRules(), sglang_rules(), vllm_rules("0.13", is_rocm=True)):
            weights = weights_per_rank(model, Layout(tensor_parallel=tp), rules)
            assert sum(size for _, size in weights.parts) == weights.total
            assert weights.low <= weights.total <= weights.high


def test_a_format_that_nobody_knows_is_said_and_widens_the_interval():
    model = qwen3_32b(Quantization(scheme="mixed", method="modelopt"))
    weights = weights_per_rank(model, Layout(), WeightRules())
    assert [finding.id for finding in weights.findings] == ["weights.format_unknown"]
    assert weights.low < 0.4 * weights.total
    assert weights.high >= weights.total


def test_latent_attention_keeps_a_copy_only_of_a_quantised_projection():
    attention = Attention(
        query_heads=128, kv_heads=1, head_dim=192, v_head_dim=128, q_lora_rank=1536, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64,
    )  # fmt: skip
    layers = tuple(
        Layer(index=index, mixer=Mixer.MLA, attention=attention, mlp=Mlp(intermediate_size=18432))
        for index in range(61)
    )
    model = replace(qwen3_32b(FP8_BLOCK), layers=layers, hidden_size=7168, norm_count=2)
    layout = Layout(tensor_parallel=8)
    kept, dropped = (
        dict(weights_per_rank(model, layout, WeightRules(keeps_absorbed_latent=keeps)).parts)["attention"]
        for keeps in (True, False)
    )
    assert kept - dropped == 61 * 16 * 256 * 512 * 2  # 244 MiB of DeepSeek-V3 at TP8
    plain = replace(model, quantization=None)
    assert total(plain) == total(plain, WeightRules(keeps_absorbed_latent=False))


def test_per_layer_embeddings_are_counted_where_a_config_has_them():
    model = replace(
        llama_8b(), config={"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144}
    )
    table = 262144 * 32 * 256
    beside = 32 * 256 * 4096 + 32 * 2 * 256 * 4096
    added = total(model) - total(llama_8b())
    assert 2 * (table + beside) <= added < 2 * (table + beside) * 1.01
