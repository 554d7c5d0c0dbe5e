"""What number format a model's weights have, in a word, and how a card runs it."""

from collections import Counter

from bringup.values.model import ModelSpec
from bringup.values.plan import Card

_PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Formats that are unpacked to 16 bits in the kernel on every card.
_UNPACKED = ("int4_group", "int8_group", "bnb4")
# Types of GGUF files that are no safetensors words; llama.cpp has kernels for all of them.
_UNPACKED_WORDS = "unpacked in the kernel"


def weights_format(model: ModelSpec) -> str:
    """The number format in which most of the weights are stored.

    >>> from bringup.values.model import Quantization
    >>> spec = ModelSpec(name="", architecture="", model_type="", layers=(), hidden_size=1, vocabulary=1,
    ...                  quantization=Quantization(scheme="int4_group", method="awq"))
    >>> weights_format(spec)
    'int4 group (awq)'
    """
    if is_gguf(model):
        sizes: Counter[str] = Counter()
        for tensor in model.tensors:
            sizes[tensor.dtype] += tensor.bytes
        return sizes.most_common(1)[0][0] if sizes else "unknown"
    form = model.quantization
    if form is None:
        return _PLAIN.get(model.dtype, model.dtype)
    words = form.scheme.replace("_", " ")
    return f"{words} ({form.method})" if form.method in ("awq", "gptq") else words


def is_gguf(model: ModelSpec) -> bool:
    """Whether the model is a GGUF file."""
    return model.source.endswith(".gguf")


def how_run(model: ModelSpec, card: Card) -> str | None:
    """How the card computes with the model's weights; None where that is not known.

    >>> spec = ModelSpec(name="", architecture="", model_type="", layers=(), hidden_size=1, vocabulary=1)
    >>> how_run(spec, Card(name="", memory_total=1, cuda_total=1, reserved=0, formats=(("bf16", "no"),)))
    'no'
    """
    form = model.quantization
    if is_gguf(model) or (form is not None and form.scheme in _UNPACKED):
        return _UNPACKED_WORDS
    formats = dict(card.formats)
    if form is None:
        return formats.get("bf16") if model.dtype == "bfloat16" else "native"
    return formats.get(form.scheme.split("_")[0])
