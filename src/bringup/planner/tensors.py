"""The matrices and vectors that one rank of an engine builds for a model: names, shapes after sharding."""

from collections.abc import Iterator

from bringup.planner import layer_embeddings
from bringup.planner.allocation import round_up
from bringup.planner.attention_tensors import attention_tensors
from bringup.planner.encoder_tensors import encoder_tensors
from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, Vector
from bringup.planner.mlp_tensors import mlp_tensors
from bringup.planner.rope import rope_tables
from bringup.planner.spread import Spread, share
from bringup.planner.state_tensors import state_tensors
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import Layer, ModelSpec


def layer_tensors(model: ModelSpec, layer: Layer, ranks: Spread, rules: WeightRules) -> Iterator[Held]:
    """All that one decoder layer is made of on one rank."""
    path = f"model.layers.{layer.index}"
    if layer.attention is not None:
        yield from attention_tensors(model, layer.attention, path, ranks)
    if layer.state is not None:
        yield from state_tensors(model, layer.mixer, layer.state, path, ranks)
    if layer.mlp is not None:
        yield from mlp_tensors(model, layer.mlp, path, ranks, rules)
    yield Vector(part="norms", bytes=model.hidden_size * element_bytes(model.dtype), count=model.norm_count)
    yield from layer_embeddings.own_tensors(model, path)
    if (streams := model.config.get("hc_mult")) and isinstance(streams, int):
        # DeepSeek-V4: residual streams are mixed before attention and before the MLP, in float32.
        # Source: vLLM 0.32.0 `models/deepseek_v4/nvidia/model.py`, `hc_attn_fn`, `hc_ffn_fn`.
        yield Vector(part="norms", bytes=4 * (2 + streams) * streams * streams * model.hidden_size, count=2)


def mtp_tensors(model: ModelSpec, ranks: Spread, rules: WeightRules) -> Iterator[Held]:
    """The model's own draft layers: each a whole layer and the projection of (embedding, hidden state).

    Embedding and head are the model's. Source: vLLM 0.33.0 `deepseek_mtp.py`, `qwen3_5_mtp.py`.
    """
    hidden = model.hidden_size
    for layer in model.mtp_layers:
        yield from layer_tensors(model, layer, ranks, rules)
        yield Matrix(
            names=(f"model.layers.{layer.index}.eh_proj",),
            part="mtp",
            outputs=(hidden,),
            inputs=2 * hidden,
            dtype=model.dtype,
            may_be_quantised=False,
        )
        yield Vector(part="mtp", bytes=hidden * element_bytes(model.dtype), count=3)


def edge_tensors(
    model: ModelSpec, ranks: Spread, rules: WeightRules, *, is_first: bool, is_last: bool
) -> Iterator[Held]:
    """Embedding, vision tower, head, last norm and rope tables of one pipeline stage."""
    rows = share(round_up(model.vocabulary, rules.vocabulary_padding), ranks.vocabulary)
    if is_first or (is_last and model.is_tied):
        is_whole = rules.replicates_embedding and not model.is_tied
        table = round_up(model.vocabulary, rules.vocabulary_padding) if is_whole else rows
        yield _vocabulary(model, table, "model.embed_tokens", "embedding")
    if is_last:
        yield Vector(part="norms", bytes=model.hidden_size * element_bytes(model.dtype))
        if not model.is_tied:
            yield _vocabulary(model, rows, "lm_head", "head")
    if is_first:
        yield from layer_embeddings.shared_tensors(model, ranks)
        yield from encoder_tensors(model, ranks, rules)
    yield from rope_tables(model, rules)


def _vocabulary(model: ModelSpec, rows: int, name: str, part: str) -> Matrix:
    return Matrix(
        names=(name,),
        part=part,
        outputs=(rows,),
        inputs=model.hidden_size,
        dtype=model.dtype,
        may_be_quantised=False,
    )
