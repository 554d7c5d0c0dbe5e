"""The tensors of one layer's softmax attention: grouped heads, latents, sparse indexers; one rank."""

from collections.abc import Iterator

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, LatentCopy, Vector
from bringup.planner.spread import Spread, kv_heads_per_rank, share
from bringup.values.model import Attention, ModelSpec


def attention_tensors(model: ModelSpec, attention: Attention, path: str, ranks: Spread) -> Iterator[Held]:
    """All of one layer's attention. Source: vLLM 0.33.0, the model files of each family."""
    name = f"{path}.self_attn"
    if attention.compress_ratio is not None:
        yield from _compressed(model, attention, name, ranks)
    elif attention.kv_lora_rank is not None:
        yield from _latent(model, attention, name, ranks)
    else:
        yield from _grouped(model, attention, name, ranks)
    if attention.index_heads is not None and attention.compress_ratio is None and attention.owns_index_cache:
        yield from _indexer(model, attention, f"{name}.indexer")
    if attention.has_sinks:
        heads = share(attention.query_heads, ranks.attention)
        yield Vector(part="attention", bytes=heads * element_bytes(model.dtype))


def _grouped(model: ModelSpec, attention: Attention, name: str, ranks: Spread) -> Iterator[Held]:
    heads = share(attention.query_heads, ranks.attention)
    kv_heads = kv_heads_per_rank(attention.kv_heads, ranks.attention)
    query = heads * attention.head_dim
    outputs = (query * (2 if attention.has_output_gate else 1),)
    names = (f"{name}.q_proj",)
    if not attention.shares_kv:
        outputs += (kv_heads * attention.head_dim, kv_heads * attention.v_head_dim)
        names += (f"{name}.k_proj", f"{name}.v_proj")
    yield _matrix(model, names, outputs, model.hidden_size, has_bias=attention.has_bias)
    yield _matrix(
        model,
        (f"{name}.o_proj",),
        (model.hidden_size,),
        heads * attention.v_head_dim,
        has_bias=attention.has_output_bias,
    )
    if attention.qk_norm is not None:
        is_whole = attention.qk_norm == "layer"
        widths = (query,) if attention.shares_kv else (query, kv_heads * attention.head_dim)
        for width in widths:
            size = width if is_whole else attention.head_dim
            yield Vector(part="norms", bytes=size * element_bytes(model.dtype))


def _latent(model: ModelSpec, attention: Attention, name: str, ranks: Spread) -> Iterator[Held]:
    """MLA: the projections into the latents are on every rank, those out of them are split by heads."""
    latent, rope = attention.kv_lora_rank or 0, attention.qk_rope_head_dim or 0
    nope = attention.qk_nope_head_dim or 0
    heads = share(attention.query_heads, ranks.attention)
    query = heads * (nope + rope)
    if attention.q_lora_rank is None:
        yield _matrix(model, (f"{name}.q_proj",), (query,), model.hidden_size)
        yield _matrix(model, (f"{name}.kv_a_proj_with_mqa",), (latent + rope,), model.hidden_size)
    else:
        down = (f"{name}.q_a_proj", f"{name}.kv_a_proj_with_mqa")
        yield _matrix(model, down, (attention.q_lora_rank, latent + rope), model.hidden_size)
        yield Vector(part="norms", bytes=attention.q_lora_rank * element_bytes(model.dtype))
        yield _matrix(model, (f"{name}.q_b_proj",), (query,), attention.q_lora_rank)
    yield Vector(part="norms", bytes=latent * element_bytes(model.dtype))
    up = heads * (nope + attention.v_head_dim)
    yield _matrix(model, (f"{name}.kv_b_proj",), (up,), latent)
    yield LatentCopy(names=(f"{name}.kv_b_proj",), bytes=up * latent * element_bytes(model.dtype))
    yield _matrix(model, (f"{name}.o_proj",), (model.hidden_size,), heads * attention.v_head_dim)


def _indexer(model: ModelSpec, attention: Attention, name: str) -> Iterator[Held]:
    """The sparse indexer, whole on every rank; `wk` and `weights_proj` are merged and kept in bf16."""
    heads, width = attention.index_heads or 0, attention.index_head_dim or 0
    inputs = attention.q_lora_rank or model.hidden_size
    yield _matrix(model, (f"{name}.wq_b",), (heads * width,), inputs, part="indexer")
    yield Matrix(
        names=(f"{name}.wk", f"{name}.weights_proj"),
        part="indexer",
        outputs=(width, heads),
        inputs=model.hidden_size,
        dtype=model.dtype,
        may_be_quantised=False,
    )
    yield Vector(part="indexer", bytes=4 * width, count=2)


def _compressed(model: ModelSpec, attention: Attention, name: str, ranks: Spread) -> Iterator[Held]:
    """DeepSeek-V4: low-rank queries and outputs, one key for all heads, a compressor per ratio.

    Source: vLLM 0.32.0 `models/deepseek_v4/attention.py`, `compressor.py`.
    """
    head, ratio = attention.head_dim, attention.compress_ratio or 0
    q_rank = attention.q_lora_rank or 0
    groups, o_rank = attention.o_groups or 1, attention.o_lora_rank or q_rank
    heads = share(attention.query_heads, ranks.attention)
    yield _matrix(model, (f"{name}.wq_a", f"{name}.wkv"), (q_rank, head), model.hidden_size)
    yield _matrix(model, (f"{name}.wq_b",), (heads * head,), q_rank)
    low = share(groups * o_rank, ranks.attention)
    yield _matrix(model, (f"{name}.wo_a",), (low,), attention.query_heads * head // groups)
    yield _matrix(model, (f"{name}.wo_b",), (model.hidden_size,), low)
    yield Vector(part="norms", bytes=(q_rank + head) * element_bytes(model.dtype))
    if ratio:
        yield from _compressor(model, head, ratio, f"{name}.compressor")
    if ratio == 4 and attention.index_heads is not None:
        width = attention.index_head_dim or 0
        queries = attention.index_heads * width
        yield _matrix(model, (f"{name}.indexer.wq_b",), (queries,), q_rank, part="indexer")
        yield Matrix(
            names=(f"{name}.indexer.weights_proj",),
            part="indexer",
            outputs=(attention.index_heads,),
            inputs=model.hidden_size,
            dtype=model.dtype,
            may_be_quantised=False,
        )
        yield from _compressor(model, width, ratio, f"{name}.indexer.compressor")


def _compressor(model: ModelSpec, width: int, ratio: int, name: str) -> Iterator[Held]:
    """Keys and gates that become one key per `ratio` tokens; overlapping windows double the width."""
    doubled = width * (2 if ratio == 4 else 1)
    yield Matrix(
        names=(f"{name}.wkv", f"{name}.wgate"),
        part="indexer",
        outputs=(doubled, doubled),
        inputs=model.hidden_size,
        dtype=model.dtype,
        may_be_quantised=False,
    )
    yield Vector(part="indexer", bytes=4 * ratio * doubled)
    yield Vector(part="norms", bytes=width * element_bytes(model.dtype))


def _matrix(
    model: ModelSpec,
    names: tuple[str, ...],
    outputs: tuple[int, ...],
    inputs: int,
    *,
    has_bias: bool = False,
    part: str = "attention",
) -> Matrix:
    return Matrix(
        names=names, part=part, outputs=outputs, inputs=inputs, has_bias=has_bias, dtype=model.dtype
    )
