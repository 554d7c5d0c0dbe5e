"""`--mem-fraction-static` where it is not given: what SGLang of a version takes on a card.

Source: SGLang 0.5.23 `arg_groups/memory_hook.py` (`handle_gpu_memory_settings`, `reserve_for_graph_mb`), with
0.5.12, 0.5.9 and 0.5.5 `server_args.py`. All sizes in it are MiB, as nvidia-smi prints them.
"""

from dataclasses import dataclass
from typing import cast

from bringup.parse.json_value import Json, int_at
from bringup.planner.kv_versions import Version
from bringup.units import GIB, MIB, in_mib
from bringup.values.model import ModelSpec
from bringup.values.plan import Card

NEWEST: Version = (0, 5, 23)
# A rule that changed between two releases that were read is given to the first one after the older.
AFTER_0_5_9: Version = (0, 5, 10)
AFTER_0_5_12: Version = (0, 5, 13)

_GIB = GIB // MIB  # the engine's own arithmetic is in MiB
_USUAL_ENCODER_LAYERS, _USUAL_ENCODER_WIDTH = 24, 1024  # CLIP ViT-L/14, the measure of the engine's formula
_LARGE_CARD = 60 * _GIB  # MiB: above it at least 10 GiB are kept
_LARGE_CARD_KEEPS = 10 * _GIB
_SPECULATION: tuple[tuple[Version, int], ...] = ((AFTER_0_5_12, 0), (AFTER_0_5_9, 4096), ((0, 0, 0), 2048))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Defaults of cards with less memory than `below` MiB."""

    below: int | None  # None: all others
    chunk: int  # chunked_prefill_size
    decode: int  # largest batch of decode graphs
    decode_of_many: int  # the same from four ranks on


_TIERS_NOW = (
    Tier(below=20 * _GIB, chunk=2048, decode=8, decode_of_many=8),
    Tier(below=35 * _GIB, chunk=4096, decode=48, decode_of_many=160),
    Tier(below=60 * _GIB, chunk=4096, decode=32, decode_of_many=160),
    Tier(below=90 * _GIB, chunk=8192, decode=256, decode_of_many=512),
    Tier(below=160 * _GIB, chunk=8192, decode=256, decode_of_many=512),
    Tier(below=None, chunk=16384, decode=512, decode_of_many=512),
)
_TIERS: tuple[tuple[Version, tuple[Tier, ...]], ...] = (
    (AFTER_0_5_9, _TIERS_NOW),
    (
        (0, 0, 0),
        (_TIERS_NOW[0], Tier(below=35 * _GIB, chunk=2048, decode=24, decode_of_many=80), *_TIERS_NOW[2:]),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What decides how much of the card is left to activations and graphs."""

    version: Version
    ranks: int  # tensor x pipeline
    chunk: int | None  # None: chunked prefill is off
    max_prefill_tokens: int
    decode_batch: int  # largest batch of decode graphs; 0: none
    attention_data_parallel: int = 1
    prefill_sizes: int = 0  # sizes of prefill graphs; 0: none
    is_latent: bool = False
    has_deepep: bool = False
    speculative: str | None = None
    vision: dict[str, Json] | None = None  # of a model whose images are served


def tier_of(card: Card, version: Version) -> Tier:
    """The defaults of a card.

    >>> card = Card(name="", memory_total=97887 << 20, cuda_total=0, reserved=0)
    >>> tier_of(card, NEWEST).chunk, tier_of(card, NEWEST).decode_of_many
    (8192, 512)
    """
    tiers = next(tiers for since, tiers in _TIERS if version >= since)
    size = in_mib(card.memory_total)
    return next(tier for tier in tiers if tier.below is None or size < tier.below)


def prefill_sizes(largest: int) -> int:
    """Number of sizes for which prefill graphs are recorded.

    >>> prefill_sizes(8192), prefill_sizes(2048)
    (58, 42)
    """
    steps = ((32, 4), (256, 16), (512, 32), (1024, 64), (4096, 256))
    count = start = 0
    for end, step in steps:
        count += max(0, min(end, largest) - start) // step
        start = end
    return count + max(0, largest - start) // 512


def decode_sizes(largest: int) -> int:
    """Number of batch sizes for which decode graphs are recorded, without speculation.

    >>> decode_sizes(512), decode_sizes(8), decode_sizes(0)
    (52, 4, 0)
    """
    found = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 497, 16), *range(512, largest + 1, 32)}
    return sum(size <= largest for size in found | {largest}) if largest else 0


def automatic_fraction(card: Card, reserve: Reserve) -> tuple[float, str]:
    """The share of what is free at the start that weights and pools may take, and its arithmetic.

    Four RTX PRO 6000 without prefill graphs:

    >>> card = Card(name="", memory_total=97887 << 20, cuda_total=0, reserved=0)
    >>> automatic_fraction(card, Reserve(
    ...     version=(0, 5, 9), ranks=4, chunk=8192, max_prefill_tokens=16384, decode_batch=512))
    (0.854, '(97,887 - 14,336) / 97,887 MiB')
    """
    total = in_mib(card.memory_total)
    kept = _reserved(reserve, total)
    share = round((total - kept) / total, 3)
    words = f"({total:,.0f} - {kept:,.0f}) / {total:,.0f} MiB"
    if reserve.vision is None:
        return share, words
    factor = vision_factor(reserve.vision)
    return share * factor, f"{words} x {factor:.4f} for the image encoder"


def vision_factor(vision: dict[str, Json]) -> float:
    """What an image encoder leaves of the share. Of a layer count under another name nothing is known there.

    >>> round(vision_factor({"depth": 27, "hidden_size": 1152}), 5)
    0.92477
    """
    layers = int_at(vision, "num_hidden_layers") or _USUAL_ENCODER_LAYERS
    hidden = int_at(vision, "hidden_size") or _USUAL_ENCODER_WIDTH
    ratio = layers * hidden**2 / (_USUAL_ENCODER_LAYERS * _USUAL_ENCODER_WIDTH**2)
    return 0.95 * min(1.05, max(0.8, 1 - 0.1 * (ratio - 1)))


def vision_config(model: ModelSpec) -> dict[str, Json] | None:
    """The image encoder's part of the config, where there is one."""
    found = model.multimodal.get("vision_config")
    return cast("dict[str, Json]", found) if isinstance(found, dict) else None


def _reserved(reserve: Reserve, total: float) -> float:
    """MiB kept for activations and graphs."""
    tokens = reserve.chunk if reserve.chunk is not None else reserve.max_prefill_tokens
    kept = 512 + 1.5 * max(tokens, 2048) + 128 * reserve.ranks + _graphs(reserve)
    if total > _LARGE_CARD:
        kept = max(kept, _LARGE_CARD_KEEPS)
    if reserve.has_deepep and reserve.decode_batch and reserve.version >= AFTER_0_5_12:
        kept += 2048
    return kept + _speculation(reserve)


def _graphs(reserve: Reserve) -> float:
    batch, copies = reserve.decode_batch, reserve.attention_data_parallel
    kept = 2.0 * batch
    if copies > 1:
        kept += (4.5 if batch > 300 else 3) * batch * copies
    if reserve.prefill_sizes:
        kept += 1536 if reserve.is_latent else 8 * reserve.prefill_sizes
    return kept


def _speculation(reserve: Reserve) -> int:
    """MiB for a draft model. From 0.5.13 on its weights are there before, its cache is in every token."""
    method = reserve.speculative
    if method is None or method == "NGRAM":
        return 0
    kept = next(kept for since, kept in _SPECULATION if reserve.version >= since)
    return 6144 if method == "STANDALONE" and kept else kept
