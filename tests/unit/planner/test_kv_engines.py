"""The caches of SGLang and llama.cpp, by what their servers printed."""

import pytest
from kv_models import attention, full, gated, latent, spec

from bringup.planner.kv_llama_cpp import LlamaRules, llama_cache, type_bytes
from bringup.planner.kv_sglang import SglangRules, sglang_cache_dtype, sglang_pools, sglang_token_bytes
from bringup.units import GIB, MIB
from bringup.values.model import LinearState, Mixer
from bringup.values.plan import Layout


def sglang_rate(model, tp=1, **rules):
    return sglang_token_bytes(model, Layout(tensor_parallel=tp), SglangRules(**rules))


def test_sglang_heads_are_copied_when_there_are_more_ranks():
    model = full(94, 4, 128)
    assert sglang_rate(model, tp=4) == sglang_rate(model, tp=8) == 48_128


def test_sglang_replicas_inside_the_group_keep_more_heads():
    assert sglang_rate(full(94, 4, 128), tp=16, attention_data_parallel=16) == 4 * 48_128


def test_sglang_latents_are_not_divided():
    assert sglang_rate(latent(61), tp=8) == 70_272


def test_sglang_sparse_latents_count_their_index():
    # GLM-5 in bfloat16: 314,304 tokens in 29.32 GiB
    assert sglang_rate(latent(78, index=128), tp=8, cache_dtype="bf16") * 314_304 == pytest.approx(
        29.32 * GIB, rel=1e-3
    )
    # DeepSeek-V3.2 on B200, where `auto` is eight bits: 48,068 bytes
    assert sglang_rate(latent(61, index=128), tp=8, compute_capability="10.0") == 61 * (656 + 132)
    # A build of before 0.5.4 printed 1,462,784 tokens in 54.52 GiB, and took 65.49 with the index.
    before = sglang_rate(latent(61, index=128), tp=8, compute_capability="10.0", version=(0, 5, 3))
    assert before == 61 * 656
    assert before * 1_462_784 == pytest.approx(54.52 * GIB, rel=1e-3)
    assert sglang_cache_dtype(latent(61, index=128), SglangRules(compute_capability="9.0")) == "bfloat16"


def test_sglang_drafting_layers_take_the_same_slots_in_newer_versions():
    model = full(64, 8, 128)
    assert sglang_rate(model, draft_layers=1) == pytest.approx(262_144 * 65 / 64)
    assert sglang_rate(model, draft_layers=1, version=(0, 5, 12)) == 262_144


# Gemma-4-26B over two ranks: 25 windows of 8 heads x 256 beside 5 full layers of 2 heads x 512.
GEMMA = spec(
    [
        (5, Mixer.FULL, attention(2, 512), None),
        (25, Mixer.SLIDING, attention(8, 256, window=1024), None),
    ]
)


@pytest.mark.parametrize(
    ("share", "tokens", "windows"),
    [(0.03, 815_815, 24_474), (0.0625, 652_652, 40_790), (0.1, 530_280, 53_028), (0.5, 176_760, 88_380)],
)
def test_sglang_windows_have_a_pool_of_their_own(share, tokens, windows):
    rules = SglangRules(window_share=share)
    size = tokens * (10_240 + share * 102_400) + 1
    pools = sglang_pools(GEMMA, Layout(tensor_parallel=2), rules, int(size))
    assert (pools.tokens, pools.window_tokens) == (tokens, windows)


def test_sglang_windows_can_be_kept_whole():
    rules = SglangRules(has_window_pool=False)
    assert sglang_token_bytes(GEMMA, Layout(tensor_parallel=2), rules) == 10_240 + 102_400


def test_sglang_states_come_before_tokens():
    # Qwen3.5-397B over four ranks: 45 states of 18,432 + 1,048,576 bytes; 17.2 GiB left for both.
    pools = sglang_pools(
        gated(15, 2, 45, 64), Layout(tensor_parallel=4), SglangRules(version=(0, 5, 9)), int(17.2 * GIB)
    )
    assert pools.slot_bytes == 45 * (18_432 + 1_048_576)
    assert pools.state_slots == int(17.2 * GIB * 0.9 / 1.9) // pools.slot_bytes == 182
    assert pools.tokens == (int(17.2 * GIB) - 183 * pools.slot_bytes) // 15_360
    newer = sglang_pools(gated(15, 2, 45, 64), Layout(tensor_parallel=4), SglangRules(), int(17.2 * GIB))
    assert newer.state_slots == 181


def test_sglang_slots_can_be_given():
    # Qwen3.8-27B on one card: 361 states are 50.77 + 0.99 GiB, 228,520 tokens of 32,768 bytes in eight bits
    model = gated(16, 4, 48, 48)
    rules = SglangRules(state_slots=360, cache_dtype="fp8_e4m3")
    pools = sglang_pools(model, Layout(), rules, 361 * 153_944_064 + 228_520 * 32_768)
    assert pools.state_bytes == pytest.approx((50.77 + 0.99) * GIB, rel=1e-3)
    assert (pools.state_slots, pools.tokens) == (360, 228_520)


def test_sglang_tokens_are_whole_pages_and_can_be_capped():
    model, layout = full(64, 8, 128), Layout()
    assert sglang_pools(model, layout, SglangRules(page_tokens=64), 100 * 262_144).tokens == 64
    assert sglang_pools(model, layout, SglangRules(max_total_tokens=10), GIB).tokens == 10


def llama(model, tokens, **rules):
    return llama_cache(model, LlamaRules(context_tokens=tokens, **rules))


# Sizes that llama.cpp servers logged, MiB.
@pytest.mark.parametrize(
    ("model", "tokens", "types", "printed"),
    [
        (latent(61), 2048, ("q8_0", "q8_0"), 72.91),  # DeepSeek-V3
        (latent(61), 131_072, ("q8_0", "q8_0"), 4666.5),
        (latent(61), 8192, ("f16", "f16"), 549.0),
        (full(94, 4, 128), 65_536, ("q8_0", "f16"), 9212.0),  # Qwen3-235B
        (full(94, 4, 128), 32_768, ("f16", "f16"), 6016.0),
        (full(48, 4, 128), 4096, ("f16", "f16"), 384.0),  # Qwen3-30B
    ],
)
def test_llama_caches_are_as_large_as_their_servers_said(model, tokens, types, printed):
    found = llama(model, tokens, key_type=types[0], value_type=types[1])
    assert found.total / MIB == pytest.approx(printed, abs=0.01)


def test_llama_windows_hold_a_window_of_every_slot_and_a_batch():
    # gpt-oss-120b with two slots: 262,144 cells in 18 layers (9216 MiB), 1280 in the other 18 (90 MiB).
    model = spec(
        [
            (18, Mixer.FULL, attention(8, 64), None),
            (18, Mixer.SLIDING, attention(8, 64, window=128), None),
        ]
    )
    found = llama(model, 262_144, slots=2, is_unified=False, micro_batch=1024)
    assert found.window_cells == 1280
    assert (sum(found.layer_bytes[:18]), sum(found.layer_bytes[18:])) == (9216 * MIB, 90 * MIB)
    # In one cache for both, the windows of both lie side by side.
    assert llama(model, 262_144, slots=2, micro_batch=1024).window_cells == 1280
    assert llama(model, 262_144, has_full_windows=True).window_cells == 262_144


def test_llama_windows_of_all_slots_lie_in_one_cache():
    model = spec([(1, Mixer.SLIDING, attention(8, 64, window=1024), None)])
    assert llama(model, 65_536, slots=4).window_cells == 4 * 1024 + 512
    assert llama(model, 65_536, slots=4, is_unified=False).window_cells == 1024 + 512


def test_llama_slots_share_one_cache_unless_told_otherwise():
    model = full(4, 2, 32)
    assert llama(model, 2048, slots=2).cells == 2048
    apart = llama(model, 2048, slots=2, is_unified=False, key_type="q8_0", value_type="q8_0")
    assert (apart.cells, apart.streams) == (1024, 2)
    assert apart.total / MIB == pytest.approx(1.0625)


def test_llama_states_are_float32_per_slot():
    state = LinearState(key_heads=1, key_head_dim=128, value_heads=16, value_head_dim=64, conv_kernel=4)
    model = spec([(1, Mixer.MAMBA2, None, state)])
    assert llama(model, 1024, slots=3).total == 3 * 4 * (3 * (1024 + 256) + 128 * 1024)


def test_llama_types_are_whole_blocks():
    with pytest.raises(ValueError, match="blocks of 32"):
        type_bytes("q8_0", 80 + 1)


def test_sglang_states_of_drafts_come_out_of_the_same_budget():
    # 0.5.23: K = (budget - slot x (1 + D)) / (slot x (1 + D / ratio)), and (min(48, K / ratio) + 1) x D.
    model, size = gated(15, 2, 45, 64), int(17.2 * GIB)
    rules = SglangRules(draft_tokens=4, states_per_request=5, running=48)
    slot = 45 * (18_432 + 1_048_576)
    slots = int((size * 0.9 / 1.9 - 5 * slot) // (slot * 1.8))
    pools = sglang_pools(model, Layout(tensor_parallel=4), rules, size)
    assert pools.state_slots == slots < 181
    assert pools.state_bytes == (slots + 1 + (slots // 5 + 1) * 4) * slot
    assert pools.state_bytes <= size * 0.9 / 1.9
    # 0.5.9: those of all requests that may run are taken off first.
    older = SglangRules(version=(0, 5, 9), draft_tokens=4, states_per_request=3, running=48)
    assert (
        sglang_pools(model, Layout(tensor_parallel=4), older, size).state_slots
        == int((size - 48 * 4 * slot) * 0.9 / 1.9) // slot
    )


@pytest.mark.parametrize(
    ("dtype", "rate"),
    [("bfloat16", 512), ("fp8_e5m2", 256), ("mxfp8", 264), ("nvfp4", 144), ("fp4_e2m1", 144)],
)
def test_sglang_formats_of_heads(dtype, rate):
    assert sglang_rate(full(1, 1, 128), cache_dtype=dtype) == rate


def test_sglang_latents_of_four_bits_have_scales():
    assert sglang_rate(latent(61), cache_dtype="fp4_e2m1") == 61 * (576 // 2 + 576 // 16)
