"""What SGLang keeps: bytes per token, and how the bytes left are cut into pools of tokens and states.

Source: SGLang 0.5.23 with 0.5.12, 0.5.9 and 0.5.5, `srt/model_executor/` (`pool_configurator.py`,
`model_runner_kv_cache_mixin.py`) and `srt/mem_cache/memory_pool.py`.
"""

from dataclasses import dataclass

from bringup.planner.kv_formats import capability_major, element_bytes
from bringup.planner.kv_states import state_bytes
from bringup.planner.kv_versions import Version
from bringup.values.model import Layer, LinearState, Mixer, ModelSpec
from bringup.values.plan import Layout

_NEWEST: Version = (0, 5, 23)
_WINDOW_SHARE = 0.8  # --swa-full-tokens-ratio
_STATE_RATIO = 0.9  # --mamba-full-memory-ratio: states to tokens
_PACKED_LATENT = 656  # bytes: 512 values of eight bits with 4 float32 scales, 64 rotary ones in bfloat16

# What the eight-bit latent of a sparse model is kept as: the TRT-LLM back ends take it plain.
_PLAIN_BACKENDS = ("trtllm", "trtllm_mla")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules:
    """SGLang's settings as far as they decide the pools. None: the version's own default."""

    version: Version | None = None  # None: the newest known
    cache_dtype: str = "auto"
    attention_data_parallel: int = 1  # replicas inside the tensor-parallel group
    compute_capability: str | None = None
    attention_backend: str | None = None
    page_tokens: int = 1  # --page-size
    window_share: float | None = None  # --swa-full-tokens-ratio
    has_window_pool: bool = True  # off with --disable-hybrid-swa-memory
    state_ratio: float | None = None  # --mamba-full-memory-ratio
    state_dtype: str | None = None  # --mamba-ssm-dtype
    state_slots: int | None = None  # --max-mamba-cache-size
    max_total_tokens: int | None = None  # --max-total-tokens
    draft_layers: int = 0  # layers that draft, whose cache has the same slots
    draft_tokens: int = 0  # each keeps a state of its own until it is accepted
    states_per_request: int = 1
    running: int | None = None  # --max-running-requests


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangPools:
    """The pools of one rank."""

    cache_dtype: str
    tokens: int  # max_total_num_tokens
    token_bytes: float  # of one token in all pools that grow with requests
    kv_bytes: int
    window_tokens: int = 0
    state_slots: int = 0
    slot_bytes: int = 0
    state_bytes: int = 0


def sglang_cache_dtype(model: ModelSpec, rules: SglangRules) -> str:
    """The format of the pool: the flag's, else the checkpoint's, else the model's own."""
    if rules.cache_dtype != "auto":
        return rules.cache_dtype
    major = capability_major(rules.compute_capability)
    if _is_sparse(model):
        return "fp8_e4m3" if major >= 10 else "bfloat16"
    return (model.quantization.kv_cache if model.quantization else None) or model.dtype


def sglang_token_bytes(model: ModelSpec, layout: Layout, rules: SglangRules) -> float:
    """Bytes that one token takes on one rank, over the layers of the first pipeline stage.

    Qwen3-32B over four ranks:

    >>> from bringup.values.model import Attention
    >>> heads = Attention(query_heads=64, kv_heads=8, head_dim=128, v_head_dim=128)
    >>> layers = tuple(Layer(index=n, mixer=Mixer.FULL, attention=heads) for n in range(64))
    >>> model = ModelSpec(name="", architecture="", model_type="qwen3", layers=layers, hidden_size=5120,
    ...                   vocabulary=151936)
    >>> sglang_token_bytes(model, Layout(tensor_parallel=4), SglangRules())
    65536.0
    """
    full, window = _layer_sums(model, layout, rules)
    share = _window_share(rules) if window and full and rules.has_window_pool else 1.0
    return (full + share * window) * _draft_factor(model, rules)


def sglang_pools(model: ModelSpec, layout: Layout, rules: SglangRules, available: int) -> SglangPools:
    """How `available` bytes are cut: states first, then tokens; a window pool beside the full one."""
    slot = _slot_bytes(model, layout, rules)
    slots = _state_slots(slot, rules, available)
    # One more of both kinds than can be used, for padding.
    states = (slots + 1 + _draft_states(slots, rules)) * slot if slot else 0
    rate = sglang_token_bytes(model, layout, rules)
    tokens = _whole_pages(max(0, available - states) / rate, rules) if rate else 0
    if rules.max_total_tokens is not None:
        tokens = min(tokens, rules.max_total_tokens)
    full, window = _layer_sums(model, layout, rules)
    has_two = bool(full and window and rules.has_window_pool)
    return SglangPools(
        cache_dtype=sglang_cache_dtype(model, rules),
        tokens=tokens,
        token_bytes=rate,
        kv_bytes=round(tokens * rate),
        window_tokens=_whole_pages(tokens * _window_share(rules), rules) if has_two else 0,
        state_slots=slots,
        slot_bytes=slot,
        state_bytes=states,
    )


def _state_slots(slot: int, rules: SglangRules, available: int) -> int:
    if not slot:
        return 0
    if rules.state_slots is not None:
        return rules.state_slots // rules.attention_data_parallel
    ratio = _STATE_RATIO if rules.state_ratio is None else rules.state_ratio
    share, drafts = ratio / (1 + ratio), rules.draft_tokens
    if not _is_new(rules):  # no padding; the states of drafts come before
        return max(0, int((available - _draft_states(0, rules) * slot) * share) // slot)
    # Source: SGLang 0.5.23 `kv_cache_configurator.py`: states and those of drafts out of one budget.
    budget = available * share - slot * (1 + drafts)
    return max(0, int(budget // (slot * (1 + drafts / rules.states_per_request))))


def _draft_states(slots: int, rules: SglangRules) -> int:
    """States that the tokens of drafts need beside, over all requests that may run."""
    if not rules.draft_tokens:
        return 0
    if not _is_new(rules):
        return (rules.running or 0) * rules.draft_tokens
    if not slots:
        return 0  # it does not start
    most = slots // rules.states_per_request
    return (min(most, rules.running or most) + 1) * rules.draft_tokens


def _is_new(rules: SglangRules) -> bool:
    """Rules that 0.5.23 has and 0.5.12 has not; the versions between were not read."""
    return (rules.version or _NEWEST) >= (0, 5, 13)


def _slot_bytes(model: ModelSpec, layout: Layout, rules: SglangRules) -> int:
    """Bytes of one request's state over all recurrent layers."""
    return sum(
        _state_layer(layer, layer.state, _ranks(layout, rules), rules)
        for layer in model.layers
        if layer.state is not None
    )


def _state_layer(layer: Layer, state: LinearState, ranks: int, rules: SglangRules) -> int:
    return state_bytes(
        layer.mixer,
        state,
        tp=ranks,
        convolution_dtype="bfloat16",  # SGLANG_MAMBA_CONV_DTYPE
        state_dtype=rules.state_dtype or state.state_dtype or "float32",
    ).total


def _whole_pages(tokens: float, rules: SglangRules) -> int:
    return int(tokens) // rules.page_tokens * rules.page_tokens


def _window_share(rules: SglangRules) -> float:
    return _WINDOW_SHARE if rules.window_share is None else rules.window_share


def _draft_factor(model: ModelSpec, rules: SglangRules) -> float:
    """Drafting layers take the same slots. Up to 0.5.12 their cache came out of the reserve."""
    growing = sum(layer.attention is not None for layer in model.layers)
    return 1 + rules.draft_layers / growing if _is_new(rules) and growing else 1.0


def _ranks(layout: Layout, rules: SglangRules) -> int:
    return max(1, layout.tensor_parallel // rules.attention_data_parallel)


def _layer_sums(model: ModelSpec, layout: Layout, rules: SglangRules) -> tuple[int, int]:
    """Bytes per token of the layers that keep everything, and of those that keep a window."""
    dtype, ranks = sglang_cache_dtype(model, rules), _ranks(layout, rules)
    stage = -(-len(model.layers) // layout.pipeline_parallel)
    full = window = 0
    for layer in model.layers[:stage]:
        if layer.mixer is Mixer.SLIDING:
            window += _layer_bytes(layer, dtype, ranks, rules)
        else:
            full += _layer_bytes(layer, dtype, ranks, rules)
    return full, window


def _is_sparse(model: ModelSpec) -> bool:
    return any(
        layer.mixer is Mixer.MLA and layer.attention is not None and layer.attention.index_heads
        for layer in model.layers
    )


def _layer_bytes(layer: Layer, dtype: str, ranks: int, rules: SglangRules) -> int:
    attention = layer.attention
    if attention is None or attention.shares_kv or layer.mixer is Mixer.NONE:
        return 0
    if layer.mixer is not Mixer.MLA:
        heads = max(1, attention.kv_heads // ranks)
        return heads * _head_bytes(attention.head_dim + attention.v_head_dim, dtype)
    latent = (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)
    if not attention.index_heads:
        return _head_bytes(latent, dtype)
    size = attention.index_head_dim or 0
    is_packed = dtype.startswith("fp8") and (rules.attention_backend or "") not in _PLAIN_BACKENDS
    main = _PACKED_LATENT if is_packed else latent * element_bytes(dtype)
    # 0.5.23 leaves out layers that take a neighbour's choice of tokens; before, each layer had its index.
    # Up to 0.5.3 the index was made and not counted: 0.5.4 is the first that counts it (SGLang #11309).
    version = rules.version or _NEWEST
    owns = attention.owns_index_cache or version < (0, 5, 23)
    return main + (size + size // 128 * 4 if owns and version >= (0, 5, 4) else 0)


def _head_bytes(values: int, dtype: str) -> int:
    """Bytes of `values` values of one token: of four bits with a scale for 16, of MXFP8 with one for 32.

    >>> [_head_bytes(256, dtype) for dtype in ("bfloat16", "fp8_e4m3", "mxfp8", "nvfp4")]
    [512, 256, 264, 144]
    """
    if dtype.startswith(("fp4", "nvfp4")):
        return values // 2 + values // 16
    if dtype == "mxfp8":
        return values + values // 32
    return values * element_bytes(dtype)
