"""Random models as lists of layers: every kind that the engine groups, in every mix that occurs."""

from math import ceil

FAMILIES = (
    "full",
    "windows",
    "mixed_heads",
    "chunked",
    "latent",
    "latent_indexer",
    "latent_windows",
    "states",
    "latent_states",
    "drafting_states",
    "indexed_states",
    "cross",
    "packed",
)

# Families that occur with blocks outermost, where pages of all sizes lie side by side.
PACKABLE = ("mixed_heads", "latent_windows", "states", "latent_states", "drafting_states", "packed")


def draw_case(draw):
    """One case: layers and settings."""
    family = draw.choice(FAMILIES)
    mode = draw.choice(("none", "align"))
    drafts = draw.choice((0, 0, 0, 1, 3)) if "states" in family else 0
    dcp = draw.choice((1, 1, 2, 4)) if family in ("full", "latent", "latent_indexer", "states") else 1
    layers = _LAYERS[family](draw, mode, drafts)
    stages = draw.choice((1, 1, 1, 2, 3)) if len(layers) >= 12 else 1
    packs = family in ("packed", "indexed_states") or (family in PACKABLE and draw.random() < 0.3)
    share = ceil(len(layers) / stages)
    for place, layer in enumerate(layers):
        layer["name"], layer["stage"] = f"{place}", place // share
        layer["is_whole"] = layer["kind"] == "sliding" and dcp > 1
        layer["is_sharded"] = dcp > 1 and layer["kind"] in ("full", "mla", "indexer")
    stages = layers[-1]["stage"] + 1
    room = draw.choice((1, 4, 20, 60)) * 2**30
    return {
        "family": family,
        "layout": "BLHNC" if packs else "LBNHC",
        "layers": layers,
        "mode": mode,
        "dcp": dcp,
        "stages": stages,
        "length": draw.choice((100, 4096, 32768, 131072, 262144)) + draw.randrange(0, 50),
        "in_flight": draw.choice((2048, 8192, 16384, 32768)),
        "encoder_tokens": draw.choice((448, 1500)),
        "has_hybrid_manager": family not in ("windows", "chunked", "mixed_heads") or draw.random() < 0.8,
        "available": [room + draw.randrange(0, 2**29) for _ in range(stages)],
    }


def _attention(draw, kind, **more):
    size = draw.choice((64, 128, 256))
    return {
        "kind": kind,
        "block": draw.choice((16, 16, 32, 64)),
        "heads": draw.choice((1, 2, 4, 8, 16)),
        "head_dim": size,
        "v_head_dim": size,
        "dtype": draw.choice(("bfloat16", "fp8")),
    } | more


def _times(layer, count):
    return [dict(layer) for _ in range(count)]


def _shuffled(draw, layers):
    """In the order of a model that repeats a pattern, or in any."""
    if draw.random() < 0.5:
        draw.shuffle(layers)
    return layers


def _full(draw, mode, drafts):
    layers = _times(_attention(draw, "full"), draw.randrange(1, 90))
    if draw.random() < 0.3:  # another head count in some layers, as in models with pruned heads
        other = layers[0] | {"heads": draw.choice((1, 2, 4, 8))}
        layers += _times(other, draw.randrange(1, 20))
    return _shuffled(draw, layers)


def _windows(draw, mode, drafts):
    full = _attention(draw, "full")
    window = full | {"kind": "sliding", "window": draw.choice((128, 512, 1024, 4096))}
    layers = _times(full, draw.randrange(0, 30)) + _times(window, draw.randrange(1, 60))
    if draw.random() < 0.2:
        layers += _times(window | {"window": 2048}, draw.randrange(1, 20))
    return _shuffled(draw, layers)


def _mixed_heads(draw, mode, drafts):
    full = _attention(draw, "full", head_dim=draw.choice((128, 192, 512)))
    full["v_head_dim"] = draw.choice((full["head_dim"], 128))
    window = _attention(draw, "sliding", window=draw.choice((512, 1024)), block=full["block"])
    window["dtype"] = full["dtype"]
    return _shuffled(draw, _times(full, draw.randrange(1, 20)) + _times(window, draw.randrange(1, 60)))


def _chunked(draw, mode, drafts):
    full = _attention(draw, "full")
    local = full | {"kind": "chunked", "window": 8192}
    return _shuffled(draw, _times(full, draw.randrange(1, 20)) + _times(local, draw.randrange(1, 60)))


def _latent_layer(draw, block):
    packed = draw.choice((None, None, 656))
    return {
        "kind": "mla",
        "block": block,
        "heads": 1,
        "head_dim": draw.choice((576, 320)),
        "dtype": "fp8" if packed else draw.choice(("bfloat16", "fp8")),
        "packed": packed,
    }


def _latent(draw, mode, drafts):
    return _times(_latent_layer(draw, draw.choice((16, 32, 64))), draw.randrange(1, 80))


def _latent_indexer(draw, mode, drafts):
    latent = _latent_layer(draw, 64)
    indexer = {"kind": "indexer", "block": 64, "heads": 1, "head_dim": 132, "dtype": "fp8"}
    count = draw.randrange(1, 80)
    return _shuffled(draw, _times(latent, count) + _times(indexer, draw.randrange(1, count + 1)))


def _latent_windows(draw, mode, drafts):
    latent = _latent_layer(draw, 64)
    window = _attention(draw, "sliding", window=1024, block=64)
    return _shuffled(draw, _times(latent, draw.randrange(1, 40)) + _times(window, draw.randrange(1, 40)))


def _state(draw, block, token, mode, drafts, *, aligned):
    heads, size = draw.choice((8, 16, 32)), 128
    shapes = [[3 + drafts, draw.choice((2048, 5120, 8192))], [heads, size, size]]
    dtypes = ["bfloat16", draw.choice(("float32", "bfloat16"))]
    held = shapes[0][0] * shapes[0][1] * 2 + heads * size * size * (4 if dtypes[1] == "float32" else 2)
    block = block * ceil(held / (block * token)) if aligned else block
    state = {
        "kind": "state",
        "block": block,
        "shapes": shapes,
        "dtypes": dtypes,
        "bytes": held,
        "padded": block * token if aligned else None,
        "drafts": drafts,
        "mode": mode,
    }
    return state, block


def _states(draw, mode, drafts):
    full = _attention(draw, "full", block=16)
    token = full["heads"] * 2 * full["head_dim"] * (2 if full["dtype"] == "bfloat16" else 1)
    state, full["block"] = _state(draw, 16, token, mode, drafts, aligned=True)
    layers = _times(full, draw.randrange(1, 30)) + _times(state, draw.randrange(1, 80))
    return _shuffled(draw, layers)


def _drafting_states(draw, mode, drafts):
    """A drafting layer of another head count beside a model with states."""
    layers = _states(draw, mode, drafts)
    full = next(layer for layer in layers if layer["kind"] == "full")
    return [*layers, full | {"heads": draw.choice((1, 2, 8))}]


def _indexed_states(draw, mode, drafts):
    """States, attention with an index of few keys, rings for the rest, a convolution: Qwen4-Exp."""
    layers = _states(draw, mode, drafts)
    full = next(layer for layer in layers if layer["kind"] == "full")
    state = next(layer for layer in layers if layer["kind"] == "state")
    count, ratio = sum(layer["kind"] == "full" for layer in layers), draw.choice((4, 8))
    plain = {"heads": 1, "dtype": "bfloat16"}
    keys = plain | {"kind": "keys", "block": full["block"], "head_dim": 128, "ratio": ratio}
    ring = plain | {"kind": "ring", "block": ratio * (2 if drafts else 1), "head_dim": 140}
    layers += [*_times(keys, count), *_times(ring, count)]
    if draw.random() < 0.7:
        layers += _times(state | {"is_copied": True}, draw.randrange(1, 3))
    return layers


def _latent_states(draw, mode, drafts):
    latent = _latent_layer(draw, 128)
    token = latent["packed"] or latent["head_dim"] * (2 if latent["dtype"] == "bfloat16" else 1)
    state, latent["block"] = _state(draw, 128, token, mode, drafts, aligned=True)
    layers = _times(latent, draw.randrange(1, 20)) + _times(state, draw.randrange(1, 60))
    return _shuffled(draw, layers)


def _packed(draw, mode, drafts):
    """Latents of several sizes with windows and running states, as in DeepSeek-V4."""
    count, layers = draw.randrange(1, 40), []
    for size in draw.sample((64, 132, 512, 584, 1168), draw.randrange(1, 4)):
        times = count if draw.random() < 0.7 else draw.randrange(1, 40)
        latent = {"kind": "mla", "block": 256, "heads": 1, "head_dim": size, "dtype": "fp8", "packed": size}
        layers += _times(latent, times)
    for block, window in draw.sample(((64, 128), (4, 8), (8, 128)), draw.randrange(1, 4)):
        for size in draw.sample((128, 512, 1024), draw.randrange(1, 3)):
            held = {"kind": "sliding_mla", "block": block, "heads": 1, "head_dim": size, "window": window}
            layers += _times(held | {"dtype": draw.choice(("fp8", "float32"))}, draw.randrange(1, 45))
    if draw.random() < 0.3:
        state, _ = _state(draw, 256, 584, mode, drafts, aligned=False)
        layers += _times(state, draw.randrange(1, 30))
    return _shuffled(draw, layers)


def _cross(draw, mode, drafts):
    own = _attention(draw, "full")
    count = draw.randrange(1, 40)
    return _times(own, count) + _times(own | {"kind": "cross"}, count)


_LAYERS = {
    "full": _full,
    "windows": _windows,
    "mixed_heads": _mixed_heads,
    "chunked": _chunked,
    "latent": _latent,
    "latent_indexer": _latent_indexer,
    "latent_windows": _latent_windows,
    "states": _states,
    "latent_states": _latent_states,
    "drafting_states": _drafting_states,
    "indexed_states": _indexed_states,
    "cross": _cross,
    "packed": _packed,
}
