"""Draft models of their own: what they add to a rank, each with its arithmetic."""

import pytest

from bringup.parse.hf_config import read_config
from bringup.planner.draft_weights import draft_of, with_draft
from bringup.planner.weight_rules import WeightRules
from bringup.planner.weights import weights_per_rank
from bringup.values.plan import Layout

# The published sizes of Llama-3.1-8B and of its EAGLE-3 drafter.
LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
EAGLE3 = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
RULES = WeightRules(has_rope_table=False)
MILLION = 1_000_000


def read(config, name="model"):
    return read_config(config, name=name, source="test")


def added(draft, *, method=None, target=LLAMA, **layout):
    """Bytes that the drafter adds to the heaviest rank."""
    spread, model = Layout(**layout), read(target)
    weights = weights_per_rank(model, spread, RULES)
    whole = with_draft(weights, model, draft_of(read(draft), method), spread, RULES)
    assert sum(size for _, size in whole.heaviest.parts) == whole.total
    assert whole.low <= whole.total <= whole.high
    return whole.stages[-1].total - weights.stages[-1].total


def test_an_eagle_3_drafter_is_a_layer_a_joint_and_a_head():
    # qkv 6144 x 8192 + o 4096 x 4096 + gate and up 28672 x 4096 + down 4096 x 14336
    # + joint 4096 x 3 x 4096 + head 32000 x 4096, and 8 bytes for each of its tokens.
    numbers = 6144 * 8192 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336 + 4096 * 12288 + 32000 * 4096
    assert numbers == 424_673_280
    assert added(EAGLE3) == pytest.approx(2 * numbers + 8 * 32000, abs=MILLION)


def test_a_drafter_is_spread_over_the_ranks_but_for_its_joint():
    numbers = (6144 * 8192 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336 + 32000 * 4096) // 4 + 4096 * 12288
    assert added(EAGLE3, tensor_parallel=4) == pytest.approx(2 * numbers + 8 * 32000, abs=MILLION)


def test_an_eagle_drafter_has_the_models_head():
    draft = {key: value for key, value in EAGLE3.items() if key != "draft_vocab_size"}
    numbers = 6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336 + 4096 * 8192
    assert added({**draft, "architectures": ["EagleLlamaForCausalLM"]}) == pytest.approx(
        2 * numbers, abs=MILLION
    )


def test_a_dflash_drafter_joins_as_many_layers_as_it_names():
    draft = {
        **LLAMA,
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 2,
        "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 29]},
    }
    layer = 6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336
    assert added(draft) == pytest.approx(2 * (2 * layer + 4096 * 5 * 4096), abs=MILLION)


def test_a_drafter_of_another_width_has_an_embedding_of_its_own():
    draft = {**EAGLE3, "hidden_size": 2048, "num_attention_heads": 16, "architectures": ["EagleLlama"]}
    narrow = {**draft, "vocab_size": 64}
    more = added(draft, method="eagle") - added(narrow, method="eagle")
    assert more == pytest.approx(2 * 2048 * (128256 - 64), abs=2 * MILLION)


def test_a_language_model_as_drafter_is_held_whole_by_the_last_stage():
    small = {**LLAMA, "num_hidden_layers": 2}
    alone = weights_per_rank(read(small), Layout(tensor_parallel=2), RULES).total
    assert added(small, tensor_parallel=2, pipeline_parallel=2) == alone


@pytest.mark.parametrize(
    ("name", "architecture", "method", "kind"),
    [
        ("org/EAGLE3-LLaMA3.1-8B", "LlamaForCausalLM", None, "eagle3"),
        ("org/draft", "LlamaForCausalLMEagle3", "eagle", "eagle3"),
        ("org/EAGLE-LLaMA3-8B", "EagleModel", None, "eagle"),
        ("org/Qwen3.6-27B-DFlash", "DFlashDraftModel", None, "dflash"),
        ("org/GLM-MTP", "GlmMoeDsaForCausalLM", "mtp", "mtp"),
        ("org/Llama-3.2-1B", "LlamaForCausalLM", None, "model"),
        ("org/Llama-3.2-1B", "LlamaForCausalLM", "draft_model", "model"),
    ],
)
def test_how_a_draft_model_drafts_is_asked_or_told_by_its_name(name, architecture, method, kind):
    model = read({**EAGLE3, "architectures": [architecture]}, name=name)
    assert draft_of(model, method).kind == kind
