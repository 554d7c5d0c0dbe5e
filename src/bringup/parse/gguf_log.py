"""The model that llama.cpp's loader prints: the file's metadata, and its size spread over the layers.

Source: llama.cpp b3985 to b11434, `src/llama-model-loader.cpp` ("Dumping metadata keys/values"),
`src/llama-model.cpp` (`print_info`, before that `llm_load_print_meta`).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from bringup.errors import UnreadableAnswer
from bringup.parse.gguf_header import GgufHeader, Value
from bringup.parse.gguf_model import gguf_config
from bringup.parse.hf_config import read_config
from bringup.units import GIB, MIB
from bringup.values.model import ModelSpec, Tensor

_ENTRY = re.compile(
    r"- kv\s+\d+:\s+(?P<key>[\w.-]+)\s+(?P<type>u\d+|i\d+|str|bool|arr\[\w+,(?P<length>\d+)\])"
    r"\s+= (?P<value>.*)"
)
_SIZE = re.compile(r"(?:file|model) size\s+= (?P<size>[\d.]+) (?P<unit>GiB|MiB) \((?P<bits>[\d.]+) BPW\)")
_VERSION = 3


def model_in_log(texts: Iterable[str], *, name: str) -> ModelSpec | None:
    """The model, its tensors no more than one for each layer and edge; None: the log does not print it."""
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    size, bits = 0, 0.0
    for text in texts:
        if entry := _ENTRY.search(text):
            if entry["length"]:
                lengths[entry["key"]] = int(entry["length"])
            value = _value(entry["type"], entry["value"])
            if value is not None:
                metadata[entry["key"]] = value
        elif told := _SIZE.search(text):
            size = round(float(told["size"]) * (GIB if told["unit"] == "GiB" else MIB))
            bits = float(told["bits"])
    if not size or not bits:
        return None
    header = GgufHeader(version=_VERSION, metadata=metadata, tensors=(), data_offset=0, lengths=lengths)
    try:
        model = read_config(gguf_config(header, file=name), name=name, source="the log")
    except UnreadableAnswer:
        return None
    if not model.layers or not model.vocabulary:
        return None
    return replace(model, tensors=_tensors(model, size, bits), origin="headers")


def _value(kind: str, text: str) -> Value | None:
    """The value as it was printed; a list that is cut says nothing."""
    if kind[0] in "ui":
        return int(text) if re.fullmatch(r"-?\d+", text.strip()) else None
    if kind == "bool":
        return text.strip() == "true"
    if kind == "str":
        return text
    numbers = text.strip().strip("[]").split(", ")
    is_whole = "..." not in text and all(re.fullmatch(r"-?\d+", number) for number in numbers)
    return tuple(int(number) for number in numbers) if is_whole else None


def _tensors(model: ModelSpec, size: int, bits: float) -> tuple[Tensor, ...]:
    """The file's bytes: embedding and head by their shapes, the rest alike for all layers."""
    edge = min(size // 4, round(model.vocabulary * model.hidden_size * bits / 8))
    each = (size - 2 * edge) // len(model.layers)
    rows = (model.vocabulary, model.hidden_size)
    return (
        Tensor(name="token_embd.weight", shape=rows, dtype="GGUF", bytes=edge),
        *(
            Tensor(name=f"blk.{layer.index}.all", shape=(), dtype="GGUF", bytes=each)
            for layer in model.layers
        ),
        Tensor(name="output.weight", shape=rows, dtype="GGUF", bytes=edge),
    )
