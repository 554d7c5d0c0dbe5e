"""Like layers are looked at once, and models that differ are never taken for each other."""

from dataclasses import replace

from bringup.planner.layer_kinds import layer_kinds
from bringup.planner.weight_rules import vllm_rules
from bringup.planner.weights import weights_per_rank
from bringup.planner.workspace import StepSize, forward_peak
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec
from bringup.values.plan import Layout

ATTENTION = Attention(query_heads=8, kv_heads=4, head_dim=64, v_head_dim=64)
NARROW = Mlp(intermediate_size=1024)
WIDE = Mlp(intermediate_size=8192)


def a_model(*mlps: Mlp) -> ModelSpec:
    layers = tuple(
        Layer(index=index, mixer=Mixer.FULL, attention=ATTENTION, mlp=mlp) for index, mlp in enumerate(mlps)
    )
    return ModelSpec(
        name="m",
        architecture="LlamaForCausalLM",
        model_type="llama",
        layers=layers,
        hidden_size=512,
        vocabulary=1024,
    )


def test_a_kind_is_named_by_its_first_layer() -> None:
    kinds = layer_kinds(a_model(NARROW, NARROW, WIDE, NARROW))
    assert [layer.index for layer in kinds] == [0, 2]


def test_the_greediest_kind_decides_a_step() -> None:
    step, layout = StepSize(tokens=64, sequences=8), Layout()
    mixed = forward_peak(a_model(NARROW, WIDE, NARROW), layout, step)
    assert mixed == forward_peak(a_model(WIDE), layout, step)
    assert mixed.bytes > forward_peak(a_model(NARROW), layout, step).bytes


def test_equal_models_have_one_hash() -> None:
    assert a_model(NARROW) is not a_model(NARROW)
    assert hash(a_model(NARROW)) == hash(a_model(NARROW))


def test_models_of_one_name_and_hash_are_not_taken_for_each_other() -> None:
    small, large = a_model(NARROW), a_model(WIDE)
    tied = replace(small, is_tied=True, config={"hc_mult": 1})
    assert hash(small) == hash(large) == hash(tied)
    rules = vllm_rules("0.32.0")
    totals = {weights_per_rank(model, Layout(), rules).total for model in (small, large, tied)}
    assert len(totals) == 3
