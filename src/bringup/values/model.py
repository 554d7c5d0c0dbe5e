"""What a model is made of: its layers, its tensors, its number formats. Facts, never fetched here."""

from dataclasses import dataclass, field
from enum import StrEnum

from bringup.values.finding import Finding


class Mixer(StrEnum):
    """What mixes tokens in one decoder layer, and so what it keeps per token or per request."""

    FULL = "full"  # MHA, GQA, MQA
    SLIDING = "sliding"  # the same within a window
    CHUNKED = "chunked"  # the same within a chunk
    MLA = "mla"  # one latent per token
    CROSS = "cross"  # keys and values of an encoder
    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GDN = "gdn"  # gated delta net
    KDA = "kda"  # Kimi delta attention
    LIGHTNING = "lightning"
    SHORT_CONV = "short_conv"
    NONE = "none"  # a layer without (only an MLP, or skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Geometry of softmax attention in one layer, over all ranks."""

    query_heads: int
    kv_heads: int
    head_dim: int  # of queries and keys
    v_head_dim: int
    window: int | None = None  # tokens; of SLIDING and CHUNKED
    has_bias: bool = False  # of q, k, v
    has_output_bias: bool = False
    has_output_gate: bool = False  # q_proj twice as wide (Qwen3-Next, Qwen3.5)
    has_sinks: bool = False
    qk_norm: str | None = None  # "head", "layer" (over all heads: sharded), None
    shares_kv: bool = False  # takes another layer's KV: none stored, no k and v weights
    # MLA
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    # sparse attention
    index_heads: int | None = None  # None: no indexer in the model
    index_head_dim: int | None = None
    owns_index_cache: bool = False  # whether this layer keeps an indexer cache of its own
    index_ratio: int | None = None  # Qwen4-Exp: tokens for one key of the index
    compress_ratio: int | None = None  # DeepSeek-V4: 0, 4, 128
    o_lora_rank: int | None = None  # DeepSeek-V4: the output projection in two steps
    o_groups: int | None = None
    v_is_k: bool = False  # the file has no v_proj: the engine stores k's weights twice (Gemma-4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearState:
    """Geometry of a recurrent layer, over all ranks. Source: vllm-memory notes, state sizes."""

    key_heads: int = 0  # groups (Mamba2)
    key_head_dim: int = 0  # state size (Mamba2)
    value_heads: int = 0  # heads (Mamba2)
    value_head_dim: int = 0  # head size (Mamba2)
    conv_kernel: int = 0
    inner_size: int = 0  # Mamba1 d_inner, short convolution width
    state_dtype: str | None = None  # what the model's config asks for; None: the model's own dtype
    dt_rank: int = 0  # Mamba1
    chunk: int | None = None  # tokens of one step of the scan (Mamba2)
    has_bias: bool = False  # of the projections in and out
    has_conv_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """The feed-forward part of one layer, over all ranks."""

    intermediate_size: int  # of a dense MLP, or of one expert
    is_gated: bool = True  # gate and up beside down
    has_bias: bool = False
    experts: int | None = None  # None: dense
    experts_per_token: int = 0
    shared_intermediate_size: int = 0  # all shared experts together
    has_shared_gate: bool = False
    has_correction_bias: bool = False
    router_dtype: str | None = None  # "float32" where the router is kept so
    latent_size: int | None = None  # experts work in a smaller space (Nemotron-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer. `mixer` decides which of `attention` and `state` is given; FalconH1 has both."""

    index: int
    mixer: Mixer
    attention: Attention | None = None
    state: LinearState | None = None
    side_state: LinearState | None = None  # Qwen4-Exp: a convolution besides, whole on every rank
    mlp: Mlp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """The number format of the weights, as the config tells it."""

    scheme: str  # "fp8_block", "fp8_tensor", "fp8_channel", "mxfp8", "nvfp4", "mxfp4", "int4_group", "int8"
    method: str  # the config's own word: "fp8", "modelopt", "compressed-tensors", "gptq", "awq", "mxfp4"
    group_size: int | None = None
    block: tuple[int, int] | None = None  # rows, columns of one scale
    is_symmetric: bool = True
    is_dynamic: bool = True  # activation scales: none stored
    ignored: tuple[str, ...] = ()  # module names or `re:` patterns that stay unquantised
    kv_cache: str | None = None  # "fp8", "nvfp4": what `auto` becomes
    has_act_order: bool = False
    targets: tuple[str, ...] = ()  # modules it is for; empty: every linear layer that is not ignored
    others: tuple["Quantization", ...] = ()  # more formats in the same files, each with its own targets
    is_list_cut: bool = False  # `ignored` was shortened by whoever stored it: some layers stand for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One stored tensor. `bytes` is what its header says, or shape x element where it was built."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # safetensors words: "BF16", "F8_E4M3", "U8", "F32", "I32"
    bytes: int
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as its config describes it. What the config does not say is None and told in `notes`."""

    name: str
    architecture: str
    model_type: str
    layers: tuple[Layer, ...]
    hidden_size: int
    vocabulary: int
    dtype: str = "bfloat16"
    is_tied: bool = False  # the head is the embedding
    max_position: int | None = None
    rotary_dims: tuple[int, ...] = ()  # one per distinct rope
    quantization: Quantization | None = None
    mtp_layers: tuple[Layer, ...] = ()  # only loaded for speculative decoding
    encoder_tokens: int | None = None  # longest encoder input (Whisper: 1500)
    multimodal: dict[str, object] = field(default_factory=dict[str, object])  # vision or audio config, raw
    norm_count: int = 2  # RMS norms per layer over hidden_size
    config: dict[str, object] = field(default_factory=dict[str, object])  # raw: what only one family needs
    tensors: tuple[Tensor, ...] = ()  # from headers; empty: to be built from the layers
    origin: str = "config"  # "headers", "config", "catalogue"
    parameters: int | None = None  # as published
    missing_parameters: int = 0  # of these its config does not describe; less than 0: it describes too many
    source: str = ""  # where the config came from
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # what is wrong with the files

    def __hash__(self) -> int:
        """A hash of what mostly differs, so that pure functions of a model can be remembered.

        Like all records a model is never changed, its mappings included; equality compares everything.
        """
        return hash((self.name, self.architecture, self.source, len(self.tensors)))
