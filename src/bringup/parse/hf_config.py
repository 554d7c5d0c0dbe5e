"""A model's config.json to a `ModelSpec`: every family through one reader, the differences as data.

What the config leaves out is filled, in this order, from facts known of that very model (`known`), from
what the family's own config class assumes, and is told in `notes`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from bringup.errors import UsageError
from bringup.parse.hf_attention import read_attention
from bringup.parse.hf_families import FAMILIES, SAME, Family
from bringup.parse.hf_fields import Fields
from bringup.parse.hf_layers import block_words, read_mixers
from bringup.parse.hf_mlp import read_mlp
from bringup.parse.hf_quantization import read_quantization
from bringup.parse.hf_state import read_side_state, read_state
from bringup.parse.json_value import Json, at, int_at, text_at
from bringup.values.finding import Finding, Severity
from bringup.values.model import Layer, Mixer, Mlp, ModelSpec, Quantization

# Where a model of several parts keeps its language part, in vLLM's order.
_LANGUAGE_PARTS = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("thinker_config", "text_config"),
    ("llm",),
    ("text_model_config",),
)
_OTHER_PARTS = ("vision_config", "audio_config", "vit_config", "visual", "vision_tower_config")
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "decoder_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
_POSITIONS = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "n_positions", "seq_length")
# Families whose extra layers have a plain MLP beside layers of experts. Source: vLLM 0.33.0 `step3p5_mtp.py`.
_DENSE_DRAFTS = frozenset({"step3p5"})
_MOST_EXTRA = 100  # guess: as many layers for speculative decoding as anyone may ever use
_MOST_LAYERS = 10_000  # guess: far above any published model (162), so that a slip does not fill the memory
# A config that says nothing of one of these cannot be planned with.
_NEEDED = ("layers", "hidden size", "vocabulary")


def read_config(
    config: Mapping[str, object],
    *,
    name: str,
    source: str,
    known: Mapping[str, object] | None = None,
    quant_file: Mapping[str, object] | None = None,
) -> ModelSpec:
    """The model that a config.json describes.

    `known`: fields of the same model from another place (the catalogue), for those the config lacks.
    `quant_file`: hf_quant_config.json, where it lies beside the config.

    Raises:
        UsageError: no number of layers, hidden size or vocabulary is to be had.
    """
    whole = cast("dict[str, Json]", dict(config))
    # A config that names its class is whole: what it leaves out, or says null to, it means so.
    extra = {} if at(whole, "architectures") else cast("dict[str, Json]", dict(known or {}))
    if int_at(whole, "dim") and int_at(whole, "n_layers"):
        whole = _mistral_native(whole)
    merged = _merged(whole, extra)
    text = _language_part(merged)
    model_type, family, told = _family(merged, text)
    fields = Fields(given=text, assumed=family.assumed)
    notes = _filled_notes(_language_part(whole), fields, extra)
    layers = _layer_count(fields, model_type)
    hidden, vocabulary = fields.number(*_HIDDEN), fields.number(*_VOCABULARY)
    lacking = [
        word
        for word, found in zip(_NEEDED, (layers, hidden, vocabulary), strict=True)
        if not found or found < 0
    ]
    if lacking or not layers or not hidden or not vocabulary:
        raise UsageError(
            f"the config of `{name}` gives no {', no '.join(lacking)} ({source})",
            hint="give the model's whole config.json with `--model-config FILE`",
        )
    if layers > _MOST_LAYERS:
        raise UsageError(f"the config of `{name}` has {layers:,} layers: no model has ({source})")
    read = _read_layers(fields, family, model_type, layers)
    return ModelSpec(
        name=name,
        architecture=text_at(merged, "architectures", 0) or family.architecture,
        model_type=model_type,
        layers=read,
        hidden_size=hidden,
        vocabulary=vocabulary,
        dtype=_dtype(merged, text),
        is_tied=_is_tied(merged, text, family),
        max_position=fields.number(*_POSITIONS),
        rotary_dims=_rotary_dims(fields, family, model_type, read),
        quantization=_quantization({**text, **merged}, known, quant_file),
        mtp_layers=_mtp_layers(fields, family, model_type, layers, read),
        encoder_tokens=_encoder_tokens(fields, model_type),
        multimodal={part: merged[part] for part in _OTHER_PARTS if isinstance(merged.get(part), dict)},
        norm_count=family.norm_count,
        config={**family.assumed, **text},
        source=source,
        notes=tuple(notes + _layer_notes(read)),
        findings=() if family.architecture else (_unknown_family(told),),
    )


def _unknown_family(told: str) -> Finding:
    return Finding(
        id="model.architecture",
        severity=Severity.UNKNOWN,
        summary=told,
        explanation="heads, layers and sizes are the config's; what is special about it is not counted",
        action="give the folder with the weight files: their headers tell the weights exactly",
    )


def _quantization(
    config: dict[str, Json], known: Mapping[str, object] | None, quant_file: Mapping[str, object] | None
) -> Quantization | None:
    """The number format. A list of exceptions that was cut is taken from the catalogue, where that has it."""
    found = read_quantization(config, cast("Mapping[str, Json] | None", quant_file))
    if found is None or not found.is_list_cut or not known:
        return found
    whole = read_quantization(cast("dict[str, Json]", dict(known)))
    if whole is None or whole.scheme != found.scheme or not whole.ignored:
        return found
    return replace(found, ignored=whole.ignored, is_list_cut=False)


def _merged(whole: dict[str, Json], extra: dict[str, Json]) -> dict[str, Json]:
    """The config with the missing and null fields of `extra` put where its language part is."""
    if not extra:
        return whole
    known_text, known_top = _language_part(extra), extra
    place = next((path for path in _LANGUAGE_PARTS if isinstance(at(whole, *path), dict)), None)
    if place is None:
        flat = {**{key: value for key, value in known_top.items() if key not in _part_names()}, **known_text}
        return {
            **flat,
            **{key: value for key, value in whole.items() if value is not None or key not in flat},
        }
    text = _language_part(whole)
    filled: Json = {**known_text, **{key: value for key, value in text.items() if value is not None}}
    for step in reversed(place[1:]):
        filled = {step: filled}
    return {
        **{key: value for key, value in known_top.items() if key not in _part_names()},
        **whole,
        place[0]: filled,
    }


def _part_names() -> tuple[str, ...]:
    return tuple(path[0] for path in _LANGUAGE_PARTS)


def _language_part(whole: dict[str, Json]) -> dict[str, Json]:
    for path in _LANGUAGE_PARTS:
        part = at(whole, *path)
        if isinstance(part, dict):
            return part
    return whole


def _family(whole: dict[str, Json], text: dict[str, Json]) -> tuple[str, Family, str]:
    """Model type, its family and, where that is not known, what to tell. The language part comes first."""
    words = [
        text_at(text, "model_type"),
        text_at(text, "architecture"),
        text_at(whole, "model_type"),
        text_at(whole, "architecture"),
    ]
    classes = [text_at(part, "architectures", 0) for part in (text, whole)]
    for word in words:
        for candidate in (word, (word or "").removesuffix("_text")):
            known = SAME.get(candidate or "", candidate or "")
            if known in FAMILIES:
                return _special_type(known, text), FAMILIES[_special_type(known, text)], ""
    for architecture in classes:
        for known, family in FAMILIES.items():
            if architecture == family.architecture:
                return known, family, ""
    said = next((word for word in (*words, *classes) if word), None)
    if said is None:
        return "unknown", _unknown(text), "the config names no architecture: read as a plain transformer"
    return said, _unknown(text), f"architecture `{said}` is not known here: read as a plain transformer"


def _special_type(known: str, text: dict[str, Json]) -> str:
    """DeepSeek-V3.2 configs that still say `deepseek_v3` are told by their indexer."""
    if known in ("deepseek_v3", "deepseek_v2") and int_at(text, "index_topk"):
        return "deepseek_v32"
    return known


def _unknown(text: dict[str, Json]) -> Family:
    """A stand-in for a family that is not in the table, as far as the fields themselves tell."""
    is_mla = bool(int_at(text, "kv_lora_rank") and int_at(text, "qk_rope_head_dim"))
    has_gdn = int_at(text, "linear_num_value_heads") is not None
    return Family(architecture="", is_mla=is_mla, linear=Mixer.GDN if has_gdn else Mixer.MAMBA2)


def _layer_count(fields: Fields, model_type: str) -> int | None:
    if model_type == "longcat_flash" and (blocks := fields.number("num_layers")):
        return 2 * blocks  # two attentions and two MLPs in each block
    return fields.number(*_LAYERS) or len(block_words(fields)) or None


def _read_layers(fields: Fields, family: Family, model_type: str, count: int) -> tuple[Layer, ...]:
    mixers = read_mixers(fields, family, model_type, count)
    return tuple(_layer(fields, family, model_type, mixer, index) for index, mixer in enumerate(mixers))


_RECURRENT = frozenset({Mixer.MAMBA1, Mixer.MAMBA2, Mixer.GDN, Mixer.KDA, Mixer.LIGHTNING, Mixer.SHORT_CONV})
_HAS_BOTH = frozenset({"falcon_h1"})


def _layer(fields: Fields, family: Family, model_type: str, mixer: Mixer, index: int) -> Layer:
    has_state = mixer in _RECURRENT or model_type in _HAS_BOTH
    state_mixer = mixer if mixer in _RECURRENT else family.linear
    has_attention = mixer not in _RECURRENT and mixer is not Mixer.NONE
    return Layer(
        index=index,
        mixer=mixer,
        attention=read_attention(fields, family, model_type, mixer, index) if has_attention else None,
        state=read_state(fields, family, state_mixer) if has_state else None,
        side_state=read_side_state(fields, index),
        mlp=read_mlp(fields, family, model_type, index),
    )


def _mtp_layers(
    fields: Fields, family: Family, model_type: str, count: int, layers: tuple[Layer, ...]
) -> tuple[Layer, ...]:
    """Layers for speculative decoding, numbered on from the last, with the model's own kind of attention."""
    if model_type == "nemotron_h":
        return _nemotron_mtp(fields, family, count)
    wanted = fields.count("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers")
    if not wanted and fields.flag("use_mtp") is not False:
        wanted = fields.count("num_mtp_modules") * (fields.number("mtp_transformer_layers") or 1)
    mixer = next((layer.mixer for layer in reversed(layers) if layer.attention is not None), None)
    if mixer is None:
        return ()
    # Qwen's extra layer is full attention with the model's own kind of MLP; DeepSeek's has experts.
    made = tuple(
        _layer(fields, family, model_type, mixer, count + extra) for extra in range(min(wanted, _MOST_EXTRA))
    )
    size = fields.number("intermediate_size")
    if model_type in _DENSE_DRAFTS and size:
        return tuple(replace(layer, mlp=Mlp(intermediate_size=size)) for layer in made)
    return made


def _nemotron_mtp(fields: Fields, family: Family, count: int) -> tuple[Layer, ...]:
    words = fields.names("mtp_layers_block_type") or tuple(fields.text("mtp_hybrid_override_pattern") or "")
    if not fields.count("num_nextn_predict_layers"):
        return ()
    kinds = {"*": Mixer.FULL, "attention": Mixer.FULL}
    inner = Fields(given={**fields.given, "layers_block_type": list(words)}, assumed=fields.assumed)
    made = (
        _layer(inner, family, "nemotron_h", kinds.get(word, Mixer.NONE), index)
        for index, word in enumerate(words)
    )
    return tuple(replace(layer, index=count + layer.index) for layer in made)


def _dtype(whole: dict[str, Json], text: dict[str, Json]) -> str:
    for part in (text, whole):
        if word := text_at(part, "torch_dtype") or text_at(part, "dtype"):
            return word.removeprefix("torch.")
    return "bfloat16"


def _is_tied(whole: dict[str, Json], text: dict[str, Json], family: Family) -> bool:
    # A model of several parts may say it at the top only, and the top then overrules.
    for part in (whole, text):
        if isinstance(said := part.get("tie_word_embeddings", part.get("tie_embedding")), bool):
            return said
    return family.is_tied


def _rotary_dims(
    fields: Fields, family: Family, model_type: str, layers: tuple[Layer, ...]
) -> tuple[int, ...]:
    """Width of each distinct rotary table. Two kinds of attention with their own base have one each."""
    if not family.has_rope:
        return ()
    seen: list[int] = []
    shapes: set[tuple[Mixer, int]] = set()
    has_own_bases = model_type in ("gemma3", "gemma3n", "gemma4", "mimo_v2_flash", "laguna")
    for layer in layers:
        attention = layer.attention
        if attention is None or attention.head_dim == 0:
            continue
        key = (layer.mixer if has_own_bases else Mixer.FULL, attention.head_dim)
        if key not in shapes:
            shapes.add(key)
            seen.append(attention.qk_rope_head_dim or _rotary(fields, attention.head_dim))
    return tuple(seen)


def _rotary(fields: Fields, size: int) -> int:
    if (rotary := fields.number("rotary_dim")) is not None:
        return min(rotary, size)
    share = fields.share("partial_rotary_factor", "rotary_pct", "rope_pct")
    if share is None:
        found = at(dict(fields.part("rope_parameters")), "partial_rotary_factor")
        share = float(found) if isinstance(found, int | float) else 1.0
    return int(size * share)


def _encoder_tokens(fields: Fields, model_type: str) -> int | None:
    if model_type == "mllama":
        return 4 * 1601  # four tiles of 40 x 40 patches and a class token. Source: the released 11B config
    return fields.number("max_source_positions")


def _filled_notes(text: dict[str, Json], fields: Fields, extra: dict[str, Json]) -> list[str]:
    """What the user should know of where the numbers come from."""
    known = _language_part(extra)
    renamed = {ours for ours, theirs in _SAME_WORDS.items() if text.get(theirs) is not None}
    silent = {name for name in (*known, *fields.assumed) if text.get(name) is None} - renamed - _USUAL
    filled = sorted(name for name in silent if known.get(name) is not None)
    assumed = sorted(name for name in silent - set(text) if name not in known and fields.assumed.get(name))
    notes: list[str] = []
    if filled:
        notes.append(f"not in the config, taken from the catalogue: {_few(filled)}")
    if assumed:
        notes.append(f"not in the config, the defaults of its family: {_few(assumed)}")
    return notes


# What a config may leave out without being the poorer: it says the same in another word, or means the usual.
_SAME_WORDS = {"model_type": "architecture", "num_experts_per_tok": "active_experts"}
_USUAL = frozenset(
    {
        "architectures",
        "attention_bias",
        "decoder_sparse_step",
        "dtype",
        "layer_group_size",
        "max_position_embeddings",
        "mlp_bias",
        "moe_layer_freq",
        "no_rope_layer_interval",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        "sliding_window_pattern",
        "vision_config",
    }
)


def _few(names: list[str]) -> str:
    """A list short enough to read."""
    most = 6
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _layer_notes(layers: tuple[Layer, ...]) -> list[str]:
    needs = [layer.index for layer in layers if layer.mixer is not Mixer.NONE and _is_empty(layer)]
    if needs:
        return [f"no geometry could be read for {len(needs)} of {len(layers)} layers"]
    return []


def _is_empty(layer: Layer) -> bool:
    return layer.attention is None and layer.state is None


def _mistral_native(own: dict[str, Json]) -> dict[str, Json]:
    """`params.json` in the words of a config.json.

    Source: vLLM 0.33.0, `transformers_utils/configs/mistral.py`.
    """
    renamed: dict[str, Json] = {
        "hidden_size": own.get("dim"),
        "num_hidden_layers": own.get("n_layers"),
        "intermediate_size": own.get("hidden_dim"),
        "num_attention_heads": own.get("n_heads"),
        "num_key_value_heads": own.get("n_kv_heads"),
        "max_position_embeddings": own.get("max_position_embeddings", own.get("max_seq_len", 128_000)),
        "tie_word_embeddings": own.get("tied_embeddings", False),
        "model_type": "mistral",
    }
    moe = own.get("moe")
    if isinstance(moe, dict):
        renamed |= {
            "num_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
            "moe_intermediate_size": moe.get("expert_hidden_dim"),
            "n_shared_experts": moe.get("num_shared_experts", 0),
            "first_k_dense_replace": moe.get("first_k_dense_replace", 0),
            "moe_layer_freq": moe.get("route_every_n", 1),
            "model_type": "mixtral",
        }
    if int_at(own, "qk_nope_head_dim"):
        renamed["model_type"] = "deepseek_v3"
        renamed["architectures"] = ["MistralLarge3ForCausalLM"]
    return {**own, **{name: value for name, value in renamed.items() if value is not None}}
