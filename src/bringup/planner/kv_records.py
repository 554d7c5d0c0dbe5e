"""What the KV planner works with: the rules that hold, what one layer keeps, how layers are grouped."""

from dataclasses import dataclass
from enum import StrEnum

from bringup.planner.kv_versions import NEWEST, Version
from bringup.values.model import Layer


class UngroupableError(ValueError):
    """Layers that this version cannot give block tables of one size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRules:
    """The engine's settings as far as they decide the KV cache. None: the version's own default."""

    version: Version = NEWEST
    cache_dtype: str = "auto"
    block_tokens: int | None = None  # --block-size
    max_num_batched_tokens: int = 8192
    max_num_seqs: int | None = None
    has_prefix_caching: bool | None = None
    has_async_scheduling: bool | None = None  # None: on, where the version has it
    has_hybrid_manager: bool = True  # off: windows are kept as if they were full attention
    speculative_tokens: int = 0
    loads_mtp: bool = False  # the model's own MTP layers draft
    mamba_mode: str | None = None  # "none", "align", "all"
    mamba_dtype: str | None = None  # --mamba-cache-dtype
    mamba_state_dtype: str | None = None  # --mamba-ssm-cache-dtype
    compute_capability: str | None = None  # of the GPU: "9.0", "10.0", "12.0"
    attention_backend: str | None = None  # --attention-backend
    skip_layers: tuple[str, ...] = ()  # --kv-cache-dtype-skip-layers
    blocks_override: int | None = None  # --num-gpu-blocks-override
    stage_layers: tuple[int, ...] = ()  # VLLM_PP_LAYER_PARTITION
    has_graphs: bool = True  # off with --enforce-eager
    keeps_latent: bool = True  # off with VLLM_MLA_DISABLE: keys and values of every head instead
    draft_layers: tuple[Layer, ...] = ()  # of a draft model of its own
    packs_layers: bool | None = None  # VLLM_KV_CACHE_LAYOUT with blocks outermost; None: as the model needs


class CacheKind(StrEnum):
    """How what a layer keeps grows with a request."""

    FULL = "full"  # with its length
    MLA = "mla"  # the same, one latent
    SLIDING = "sliding"  # up to a window
    SLIDING_MLA = "sliding_mla"
    CHUNKED = "chunked"  # up to a chunk
    STATE = "state"  # not at all
    CROSS = "cross"  # with the encoder's input


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """What one layer keeps on one rank."""

    name: str
    layer: int  # decoder layer it belongs to; decides the pipeline stage
    kind: CacheKind
    block_tokens: int
    page: int  # bytes of one block
    window: int = 0  # tokens, of SLIDING and CHUNKED
    heads: int = 0  # KV heads over all ranks; 0 where there are none
    shape: tuple[object, ...] = ()  # geometry and format: layers that differ in it share no table
    pages_per_request: int = 0  # of STATE
    keeps_all_states: bool = False  # of STATE: one more for every block of the request
    is_copied: bool = False  # of STATE: whole on every rank
    is_context_sharded: bool = False  # whether decode context parallelism divides it


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """Layers in groups, and what a block costs on every pipeline stage."""

    groups: tuple[tuple[LayerCache, ...], ...]
    stage_bytes: tuple[int, ...]  # bytes per block, one per pipeline stage
    context_parallel: int
    cache_dtype: str  # what `auto` became
    in_flight_tokens: int
    encoder_tokens: int = 0
    refusal: str | None = None  # why the engine would not start with this
    notes: tuple[str, ...] = ()
    kinds: tuple[tuple[LayerCache, ...], ...] = ()  # one of all that need the same blocks
    is_patterned: bool = False  # pages in slots of their own size: requests are counted by their bytes

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on the stage where it is dearest."""
        return max(self.stage_bytes, default=0)


GROWING = frozenset({CacheKind.FULL, CacheKind.MLA})  # with the length of a request


def table_type(layer: LayerCache) -> tuple[object, ...]:
    """What layers must have in common to need the same blocks always, and so share a table."""
    if layer.kind in GROWING:
        return ("growing", layer.is_context_sharded)
    if layer.kind is CacheKind.STATE:
        return (layer.kind, layer.page, layer.pages_per_request, layer.is_copied)
    return (layer.kind, layer.window)
