"""What mixes tokens in each layer of a config: a list of mixers, from lists, patterns and intervals.

Source: vLLM 0.33.0, `config/model.py` (`layers_block_type`, `layer_types`) and the model files named below.
"""

from collections.abc import Callable, Mapping

from bringup.parse.hf_families import Family
from bringup.parse.hf_fields import Fields
from bringup.parse.json_value import int_at, list_at
from bringup.values.model import Mixer

# Words of `layer_types` and `layers_block_type`. None: whatever the family's recurrent mixer is.
_WORDS: Mapping[str, Mixer | None] = {
    "full_attention": Mixer.FULL,
    "attention": Mixer.FULL,
    "global_attention": Mixer.FULL,
    "global": Mixer.FULL,
    "full": Mixer.FULL,
    "sliding_attention": Mixer.SLIDING,
    "sliding": Mixer.SLIDING,
    "local": Mixer.SLIDING,
    "sliding_window": Mixer.SLIDING,
    "chunked_attention": Mixer.CHUNKED,
    "linear_attention": None,
    "mamba": None,
    "mamba2": None,
    "hybrid": None,  # Zamba2: mamba beside the shared attention
    "conv": Mixer.SHORT_CONV,
    "mlp": Mixer.NONE,
    "moe": Mixer.NONE,
    "M": None,
    "*": Mixer.FULL,
    "-": Mixer.NONE,
    "E": Mixer.NONE,
}


def read_mixers(fields: Fields, family: Family, model_type: str, layers: int) -> list[Mixer]:
    """One mixer per layer, `layers` of them."""
    own = _OWN_RULES.get(model_type)
    found = own(fields, family, layers) if own else _by_words(fields, family, layers)
    return (found or [_softmax(fields, family)] * layers)[:layers]


def block_words(fields: Fields) -> list[str]:
    """Nemotron-H's layer kinds, a word or a letter each; empty where the config has none."""
    if words := fields.names("layers_block_type"):
        return list(words)
    return list(fields.text("hybrid_override_pattern") or "")


def _softmax(fields: Fields, family: Family) -> Mixer:
    """What an attention layer is when no list says: MLA, windowed or full."""
    if family.is_mla:
        return Mixer.MLA
    uses_window = fields.flag("use_sliding_window")
    has_window = bool(fields.number("sliding_window")) and uses_window is not False
    return Mixer.SLIDING if has_window and not _needs_switch(fields) else Mixer.FULL


def _needs_switch(fields: Fields) -> bool:
    """Qwen2 and Qwen3 name a window that counts only with `use_sliding_window`."""
    return fields.value("max_window_layers") is not None and fields.flag("use_sliding_window") is not True


def _mixer(word: str, family: Family, fallback: Mixer) -> Mixer:
    mixer = _WORDS.get(word, fallback)
    if mixer is None:
        return family.linear
    return Mixer.MLA if mixer is Mixer.FULL and family.is_mla else mixer


def _by_words(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    words = block_words(fields) or list(fields.names("layer_types"))
    if len(words) >= layers > 0:
        fallback = Mixer.MLA if family.is_mla else Mixer.FULL
        return [_mixer(word, family, fallback) for word in words]
    if kinds := fields.numbers("attn_type_list"):  # MiniMax: 1 = softmax attention
        return [Mixer.FULL if kind == 1 else family.linear for kind in kinds]
    if indices := fields.numbers("attn_layer_indices"):  # Bamba
        return [Mixer.FULL if layer in indices else family.linear for layer in range(layers)]
    if period := fields.number("full_attention_interval"):  # Qwen3-Next, Qwen3.5: the last of each group
        return [Mixer.FULL if (layer + 1) % period == 0 else family.linear for layer in range(layers)]
    if (pattern := fields.number("sliding_window_pattern")) and fields.number("sliding_window"):
        return [Mixer.FULL if (layer + 1) % pattern == 0 else Mixer.SLIDING for layer in range(layers)]
    return []


def _gpt_oss(_fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    # `models/gpt_oss.py`: even layers slide, whatever `layer_types` says.
    return [Mixer.SLIDING if layer % 2 == 0 else Mixer.FULL for layer in range(layers)]


def _llama4(fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    # `models/llama4.py`: a layer without rotary embedding is global, the others see one chunk.
    listed = fields.numbers("no_rope_layers")
    interval = fields.number("no_rope_layer_interval") or 4
    rope = listed if len(listed) >= layers else [int((layer + 1) % interval != 0) for layer in range(layers)]
    local = Mixer.CHUNKED if fields.number("attention_chunk_size") else Mixer.FULL
    return [local if has_rope else Mixer.FULL for has_rope in rope]


def _kimi_linear(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    # `models/kimi_linear.py`: the lists count from 1.
    split = fields.part("linear_attn_config")
    if not split and fields.names("layer_types"):
        return _by_words(fields, family, layers)
    full = list_at(dict(split), "full_attn_layers")
    if full:
        return [Mixer.MLA if layer + 1 in full else family.linear for layer in range(layers)]
    kda = list_at(dict(split), "kda_layers")
    if kda:
        return [family.linear if layer + 1 in kda else Mixer.MLA for layer in range(layers)]
    # transformers 5.19.0, KimiLinearConfig: every fourth layer is full attention, and the last one.
    last = layers - 1
    return [Mixer.MLA if (layer + 1) % 4 == 0 or layer == last else family.linear for layer in range(layers)]


def _mimo_v2(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    kinds = fields.numbers("hybrid_layer_pattern")  # `models/mimo_v2.py`: 1 = window
    found = [Mixer.SLIDING if kind == 1 else Mixer.FULL for kind in kinds]
    return found or _by_words(fields, family, layers)


def _bailing(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    # `models/bailing_moe_linear.py`, is_linear_layer: the last of each group is softmax attention.
    group = fields.number("layer_group_size") or 1
    return [Mixer.MLA if (layer + 1) % group == 0 else family.linear for layer in range(layers)]


def _jamba(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    period, offset = fields.number("attn_layer_period") or 8, fields.number("attn_layer_offset")
    offset = 4 if offset is None else offset  # transformers 5.19.0, JambaConfig
    return [Mixer.FULL if layer % period == offset else family.linear for layer in range(layers)]


def _mllama(fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    cross = fields.numbers("cross_attention_layers")
    return [Mixer.CROSS if layer in cross else Mixer.FULL for layer in range(layers)]


def _gemma4(fields: Fields, family: Family, layers: int) -> list[Mixer]:
    found = _by_words(fields, family, layers)
    return [*found[: layers - 1], Mixer.FULL] if found else []  # the last layer is forced to full


def _all_linear(_fields: Fields, family: Family, layers: int) -> list[Mixer]:
    return [family.linear] * layers


def _all_full(_fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    return [Mixer.FULL] * layers


def _all_mla(_fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    return [Mixer.MLA] * layers


def _deci(fields: Fields, _family: Family, layers: int) -> list[Mixer]:
    # Nemotron-NAS: a block may have no attention at all. Source: `models/nemotron_nas.py`.
    blocks = fields.items("block_configs")
    return [Mixer.FULL if int_at(block, "attention", "n_heads_in_group") else Mixer.NONE for block in blocks][
        :layers
    ]


_OWN_RULES: Mapping[str, Callable[[Fields, Family, int], list[Mixer]]] = {
    "gpt_oss": _gpt_oss,
    "llama4": _llama4,
    "kimi_linear": _kimi_linear,
    "mimo_v2_flash": _mimo_v2,
    "jamba": _jamba,
    "bailing_hybrid": _bailing,
    "longcat_flash": _all_mla,
    "mllama": _mllama,
    "gemma4": _gemma4,
    "mamba": _all_linear,
    "mamba2": _all_linear,
    "falcon_h1": _all_full,  # attention and state side by side in each layer
    "minimax_m3": _all_full,
    "deepseek_v4": _all_mla,
    "nemotron-nas": _deci,
}
