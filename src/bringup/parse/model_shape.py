"""The sizes that cures need: of a model that was read, or as a log prints the model's config."""

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from math import gcd

from bringup.values.model import ModelSpec, Quantization
from bringup.values.model_shape import ModelShape

# What a line of a config has one of.
TEXTS = (
    *("vocab_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "weight_block_size"),
    *("max_position_embeddings", "intermediate_size", "print_info: n_", "llm_load_print_meta: n_"),
)
_GROUPED = ("int4_group", "int8_group", "nvfp4", "mxfp8")  # formats whose groups lie along the columns
_KEYS = {
    "vocabulary": ("vocab_size", "n_vocab"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "n_head_kv"),
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "intermediate": ("intermediate_size", "n_ff"),
    "expert_intermediate": ("moe_intermediate_size", "n_ff_exp"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "n_expert"),
    "max_positions": ("max_position_embeddings", "n_ctx_train"),
}
_FIELD_OF = {key: name for name, keys in _KEYS.items() for key in keys}
_NUMBER = re.compile(rf"(?<![\w.])['\"]?({'|'.join(_FIELD_OF)})['\"]?\s*[:=]\s*(\d{{1,9}})\b(?!\.\d)")
_BLOCK = re.compile(r"weight_block_size['\"]?\s*[:=]\s*[\[(](\d{1,5}),\s*(\d{1,5})[\])]")


def shape_of_model(model: ModelSpec, *, source: str = "") -> ModelShape:
    """The shape of a model whose config was read."""
    attentions = [layer.attention for layer in model.layers if layer.attention]
    mlps = [layer.mlp for layer in model.layers if layer.mlp]
    experts = [mlp for mlp in mlps if mlp.experts]
    dense = [mlp.intermediate_size for mlp in mlps if not mlp.experts]
    shared = [mlp.shared_intermediate_size for mlp in experts]
    latent = any(attention.kv_lora_rank for attention in attentions)
    form = model.quantization
    return ModelShape(
        vocabulary=model.vocabulary or None,
        heads=_divides_all(attention.query_heads for attention in attentions),
        # One latent for all heads is whole on every GPU.
        kv_heads=None if latent else _divides_all(attention.kv_heads for attention in attentions),
        layers=len(model.layers) or None,
        hidden=model.hidden_size or None,
        intermediate=_divides_all([*dense, *shared]),
        expert_intermediate=_divides_all(mlp.intermediate_size for mlp in experts),
        experts=max((mlp.experts or 0 for mlp in experts), default=0) or None,
        block=(form.block or (128, 128)) if form and form.scheme == "fp8_block" else None,
        group=_group(form),
        max_positions=model.max_position,
        weight_bytes=sum(tensor.bytes for tensor in model.tensors) or None,
        source=source or model.source,
    )


def shape_in_lines(texts: Iterable[str]) -> ModelShape:
    """The shape as a log prints a config. Two values for one size, of parts of the model, tell none.

    >>> shape_in_lines(['  "vocab_size": 151936,', '  "num_attention_heads": 28,']).heads
    28
    """
    found: dict[str, set[int]] = {}
    blocks: set[tuple[int, int]] = set()
    for text in texts:
        for key, value in _NUMBER.findall(text):
            found.setdefault(_FIELD_OF[key], set()).add(int(value))
        blocks |= {(int(rows), int(columns)) for rows, columns in _BLOCK.findall(text)}
    told = {name: values.pop() for name, values in found.items() if len(values) == 1}
    told = {name: value for name, value in told.items() if value > 0}
    block = blocks.pop() if len(blocks) == 1 else None
    if not told and block is None:
        return ModelShape()
    return replace(ModelShape(source="the log", block=block), **told)


def completed(shape: ModelShape, other: ModelShape) -> ModelShape:
    """The shape with what only the other says."""
    if not (shape.is_known and other.is_known):
        return shape if shape.is_known else other
    missing = {
        field.name: getattr(other, field.name)
        for field in fields(ModelShape)
        if field.name != "source" and getattr(shape, field.name) is None
    }
    return replace(shape, **missing, source=f"{shape.source}, {other.source}")


def _divides_all(sizes: Iterable[int]) -> int | None:
    return gcd(*sizes) or None


def _group(form: Quantization | None) -> int | None:
    """Columns that share a scale, as far as they decide how a matrix may be cut."""
    return form.group_size if form and form.scheme in _GROUPED and (form.group_size or 0) > 0 else None
