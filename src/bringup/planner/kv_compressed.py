"""What a layer of DeepSeek-V4 keeps: a window, a compressed past with its index, and what is yet to be.

Source: vLLM 0.32.0, `models/deepseek_v4/attention.py` and `compressor.py`,
`v1/attention/backends/mla/sparse_swa.py`.
"""

from dataclasses import dataclass

from bringup.planner.kv_formats import element_bytes
from bringup.planner.kv_records import CacheKind, LayerCache
from bringup.values.model import Attention, Layer

BLOCK = 256  # tokens; of the compressed past
_WINDOW_BLOCK = 64
_PACKED_TOKEN = 584  # bytes: 448 values of eight bits, 64 rotary ones in bfloat16, 8 scales
_PACKED_ALIGNMENT, _PLAIN_ALIGNMENT = 576, 512

# By compression ratio: tokens per block of the running compression, and windows of `ratio` it looks back.
_RUNNING = {4: (4, 2), 128: (8, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    """The bytes of a token and what a page is rounded up to, in one format."""

    token: int
    alignment: int

    def of(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment


def compressed_caches(layer: Layer, attention: Attention, dtype: str) -> list[LayerCache]:
    """Caches of one layer, the window first.

    >>> from bringup.values.model import Mixer
    >>> attention = Attention(query_heads=64, kv_heads=1, head_dim=512, v_head_dim=512, window=128,
    ...                       compress_ratio=4, index_heads=64, index_head_dim=128)
    >>> layer = Layer(index=2, mixer=Mixer.MLA, attention=attention)
    >>> [cache.page for cache in compressed_caches(layer, attention, "fp8_ds_mla")]
    [37440, 37440, 32832, 8640, 8640]
    """
    is_packed = dtype.endswith("_ds_mla")
    pages = _Pages(
        token=_PACKED_TOKEN if is_packed else attention.head_dim * element_bytes(dtype),
        alignment=_PACKED_ALIGNMENT if is_packed else _PLAIN_ALIGNMENT,
    )
    found = [
        LayerCache(
            name=f"{layer.index}.window",
            layer=layer.index,
            kind=CacheKind.SLIDING_MLA,
            block_tokens=_WINDOW_BLOCK,
            page=pages.of(_WINDOW_BLOCK * pages.token),
            window=attention.window or 0,
            shape=("window", dtype),
        )
    ]
    ratio = attention.compress_ratio or 0
    if ratio in _RUNNING:
        found.append(_compressed(layer, "past", ratio, pages.token, pages))
        found.append(_running(layer, "past", ratio, attention.head_dim, pages))
        if attention.index_head_dim and ratio == 4:
            size = attention.index_head_dim
            found.append(_compressed(layer, "indexer", ratio, size + size // 128 * 4, pages))
            found.append(_running(layer, "indexer", ratio, size, pages))
    return found


def _compressed(layer: Layer, part: str, ratio: int, token: int, pages: _Pages) -> LayerCache:
    return LayerCache(
        name=f"{layer.index}.{part}",
        layer=layer.index,
        kind=CacheKind.MLA,
        block_tokens=BLOCK,
        page=pages.of(BLOCK // ratio * token),
        shape=(part, ratio),
    )


def _running(layer: Layer, part: str, ratio: int, size: int, pages: _Pages) -> LayerCache:
    """Keys and scores of the tokens that are still being compressed, in float32."""
    block, windows = _RUNNING[ratio]
    return LayerCache(
        name=f"{layer.index}.{part}.running",
        layer=layer.index,
        kind=CacheKind.SLIDING_MLA,
        block_tokens=block,
        page=pages.of(block * 2 * windows * size * element_bytes("float32")),
        window=windows * ratio,
        shape=("running", ratio, size),
    )
