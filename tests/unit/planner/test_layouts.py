"""Layouts that divide, and which is best."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bringup.planner.layouts import Reach, candidates, layout_text, ranked
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec
from bringup.values.plan import KvPlan, Layout, LayoutPlan

ATTENTION = Attention(query_heads=32, kv_heads=8, head_dim=128, v_head_dim=128)
DENSE = ModelSpec(
    name="m",
    architecture="LlamaForCausalLM",
    model_type="llama",
    layers=(
        Layer(index=0, mixer=Mixer.FULL, attention=ATTENTION, mlp=Mlp(intermediate_size=1024)),
        Layer(index=1, mixer=Mixer.FULL, attention=ATTENTION, mlp=Mlp(intermediate_size=1024)),
    ),
    hidden_size=4096,
    vocabulary=32000,
)
EXPERTS = replace(
    DENSE, layers=(replace(DENSE.layers[0], mlp=Mlp(intermediate_size=512, experts=8, experts_per_token=2)),)
)
LATENT = replace(
    DENSE, layers=(replace(DENSE.layers[0], mixer=Mixer.MLA, attention=replace(ATTENTION, kv_lora_rank=512)),)
)


@given(st.integers(1, 24), st.sampled_from([DENSE, EXPERTS, LATENT]))
def test_every_layout_divides_the_gpus_and_comes_once(gpus: int, model: ModelSpec) -> None:
    found = candidates(model, gpus)
    assert all(gpus % layout.gpus == 0 for layout in found)
    assert all(layout.tensor_parallel % layout.decode_context_parallel == 0 for layout in found)
    assert len(set(found)) == len(found)


def test_experts_and_context_are_spread_only_where_that_means_something() -> None:
    assert not any(layout.has_expert_parallel for layout in candidates(DENSE, 8))
    assert any(layout.has_expert_parallel for layout in candidates(EXPERTS, 8))
    assert {layout.decode_context_parallel for layout in candidates(DENSE, 8)} == {1}
    assert {layout.decode_context_parallel for layout in candidates(LATENT, 8)} == {1, 2, 4, 8}


def test_the_context_is_spread_over_ranks_that_hold_the_same_heads() -> None:
    found = [layout for layout in candidates(DENSE, 16) if layout.decode_context_parallel > 1]
    assert [(one.tensor_parallel, one.decode_context_parallel) for one in found] == [(16, 2)]


def test_attention_has_replicas_only_where_the_engine_has_them() -> None:
    reach = Reach(has_context_ranks=False, has_attention_replicas=True, spreads_experts_over_data=False)
    assert {layout.attention_data_parallel for layout in candidates(EXPERTS, 8)} == {1}
    assert {layout.attention_data_parallel for layout in candidates(DENSE, 8, reach)} == {1}
    found = candidates(EXPERTS, 8, reach)
    assert len(set(found)) == len(found)
    assert {layout.attention_data_parallel for layout in found} == {1, 2, 4, 8}
    assert all(layout.tensor_parallel % layout.attention_data_parallel == 0 for layout in found)
    assert not any(layout.has_expert_parallel and layout.tensor_parallel == 1 for layout in found)


def plan(layout: Layout, *, requests: float, fits: bool = True, available: int = 1) -> LayoutPlan:
    kv = KvPlan(
        available_bytes=available,
        bytes_per_token=1.0,
        tokens=1,
        max_concurrency=requests,
        low_tokens=1,
        high_tokens=1,
    )
    return LayoutPlan(
        layout=layout,
        fits=fits,
        weights_bytes=1,
        kv=kv,
        smi_used_low=0,
        smi_used_high=0,
        ledger=(),
        requests=requests,
    )


ONE, TWO, FOUR = (Layout(tensor_parallel=size) for size in (1, 2, 4))


def order(*plans: LayoutPlan, concurrency: int | None = None) -> list[str]:
    return [layout_text(one.layout) for one in ranked(plans, concurrency=concurrency)]


def test_fewest_gpus_first_among_those_that_fit() -> None:
    plans = plan(FOUR, requests=90), plan(TWO, requests=3), plan(ONE, requests=0, fits=False)
    assert order(*plans) == ["TP2", "TP4", "TP1"]


def test_the_number_of_requests_asked_for_comes_before_fewer_gpus() -> None:
    assert order(plan(TWO, requests=3), plan(FOUR, requests=90), concurrency=8) == ["TP4", "TP2"]


def test_tensor_parallel_wins_over_stages_that_hold_as_many_whole_requests() -> None:
    stages = Layout(tensor_parallel=2, pipeline_parallel=2)
    assert order(plan(stages, requests=7.9), plan(FOUR, requests=7.7)) == ["TP4", "TP2 PP2"]
    assert order(plan(stages, requests=8.1), plan(FOUR, requests=7.7)) == ["TP2 PP2", "TP4"]


def test_of_what_does_not_fit_that_which_lacks_least_comes_first() -> None:
    plans = plan(ONE, requests=0, fits=False, available=-90), plan(FOUR, requests=0, fits=False, available=-9)
    assert order(*plans) == ["TP4", "TP1"]
