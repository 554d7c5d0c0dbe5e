"""What a family of models is built like where its config.json does not say: data, one row per model type.

`assumed` holds what the library's own config class fills in for a missing field.
Source of `assumed`: transformers 5.19.0, the configuration class of the model type; vLLM 0.33.0,
`transformers_utils/configs/`, for types it has alone. Source of the rest: vLLM 0.33.0,
`model_executor/models/`, the class that `registry.py` names for the architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bringup.parse.json_value import Json
from bringup.values.model import Mixer


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the layers of one model type are made, beyond what its config says."""

    architecture: str
    is_mla: bool = False
    linear: Mixer = Mixer.GDN  # what a layer kind "linear_attention" or "mamba" means
    has_qkv_bias: bool | None = None  # None: as the config says, without a word none
    has_output_bias: bool | None = None  # None: as `attention_bias`
    qk_norm: str | None = None
    has_output_gate: bool = False
    has_sinks: bool = False
    norm_count: int = 2
    is_gated: bool = True
    has_mlp_bias: bool = False
    has_correction_bias: bool = False
    router_dtype: str | None = None
    has_shared_gate: bool = False
    is_tied: bool = False
    has_rope: bool = True
    state_dtype: str | None = None
    assumed: Mapping[str, Json] = field(default_factory=dict[str, Json])


_DEEPSEEK_V3: Mapping[str, Json] = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "intermediate_size": 18432,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 1,
}
_DEEPSEEK_V3_INDEXER: Mapping[str, Json] = {
    **_DEEPSEEK_V3,
    "index_topk": 2048,
    "index_n_heads": 64,
    "index_head_dim": 128,
}
_GDN: Mapping[str, Json] = {
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
}
# As the released Qwen3.8-Flash-Next has it; the rest are the defaults of vLLM 0.30.0, `qwen4_exp/config.py`.
_QWEN4_EXP: Mapping[str, Json] = {
    **_GDN,
    "linear_num_value_heads": 48,
    "mtp_num_hidden_layers": 1,
    "indexer_head_dim": 128,
    "indexer_compress_ratio": 4,
    "ple_layer_ids": [2],
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "hc_count": 4,
}
_QWEN3_5: Mapping[str, Json] = {**_GDN, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(architecture="LlamaForCausalLM"),
    "mistral": Family(architecture="MistralForCausalLM", has_qkv_bias=False),
    "mistral3": Family(architecture="Mistral3ForConditionalGeneration", has_qkv_bias=False),
    "ministral3": Family(architecture="Ministral3ForCausalLM", has_qkv_bias=False),
    "mixtral": Family(
        architecture="MixtralForCausalLM", has_qkv_bias=False, assumed={"num_experts_per_tok": 2}
    ),
    "llama4": Family(
        architecture="Llama4ForConditionalGeneration",
        assumed={"attention_chunk_size": 8192, "no_rope_layer_interval": 4, "interleave_moe_layer_step": 1},
    ),
    "mllama": Family(
        architecture="MllamaForConditionalGeneration",
        assumed={"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    ),
    "qwen2": Family(architecture="Qwen2ForCausalLM", has_qkv_bias=True, has_output_bias=False),
    "dots_ocr": Family(architecture="DotsOCRForCausalLM", has_qkv_bias=True, has_output_bias=False),
    "qwen2_moe": Family(
        architecture="Qwen2MoeForCausalLM",
        has_qkv_bias=True,
        has_output_bias=False,
        has_shared_gate=True,
        assumed={"decoder_sparse_step": 1},
    ),
    "qwen2_vl": Family(
        architecture="Qwen2VLForConditionalGeneration", has_qkv_bias=True, has_output_bias=False
    ),
    "qwen2_5_vl": Family(
        architecture="Qwen2_5_VLForConditionalGeneration", has_qkv_bias=True, has_output_bias=False
    ),
    "qwen3": Family(
        architecture="Qwen3ForCausalLM", qk_norm="head", has_output_bias=False, assumed={"head_dim": 128}
    ),
    "qwen3_vl": Family(
        architecture="Qwen3VLForConditionalGeneration",
        qk_norm="head",
        has_output_bias=False,
        assumed={"head_dim": 128},
    ),
    "qwen3_moe": Family(
        architecture="Qwen3MoeForCausalLM",
        qk_norm="head",
        has_output_bias=False,
        assumed={"decoder_sparse_step": 1},
    ),
    "qwen3_vl_moe": Family(
        architecture="Qwen3VLMoeForConditionalGeneration",
        qk_norm="head",
        has_output_bias=False,
        assumed={"decoder_sparse_step": 1},
    ),
    "qwen3_next": Family(
        architecture="Qwen3NextForCausalLM",
        qk_norm="head",
        has_output_bias=False,
        has_output_gate=True,
        has_shared_gate=True,
        assumed={**_GDN, "decoder_sparse_step": 1, "num_nextn_predict_layers": 1},
    ),
    "qwen3_5": Family(
        architecture="Qwen3_5ForConditionalGeneration",
        qk_norm="head",
        has_output_bias=False,
        has_output_gate=True,
        assumed=_QWEN3_5,
    ),
    "qwen3_5_moe": Family(
        architecture="Qwen3_5MoeForConditionalGeneration",
        qk_norm="head",
        has_output_bias=False,
        has_output_gate=True,
        has_shared_gate=True,
        assumed=_QWEN3_5,
    ),
    "qwen4_exp": Family(
        architecture="Qwen4ExpForConditionalGeneration",
        qk_norm="head",
        has_output_bias=False,
        has_output_gate=True,
        has_shared_gate=True,
        assumed=_QWEN4_EXP,
    ),
    "deepseek_v2": Family(
        architecture="DeepseekV2ForCausalLM",
        is_mla=True,
        assumed={
            **_DEEPSEEK_V3,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
            "num_nextn_predict_layers": 0,
        },
    ),
    "deepseek_v3": Family(
        architecture="DeepseekV3ForCausalLM", is_mla=True, has_correction_bias=True, assumed=_DEEPSEEK_V3
    ),
    "deepseek_v32": Family(
        architecture="DeepseekV32ForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        assumed=_DEEPSEEK_V3_INDEXER,
    ),
    "deepseek_v4": Family(
        architecture="DeepseekV4ForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        has_sinks=True,
        assumed={"sliding_window": 128, "qk_rope_head_dim": 64, "head_dim": 512, "moe_layer_freq": 1},
    ),
    "kimi_k2": Family(
        architecture="DeepseekV3ForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        assumed={**_DEEPSEEK_V3, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0},
    ),
    "kimi_linear": Family(
        architecture="KimiLinearForCausalLM",
        is_mla=True,
        linear=Mixer.KDA,
        has_correction_bias=True,
        has_rope=False,
        state_dtype="float32",
        assumed={
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "intermediate_size": 9216,
            "first_k_dense_replace": 1,
            "num_shared_experts": 1,
        },
    ),
    "mistral4": Family(
        architecture="Mistral4ForCausalLM",
        is_mla=True,
        assumed={
            "kv_lora_rank": 256,
            "q_lora_rank": 1024,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_shared_experts": 1,
        },
    ),
    "pangu_ultra_moe": Family(architecture="PanguUltraMoEForCausalLM", is_mla=True, norm_count=4),
    "axk1": Family(architecture="AXK1ForCausalLM", is_mla=True, has_correction_bias=True),
    "bailing_hybrid": Family(
        architecture="BailingMoeV2_5ForCausalLM",
        is_mla=True,
        linear=Mixer.LIGHTNING,
        has_correction_bias=True,
        assumed={"layer_group_size": 1},
    ),
    "longcat_flash": Family(
        architecture="LongcatFlashForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        assumed={
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
    ),
    "olmo_hybrid": Family(
        architecture="OlmoHybridForCausalLM",
        qk_norm="layer",
        has_rope=False,
        assumed={"linear_conv_kernel_dim": 4},
    ),
    "afmoe": Family(
        architecture="AfmoeForCausalLM",
        qk_norm="head",
        norm_count=4,
        has_correction_bias=True,
        assumed={"sliding_window": 1024, "sliding_window_pattern": 4},
    ),
    "glm4": Family(
        architecture="Glm4ForCausalLM",
        has_output_bias=False,
        norm_count=4,
        assumed={"attention_bias": False, "partial_rotary_factor": 0.5},
    ),
    "glm4_moe": Family(
        architecture="Glm4MoeForCausalLM",
        has_output_bias=False,
        has_correction_bias=True,
        router_dtype="float32",
        assumed={
            "attention_bias": True,  # every released model; the class says False
            "first_k_dense_replace": 1,
            "intermediate_size": 10944,
            "n_shared_experts": 1,
            "num_nextn_predict_layers": 1,
            "partial_rotary_factor": 0.5,
        },
    ),
    "glm4_moe_lite": Family(
        architecture="Glm4MoeLiteForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        router_dtype="float32",
        assumed={
            "kv_lora_rank": 512,
            "q_lora_rank": 768,
            "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "first_k_dense_replace": 1,
            "intermediate_size": 10240,
            "n_shared_experts": 1,
            "num_nextn_predict_layers": 1,
        },
    ),
    "glm_moe_dsa": Family(
        architecture="GlmMoeDsaForCausalLM",
        is_mla=True,
        has_correction_bias=True,
        assumed={
            **_DEEPSEEK_V3_INDEXER,
            "index_n_heads": 32,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "q_lora_rank": 2048,
            "intermediate_size": 12288,
        },
    ),
    "minimax_m2": Family(
        architecture="MiniMaxM2ForCausalLM",
        qk_norm="layer",
        has_correction_bias=True,
        router_dtype="float32",
    ),
    "minimax_m3": Family(
        architecture="MiniMaxM3SparseForCausalLM",
        qk_norm="head",
        has_correction_bias=True,
        router_dtype="float32",
    ),
    "gpt_oss": Family(
        architecture="GptOssForCausalLM",
        has_sinks=True,
        has_mlp_bias=True,
        assumed={"attention_bias": True, "head_dim": 64, "sliding_window": 128},
    ),
    "gemma": Family(architecture="GemmaForCausalLM", is_tied=True, assumed={"head_dim": 256}),
    "gemma2": Family(
        architecture="Gemma2ForCausalLM",
        norm_count=4,
        is_tied=True,
        assumed={
            "vocab_size": 256000,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 8192,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
        },
    ),
    "gemma3": Family(
        architecture="Gemma3ForConditionalGeneration",
        norm_count=4,
        is_tied=True,
        qk_norm="head",
        assumed={
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
        },
    ),
    "gemma3n": Family(
        architecture="Gemma3nForConditionalGeneration",
        norm_count=4,
        is_tied=True,
        qk_norm="head",
        assumed={
            "vocab_size": 262400,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "sliding_window": 512,
            "sliding_window_pattern": 5,
            "num_kv_shared_layers": 15,
        },
    ),
    "gemma4": Family(
        architecture="Gemma4ForConditionalGeneration",
        norm_count=4,
        is_tied=True,
        qk_norm="head",
        assumed={
            "vocab_size": 262144,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "max_position_embeddings": 131072,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
        },
    ),
    "phi3": Family(architecture="Phi3ForCausalLM", has_qkv_bias=False),
    "phimoe": Family(architecture="PhiMoEForCausalLM"),
    "granite": Family(architecture="GraniteForCausalLM"),
    "granitemoehybrid": Family(
        architecture="GraniteMoeHybridForCausalLM", linear=Mixer.MAMBA2, has_rope=False
    ),
    "bamba": Family(architecture="BambaForCausalLM", linear=Mixer.MAMBA2),
    "falcon_h1": Family(architecture="FalconH1ForCausalLM", linear=Mixer.MAMBA2),
    "jamba": Family(architecture="JambaForCausalLM", linear=Mixer.MAMBA1, has_rope=False),
    "zamba2": Family(architecture="Zamba2ForCausalLM", linear=Mixer.MAMBA2),
    "mamba": Family(architecture="MambaForCausalLM", linear=Mixer.MAMBA1, is_tied=True, norm_count=1),
    "mamba2": Family(architecture="Mamba2ForCausalLM", linear=Mixer.MAMBA2, norm_count=1),
    "lfm2": Family(architecture="Lfm2ForCausalLM", linear=Mixer.SHORT_CONV, qk_norm="head", is_tied=True),
    "lfm2_moe": Family(
        architecture="Lfm2MoeForCausalLM", linear=Mixer.SHORT_CONV, qk_norm="head", is_tied=True
    ),
    "nemotron_h": Family(
        architecture="NemotronHForCausalLM",
        linear=Mixer.MAMBA2,
        norm_count=1,
        is_gated=False,
        has_correction_bias=True,
        has_rope=False,
        state_dtype="float32",
    ),
    "nemotron-nas": Family(architecture="DeciLMForCausalLM"),
    "minimax": Family(architecture="MiniMaxText01ForCausalLM", linear=Mixer.LIGHTNING),
    "cohere": Family(architecture="CohereForCausalLM", norm_count=1, is_tied=True),
    "cohere2": Family(
        architecture="Cohere2ForCausalLM",
        norm_count=1,
        is_tied=True,
        assumed={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "olmo2": Family(architecture="Olmo2ForCausalLM", qk_norm="layer"),
    "olmo3": Family(
        architecture="Olmo3ForCausalLM",
        qk_norm="layer",
        assumed={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "exaone4": Family(
        architecture="Exaone4ForCausalLM",
        qk_norm="head",
        assumed={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "mimo": Family(architecture="MiMoForCausalLM", has_output_bias=False),
    "mimo_v2_flash": Family(
        architecture="MiMoV2FlashForCausalLM", has_output_bias=False, has_correction_bias=True
    ),
    "step3p5": Family(architecture="Step3p5ForCausalLM", qk_norm="head", has_correction_bias=True),
    "laguna": Family(
        architecture="LagunaForCausalLM",
        qk_norm="head",
        has_correction_bias=True,
        assumed={"sliding_window": 512, "sliding_window_pattern": 4},
    ),
    "falcon": Family(architecture="FalconForCausalLM", is_gated=False, is_tied=True),
    "dbrx": Family(architecture="DbrxForCausalLM"),
    "whisper": Family(
        architecture="WhisperForConditionalGeneration",
        is_gated=False,
        has_qkv_bias=True,
        has_output_bias=True,
        has_mlp_bias=True,
        is_tied=True,
        norm_count=3,
    ),
    "seed_oss": Family(architecture="SeedOssForCausalLM", has_output_bias=False),
    "smollm3": Family(architecture="SmolLM3ForCausalLM", is_tied=True),
    "starcoder2": Family(
        architecture="Starcoder2ForCausalLM", is_gated=False, has_qkv_bias=True, has_output_bias=True
    ),
    "ernie4_5": Family(architecture="Ernie4_5ForCausalLM", is_tied=True),
    "ernie4_5_moe": Family(
        architecture="Ernie4_5_MoeForCausalLM", has_correction_bias=True, router_dtype="float32"
    ),
    "hunyuan_v1_dense": Family(architecture="HunYuanDenseV1ForCausalLM", qk_norm="head"),
    "hunyuan_v1_moe": Family(architecture="HunYuanMoEV1ForCausalLM", qk_norm="head"),
    "dots1": Family(architecture="Dots1ForCausalLM", qk_norm="head", has_correction_bias=True),
}

# Other words for the same: wrappers around a language part, class names, a file's own words.
SAME: Mapping[str, str] = {
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "gemma4_unified": "gemma4",
    "minimax_m3_vl": "minimax_m3",
    "deepseek_ref": "deepseek_v4",
    "step3p7": "step3p5",
    "nemotron_h_puzzle": "nemotron_h",
    "deepseek_v41": "deepseek_v4",
    "granitemoe": "granite",
    "granitemoeshared": "granite",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "mimo_v2": "mimo_v2_flash",
    "bailing_moe_linear": "bailing_hybrid",
    "bailing_moe_v2_5": "bailing_hybrid",
    "longcat_flash_ngram": "longcat_flash",
    "mistral_large_3": "deepseek_v3",
}
