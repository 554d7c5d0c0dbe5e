"""From what the user types to a plan: files, engines, GPUs, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from bringup.errors import HostError, UsageError
from bringup.flows.host_gpus import gpus_as_seen
from bringup.flows.plan import ENGINES, PlanRequest, plan
from bringup.transport.catalogue import load_cards
from bringup.units import MIB
from bringup.values.host import Gpu
from bringup.values.plan import Plan

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def request(config: Path | None, line: str = "vllm serve org/m", **given: object) -> PlanRequest:
    words = {"gpus": "2x RTX 4090", "engine_version": "0.32.0", **given}
    return PlanRequest(argv=tuple(line.split()), config_file=config, **words)  # type: ignore[arg-type]


def test_a_command_is_planned_exactly(config: Path) -> None:
    found = plan(request(config, "vllm serve org/m --tensor-parallel-size 2"))
    assert found.fits
    assert (found.model, found.engine, found.engine_version) == ("org/m", "vllm", "0.32.0")
    assert [one.layout.tensor_parallel for one in found.layouts] == [2]


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("python3 -m sglang.launch_server --model-path org/m --tp 2", "sglang"),
        ("sglang serve org/m --tp-size=2", "sglang"),
        ("llama-server -hf org/m -c 4096 -sm row", "llama_cpp"),
        ("env A=1 trtllm-serve org/m --tp_size 2 --max_seq_len 4096", "tensorrt_llm"),
    ],
)
def test_every_engine_plans_its_own_command(config: Path, line: str, engine: str) -> None:
    found = plan(request(config, line, engine_version=None))
    assert (found.model, found.engine, found.fits) == ("org/m", engine, True)
    assert found.layouts[0].layout.tensor_parallel == 2
    assert sum(one.bytes for one in found.layouts[0].ledger) == found.gpus.card.memory_total


def test_without_a_command_layouts_are_chosen(config: Path) -> None:
    found = plan(request(config, "", model="org/m"))
    assert found.layouts[0].command[:3] == ("vllm", "serve", "org/m")


@pytest.mark.parametrize(
    ("engine", "start"),
    [
        ("vllm", "vllm serve org/m"),
        ("sglang", "python -m sglang.launch_server --model-path org/m"),
        ("llama.cpp", "llama-server --hf-repo org/m"),
        ("tensorrt-llm", "trtllm-serve org/m"),
    ],
)
def test_every_engine_chooses_layouts(config: Path, engine: str, start: str) -> None:
    found = plan(request(config, "", model="org/m", engine=engine, engine_version=None, context=4096))
    assert found.engine == ENGINES[engine]
    assert found.fits
    assert " ".join(found.layouts[0].command).startswith(start)


def test_the_file_of_trtllm_serve_is_read(config: Path, tmp_path: Path) -> None:
    flags = tmp_path / "serve.yaml"
    flags.write_text("tensor_parallel_size: 2\nkv_cache_config:\n  dtype: fp8\n")
    for spelled in ("--config", "--extra_llm_api_options"):
        found = plan(request(config, f"trtllm-serve org/m {spelled} {flags}"))
        assert found.layouts[0].layout.tensor_parallel == 2
        assert found.layouts[0].kv.cache_dtype == "fp8"


def test_the_settings_file_of_the_engine_is_read(config: Path, tmp_path: Path) -> None:
    flags = tmp_path / "serve.yaml"
    flags.write_text("model: org/m\nmax-model-len: 4096\ngpu-memory-utilization: 0.5\n")
    found = plan(request(config, f"vllm serve --config {flags} --max-model-len 8192"))
    half = plan(request(config, "vllm serve org/m --gpu-memory-utilization 0.5 --max-model-len 8192"))
    assert found.model == "org/m"
    assert found.layouts[0].context == 8192
    assert found.layouts[0].kv == half.layouts[0].kv


def test_memory_that_is_given_beats_the_catalogue(config: Path) -> None:
    small = plan(request(config, gpus="1x unknown", cuda_memory_mib=8192))
    large = plan(request(config, gpus="1x unknown", cuda_memory_mib=16384))
    assert small.gpus.card.cuda_total == 8192 * MIB
    assert small.layouts[0].kv.tokens < large.layouts[0].kv.tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{nothing", "is not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"model_type": "llama"}', "gives no layers"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        plan(request(path))


def test_a_config_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no text"):
        plan(request(path))


def test_a_command_of_no_engine(config: Path) -> None:
    with pytest.raises(UsageError, match=r"`python train\.py` starts no known engine"):
        plan(request(config, "python train.py"))


def test_an_engine_whose_memory_is_not_known(config: Path) -> None:
    with pytest.raises(UsageError, match="memory rules of `tgi`"):
        plan(request(config, "text-generation-launcher --model-id org/m"))


def test_no_model_and_no_gpus(config: Path) -> None:
    with pytest.raises(UsageError, match="which model"):
        plan(request(None, ""))
    with pytest.raises(UsageError, match="which GPUs"):
        plan(request(config, gpus=None))
    with pytest.raises(UsageError, match="one of"):
        plan(request(config, host="gpubox"))


def seen(name: str, total: int, *, used: int = 0, reserved: int = 0) -> Gpu:
    return Gpu(
        index=0,
        name=name,
        memory_total=total * MIB,
        memory_used=used * MIB,
        memory_reserved=reserved * MIB,
        compute_capability="12.0",
    )


def test_gpus_as_the_driver_reports_them() -> None:
    card = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    found = gpus_as_seen(
        [seen(card, 97887, reserved=636), seen(card, 97887, used=900, reserved=636)], load_cards(), host="box"
    )
    assert (found.count, found.used_by_others) == (2, 900 * MIB)
    assert (found.card.memory_total, found.card.cuda_total) == (97887 * MIB, 97251 * MIB)
    assert found.card.source == "seen on box"


def test_gpus_that_differ_are_not_mixed() -> None:
    with pytest.raises(UsageError, match="several kinds"):
        gpus_as_seen([seen("A", 1000), seen("B", 2000)], (), host="box")


def test_a_recording_without_gpus_says_so(config: Path) -> None:
    demo = Path(__file__).parents[2] / "golden" / "recordings" / "demo.json.gz"
    with pytest.raises(HostError):
        plan(request(config, gpus=None, recording=demo))


def test_a_draft_model_is_looked_for_beside_the_model(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))

    def planned(draft: Path) -> Plan:
        asked = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3}
        argv = ("vllm", "serve", "org/m", "--speculative-config", json.dumps(asked))
        words = {"gpus": "1x RTX 4090", "engine_version": "0.32.0"}
        return plan(PlanRequest(argv=argv, config_file=config, **words))  # type: ignore[arg-type]

    found, lost = planned(folder), planned(tmp_path / "elsewhere")
    # Two layers of 2048 x (3072 + 2048 + 3 x 8192), and a tied table of 128,256 rows.
    numbers = 2 * 2048 * (3072 + 2048 + 3 * 8192) + 128256 * 2048
    more = found.layouts[0].weights_bytes - lost.layouts[0].weights_bytes
    assert more == pytest.approx(2 * numbers, rel=0.03)
    assert "weights.draft_model" in {one.id for one in lost.layouts[0].findings}
    assert "weights.draft_model" not in {one.id for one in found.layouts[0].findings}
