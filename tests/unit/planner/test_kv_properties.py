"""What must hold for every model: more memory is never fewer tokens, and bytes and tokens invert."""

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from bringup.planner.kv_cache import blocks_per_request, kv_layout, kv_plan, layer_stages
from bringup.planner.kv_records import CacheKind, KvRules
from bringup.planner.kv_versions import FIRST_WITH, NEWEST, read_version
from bringup.units import GIB, MIB
from bringup.values.model import Attention, Layer, LinearState, Mixer, ModelSpec
from bringup.values.plan import Layout

VERSIONS = ((0, 8, 5), (0, 9, 2), (0, 11, 0), (0, 13, 0), (0, 19, 1), (0, 24, 0), (0, 27, 1), NEWEST)


@st.composite
def attentions(draw):
    size = draw(st.sampled_from((64, 128, 256)))
    kv_heads = draw(st.sampled_from((1, 2, 4, 8)))
    return Attention(query_heads=64, kv_heads=kv_heads, head_dim=size, v_head_dim=size)


@st.composite
def models(draw, mixers=("full", "sliding", "mla", "gdn")):
    heads = draw(attentions())
    layers = []
    for kind in draw(st.sampled_from((["full"], ["full", "sliding"], ["mla"], ["full", "gdn"]))):
        for _ in range(draw(st.integers(1, 30))):
            layers.append(_layer(kind, heads, len(layers)))
    return ModelSpec(
        name="a/model",
        architecture="A",
        model_type="a",
        layers=tuple(layers),
        hidden_size=1024,
        vocabulary=1000,
    )


def _layer(kind, heads, index):
    if kind == "gdn":
        state = LinearState(key_heads=8, key_head_dim=64, value_heads=8, value_head_dim=64, conv_kernel=4)
        return Layer(index=index, mixer=Mixer.GDN, state=state)
    if kind == "mla":
        latent = Attention(
            query_heads=64,
            kv_heads=1,
            head_dim=192,
            v_head_dim=128,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
        )
        return Layer(index=index, mixer=Mixer.MLA, attention=latent)
    if kind == "sliding":
        window = Attention(
            query_heads=64,
            kv_heads=heads.kv_heads,
            head_dim=heads.head_dim,
            v_head_dim=heads.v_head_dim,
            window=1024,
        )
        return Layer(index=index, mixer=Mixer.SLIDING, attention=window)
    return Layer(index=index, mixer=Mixer.FULL, attention=heads)


rules = st.builds(
    KvRules, version=st.sampled_from(VERSIONS), has_prefix_caching=st.sampled_from((None, True, False))
)
layouts = st.builds(Layout, tensor_parallel=st.sampled_from((1, 2, 4, 8)))
lengths = st.integers(16, 262_144)


@given(models(), layouts, rules, lengths, st.integers(1, 64 * 1024), st.integers(0, 4096))
def test_more_memory_is_never_fewer_tokens(model, layout, chosen, length, size, more):
    found = kv_layout(model, layout, chosen)
    one = kv_plan(found, size * MIB, length, chosen)
    two = kv_plan(found, (size + more) * MIB, length, chosen)
    assert two.tokens >= one.tokens
    assert two.blocks >= one.blocks
    assert two.longest_context >= one.longest_context
    assert two.fits or not one.fits


@given(models(), layouts, rules, lengths, st.integers(1, 64))
def test_the_bytes_of_the_pool_are_those_of_its_tokens(model, layout, chosen, length, size):
    found = kv_layout(model, layout, chosen)
    plan = kv_plan(found, size * GIB, length, chosen)
    assert plan.blocks * plan.bytes_per_block <= size * GIB < (plan.blocks + 1) * plan.bytes_per_block
    if plan.tokens:
        pool = plan.blocks * plan.bytes_per_block
        assert abs(plan.bytes_per_token * plan.tokens - pool) <= 1e-6 * pool


@given(models(), layouts, rules, lengths)
def test_the_bytes_that_a_request_needs_are_enough_for_it_and_one_block_less_is_not(
    model, layout, chosen, length
):
    found = kv_layout(model, layout, chosen)
    assume(found.refusal is None)
    needed = kv_plan(found, GIB, length, chosen).needed_bytes
    enough = kv_plan(found, needed, length, chosen)
    short = kv_plan(found, needed - 1, length, chosen)
    assert enough.fits
    assert enough.longest_context == length
    assert not short.fits
    assert short.longest_context < length


@given(models(), layouts, rules, lengths)
def test_a_longer_request_never_takes_fewer_blocks(model, layout, chosen, length):
    found = kv_layout(model, layout, chosen)
    assert blocks_per_request(found, length) <= blocks_per_request(found, length + 1)


@given(models(), rules, st.integers(1, 64), lengths)
def test_more_ranks_never_make_a_token_dearer(model, chosen, size, length):
    costs = [
        kv_plan(
            kv_layout(model, Layout(tensor_parallel=ranks), chosen), size * GIB, length, chosen
        ).bytes_per_block
        for ranks in (1, 2, 4, 8)
    ]
    kinds = {cache.kind for group in kv_layout(model, Layout(), chosen).groups for cache in group}
    if CacheKind.STATE not in kinds:  # a block of states is as long as its state is large
        assert costs == sorted(costs, reverse=True)


@given(st.integers(1, 200), st.integers(1, 16))
def test_stages_are_all_layers_in_order(layers, stages):
    if layers < stages:
        return
    found = layer_stages(layers, stages)
    assert found[0][0] == 0
    assert found[-1][1] == layers
    assert all(one[1] == two[0] for one, two in pairwise(found))
    sizes = [last - first for first, last in found]
    assert max(sizes) - min(sizes) <= 1


@given(st.text())
def test_any_version_text_is_read_or_is_none(text):
    found = read_version(text)
    assert found is None or len(found) == 3


def test_the_newest_version_has_every_rule():
    assert all(since <= NEWEST for since in FIRST_WITH.values())
