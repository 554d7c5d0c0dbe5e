"""Per-layer embeddings of Gemma-3n and the small Gemma-4: a table and two projections beside each layer."""

from collections.abc import Iterator

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, Vector
from bringup.planner.spread import Spread, share
from bringup.values.model import ModelSpec


def layer_width(model: ModelSpec) -> int:
    """Width of what each layer gets per token; 0 for the models without."""
    width = model.config.get("hidden_size_per_layer_input")
    return width if isinstance(width, int) and not isinstance(width, bool) else 0


def shared_tensors(model: ModelSpec, ranks: Spread) -> Iterator[Held]:
    """The table for all layers and the projection into it.

    Source: vLLM 0.32.0 `models/gemma4.py`, `embed_tokens_per_layer`, `per_layer_model_projection`.
    """
    width = layer_width(model) * len(model.layers)
    if not width:
        return
    rows = model.config.get("vocab_size_per_layer_input")
    words = rows if isinstance(rows, int) else model.vocabulary
    yield _linear(model, "embed_tokens_per_layer", (share(words, ranks.vocabulary),), width, "embedding")
    projected = share(width, ranks.dense)
    yield _linear(model, "per_layer_model_projection", (projected,), model.hidden_size, "layer embeddings")
    yield Vector(part="norms", bytes=layer_width(model) * element_bytes(model.dtype))


def own_tensors(model: ModelSpec, path: str) -> Iterator[Held]:
    """A gate and a projection in one layer, whole on every rank, and a norm."""
    width = layer_width(model)
    if not width:
        return
    hidden = model.hidden_size
    yield _linear(model, f"{path}.per_layer_input_gate", (width,), hidden, "layer embeddings")
    yield _linear(model, f"{path}.per_layer_projection", (hidden,), width, "layer embeddings")
    yield Vector(part="norms", bytes=hidden * element_bytes(model.dtype))


def _linear(model: ModelSpec, name: str, outputs: tuple[int, ...], inputs: int, part: str) -> Matrix:
    return Matrix(
        names=(name,),
        part=part,
        outputs=outputs,
        inputs=inputs,
        dtype=model.dtype,
        may_be_quantised=part != "embedding",
    )
