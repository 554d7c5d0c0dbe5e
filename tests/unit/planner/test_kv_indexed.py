"""Qwen4-Exp: states, an index with one key for four tokens, rings and a convolution, in packed blocks."""

import pytest

from bringup.parse.hf_config import read_config
from bringup.planner.kv_cache import blocks_per_request, kv_layout, kv_plan
from bringup.planner.kv_layers import layer_caches
from bringup.planner.kv_records import KvRules
from bringup.units import GIB
from bringup.values.plan import Layout

CONFIG = {
    "model_type": "qwen4_exp",
    "num_hidden_layers": 48,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size": 2560,
    "vocab_size": 248_320,
}


def layout_of(*, tp=1, **rules):
    model = read_config(CONFIG, name="a/model", source="a test")
    return kv_layout(model, Layout(tensor_parallel=tp), KvRules(**rules))


def test_blocks_hold_keys_values_and_the_index():
    # A state: 10,240 x 3 x 2 + 48 x 128 x 128 x 2 = 1,634,304 bytes; a token: 2 x 2 x 256 x 2 = 2048. That is
    # 798 tokens, in whole 16s: 800. Each of 12 layers has 800 x 2048 bytes beside 200 keys of 128 x 2.
    found = layout_of()
    assert found.bytes_per_block == 12 * (800 * 2048 + 200 * 256)
    # 36 states in three groups of two for each request, the convolution's two, one block for all rings.
    assert blocks_per_request(found, 262_144) == 328 + 3 * 2 + 2 + 1


def test_a_start_with_three_drafts_printed_the_same():
    drafting = {"speculative_tokens": 3, "loads_mtp": True}
    found = layout_of(**drafting)
    # With drafts a state is 10,240 x 6 x 2 + 1,572,864 = 1,695,744 bytes: 832 tokens. The 13th layer drafts.
    assert found.bytes_per_block == 13 * (832 * 2048 + 208 * 256)
    assert blocks_per_request(found, 262_144) == 316 + 3 * 5 + 5 + 1
    plan = kv_plan(found, int(9.59 * GIB), 262_144, KvRules(**drafting))
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (350_043, 1.34)
    assert plan.block_tokens == 832


@pytest.mark.parametrize(("drafts", "tokens"), [(0, 4), (1, 8), (4, 8), (5, 12)])
def test_rings_have_room_for_the_drafts(drafts, tokens):
    model = read_config(CONFIG, name="a/model", source="a test")
    caches = layer_caches(model, KvRules(speculative_tokens=drafts), tp=1, dcp=1)
    ring = next(cache for cache in caches if cache.name.endswith("ring"))
    assert (ring.block_tokens, ring.page) == (tokens, tokens * (128 * 2 + 3 * 8))


def test_the_convolution_is_whole_on_every_rank():
    model = read_config(CONFIG | {"hidden_size": 65_536}, name="a/model", source="a test")
    alone, shared = (layer_caches(model, KvRules(), tp=tp, dcp=1) for tp in (1, 2))
    copied = [next(cache for cache in caches if cache.is_copied) for caches in (alone, shared)]
    # 65,536 x 4 x 9 x 2 = 4,718,592 bytes are more than a state: blocks are as large for its sake.
    assert copied[0].page >= copied[1].page >= 65_536 * 4 * 9 * 2
