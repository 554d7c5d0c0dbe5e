import json
from pathlib import Path

import pytest

from bringup.flows.diagnose import load_rules, model_named, sift
from bringup.flows.model_shape import shape_of
from bringup.values.case import Case, CaseLine
from bringup.values.host import HostSnapshot, ModelFiles

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "num_hidden_layers": 40,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def case(model: str, *lines: str, host: HostSnapshot | None = None) -> Case:
    told = tuple(CaseLine(number=place, text=text) for place, text in enumerate(lines, start=1))
    return Case(lines=told, model=model, host=host)


def test_the_catalogue_knows_heads_blocks_and_weights():
    shape = shape_of(case("/models/MiniMax-M2.5"))
    assert (shape.heads, shape.vocabulary, shape.expert_intermediate, shape.block) == (
        48,
        200_064,
        1536,
        (128, 128),
    )
    assert shape.weight_bytes == pytest.approx(214.3 * 1024**3, rel=0.01)


def test_the_log_goes_before_the_catalogue():
    assert shape_of(case("MiniMaxAI/MiniMax-M2.5", '"vocab_size": 32000,')).vocabulary == 32_000


def test_a_folder_here_is_read(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shape = shape_of(case(str(tmp_path)))
    assert (shape.heads, shape.intermediate, shape.max_positions) == (40, 13824, 4096)


def test_of_another_host_its_own_files_are_taken_and_no_folder_here(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    bare = HostSnapshot(host="h", taken_at=0.0)
    assert not shape_of(case(str(tmp_path), host=bare)).is_known
    files = ModelFiles(
        folder="/m", texts=(("config.json", json.dumps({**CONFIG, "vocab_size": 99})),), sizes=()
    )
    told = HostSnapshot(host="h", taken_at=0.0, model_files=files)
    assert shape_of(case("/m", host=told)).vocabulary == 99


def test_another_number_format_has_the_same_heads_and_its_own_groups():
    shape = shape_of(case("someone/Qwen3-32B-AWQ"))
    assert (shape.heads, shape.kv_heads, shape.group, shape.weight_bytes) == (64, 8, None, None)


def test_an_unknown_model_has_no_sizes():
    assert not shape_of(case("nobody/never-seen")).is_known


def test_a_host_is_asked_for_the_model_that_the_log_names():
    text = (
        "HF_HOME=/big/hf\n"
        "(APIServer pid=1) INFO 03-04 05:06:01 [utils.py:1] non-default args: {'model': 'org/m', 'port': 1}\n"
        "(EngineCore pid=9) INFO 03-04 05:06:02 [core.py:1] Initializing a V1 LLM engine (v0.11) with "
        "config: model='org/m', dtype=torch.bfloat16\n"
    )
    rules = load_rules()
    assert model_named(sift([text.encode()], rules)) == ("org/m", (("HF_HOME", "/big/hf"),))
    assert model_named(sift([b"nothing"], rules)) == (None, ())
