"""The worked examples that real servers or the engine's own functions confirm, to the token."""

from kv_models import attention, full, gated, latent, spec

from bringup.planner.kv_cache import blocks_per_request, kv_layout, kv_plan
from bringup.planner.kv_records import KvRules
from bringup.units import GIB
from bringup.values.model import Mixer
from bringup.values.plan import Layout

TP1, TP2, TP4 = (Layout(tensor_parallel=ranks) for ranks in (1, 2, 4))


def planned(model, layout, size, length, **rules):
    rules = KvRules(**rules)
    found = kv_layout(model, layout, rules)
    return found, kv_plan(found, int(size), length, rules)


def test_minimax_m2_needs_what_its_log_says():
    found, plan = planned(full(62, 8, 128), TP2, 11_892.5 * 2_031_616, 196_608, version=(0, 29, 0))
    assert found.bytes_per_block == 2_031_616
    assert round(plan.needed_bytes / GIB, 2) == 23.25
    assert not plan.fits
    assert plan.longest_context == 190_272


def test_qwen3_235b_holds_what_its_log_says():
    found, plan = planned(full(94, 4, 128), TP4, 11_180 * 770_048, 40_960, version=(0, 9, 2))
    assert found.bytes_per_block == 770_048
    assert (plan.blocks, plan.tokens, round(plan.max_concurrency, 2)) == (11_180, 178_880, 4.37)


def test_qwen36_35b_with_eight_bit_cache_and_prefix_caching():
    found, plan = planned(
        gated(10, 2, 30, 32),
        TP1,
        5.98 * GIB,
        131_072,
        version=(0, 24, 0),
        cache_dtype="fp8",
        has_prefix_caching=True,
    )
    assert (found.bytes_per_block, plan.block_tokens, plan.blocks) == (21_463_040, 2096, 299)
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (567_978, 4.33)
    assert plan.groups == (10, 10, 10, 10)


def test_qwen36_27b_drafting_pads_three_layers():
    found, plan = planned(
        gated(16, 4, 48, 48, mtp=1),
        TP2,
        424.5 * 27_852_800,
        262_144,
        version=(0, 24, 0),
        cache_dtype="fp8",
        has_prefix_caching=True,
        speculative_tokens=3,
        loads_mtp=True,
    )
    assert (found.bytes_per_block, plan.block_tokens) == (27_852_800, 1600)
    assert blocks_per_request(found, 262_144) == 164 + 3 * 5
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (620_944, 2.37)


def test_qwen35_27b_without_prefix_caching_by_the_old_line():
    found, plan = planned(gated(16, 4, 48, 48), TP1, 1487.5 * 51_380_224, 32_768, version=(0, 19, 0))
    assert (found.bytes_per_block, plan.block_tokens) == (51_380_224, 784)
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (290_864, 33.04)


def test_minimax_m25_over_four():
    found, plan = planned(full(62, 8, 128), TP4, 30 * GIB, 196_608)
    assert (found.bytes_per_block, plan.blocks) == (1_015_808, 31_710)
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (507_360, 2.58)


def test_sparse_latent_sums_the_indexer():
    found, plan = planned(latent(61, index=128), TP4, 30 * GIB, 163_840, cache_dtype="fp8_ds_mla")
    assert (found.bytes_per_block, plan.block_tokens, plan.blocks) == (3_076_352, 64, 10_470)
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (670_080, 4.09)


def test_latent_is_not_divided_by_ranks_but_by_context_parallelism():
    one, plan = planned(latent(61), TP1, 20 * GIB, 262_144, cache_dtype="fp8", block_tokens=64)
    eight, same = planned(
        latent(61), Layout(tensor_parallel=8), 20 * GIB, 262_144, cache_dtype="fp8", block_tokens=64
    )
    assert one.bytes_per_block == eight.bytes_per_block == 2_248_704
    assert (plan.blocks, plan.tokens, round(plan.max_concurrency, 2)) == (9_549, 611_136, 2.33)
    assert same == plan
    shared = Layout(tensor_parallel=8, decode_context_parallel=8)
    assert planned(latent(61), shared, 20 * GIB, 262_144, block_tokens=64)[1].tokens == 2_444_288


def test_qwen35_397b_over_four():
    found, plan = planned(gated(15, 2, 45, 64), TP4, 20 * GIB, 262_144)
    assert (found.bytes_per_block, plan.block_tokens, plan.blocks) == (16_220_160, 1056, 1_323)
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (1_360_064, 5.19)


def test_gpt_oss_keeps_windows_apart_and_can_be_told_not_to():
    heads = attention(8, 64)
    window = attention(8, 64, window=128)
    model = spec([(18, Mixer.FULL, heads, None), (18, Mixer.SLIDING, window, None)])
    found, plan = planned(model, TP1, 10 * GIB, 131_072)
    assert (found.bytes_per_block, plan.blocks) == (589_824, 18_204)
    assert blocks_per_request(found, 131_072) == 8192 + 1033
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (258_648, 1.97)
    _, whole = planned(model, TP1, 10 * GIB, 131_072, has_hybrid_manager=False)
    assert (whole.tokens, round(whole.max_concurrency, 2)) == (145_632, 1.11)


def test_gemma3_27b_makes_seven_groups():
    heads = attention(16, 128)
    window = attention(16, 128, window=1024)
    model = spec([(10, Mixer.FULL, heads, None), (52, Mixer.SLIDING, window, None)])
    found, plan = planned(model, TP1, 20 * GIB, 131_072)
    assert plan.groups == (10, 9, 9, 9, 9, 8, 8)
    assert (found.bytes_per_block, plan.blocks) == (1_310_720, 16_384)
    assert blocks_per_request(found, 131_072) == 8192 + 6 * 1089
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (145_829, 1.11)


def test_llama_33_in_eight_and_four_bits():
    eight, plan = planned(full(80, 8, 128), TP4, 40 * GIB, 131_072, cache_dtype="fp8")
    assert (eight.bytes_per_block, plan.blocks, plan.tokens, plan.max_concurrency) == (
        655_360,
        65_536,
        1_048_576,
        8.0,
    )
    four, plan = planned(full(80, 8, 128), TP4, 40 * GIB, 131_072, cache_dtype="nvfp4")
    assert (four.bytes_per_block, plan.blocks, plan.tokens) == (368_640, 116_508, 1_864_128)


def test_whisper_keeps_its_encoder_too():
    heads = attention(20, 64)
    model = spec([(32, Mixer.FULL, heads, None), (32, Mixer.CROSS, heads, None)], encoder_tokens=1500)
    found, plan = planned(model, TP1, 10 * GIB, 448)
    assert (found.bytes_per_block, plan.blocks) == (2_621_440, 4_096)
    assert blocks_per_request(found, 448) == 28 + 94
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (15_041, 33.57)
