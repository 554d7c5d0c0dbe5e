"""What a layer keeps: formats, blocks, sharing, indexers, drafting layers, states, stages."""

import pytest
from kv_models import attention, full, gated, latent, spec

from bringup.errors import UsageError
from bringup.planner.kv_blocks import attention_block
from bringup.planner.kv_cache import blocks_per_request, kv_layout, kv_plan
from bringup.planner.kv_formats import cache_dtype
from bringup.planner.kv_packing import pack, padded_least
from bringup.planner.kv_records import CacheKind, KvRules, LayerCache
from bringup.planner.kv_states import state_bytes
from bringup.units import GIB
from bringup.values.model import Attention, Layer, LinearState, Mixer, ModelSpec, Quantization
from bringup.values.plan import Layout

EIGHT_BITS = Quantization(scheme="nvfp4", method="modelopt", kv_cache="fp8")


def layout_of(model, *, tp=1, pp=1, dcp=1, **rules):
    layout = Layout(tensor_parallel=tp, pipeline_parallel=pp, decode_context_parallel=dcp)
    return kv_layout(model, layout, KvRules(**rules))


def rate(model, *, tp=1, dcp=1, version=(0, 13, 0), size=20 * GIB, length=32_768, **rules):
    """Bytes per token as the printed figures imply them."""
    found = layout_of(model, tp=tp, dcp=dcp, version=version, **rules)
    return kv_plan(found, size, length, KvRules(version=version)).bytes_per_token


# Bytes per token that servers printed, as available bytes over tokens.
@pytest.mark.parametrize(
    ("model", "tp", "rules", "printed"),
    [
        (full(62, 8, 128), 4, {}, 63_496),  # MiniMax-M2.5
        (full(64, 8, 128), 1, {}, 262_144),  # Qwen3-32B
        (full(64, 8, 128), 2, {}, 131_072),
        (full(94, 4, 128), 8, {}, 48_128),  # Qwen3-235B: 4 heads on 8 ranks
        (latent(61), 8, {}, 70_274),  # Kimi-K2-Thinking
        (latent(61), 8, {"dcp": 8}, 8_783),
        (latent(78, index=128), 8, {"cache_dtype": "fp8"}, 61_468),  # GLM-5.1
        (latent(78, index=128), 8, {"cache_dtype": "fp8", "dcp": 4}, 15_366),
    ],
)
def test_rates_are_those_that_servers_printed(model, tp, rules, printed):
    assert rate(model, tp=tp, **rules) == pytest.approx(printed, rel=1e-3)


def test_the_old_line_counts_tokens_over_all_groups():
    heads, window = attention(8, 64), attention(8, 64, window=128)
    gpt_oss = spec([(12, Mixer.FULL, heads, None), (12, Mixer.SLIDING, window, None)])
    assert rate(gpt_oss, version=(0, 12, 0)) == pytest.approx(49_161, rel=1e-3)
    moe = gated(10, 2, 30, 32)
    assert rate(moe, version=(0, 19, 1)) == pytest.approx(81_947, rel=1e-3)


def test_before_groups_tokens_are_blocks_times_their_size():
    plan = kv_plan(layout_of(full(32, 8, 128), version=(0, 8, 5)), GIB, 4096, KvRules(version=(0, 8, 5)))
    assert plan.tokens == plan.blocks * 16


@pytest.mark.parametrize(
    ("said", "capability", "expected"),
    [
        ("auto", None, "bfloat16"),
        ("fp8", "9.0", "fp8_ds_mla"),
        ("fp8", "10.0", "fp8"),
        ("auto", "12.0", "fp8_ds_mla"),
        ("fp8_ds_mla", "10.0", "fp8_ds_mla"),
        ("bfloat16", "9.0", "bfloat16"),
    ],
)
def test_sparse_latents_are_packed_where_the_back_end_packs_them(said, capability, expected):
    rules = KvRules(cache_dtype=said, compute_capability=capability)
    assert cache_dtype(latent(61, index=128), rules) == expected


def test_glm5_is_kept_in_eight_bits_on_data_centre_blackwell():
    layers = latent(78, index=128).layers
    model = ModelSpec(
        name="",
        architecture="GlmMoeDsaForCausalLM",
        model_type="glm_moe_dsa",
        layers=layers,
        hidden_size=6144,
        vocabulary=154_880,
    )
    assert cache_dtype(model, KvRules(compute_capability="10.0")) == "fp8_e4m3"
    assert cache_dtype(model, KvRules(compute_capability="9.0")) == "bfloat16"


def test_auto_is_what_the_checkpoint_asks_for_unless_the_flag_says_otherwise():
    model = spec([(80, Mixer.FULL, attention(8, 128), None)], quantization=EIGHT_BITS)
    assert layout_of(model, tp=4).bytes_per_block == 655_360
    assert layout_of(model, tp=4, cache_dtype="bfloat16").bytes_per_block == 2 * 655_360


@pytest.mark.parametrize(
    ("word", "token"),
    [
        ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
        ("turboquant_4bit_nc", 134),
        ("ultraquant_4bit", 136),
        ("float16", 512),
    ],
)
def test_every_format_has_its_own_bytes_per_head(word, token):
    assert layout_of(full(1, 8, 128), cache_dtype=word).bytes_per_block == 16 * 8 * token


def test_an_unknown_format_is_the_user_s_error():
    with pytest.raises(UsageError, match="fp3"):
        layout_of(full(1, 8, 128), cache_dtype="fp3")


@pytest.mark.parametrize(
    ("model", "rules", "block"),
    [
        (full(2, 8, 128), {}, 16),
        (full(2, 8, 128), {"block_tokens": 32}, 32),
        (latent(2), {}, 16),
        (latent(2), {"compute_capability": "10.0"}, 32),
        (latent(2), {"compute_capability": "9.0", "cache_dtype": "fp8"}, 64),
        (latent(2), {"attention_backend": "CUTLASS_MLA"}, 128),
        (latent(2, index=128), {}, 64),
    ],
)
def test_blocks_are_what_the_back_end_takes(model, rules, block):
    chosen = KvRules(**rules)
    assert attention_block(model, chosen, cache_dtype(model, chosen)) == block


def test_layers_that_take_another_s_cache_keep_none():
    own, shared = attention(8, 128), attention(8, 128, shares_kv=True)
    model = spec([(20, Mixer.FULL, own, None), (15, Mixer.FULL, shared, None)])
    assert layout_of(model).bytes_per_block == layout_of(full(20, 8, 128)).bytes_per_block


def test_windows_with_other_heads_than_full_layers_are_brought_to_one_page():
    # Gemma-4-26B: 5 layers of 2 heads x 512 beside 25 of 8 heads x 256 with a window of 1024.
    model = spec(
        [
            (5, Mixer.FULL, attention(2, 512), None),
            (25, Mixer.SLIDING, attention(8, 256, window=1024), None),
        ]
    )
    found = layout_of(model)
    blocks = {group[0].kind: group[0].block_tokens for group in found.groups}
    assert blocks == {"full": 32, "sliding": 16}
    assert found.bytes_per_block == 5 * 16 * 8 * 256 * 2 * 2


def test_pages_that_cannot_be_brought_together_refuse_older_versions_only():
    model = spec(
        [(4, Mixer.FULL, attention(3, 128), None), (4, Mixer.SLIDING, attention(2, 128, window=512), None)]
    )
    assert "does not divide" in (layout_of(model, version=(0, 20, 2)).refusal or "")
    assert layout_of(model, version=(0, 24, 0)).refusal is None


def test_layers_without_an_own_index_keep_only_their_latent():
    owner = {"index_heads": 64, "index_head_dim": 128, "owns_index_cache": True}
    taker = owner | {"owns_index_cache": False}
    latents = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    model = spec(
        [
            (3, Mixer.MLA, attention(1, 576, **latents, **owner), None),
            (9, Mixer.MLA, attention(1, 576, **latents, **taker), None),
        ]
    )
    assert layout_of(model, cache_dtype="fp8").bytes_per_block == 64 * (12 * 656 + 3 * 132)


def test_an_index_beside_plain_heads_is_key_only_in_bfloat16():
    sparse = attention(4, 128, index_heads=4, index_head_dim=128, owns_index_cache=True)
    model = spec([(3, Mixer.FULL, attention(4, 128), None), (57, Mixer.FULL, sparse, None)])
    found = layout_of(model, tp=4)
    assert found.bytes_per_block == 128 * (60 * 512 + 57 * 256)


def test_drafting_layers_cost_only_when_they_are_loaded():
    model = spec([(10, Mixer.FULL, attention(8, 128), None)], mtp=1)
    assert layout_of(model).bytes_per_block * 11 == layout_of(model, loads_mtp=True).bytes_per_block * 10


def test_stages_have_their_own_layers_and_the_dearest_decides():
    found = layout_of(full(62, 8, 128), pp=4)
    assert found.stage_bytes == tuple(16 * 4096 * layers for layers in (15, 16, 16, 15))
    plan = kv_plan(found, 20 * GIB, 4096, KvRules())
    assert plan.blocks == 20 * GIB // (16 * 4096 * 16)
    uneven = kv_plan(found, [20 * GIB, 20 * GIB, 20 * GIB, GIB], 4096, KvRules())
    assert uneven.blocks == GIB // (16 * 4096 * 15)


def test_stages_can_be_given():
    found = layout_of(full(10, 8, 128), pp=2, stage_layers=(7, 3))
    assert found.stage_bytes == (16 * 4096 * 7, 16 * 4096 * 3)


def test_states_can_be_kept_in_another_format():
    wide = layout_of(gated(16, 4, 48, 48))
    narrow = layout_of(gated(16, 4, 48, 48), mamba_state_dtype="bfloat16")
    assert wide.groups[0][0].block_tokens == 784
    # (3 * 10240 * 2 + 48 * 128 * 128 * 2) / (16 * 4096) = 24.9 steps of 16
    assert narrow.groups[0][0].block_tokens == 25 * 16


def test_latents_beside_states_have_blocks_of_whole_kernel_blocks():
    heads = attention(1, 576, kv_lora_rank=512, qk_rope_head_dim=64)
    state = LinearState(key_heads=32, key_head_dim=128, value_heads=32, value_head_dim=128, conv_kernel=4)
    model = spec([(7, Mixer.MLA, heads, None), (20, Mixer.KDA, None, state)])
    block = layout_of(model).groups[0][0].block_tokens
    # (3 * 3 * 4096 * 2 + 32 * 128 * 128 * 4) / 1152 = 1884.4 tokens
    assert block == 1920


def test_attention_and_state_side_by_side_in_one_layer_keep_both():
    state = LinearState(key_heads=1, key_head_dim=64, value_heads=8, value_head_dim=64, conv_kernel=4)
    layer = Layer(index=0, mixer=Mixer.FULL, attention=attention(8, 128), state=state)
    model = ModelSpec(
        name="", architecture="", model_type="falcon_h1", layers=(layer,), hidden_size=8, vocabulary=8
    )
    assert sorted(cache.name for group in layout_of(model).groups for cache in group) == ["0", "0.state"]


def test_too_few_blocks_for_the_states_of_all_sequences_refuse_graphs_only():
    rules = KvRules(version=(0, 20, 2), max_num_seqs=512)
    found = kv_layout(gated(10, 2, 30, 32), Layout(), rules)
    plan = kv_plan(found, 6 * GIB, 4096, rules)
    assert plan.blocks < 512
    assert "max_num_seqs (512)" in (plan.refusal or "")
    assert not plan.fits
    eager = KvRules(version=(0, 20, 2), max_num_seqs=512, has_graphs=False)
    assert kv_plan(found, 6 * GIB, 4096, eager).fits
    older = KvRules(version=(0, 19, 1), max_num_seqs=512)
    assert kv_plan(found, 6 * GIB, 4096, older).refusal is None


def test_windows_keep_the_tokens_in_flight_of_every_batch():
    window = attention(8, 64, window=128)
    model = spec([(18, Mixer.FULL, attention(8, 64), None), (18, Mixer.SLIDING, window, None)])
    tokens = {
        (version, is_async): blocks_per_request(
            layout_of(model, version=version, has_async_scheduling=is_async), 131_072
        )
        - 8192
        for version in ((0, 25, 1), (0, 26, 0))
        for is_async in (True, False)
    }
    once, twice = -(-(127 + 8192) // 16) + 1, -(-(127 + 16384) // 16) + 1
    assert tokens == {
        ((0, 25, 1), True): once,
        ((0, 25, 1), False): once,
        ((0, 26, 0), True): twice,
        ((0, 26, 0), False): once,
    }


def test_layers_left_unquantised_are_padded_to_the_page_of_the_others():
    window = attention(8, 128, window=1024)
    model = spec([(12, Mixer.FULL, attention(8, 128), None), (12, Mixer.SLIDING, window, None)])
    found = layout_of(model, cache_dtype="nvfp4", skip_layers=("sliding_window",))
    full_group, window_group = found.groups
    # 144 bytes a head and token beside 512: blocks of 16 windows (65536 bytes) need 4 of 16 full ones.
    assert (full_group[0].block_tokens, window_group[0].block_tokens) == (64, 16)
    assert full_group[0].page == window_group[0].page == 64 * 8 * 144


def deepseek_v4():
    """DeepSeek-V4-Flash: 2 layers with a window alone, 21 with every 4th token, 20 with every 128th."""
    ratios = [0, 0, *[4, 128] * 20, 4]
    layers = tuple(
        Layer(
            index=index,
            mixer=Mixer.MLA,
            attention=Attention(
                query_heads=64,
                kv_heads=1,
                head_dim=512,
                v_head_dim=512,
                window=128,
                kv_lora_rank=512,
                qk_rope_head_dim=64,
                compress_ratio=ratio,
                index_heads=64 if ratio == 4 else None,
                index_head_dim=128 if ratio == 4 else None,
                owns_index_cache=ratio == 4,
            ),
        )
        for index, ratio in enumerate(ratios)
    )
    return ModelSpec(
        name="", architecture="", model_type="deepseek_v4", layers=layers, hidden_size=8, vocabulary=8
    )


def test_deepseek_v4_is_packed_into_five_groups():
    found = layout_of(deepseek_v4())
    plan = kv_plan(found, int(7.7 * GIB), 121_344, KvRules())
    assert found.cache_dtype == "fp8_ds_mla"
    assert (plan.bytes_per_block, plan.blocks) == (1_002_240, 8_249)
    assert blocks_per_request(found, 121_344) == 7156
    assert (plan.tokens, round(plan.max_concurrency, 2)) == (139_877, 1.15)


@pytest.mark.parametrize(
    ("version", "block"),
    [
        # Sizes of a page: 37,440 (the past of a ratio of 4), 8640 (its index), 1728 (of a ratio of 128).
        # Windows are padded to them, running states of 32,832 to 37,440, and dealt in groups of 22.
        ((0, 22, 1), 22 * (37_440 + 8640 + 1728)),  # as many of every size
        ((0, 24, 0), 22 * 37_440 + 21 * 8640 + 20 * 1728),  # of each as many as there are
        ((0, 27, 1), 21 * (37_440 + 8640) + 20 * 1728),  # the dearest group
    ],
)
def test_before_0_27_deepseek_v4_has_slots_for_every_size_of_page(version, block):
    assert layout_of(deepseek_v4(), version=version).bytes_per_block == block


def test_before_0_27_a_request_of_deepseek_v4_is_counted_by_its_bytes():
    # Pages of a request of 4096 tokens: 4096 / 256 = 16 of the past, 4096 / 64 + 1 = 65 of the windows,
    # 1025 and 513 of the running states. In bytes, over one block of the first group:
    past = 21 * (37_440 + 8640) + 20 * 1728
    taken = 16 * past + 65 * 43 * 37_440 + 1025 * 21 * (37_440 + 8640) + 513 * 20 * 37_440
    found = layout_of(deepseek_v4(), version=(0, 24, 0), max_num_batched_tokens=4096)
    assert blocks_per_request(found, 4096) == -(-taken // past) == 1494
    plan = kv_plan(found, int(32.08 * GIB), 4096, KvRules(version=(0, 24, 0)))
    assert plan.tokens == pytest.approx(90_841, rel=1e-3)  # as a start of 32.08 GiB printed
    # Whether a request fits is asked with all sizes in every block, for each page of every group.
    pages = 16 + 2 * 65 + 1025 + 513
    asked = pages * 22 * (37_440 + 8640 + 1728)
    assert plan.needed_bytes == -(-asked // found.bytes_per_block) * found.bytes_per_block
    assert kv_plan(found, asked, 4096, KvRules(version=(0, 24, 0))).fits is (
        asked % found.bytes_per_block == 0
    )


def test_a_model_without_any_cache_fits_anywhere():
    model = spec([(4, Mixer.NONE, None, None)])
    plan = kv_plan(layout_of(model), 0, 4096, KvRules())
    assert plan.fits
    assert plan.tokens == 0


def test_blocks_can_be_set_by_hand():
    rules = KvRules(blocks_override=100)
    plan = kv_plan(kv_layout(full(32, 8, 128), Layout(), rules), 20 * GIB, 1024, rules)
    assert (plan.blocks, plan.tokens) == (100, 1600)


def test_chunks_are_kept_whole_by_versions_that_know_no_better():
    local = attention(8, 128, window=8192)
    model = spec([(12, Mixer.FULL, attention(8, 128), None), (36, Mixer.CHUNKED, local, None)])
    newer, older = layout_of(model), layout_of(model, version=(0, 11, 0))
    assert [len(group) for group in newer.groups] == [12, 12, 12, 12]
    assert [len(group) for group in older.groups] == [48]
    assert blocks_per_request(newer, 131_072) == 8192 + 3 * ((8192 + 16_384) // 16)


def test_latents_can_be_unfolded_into_heads():
    deepseek = attention(1, 192, query_heads=128, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128)
    model = spec([(61, Mixer.MLA, deepseek, None)])
    folded, unfolded = layout_of(model, tp=8), layout_of(model, tp=8, keeps_latent=False)
    assert folded.bytes_per_block == 61 * 16 * 576 * 2
    assert unfolded.bytes_per_block == 61 * 16 * 16 * (192 + 192) * 2


def test_a_draft_model_s_layers_are_kept_beside_the_model_s():
    draft = full(1, 8, 128).layers
    found = layout_of(full(32, 8, 128), draft_layers=draft)
    assert found.bytes_per_block == 33 * 16 * 4096
    assert layout_of(full(32, 8, 128), draft_layers=draft, pp=2).stage_bytes == (
        16 * 16 * 4096,
        17 * 16 * 4096,
    )


@pytest.mark.parametrize(
    ("model", "tp", "dcp", "version", "reason"),
    [
        (latent(61), 8, 8, (0, 33, 0), None),
        (latent(61), 8, 3, (0, 33, 0), "does not divide"),
        (latent(61), 8, 8, (0, 9, 2), "no decode context parallelism"),
        (full(94, 4, 128), 8, 2, (0, 33, 0), None),
        (full(94, 4, 128), 8, 4, (0, 33, 0), "KV heads"),
        (full(94, 4, 128), 4, 2, (0, 33, 0), "KV heads"),
        (
            spec(
                [
                    (2, Mixer.FULL, attention(1, 64), None),
                    (2, Mixer.SLIDING, attention(1, 64, window=128), None),
                ]
            ),
            8,
            2,
            (0, 33, 0),
            "windows",
        ),
    ],
)
def test_context_is_shared_only_where_the_engine_can(model, tp, dcp, version, reason):
    refusal = layout_of(model, tp=tp, dcp=dcp, version=version).refusal
    assert refusal is None if reason is None else reason in (refusal or "")


def test_groups_are_stretched_over_nearly_equal_kinds_only():
    heads, window = attention(8, 64), attention(8, 64, window=128)

    def groups(fulls, windows, version):
        model = spec([(fulls, Mixer.FULL, heads, None), (windows, Mixer.SLIDING, window, None)])
        return [len(group) for group in layout_of(model, version=version).groups]

    # gpt-oss-20b with a drafting layer
    assert groups(13, 12, (0, 33, 0)) == [13, 12]
    assert groups(13, 12, (0, 11, 0)) == [7, 6, 12]
    assert groups(14, 10, (0, 33, 0)) == [14, 10]
    assert groups(14, 10, (0, 17, 1)) == [7, 7, 10]


def test_more_batches_are_in_flight_with_more_stages():
    windows = spec(
        [
            (12, Mixer.FULL, attention(8, 64), None),
            (12, Mixer.SLIDING, attention(8, 64, window=128), None),
        ]
    )
    assert layout_of(windows, pp=3).in_flight_tokens == 4 * 8192
    assert layout_of(windows, pp=3, version=(0, 27, 1)).in_flight_tokens == 2 * 8192
    assert layout_of(windows, pp=3, has_async_scheduling=False).in_flight_tokens == 3 * 8192


def test_larger_blocks_hold_more_of_an_unquantised_window():
    window = attention(8, 128, window=1024)
    model = spec([(12, Mixer.FULL, attention(8, 128), None), (12, Mixer.SLIDING, window, None)])
    found = layout_of(model, cache_dtype="nvfp4", skip_layers=("sliding_window",), block_tokens=128)
    # A page of 128 x 1152 bytes holds 36 tokens of 4096 bytes, of which whole steps of 16 are used.
    assert [group[0].block_tokens for group in found.groups] == [128, 32]


def test_states_in_packed_blocks_are_as_many_as_a_block_has_room_for():
    def cache(name, kind, page, **more):
        return LayerCache(name=name, layer=0, kind=kind, block_tokens=16, page=page, **more)

    layers = [cache(f"{n}", CacheKind.FULL, 1000) for n in range(10)]
    layers += [cache(f"{n}.state", CacheKind.STATE, 400, pages_per_request=1) for n in range(30)]
    assert [len(group) for group in pack(layers)] == [10, 15, 15]


def test_the_largest_of_equally_good_group_sizes_is_taken():
    assert padded_least([6, 12], 1) == 6
    assert padded_least([5, 7], 6) == 7


def test_groups_of_a_state_are_copied_until_every_rank_has_one():
    state = LinearState(key_heads=1, key_head_dim=128, value_heads=64, value_head_dim=64, conv_kernel=4)
    found = state_bytes(Mixer.MAMBA2, state, tp=4, convolution_dtype="bfloat16", state_dtype="float32")
    assert found.convolution == (64 * 64 + 2 * 4 * 128) // 4 * 3 * 2
    assert found.recurrent == 16 * 64 * 128 * 4
