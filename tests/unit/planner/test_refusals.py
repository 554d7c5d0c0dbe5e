"""Layouts that an engine would not start with."""

from dataclasses import replace

import pytest

from bringup.planner.refusals import refusals
from bringup.planner.weight_rules import WeightRules, sglang_rules, vllm_rules
from bringup.values.finding import Severity
from bringup.values.model import Attention, Layer, LinearState, Mixer, Mlp, ModelSpec, Quantization
from bringup.values.plan import Layout

ATTENTION = Attention(query_heads=48, kv_heads=8, head_dim=128, v_head_dim=128)
EXPERTS = Mlp(intermediate_size=1536, experts=256, experts_per_token=8)
FP8 = Quantization(scheme="fp8_block", method="fp8", block=(128, 128))


def model(mlp=EXPERTS, attention=ATTENTION, quantization=None, **more):
    layer = Layer(
        index=0,
        mixer=more.pop("mixer", Mixer.FULL),
        attention=attention,
        mlp=mlp,
        state=more.pop("state", None),
    )
    return ModelSpec(
        name="m", architecture="", model_type="", hidden_size=3072, vocabulary=200064,
        layers=tuple(replace(layer, index=index) for index in range(4)), quantization=quantization, **more,
    )  # fmt: skip


def ids(spec, rules=None, **layout):
    return [finding.id for finding in refusals(spec, Layout(**layout), rules or WeightRules())]


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_what_divides_is_let_through(tp):
    assert ids(model(), tensor_parallel=tp) == []


def test_each_size_that_does_not_divide_is_named_once():
    found = refusals(model(), Layout(tensor_parallel=5), WeightRules())
    assert [finding.id for finding in found] == ["weights.heads", "weights.kv_heads", "weights.intermediate"]
    assert all(finding.severity is Severity.FAILURE for finding in found)
    assert "48 query heads" in found[0].summary


def test_key_and_value_heads_may_be_copied_only_evenly():
    assert ids(model(attention=replace(ATTENTION, query_heads=96)), tensor_parallel=12) == [
        "weights.kv_heads"
    ]


def test_an_expert_cut_through_a_block_is_refused_by_engines_that_do_not_pad():
    old, new = vllm_rules("0.20.2"), vllm_rules("0.33.0")
    assert ids(model(quantization=FP8), old, tensor_parallel=4) == []  # 384 = 3 x 128
    assert set(ids(model(quantization=FP8), old, tensor_parallel=8)) == {"weights.block"}  # 192
    assert ids(model(quantization=FP8), new, tensor_parallel=8) == []
    assert set(ids(model(quantization=FP8), sglang_rules(), tensor_parallel=8)) == {"weights.block"}
    assert ids(model(quantization=FP8), old, tensor_parallel=8, has_expert_parallel=True) == []


def test_groups_along_the_inputs_must_stay_whole():
    int4 = Quantization(scheme="int4_group", method="gptq", group_size=128)
    dense = Mlp(intermediate_size=1536)
    assert ids(model(mlp=dense, quantization=int4), tensor_parallel=4) == []
    assert ids(model(mlp=dense, quantization=int4), tensor_parallel=8) == ["weights.block"]
    ignored = replace(int4, ignored=("re:.*down_proj",))
    assert ids(model(mlp=dense, quantization=ignored), tensor_parallel=8) == []


def test_more_stages_than_layers():
    assert ids(model(), pipeline_parallel=5) == ["weights.stages"]


def test_sglang_wants_as_many_experts_on_every_rank():
    rules = replace(sglang_rules(), expert_groups=6)
    assert ids(model(), rules, tensor_parallel=8) == ["weights.experts"]
    assert ids(model(), WeightRules(), tensor_parallel=6, has_expert_parallel=True) == ["weights.kv_heads"]


def test_heads_of_a_recurrent_state():
    state = LinearState(key_heads=16, key_head_dim=128, value_heads=48, value_head_dim=128, conv_kernel=4)
    gdn = model(attention=None, state=state, mixer=Mixer.GDN)
    assert ids(gdn, tensor_parallel=16) == []
    assert ids(gdn, tensor_parallel=32) == ["weights.state_heads"] * 2
    mamba = model(attention=None, state=replace(state, key_heads=8), mixer=Mixer.MAMBA2)
    assert ids(mamba, tensor_parallel=16) == []  # groups are repeated
