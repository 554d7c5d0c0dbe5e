"""What the weights of a model take in the host's memory, from the sizes of their files."""

import re

from bringup.planner.workspace import Estimate, exact
from bringup.values.model import ModelSpec
from bringup.values.plan import HostTask

_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_DUPLICATE = "consolidated"  # Mistral's own copy of the same weights beside the usual files
_WIDTHS = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


def file_weights(task: HostTask, *, dtype: str | None = None) -> Estimate | None:
    """Bytes of the safetensors files, as the engine holds them in `dtype`; None where none are seen."""
    sizes = [
        (name, size)
        for name, size in (task.files.sizes if task.files else ())
        if name.endswith(".safetensors")
    ]
    usual = [size for name, size in sizes if not name.startswith(_DUPLICATE)] or [size for _, size in sizes]
    if not usual:
        return None
    count = f"{len(usual)} file{'s' if len(usual) > 1 else ''}, {sum(usual):,} B"
    factor = _factor(task.model, dtype)
    if factor == 1:
        return exact(sum(usual), count)
    return exact(round(sum(usual) * factor), f"{count} x {factor:g} as {dtype}")


def _factor(model: ModelSpec | None, dtype: str | None) -> float:
    """How much wider the weights are held than they are stored."""
    if model is None or model.quantization is not None or dtype not in _WIDTHS:
        return 1.0
    return _WIDTHS[dtype] / _WIDTHS.get(model.dtype, _WIDTHS[dtype])


def gguf_weights(task: HostTask, path: str) -> int | None:
    """Bytes of a GGUF file and of the others that it is split into; None where it is not seen."""
    name = path.rpartition("/")[2]
    sizes = dict(task.files.sizes) if task.files else {}
    shard = _SHARD.search(name)
    if shard is None:
        return sizes.get(name)
    first = name[: shard.start()]
    parts = [size for other, size in sizes.items() if other.startswith(first) and _SHARD.search(other)]
    return sum(parts) if len(parts) == int(shard[1]) else None
