"""Weights of one rank from the headers of a checkpoint: stored bytes, spread as the model's matrices are.

What the config says decides how a tensor is spread; what the file says decides how large it is. So number
formats, exceptions and oddities of a checkpoint need not be known.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.module_names import LAYER, canonical, is_encoder, is_mtp
from bringup.values.model import ModelSpec, Tensor

_EXPERT = re.compile(r"\.experts\.\d+\.")
_UNBUILT = re.compile(r"rotary_emb|inv_freq|\.k_scale$|\.v_scale$|kv_scale$")  # made or dropped while loading
# Merged matrices that some checkpoints store as one: Phi-3, GLM-4, GPT-OSS, Qwen3-VL.
_MERGED = {
    "q_proj": ("qkv_proj", "query_key_value", "Wqkv", "c_attn"),
    "gate_proj": ("gate_up_proj", "gate_up", "w13"),
    "down_proj": ("down_proj", "w2", "fc2"),
    "up_proj": ("up_proj", "fc1"),
}


@dataclass(slots=True)
class Kind:
    """All tensors of one kind ("weight", "weight_scale", ...) of one module; of all experts together."""

    dtype: str
    bytes: int = 0
    count: int = 0
    is_matrix: bool = False


Modules = Mapping[str, Mapping[str, Kind]]


@dataclass(slots=True)
class Stored:
    """The tensors of a checkpoint by module and kind, with those that were taken struck off."""

    modules: Modules
    taken: set[str] = field(default_factory=set[str])

    def take(self, module: str) -> dict[str, int] | None:
        """Bytes by kind of a module; None where it is not stored."""
        if module not in self.modules:
            return None
        self.taken.add(module)
        return {name: kind.bytes for name, kind in self.modules[module].items()}

    def rest(self) -> Iterator[tuple[str, Kind]]:
        """(module, kind) of all that nobody took."""
        for module, kinds in self.modules.items():
            if module not in self.taken:
                yield from ((module, kind) for kind in kinds.values())


class _Same:
    """The tensors of a model, equal to themselves alone: hashing hundreds of thousands takes too long."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tensors is self.tensors

    def __hash__(self) -> int:
        return id(self.tensors)


def stored(model: ModelSpec) -> Stored:
    """The model's tensors, all experts of a layer under one name, nothing taken yet."""
    return Stored(modules=_modules(_Same(model.tensors)))


@lru_cache(maxsize=2)  # a plan looks at the same files for every layout and stage
def _modules(same: _Same) -> Modules:
    grouped: dict[str, dict[str, Kind]] = defaultdict(dict)
    for tensor in same.tensors:
        if _UNBUILT.search(tensor.name):
            continue
        path, _, leaf = _EXPERT.sub(".experts.0.", tensor.name).rpartition(".")
        module, name = _unstacked(canonical(path or tensor.name), leaf)
        kind = grouped[module].setdefault(name, Kind(dtype=tensor.dtype))
        kind.bytes += tensor.bytes
        kind.count += 1
        kind.is_matrix |= len(tensor.shape) > 1 and math.prod(tensor.shape) > max(tensor.shape)
    return grouped


def _unstacked(module: str, leaf: str) -> tuple[str, str]:
    """Module and kind where all experts are one tensor: `experts.gate_up_proj_blocks`."""
    if not module.endswith(".experts") or leaf in ("weight", "bias"):
        return module, leaf
    stem, _, kind = leaf.rpartition("_")
    if kind in ("blocks", "scales", "bias", "scale", "inv"):
        return f"{module}.0.{stem}", kind
    return f"{module}.0.{leaf}", "weight"


def matrix_kinds(mine: Matrix, full: Matrix, checkpoint: Stored) -> tuple[float, dict[str, float]] | None:
    """Bytes of a whole matrix in the files, and of its shard by kind; None where no known name is there.

    Merged pieces of one kind are one allocation of the engine.
    """
    pieces = _pieces(mine, full, checkpoint)
    if pieces is None:
        return None
    stored_bytes = 0.0
    sizes: dict[str, float] = {}
    for share, kinds in pieces:
        for kind, size in kinds.items():
            stored_bytes += size
            sizes[kind] = sizes.get(kind, 0.0) + size * share
    return stored_bytes, sizes


def _pieces(mine: Matrix, full: Matrix, checkpoint: Stored) -> list[tuple[float, dict[str, int]]] | None:
    copies = mine.copies / full.copies
    inputs = mine.inputs / full.inputs
    names = [canonical(name) for name in mine.names]
    found = [checkpoint.take(name) for name in names]
    if any(kinds is not None for kinds in found):
        if len(names) == len(mine.outputs):
            shares = [
                mine.outputs[piece] / full.outputs[piece] * inputs * copies for piece in range(len(names))
            ]
        else:
            shares = [mine.rows / full.rows * inputs * copies] * len(names)
        return [(share, kinds) for share, kinds in zip(shares, found, strict=True) if kinds is not None]
    for other in _merged_names(names[0]):
        if (kinds := checkpoint.take(other)) is not None:
            return [(mine.rows / full.rows * inputs * copies, kinds)]
    return None


def dtypes_of(checkpoint: Stored, names: tuple[str, ...]) -> dict[str, str]:
    """Stored type of each kind of tensor of a matrix, by the names of its modules."""
    modules = [canonical(name) for name in names]
    for name in (*modules, *_merged_names(modules[0])):
        if kinds := checkpoint.modules.get(name):
            return {name: kind.dtype for name, kind in kinds.items()}
    return {}


def _merged_names(module: str) -> list[str]:
    stem, _, leaf = module.rpartition(".")
    return [f"{stem}.{other}" for other in _MERGED.get(leaf, ())]


def is_gguf(model: ModelSpec) -> bool:
    """Whether the tensors are those of a GGUF file, whose number formats no config tells."""
    return any((tensor.file or "").endswith(".gguf") for tensor in model.tensors[:1])


def layer_of(module: str) -> int | None:
    """Decoder layer of a module; None for what stands outside the layers."""
    match = LAYER.match(module + ".")
    return int(match[1]) if match and match[1].isdigit() and not is_encoder(module) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Tensors that no matrix of the model stands for."""

    module: str
    part: str  # "encoder", "mtp", "norms", "other"
    bytes: int
    is_matrix: bool
    layer: int | None


def rest_of(model: ModelSpec, checkpoint: Stored) -> Iterator[Rest]:
    """What is left once all known matrices were taken: towers, draft layers, norms, unknown modules."""
    own = element_bytes(model.dtype)
    for module, kind in checkpoint.rest():
        layer = layer_of(module)
        if is_encoder(module):
            part, layer = "encoder", None
        elif is_mtp(module) or (layer is not None and layer >= len(model.layers)):
            part, layer = "mtp", None
        else:
            part = "other" if kind.is_matrix else "norms"
        size = kind.bytes * own // 4 if kind.dtype == "F32" and part == "norms" and own < 4 else kind.bytes
        yield Rest(module=module, part=part, bytes=size, is_matrix=kind.is_matrix, layer=layer)
