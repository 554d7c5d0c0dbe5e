"""What each device holds: whole layers with their cache, or a part of every matrix.

Source: llama.cpp b11434, `src/llama-model.cpp` (`load_tensors`), `src/llama-kv-cache.cpp`.
"""

import re
from dataclasses import dataclass
from itertools import accumulate

from bringup.engines.llama_cpp.settings import Settings, expert_layer
from bringup.errors import UsageError
from bringup.planner.kv_llama_cpp import llama_cache
from bringup.planner.weight_rules import WeightRules
from bringup.planner.weights import weights_per_rank
from bringup.planner.workspace import Estimate
from bringup.units import GIB, MIB
from bringup.values.model import Mixer, ModelSpec
from bringup.values.plan import Layout

_BLOCK = re.compile(r"blk\.(\d+)\.")
_INPUT = "token_embd."
_HEAD = "output."
_HOST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU's part."""

    weights: int
    cache: int
    compute: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What the GPUs and the host hold."""

    devices: tuple[Device, ...]
    host_weights: int
    cells: int  # tokens of all slots together
    cache: int  # bytes of it, wherever they lie


def spread(model: ModelSpec, settings: Settings) -> Spread:
    """Weights, cache and compute buffer of every device."""
    count = len(settings.shares)
    places = layer_places(len(model.layers), settings)
    weights = [0] * (count + 1)  # the host is the last, index -1
    for name, size in tensor_sizes(model):
        for device, part in _placed(name, size, places, settings):
            weights[device] += part
    try:
        cache = llama_cache(model, settings.rules())
    except ValueError as error:  # blocks of the cache's type that do not divide a head: it refuses to start
        raise UsageError(str(error)) from None
    cached = [0] * (count + 1)
    for layer, size in enumerate(cache.layer_bytes):
        if settings.keeps_cache_on_gpu:
            for device, part in _cached(size, places[layer], settings):
                cached[device] += part
    compute = compute_buffer(model, settings, cache.cells)
    return Spread(
        devices=tuple(
            Device(weights=weights[device], cache=cached[device], compute=compute) for device in range(count)
        ),
        host_weights=weights[_HOST],
        cells=cache.cells * cache.streams,
        cache=cache.total,
    )


def layer_places(layers: int, settings: Settings) -> tuple[int, ...]:
    """Device of every layer and, last, of the output; -1 is the host. Layers go to GPUs from the last on.

    >>> from types import SimpleNamespace
    >>> layer_places(4, SimpleNamespace(gpu_layers=99, shares=(0.5, 0.5)))
    (0, 0, 0, 1, 1)
    >>> layer_places(4, SimpleNamespace(gpu_layers=3, shares=(1.0,)))
    (-1, -1, 0, 0, 0)
    """
    start = max(layers + 1 - settings.gpu_layers, 0)
    on_gpu = min(settings.gpu_layers, layers + 1)
    ends = list(accumulate(settings.shares))
    found: list[int] = []
    for layer in range(layers + 1):
        if layer < start:
            found.append(_HOST)
            continue
        point = (layer - start) / on_gpu
        found.append(next((device for device, end in enumerate(ends) if point < end), len(ends) - 1))
    return tuple(found)


def tensor_sizes(model: ModelSpec) -> list[tuple[str, int]]:
    """Stored tensors with their bytes; where only the config is known, its layers in even parts.

    A tied head is stored once and held twice: on the host for the input, on a GPU for the output.
    """
    if model.tensors:
        found = [(tensor.name, tensor.bytes) for tensor in model.tensors]
        if not any(name.startswith(_HEAD) for name, _ in found):
            found += [(f"{_HEAD}tied", size) for name, size in found if name.startswith(_INPUT)]
        return found
    rules = WeightRules(engine="llama.cpp", has_rope_table=False, loads_encoder=False)
    whole = weights_per_rank(model, Layout(), rules).total
    edge = model.vocabulary * model.hidden_size * 2
    rest = max(0, whole - edge * (1 if model.is_tied else 2)) // max(1, len(model.layers))
    blocks = [(f"blk.{layer.index}.all", rest) for layer in model.layers]
    return [(f"{_INPUT}weight", edge), *blocks, (f"{_HEAD}weight", edge)]


def compute_buffer(model: ModelSpec, settings: Settings, cells: int) -> Estimate:
    """Scratch of the largest step: logits and hidden rows of a micro batch in float32, and the mask.

    Seen on a CPU: 304.75 MiB for 512 x (151,936 + 4096) x 4 B, 308 for 512 x (151,552 + 6144) x 4 B. On GPUs
    0.3 to 1.4 times as much, of latents read by a fork up to 100 KiB more for each cell.
    """
    rows = settings.micro_batch
    size = rows * (model.vocabulary + model.hidden_size) * 4 + rows * cells * 2
    words = f"{rows:,} rows x (({model.vocabulary:,} + {model.hidden_size:,}) x 4 B + {cells:,} cells x 2 B)"
    heads = max((layer.attention.query_heads for layer in model.layers if layer.attention), default=0)
    if not settings.has_flash_attention:
        size += rows * cells * heads * 4
        words += f" + {rows:,} x {cells:,} x {heads} heads x 4 B of scores"
    high = round(1.5 * size) + 128 * MIB
    if any(layer.mixer is Mixer.MLA for layer in model.layers):
        high += min(cells * heads * 800, 12 * GIB)
    return Estimate(bytes=size, low=round(0.3 * size), high=high, formula=words)


def _placed(name: str, size: int, places: tuple[int, ...], settings: Settings) -> list[tuple[int, int]]:
    """Devices of one tensor with their part of it."""
    for pattern, buffer in settings.overrides:
        if re.search(pattern, name):
            return [(_device_named(buffer, len(settings.shares)), size)]
    layer = expert_layer(name)
    if name.startswith(_INPUT) or (layer is not None and layer < settings.host_experts):
        return [(_HOST, size)]
    match = _BLOCK.match(name)
    place = places[min(int(match[1]), len(places) - 1)] if match else places[-1]
    if place != _HOST and settings.split_mode in ("row", "tensor"):
        return [(device, round(size * share)) for device, share in enumerate(settings.shares)]
    return [(place, size)]


def _cached(size: int, place: int, settings: Settings) -> list[tuple[int, int]]:
    if place == _HOST:
        return [(_HOST, size)]
    if settings.split_mode == "tensor":
        return [(device, round(size * share)) for device, share in enumerate(settings.shares)]
    return [(settings.main_gpu if settings.split_mode == "row" else place, size)]


def _device_named(buffer: str, count: int) -> int:
    """Device of a buffer's name: `CUDA1` -> 1; the host for `CPU` and whatever is not known."""
    match = re.fullmatch(r"[A-Za-z]+?(\d+)", buffer)
    return int(match[1]) if match and int(match[1]) < count else _HOST
