"""Configs written for the purpose, one per family, and facts read by eye off configs of published models."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.parse.hf_config import read_config
from bringup.values.finding import Severity
from bringup.values.model import Mixer

CONFIGS = Path(__file__).parents[4] / "shared" / "data" / "model_configs"

PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
}


def read(**changes):
    config = {**PLAIN, **changes}
    return read_config({k: v for k, v in config.items() if v != "absent"}, name="m", source="test")


def kinds(model):
    return dict(Counter(layer.mixer.value for layer in model.layers))


def mixers(model):
    return "".join(
        {"full": "F", "sliding": "s", "chunked": "c"}.get(layer.mixer, "L") for layer in model.layers
    )


def attentions(model):
    return [layer.attention for layer in model.layers if layer.attention]


def test_plain_config():
    model = read()
    attention = model.layers[0].attention
    assert len(model.layers) == 4
    assert (attention.query_heads, attention.kv_heads, attention.head_dim, attention.v_head_dim) == (
        8,
        2,
        8,
        8,
    )
    assert (model.dtype, model.is_tied, model.max_position, model.rotary_dims) == (
        "float16",
        False,
        2048,
        (8,),
    )
    assert not attention.has_bias
    assert model.layers[3].mlp.intermediate_size == 128
    assert model.notes == ()


@pytest.mark.parametrize("absent", [None, 0, "absent"])
def test_head_size_of_null_or_zero_is_none(absent):
    assert read(head_dim=absent).layers[0].attention.head_dim == 8


def test_kv_heads_by_the_names_in_use():
    assert read(num_key_value_heads="absent", num_kv_heads=4).layers[0].attention.kv_heads == 4
    assert read(num_key_value_heads="absent", multi_query_group_num=4).layers[0].attention.kv_heads == 4
    assert read(num_key_value_heads="absent").layers[0].attention.kv_heads == 8
    assert read(model_type="falcon", multi_query=True).layers[0].attention.kv_heads == 1


def test_biases_are_the_familys_or_the_configs():
    assert read(model_type="qwen2").layers[0].attention.has_bias
    assert not read(model_type="qwen2").layers[0].attention.has_output_bias
    both = read(attention_bias=True).layers[0].attention
    assert both.has_bias
    assert both.has_output_bias
    assert not read(model_type="qwen3", attention_bias=True).layers[0].attention.has_output_bias


def test_a_window_counts_only_where_it_is_switched_on():
    assert kinds(read(model_type="mistral", sliding_window=4096)) == {"sliding": 4}
    assert kinds(read(model_type="mistral", sliding_window=None)) == {"full": 4}
    qwen = {"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 2}
    assert kinds(read(**qwen, use_sliding_window=False)) == {"full": 4}
    assert kinds(read(**qwen)) == {"full": 4}


def test_gemma_alternates_by_its_pattern_and_the_last_layer_of_gemma_4_is_full():
    gemma3 = read(model_type="gemma3_text", num_hidden_layers=8, sliding_window=512, architectures=["X"])
    assert mixers(gemma3) == "sssssFss"
    assert gemma3.layers[0].attention.window == 512
    assert gemma3.layers[5].attention.window is None
    assert len(gemma3.rotary_dims) == 2
    assert gemma3.is_tied
    assert gemma3.norm_count == 4
    assert mixers(read(model_type="gemma4_text", num_hidden_layers=8, sliding_window=512)) == "sssssFsF"


def test_gemma_4_global_layers_have_their_own_shape():
    model = read(
        model_type="gemma4_text",
        num_hidden_layers=6,
        sliding_window=512,
        head_dim=16,
        global_head_dim=32,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        num_kv_shared_layers=2,
    )
    local, whole = model.layers[0].attention, model.layers[5].attention
    assert (local.head_dim, local.kv_heads, local.v_is_k) == (16, 2, False)
    assert (whole.head_dim, whole.kv_heads, whole.v_is_k) == (32, 1, True)
    assert [layer.attention.shares_kv for layer in model.layers] == [False] * 4 + [True] * 2


def test_gpt_oss_slides_on_even_layers_whatever_it_lists():
    model = read(
        model_type="gpt_oss", layer_types=["full_attention"] * 4, sliding_window=128, num_local_experts=4
    )
    assert mixers(model) == "sFsF"
    assert model.layers[0].attention.has_sinks
    assert model.layers[0].attention.has_output_bias
    assert model.layers[0].mlp.has_bias


def test_llama_4_is_chunked_but_for_every_fourth_layer():
    text = {**PLAIN, "model_type": "llama4_text", "num_hidden_layers": 8, "num_local_experts": 4}
    text |= {"intermediate_size_mlp": 256, "interleave_moe_layer_step": 2, "no_rope_layers": []}
    model = read_config({"model_type": "llama4", "text_config": text}, name="m", source="s")
    assert mixers(model) == "cccFcccF"
    assert model.layers[0].attention.window == 8192
    assert [layer.mlp.experts for layer in model.layers] == [None, 4] * 4
    assert model.layers[0].mlp.intermediate_size == 256
    assert model.layers[1].mlp.shared_intermediate_size == 128


def test_cohere_sees_one_token_more_than_its_window():
    model = read(model_type="cohere2", sliding_window=4096, num_hidden_layers=8)
    assert mixers(model) == "sssFsssF"
    assert model.layers[0].attention.window == 4097


MLA = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}


def test_mla_keeps_one_latent_and_null_means_no_low_rank_for_queries():
    model = read(**MLA)
    attention = model.layers[0].attention
    assert kinds(model) == {"mla": 4}
    assert (attention.kv_heads, attention.head_dim, attention.v_head_dim) == (1, 192, 128)
    assert (attention.kv_lora_rank, attention.qk_rope_head_dim, attention.q_lora_rank) == (512, 64, None)
    assert read(**{**MLA, "q_lora_rank": 1536}).layers[0].attention.q_lora_rank == 1536
    assert [bool(layer.mlp.experts) for layer in model.layers] == [False, True, True, True]
    assert model.layers[1].mlp.shared_intermediate_size == 64
    assert [layer.index for layer in model.mtp_layers] == [4]
    assert model.mtp_layers[0].mlp.experts == 16
    assert model.rotary_dims == (64,)


def test_the_indexer_is_kept_by_the_layers_that_pick_for_themselves():
    indexed = {
        **MLA,
        "model_type": "glm_moe_dsa",
        "index_topk": 64,
        "index_n_heads": 4,
        "index_head_dim": 128,
    }

    def owners(**changes):
        return [layer.attention.owns_index_cache for layer in read(**indexed, **changes).layers]

    assert owners() == [True] * 4
    assert owners(indexer_types=["full", "shared", "shared", "full"]) == [True, False, False, True]
    assert owners(index_topk_pattern="FSSF") == [True, False, False, True]
    assert owners(index_topk_freq=2) == [True, True, False, True]  # full at max(i - 2 + 1, 0) % 2 == 0
    assert owners(index_topk_freq=4, index_skip_topk_offset=3) == [True, True, True, False]
    shared = read(**indexed, indexer_types=["full", "shared", "shared", "shared"])
    assert shared.mtp_layers[0].attention.owns_index_cache
    assert read(**{**MLA, "index_topk": 64}).model_type == "deepseek_v32"


def test_gated_delta_layers_come_three_to_one():
    model = read(
        model_type="qwen3_5_moe_text",
        num_hidden_layers=8,
        full_attention_interval=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=4,
        mamba_ssm_dtype="float32",
        num_experts=8,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        head_dim=16,
        partial_rotary_factor=0.25,
    )
    assert kinds(model) == {"gdn": 6, "full": 2}
    state = model.layers[0].state
    assert (state.key_heads, state.key_head_dim, state.value_heads, state.value_head_dim) == (2, 16, 4, 32)
    assert (state.conv_kernel, state.state_dtype) == (4, "float32")
    assert model.layers[3].attention.has_output_gate
    assert model.layers[0].attention is None
    assert model.layers[0].mlp.has_shared_gate
    assert model.rotary_dims == (4,)
    assert [layer.mixer for layer in model.mtp_layers] == [Mixer.FULL]


def test_nemotron_h_spells_its_layers():
    model = read(
        model_type="nemotron_h",
        hybrid_override_pattern="M-M*E",
        num_hidden_layers=5,
        mamba_num_heads=16,
        mamba_head_dim=8,
        n_groups=2,
        ssm_state_size=32,
        conv_kernel=4,
        n_routed_experts=4,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=64,
        n_shared_experts=1,
        moe_latent_size=16,
        num_nextn_predict_layers=1,
        mtp_hybrid_override_pattern="*E",
    )
    assert [layer.mixer.value for layer in model.layers] == ["mamba2", "none", "mamba2", "full", "none"]
    state = model.layers[0].state
    assert (state.value_heads, state.value_head_dim, state.key_heads, state.key_head_dim) == (16, 8, 2, 32)
    assert (state.inner_size, state.state_dtype) == (128, "float32")
    assert model.layers[0].mlp is None
    assert model.layers[3].mlp is None
    assert not model.layers[1].mlp.is_gated
    assert (model.layers[4].mlp.experts, model.layers[4].mlp.latent_size) == (4, 16)
    assert model.rotary_dims == ()
    assert [(layer.index, layer.mixer.value, layer.mlp is not None) for layer in model.mtp_layers] == [
        (5, "full", False),
        (6, "none", True),
    ]


def test_kimi_linear_counts_layers_from_one():
    model = read(
        **{**MLA, "model_type": "kimi_linear"},
        linear_attn_config={
            "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
            "num_heads": 8,
            "head_dim": 16,
            "short_conv_kernel_size": 4,
        },
    )
    assert [layer.mixer.value for layer in model.layers] == ["kda", "kda", "kda", "mla"]
    assert (model.layers[0].state.value_heads, model.layers[0].state.state_dtype) == (8, "float32")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 2},
            {"mamba2": 2, "full": 2},
        ),
        ({"model_type": "bamba", "attn_layer_indices": [1]}, {"mamba2": 3, "full": 1}),
        ({"model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 2}, {"mamba1": 3, "full": 1}),
        (
            {"model_type": "lfm2", "layer_types": ["conv", "conv", "full_attention", "conv"]},
            {"short_conv": 3, "full": 1},
        ),
        ({"model_type": "mamba2", "num_heads": 8, "state_size": 16}, {"mamba2": 4}),
        ({"model_type": "minimax", "attn_type_list": [0, 0, 0, 1]}, {"lightning": 3, "full": 1}),
        ({"model_type": "mllama", "cross_attention_layers": [1]}, {"full": 3, "cross": 1}),
        ({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1, 1, 0]}, {"full": 2, "sliding": 2}),
    ],
)
def test_hybrids(changes, expected):
    model = read(**changes)
    assert kinds(model) == expected
    for layer in model.layers:
        assert (layer.state is not None) == (
            layer.mixer.value in {"mamba1", "mamba2", "short_conv", "lightning"}
        )


def test_falcon_h1_has_attention_and_state_in_each_layer():
    model = read(model_type="falcon_h1", mamba_n_heads=8, mamba_d_head=16, mamba_d_state=32, mamba_d_ssm=128)
    assert all(layer.attention and layer.state for layer in model.layers)
    assert model.layers[0].state.inner_size == 128


def test_mimo_v2_windows_have_their_own_heads():
    model = read(
        model_type="mimo_v2_flash",
        hybrid_layer_pattern=[0, 1, 1, 0],
        head_dim=24,
        v_head_dim=16,
        swa_num_key_value_heads=4,
        swa_head_dim=24,
        swa_v_head_dim=16,
        sliding_window_size=128,
        attention_chunk_size=128,
        add_swa_attention_sink_bias=True,
    )
    full, window = model.layers[0].attention, model.layers[1].attention
    assert (full.kv_heads, full.head_dim, full.v_head_dim, full.window, full.has_sinks) == (
        2,
        24,
        16,
        None,
        False,
    )
    assert (window.kv_heads, window.window, window.has_sinks) == (4, 128, True)


def test_minimax_m3_sparse_layers_keep_an_index_beside():
    model = read(
        model_type="minimax_m3",
        moe_layer_freq=[0, 1, 1, 1],
        num_local_experts=4,
        dense_intermediate_size=256,
        shared_intermediate_size=96,
        sparse_attention_config={
            "sparse_attention_freq": [0, 1, 1, 1],
            "sparse_num_index_heads": 4,
            "sparse_index_dim": 128,
        },
    )
    assert [attention.owns_index_cache for attention in attentions(model)] == [False, True, True, True]
    assert attentions(model)[1].index_head_dim == 128
    assert model.layers[0].mlp.intermediate_size == 256
    assert model.layers[1].mlp.shared_intermediate_size == 96


def test_nas_blocks_without_attention_or_mlp():
    blocks = [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 6.0}},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 3.0}},
        {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
    ]
    model = read(
        model_type="nemotron-nas", block_configs=blocks, num_hidden_layers=3, num_key_value_heads=None
    )
    assert kinds(model) == {"full": 2, "none": 1}
    assert [attention.kv_heads for attention in attentions(model)] == [2, 1]
    assert [layer.mlp and layer.mlp.intermediate_size for layer in model.layers] == [256, 256, None]


def test_deepseek_v4_compresses_by_its_list():
    model = read(
        model_type="deepseek_v4",
        head_dim=512,
        num_key_value_heads=1,
        compress_ratios=[0, 4, 128, 4, 0],
        qk_rope_head_dim=64,
        q_lora_rank=32,
        o_lora_rank=16,
        o_groups=2,
        index_topk=64,
        index_n_heads=4,
        index_head_dim=128,
        num_nextn_predict_layers=1,
        sliding_window=128,
    )
    assert [attention.compress_ratio for attention in attentions(model)] == [0, 4, 128, 4]
    assert [attention.owns_index_cache for attention in attentions(model)] == [False, True, False, True]
    assert {attention.window for attention in attentions(model)} == {128}
    assert model.mtp_layers[0].attention.compress_ratio == 0


def test_glm_norms_its_heads_only_where_the_config_says_so():
    assert read(model_type="glm4_moe", use_qk_norm=True).layers[0].attention.qk_norm == "head"
    assert read(model_type="glm4_moe").layers[0].attention.qk_norm is None


def test_which_layers_have_experts():
    moe = {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32, "num_hidden_layers": 6}

    def pattern(**changes):
        return "".join("E" if layer.mlp.experts else "d" for layer in read(**moe, **changes).layers)

    assert pattern() == "EEEEEE"
    assert pattern(decoder_sparse_step=2) == "dEdEdE"
    assert pattern(mlp_only_layers=[0, 5]) == "dEEEEd"
    assert pattern(first_k_dense_replace=2) == "ddEEEE"
    assert pattern(moe_layer_freq=[0, 0, 1, 1, 0, 1]) == "ddEEdE"
    assert pattern(mlp_layer_types=["dense", *["sparse"] * 5]) == "dEEEEE"
    assert pattern(moe_layers_enum="1, 3") == "dEdEdd"
    assert pattern(expert_layer_period=3, expert_layer_offset=1) == "dEddEd"


def test_a_list_of_expert_counts_takes_the_largest():
    assert read(model_type="qwen3_moe", num_experts=[4, 16, 8]).layers[0].mlp.experts == 16


def test_tied_embeddings_may_be_told_at_the_top_only():
    text = {**PLAIN, "tie_word_embeddings": False}
    model = read_config({"text_config": text, "tie_word_embeddings": True}, name="m", source="s")
    assert model.is_tied


def test_the_vision_part_is_kept_and_the_language_part_read():
    config = {"model_type": "qwen3_vl", "text_config": PLAIN, "vision_config": {"depth": 2}}
    model = read_config(config, name="m", source="s")
    assert model.multimodal == {"vision_config": {"depth": 2}}
    assert len(model.layers) == 4


def test_mistrals_own_params_file():
    config = {
        "dim": 64,
        "n_layers": 2,
        "head_dim": 16,
        "hidden_dim": 128,
        "n_heads": 8,
        "n_kv_heads": 2,
        "vocab_size": 500,
        "moe": {"num_experts": 4, "num_experts_per_tok": 2, "expert_hidden_dim": 32, "num_shared_experts": 1},
    }
    model = read_config(config, name="m", source="s")
    assert (len(model.layers), model.layers[0].attention.kv_heads, model.layers[0].attention.head_dim) == (
        2,
        2,
        16,
    )
    assert (model.layers[0].mlp.experts, model.layers[0].mlp.shared_intermediate_size) == (4, 32)
    latent = {
        **config,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "kv_lora_rank": 512,
        "v_head_dim": 128,
    }
    assert kinds(read_config(latent, name="m", source="s")) == {"mla": 2}


def test_an_unknown_architecture_is_read_as_far_as_it_goes_and_says_so():
    model = read(model_type="brand_new", architectures=["BrandNewForCausalLM"])
    assert kinds(model) == {"full": 4}
    (finding,) = model.findings
    assert (finding.id, finding.severity) == ("model.architecture", Severity.UNKNOWN)
    assert "brand_new" in finding.summary
    latent = read(**{**MLA, "model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]})
    assert kinds(latent) == {"mla": 4}
    by_class = read(model_type="absent")
    assert (by_class.model_type, by_class.notes) == ("llama", ())


@pytest.mark.parametrize("needed", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_config_without_a_needed_field_is_refused_by_its_name(needed):
    words = {"num_hidden_layers": "layers", "hidden_size": "hidden size", "vocab_size": "vocabulary"}
    with pytest.raises(UsageError, match=f"no {words[needed]}"):
        read(**{needed: "absent"})


def test_layers_without_geometry_are_told():
    model = read(num_attention_heads="absent", num_key_value_heads="absent")
    assert model.layers[0].attention is None
    assert "no geometry" in model.notes[0]


def test_a_partial_config_is_completed_by_what_is_known_of_the_model():
    partial = {"architecture": "qwen2", "num_hidden_layers": 9, "max_position_embeddings": None}
    model = read_config(partial, name="m", source="s", known={**PLAIN, "tie_word_embeddings": True})
    assert len(model.layers) == 9
    assert model.hidden_size == 64
    assert model.max_position == 2048
    assert model.is_tied
    assert any("catalogue" in note and "hidden_size" in note for note in model.notes)


def test_a_whole_config_is_not_touched_by_what_is_known():
    known = {**PLAIN, "quantization_config": {"quant_method": "fp8"}, "sliding_window": 16}
    model = read_config({**PLAIN, "sliding_window": None}, name="m", source="s", known=known)
    assert model.quantization is None
    assert kinds(model) == {"full": 4}
    assert model.notes == ()


def test_gemma_3_as_it_is_published_leaves_its_vocabulary_to_the_class():
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {**text, "intermediate_size": 10240},
        "torch_dtype": "bfloat16",
    }
    model = read_config(config, name="m", source="s")
    assert (model.vocabulary, model.max_position) == (262208, 131072)
    assert kinds(model) == {"sliding": 29, "full": 5}
    assert (model.layers[0].attention.query_heads, model.layers[0].attention.kv_heads) == (8, 4)
    assert "vocab_size" in model.notes[0]


def test_longcat_has_two_attentions_in_each_block():
    model = read(
        **{**MLA, "model_type": "longcat_flash"},
        num_hidden_layers="absent",
        num_layers=3,
        ffn_hidden_size=96,
        moe_topk=2,
    )
    assert kinds(model) == {"mla": 6}
    assert [(layer.mlp.experts, layer.mlp.shared_intermediate_size) for layer in model.layers[:2]] == [
        (16, 96),
        (None, 0),
    ]


def test_bailing_ends_each_group_with_softmax_attention():
    model = read(**{**MLA, "model_type": "bailing_hybrid"}, layer_group_size=2)
    assert [layer.mixer.value for layer in model.layers] == ["lightning", "mla"] * 2


def test_a_note_names_a_few_fields_and_counts_the_rest():
    known = {**PLAIN, **{f"field_{number}": 1 for number in range(20)}}
    notes = read_config({"num_hidden_layers": 2}, name="m", source="s", known=known).notes
    assert notes[0].endswith("more")
    assert len(notes[0]) < 200


@pytest.mark.parametrize("layers", [10**9, 1e300])
def test_a_slip_in_the_number_of_layers_does_not_fill_the_memory(layers):
    with pytest.raises(UsageError, match="no model has"):
        read(num_hidden_layers=layers)


def test_what_the_family_assumes_is_told():
    model = read(model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], num_experts=4)
    assert any("defaults" in note and "linear_num_value_heads" in note for note in model.notes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 300) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *PLAIN,
                *MLA,
                "layer_types",
                "hybrid_override_pattern",
                "block_configs",
                "compress_ratios",
                "linear_attn_config",
                "sparse_attention_config",
                "quantization_config",
                "text_config",
                "rope_parameters",
                "sliding_window",
                "moe_layer_freq",
                "indexer_types",
            ]
        ),
        JSON,
    ),
    st.sampled_from(
        [
            "llama",
            "deepseek_v3",
            "deepseek_v4",
            "nemotron_h",
            "kimi_linear",
            "gemma4",
            "minimax_m3",
            "nemotron-nas",
        ]
    ),
)
def test_garbled_configs_are_read_or_refused_never_a_crash(changes, model_type):
    config = {**PLAIN, **changes, "model_type": model_type}
    try:
        model = read_config(config, name="m", source="s")
    except UsageError:
        return
    assert model.layers


# Read by eye off the configs: layers by kind, key-value heads, head size (MLA: latent + rope), experts,
# experts per token, number format, layers for speculative decoding.
FACTS = {
    "01-ai__Yi-34B": ({"full": 60}, 8, 128, 0, 0, None, 0),
    "MiniMaxAI__MiniMax-M2.5": ({"full": 62}, 8, 128, 256, 8, "fp8_block", 3),
    "MiniMaxAI__MiniMax-M3": ({"full": 60}, 4, 128, 128, 4, None, 1),
    "Qwen__QwQ-32B": ({"full": 64}, 8, 128, 0, 0, None, 0),
    "Qwen__Qwen2.5-7B-Instruct": ({"full": 28}, 4, 128, 0, 0, None, 0),
    "Qwen__Qwen3-0.6B": ({"full": 28}, 8, 128, 0, 0, None, 0),
    "Qwen__Qwen3-235B-A22B": ({"full": 94}, 4, 128, 128, 8, None, 0),
    "Qwen__Qwen3-30B-A3B-FP8": ({"full": 48}, 4, 128, 128, 8, "fp8_block", 0),
    "Qwen__Qwen3-32B-FP8-Static-PerTensor": ({"full": 64}, 8, 128, 0, 0, "fp8_tensor", 0),
    "Qwen__Qwen3-Coder-480B-A35B-Instruct": ({"full": 62}, 8, 128, 160, 8, None, 0),
    "Qwen__Qwen3-Next-80B-A3B-Instruct": ({"gdn": 36, "full": 12}, 2, 256, 512, 10, None, 1),
    "Qwen__Qwen3-VL-235B-A22B-Instruct": ({"full": 94}, 4, 128, 128, 8, None, 0),
    "Qwen__Qwen3.5-122B-A10B": ({"gdn": 36, "full": 12}, 2, 256, 256, 8, None, 1),
    "Qwen__Qwen3.5-27B": ({"gdn": 48, "full": 16}, 4, 256, 0, 0, None, 1),
    "Qwen__Qwen3.5-397B-A17B": ({"gdn": 45, "full": 15}, 2, 256, 512, 10, None, 1),
    "RedHatAI__Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": (
        {"chunked": 36, "full": 12},
        8,
        128,
        16,
        1,
        "fp8_channel",
        0,
    ),
    "RedHatAI__Qwen3-32B-NVFP4": ({"full": 64}, 8, 128, 0, 0, "nvfp4", 0),
    "RedHatAI__gemma-3-27b-it-FP8-dynamic": ({"sliding": 52, "full": 10}, 16, 128, 0, 0, "fp8_channel", 0),
    "XiaomiMiMo__MiMo-7B-Base": ({"full": 36}, 8, 128, 0, 0, None, 1),
    "XiaomiMiMo__MiMo-V2-Flash": ({"sliding": 39, "full": 9}, 4, 192, 256, 8, "fp8_block", 0),
    "deepseek-ai__DeepSeek-R1": ({"mla": 61}, 1, 576, 256, 8, "fp8_block", 1),
    "deepseek-ai__DeepSeek-V2-Lite": ({"mla": 27}, 1, 576, 64, 6, None, 0),
    "deepseek-ai__DeepSeek-V3.2": ({"mla": 61}, 1, 576, 256, 8, "fp8_block", 1),
    "deepseek-ai__DeepSeek-V4-Flash": ({"mla": 43}, 1, 512, 256, 6, "fp8_block", 1),
    "deepseek-ai__DeepSeek-V4-Pro": ({"mla": 61}, 1, 512, 384, 6, "fp8_block", 1),
    "google__gemma-4-26B-A4B": ({"sliding": 25, "full": 5}, 2, 512, 128, 8, None, 0),
    "ibm-granite__granite-4.2-3b": ({"full": 40}, 8, 64, 0, 0, None, 0),
    "meta-llama__Llama-4-Maverick-17B-128E-Instruct": ({"chunked": 36, "full": 12}, 8, 128, 128, 1, None, 0),
    "meta-llama__Meta-Llama-3.1-405B": ({"full": 126}, 8, 128, 0, 0, None, 0),
    "microsoft__phi-4": ({"full": 40}, 10, 128, 0, 0, None, 0),
    "mistralai__Mistral-Nemo-Instruct-2407": ({"full": 40}, 8, 128, 0, 0, None, 0),
    "mistralai__Mixtral-8x22B-v0.1": ({"full": 56}, 8, 128, 8, 2, None, 0),
    "moonshotai__Kimi-K2-Instruct": ({"mla": 61}, 1, 576, 384, 8, "fp8_block", 0),
    "moonshotai__Kimi-K2.5": ({"mla": 61}, 1, 576, 384, 8, "int4_group", 0),
    "moonshotai__Kimi-K3": ({"kda": 69, "mla": 24}, 1, 576, 896, 16, "mxfp4", 0),
    "nvidia__DeepSeek-V3.1-NVFP4": ({"mla": 61}, 1, 576, 256, 8, "nvfp4", 1),
    "nvidia__GLM-5.2-NVFP4": ({"mla": 78}, 1, 576, 256, 8, "nvfp4", 1),
    "nvidia__Gemma-4-31B-IT-NVFP4": ({"sliding": 50, "full": 10}, 4, 512, 0, 0, "nvfp4", 0),
    "nvidia__Kimi-K2.5-NVFP4": ({"mla": 61}, 1, 576, 384, 8, "nvfp4", 0),
    "nvidia__Llama-3.1-70B-Instruct-FP8": ({"full": 80}, 8, 128, 0, 0, "fp8_tensor", 0),
    "nvidia__Llama-3_3-Nemotron-Super-49B-v1": ({"full": 49, "none": 31}, 8, 128, 0, 0, None, 0),
    "nvidia__MiniMax-M2.5-NVFP4": ({"full": 62}, 8, 128, 256, 8, "nvfp4", 3),
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (
        {"mamba2": 23, "none": 23, "full": 6},
        2,
        128,
        128,
        6,
        None,
        0,
    ),
    "nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": (
        {"mamba2": 40, "none": 40, "full": 8},
        2,
        128,
        512,
        22,
        "nvfp4",
        2,
    ),
    "nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (
        {"mamba2": 48, "none": 48, "full": 12},
        2,
        128,
        512,
        22,
        None,
        2,
    ),
    "nvidia__Nemotron-H-56B-Base-8K": ({"mamba2": 54, "none": 54, "full": 10}, 8, 128, 0, 0, None, 0),
    "nvidia__Qwen3.6-27B-NVFP4": ({"gdn": 48, "full": 16}, 4, 256, 0, 0, "nvfp4", 1),
    "openai__gpt-oss-120b": ({"sliding": 18, "full": 18}, 8, 64, 128, 4, "mxfp4", 0),
    "openai__gpt-oss-20b": ({"sliding": 12, "full": 12}, 8, 64, 32, 4, "mxfp4", 0),
    "sgl-project__DeepSeek-V4-Flash-FP8": ({"mla": 43}, 1, 512, 256, 6, "fp8_block", 1),
    "stepfun-ai__Step-3.7-Flash-FP8": ({"full": 12, "sliding": 33}, 8, 128, 288, 8, "fp8_block", 3),
    "zai-org__GLM-4.5-Air": ({"full": 46}, 8, 128, 128, 8, None, 1),
    "zai-org__GLM-4.7-Flash": ({"mla": 47}, 1, 576, 64, 4, None, 1),
    "zai-org__GLM-5-FP8": ({"mla": 78}, 1, 576, 256, 8, "fp8_block", 1),
    "zai-org__GLM-Z1-32B-0414": ({"full": 61}, 2, 128, 0, 0, None, 0),
}


def stored(name):
    path = CONFIGS / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"no configs of published models beside the project ({CONFIGS})")
    content = json.loads(path.read_text(encoding="utf-8"))
    return read_config(
        content["config"], name=content["model"], source="data", quant_file=content.get("hf_quant_config")
    )


@pytest.mark.parametrize("name", sorted(FACTS))
def test_a_published_config_reads_as_it_looks(name):
    layers, heads, size, experts, per_token, scheme, extra = FACTS[name]
    model = stored(name)
    assert kinds(model) == layers
    last = attentions(model)[-1]
    width = last.head_dim
    if last.kv_lora_rank and last.compress_ratio is None:
        width = last.kv_lora_rank + last.qk_rope_head_dim
    assert (last.kv_heads, width) == (heads, size)
    moe = [layer.mlp for layer in model.layers if layer.mlp and layer.mlp.experts]
    assert ((moe[-1].experts, moe[-1].experts_per_token) if moe else (0, 0)) == (experts, per_token)
    assert (model.quantization.scheme if model.quantization else None) == scheme
    assert len(model.mtp_layers) == extra


def test_layers_that_keep_an_indexer_in_glm_5_2():
    owners = [layer.attention.owns_index_cache for layer in stored("nvidia__GLM-5.2-NVFP4").layers]
    assert owners[:11] == [True, True, True, False, False, False, True, False, False, False, True]
    assert sum(owners) == 21
