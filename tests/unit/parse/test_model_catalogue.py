"""The catalogue against itself: its geometry must give the parameter totals that the models' files have."""

import pytest

from bringup.parse.hf_config import read_config
from bringup.parse.model_catalogue import CatalogueModel, find_model, parameters_of
from bringup.transport.catalogue import load_models
from bringup.values.model import Mixer

MODELS = load_models()


def attention_parameters(hidden, a):
    if a.kv_lora_rank:
        queries = hidden * a.query_heads * a.head_dim
        if a.q_lora_rank:
            queries = a.q_lora_rank * (hidden + 1 + a.query_heads * a.head_dim)
        latent = hidden * (a.kv_lora_rank + a.qk_rope_head_dim) + a.kv_lora_rank
        up = a.kv_lora_rank * a.query_heads * (a.qk_nope_head_dim + a.v_head_dim)
        indexer = 0
        if a.owns_index_cache:
            indexer = a.index_head_dim * (a.q_lora_rank * a.index_heads + hidden + 2) + hidden * a.index_heads
        return queries + latent + up + a.query_heads * a.v_head_dim * hidden + indexer
    keys, values = a.kv_heads * a.head_dim, 0 if a.v_is_k else a.kv_heads * a.v_head_dim
    queries = a.query_heads * a.head_dim
    total = (
        hidden * (queries * (1 + a.has_output_gate) + keys + values) + a.query_heads * a.v_head_dim * hidden
    )
    total += (queries + keys + values if a.has_bias else 0) + (hidden if a.has_output_bias else 0)
    total += {None: 0, "head": 2 * a.head_dim, "layer": queries + keys}[a.qk_norm]
    return total + (a.query_heads if a.has_sinks else 0)


def state_parameters(hidden, mixer, s):
    keys, values = s.key_heads * s.key_head_dim, s.value_heads * s.value_head_dim
    if mixer is Mixer.GDN:
        heads = 2 * hidden * s.value_heads + 2 * s.value_heads + s.value_head_dim
        return hidden * (2 * keys + 3 * values) + heads + (2 * keys + values) * s.conv_kernel
    if mixer is Mixer.MAMBA2:
        width = s.inner_size + 2 * keys
        return (
            hidden * (s.inner_size + width + s.value_heads)
            + width * (s.conv_kernel + s.has_conv_bias)
            + 3 * s.value_heads
            + s.inner_size * (hidden + 1)
        )
    assert mixer is Mixer.KDA
    low_rank = 2 * (hidden * s.value_head_dim + s.value_head_dim * values)
    small = hidden * s.value_heads + s.value_heads + values + s.value_head_dim
    return 4 * hidden * values + 3 * values * s.conv_kernel + low_rank + small


def mlp_parameters(hidden, m):
    parts = 3 if m.is_gated else 2
    if not m.experts:
        return parts * hidden * m.intermediate_size
    each = parts * (m.latent_size or hidden) * m.intermediate_size
    if m.has_bias:
        each += (parts - 1) * m.intermediate_size + hidden
    router = m.experts * (hidden + (m.has_correction_bias or m.has_bias))
    shared = parts * hidden * m.shared_intermediate_size + (hidden if m.has_shared_gate else 0)
    return m.experts * each + router + shared + (2 * hidden * m.latent_size if m.latent_size else 0)


def layer_parameters(model, layer):
    hidden = model.hidden_size
    total = model.norm_count * hidden
    if layer.attention:
        total += attention_parameters(hidden, layer.attention)
    if layer.state:
        total += state_parameters(hidden, layer.mixer, layer.state)
    return total + (mlp_parameters(hidden, layer.mlp) if layer.mlp else 0)


def parameters(model):
    vocabulary = model.vocabulary * model.hidden_size * (1 if model.is_tied else 2)
    return vocabulary + model.hidden_size + sum(layer_parameters(model, layer) for layer in model.layers)


def read(name):
    entry = find_model(name, MODELS)
    return entry, read_config(entry.config, name=entry.name, source=entry.source)


# Published totals that are the plain sum of the language model's tensors.
PLAIN_SUMS = [
    "01-ai/Yi-34B",
    "CohereLabs/c4ai-command-a-03-2025",
    "codellama/CodeLlama-34b-Instruct-hf",
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "deepseek-ai/DeepSeek-V2-Lite",
    "deepseek-ai/DeepSeek-V2.5-1210",
    "google/gemma-2-27b-it",
    "ibm-granite/granite-3.3-8b-instruct",
    "ibm-granite/granite-4.2-3b",
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Meta-Llama-3-8B-Instruct",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/phi-4",
    "MiniMaxAI/MiniMax-M2",
    "MiniMaxAI/MiniMax-M2.7",
    "mistralai/Mistral-Nemo-Instruct-2407",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "nvidia/Nemotron-H-56B-Base-8K",
    "nvidia/Llama-3.1-70B-Instruct-FP8",
    "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16",
    "openai/gpt-oss-120b",
    "openai/gpt-oss-20b",
    "Qwen/Qwen2-7B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-72B-Instruct",
    "Qwen/Qwen3-14B",
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "Qwen/QwQ-32B",
    "RedHatAI/Qwen3-32B-NVFP4",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "zai-org/GLM-Z1-32B-0414",
]


@pytest.mark.parametrize("name", PLAIN_SUMS)
def test_the_layers_of_the_catalogue_add_up_to_the_published_parameters(name):
    entry, model = read(name)
    assert parameters(model) == entry.parameters


# The layer for speculative decoding is in the files: its projection of two hidden states into one, three
# norms and, in DeepSeek's, an embedding and a head of its own. Vision towers have their own sizes.
WITH_EXTRA_LAYER = {
    "deepseek-ai/DeepSeek-R1": True,
    "deepseek-ai/DeepSeek-V3.2": True,
    "zai-org/GLM-4.5": True,
    "zai-org/GLM-4.5-Air": True,
    "zai-org/GLM-4.7-Flash": True,
    "zai-org/GLM-4.6": False,
    "zai-org/GLM-5": False,
    "zai-org/GLM-5.2": False,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": False,
    "XiaomiMiMo/MiMo-7B-Base": False,
}


@pytest.mark.parametrize(("name", "has_own_vocabulary"), WITH_EXTRA_LAYER.items())
def test_the_extra_layer_adds_up_too(name, has_own_vocabulary):
    entry, model = read(name)
    (extra,) = model.mtp_layers
    hidden = model.hidden_size
    added = layer_parameters(model, extra) + 2 * hidden**2 + 3 * hidden
    added += 2 * model.vocabulary * hidden if has_own_vocabulary else 0
    assert parameters(model) + added == entry.parameters


# The share of the total that is not the language model: vision towers and what they bring.
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", 600e6),
        ("Qwen/Qwen3.5-9B", 750e6),
        ("Qwen/Qwen3.6-27B", 950e6),
        ("google/gemma-3-27b-it", 450e6),
        ("google/gemma-4-31B-it", 600e6),
        ("google/gemma-4-12B-it", 60e6),
        ("moonshotai/Kimi-K2.6", 500e6),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 900e6),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", 450e6),
        ("poolside/Laguna-S-2.1", 10e6),  # a gate per head
        ("MiniMaxAI/MiniMax-M2.5", 14e6),  # the scales of the blocks
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 0),
    ],
)
def test_what_is_left_is_what_the_rest_of_the_model_can_be(name, most):
    entry, model = read(name)
    assert -3000 <= entry.parameters - parameters(model) <= most


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_every_entry_reads_whole_and_says_where_it_is_from(entry):
    assert entry.source
    assert entry.config.get("model_type")
    model = read_config(entry.config, name=entry.name, source=entry.source)
    assert not any("not known here" in note or "no geometry" in note for note in model.notes)
    assert all(
        layer.attention or layer.state or layer.mlp or layer.mixer is Mixer.NONE for layer in model.layers
    )
    assert model.max_position
    if "FP8" in entry.name or "NVFP4" in entry.name:
        assert model.quantization


def test_names_are_there_once():
    assert len({entry.name for entry in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("/models/MiniMax-M2.5/", "MiniMaxAI/MiniMax-M2.5"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0123abcd", "Qwen/Qwen3-8B"),
        ("C:\\models\\gpt-oss-20b", "openai/gpt-oss-20b"),
        ("someone/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen3", None),
        ("", None),
        ("/", None),
    ],
)
def test_an_entry_is_found_by_the_end_of_a_name(said, found):
    entry = find_model(said, MODELS)
    assert (entry.name if entry else None) == found


def test_two_models_of_one_last_name_are_not_guessed_between():
    entries = (CatalogueModel(name="a/M", source="s"), CatalogueModel(name="b/M", source="s"))
    assert find_model("M", entries) is None
    assert find_model("b/m", entries).name == "b/M"


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("MiniMaxAI/MiniMax-M2.5", 228.7),
        ("nvidia/MiniMax-M2.5-NVFP4", 228.7),
        ("minimax-m2.5", 228.7),
        ("someone/Qwen3-32B-AWQ-INT4", 32.8),
        ("nvidia/Kimi-K2.5-NVFP4", 1026.9),
        ("/srv/models/gpt-oss-120b", 116.8),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", 403.4),
        ("Qwen/Qwen3-7B", None),
        ("gpt-4", None),
        ("", None),
    ],
)
def test_parameters_by_name_are_those_of_the_model_it_is_a_variant_of(name, billions):
    found = parameters_of(name, MODELS)
    assert (None if found is None else round(found / 1e9, 1)) == billions
