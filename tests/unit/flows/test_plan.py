"""From what the user types to a plan: files, engines, GPUs, and what is wrong with them."""

import json
from pathlib import Path

import pytest
from small_model import TIED

from bringup.errors import EXIT_FINDINGS, HostError, UsageError
from bringup.flows.host_gpus import gpus_as_seen
from bringup.flows.plan import ENGINES, PlanRequest, plan
from bringup.transport.catalogue import load_cards
from bringup.units import MIB
from bringup.values.finding import Severity
from bringup.values.host import Gpu
from bringup.values.plan import Plan

CONFIG = TIED


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


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("vllm serve org/m --tensor-parallel-size $TP", "--tensor-parallel-size"),
        ("vllm serve org/m --tensor-parallel-size 0", "--tensor-parallel-size"),
        ("vllm serve org/m --gpu-memory-utilization nan", "--gpu-memory-utilization"),
        ("vllm serve org/m --gpu-memory-utilization 0,9", "--gpu-memory-utilization"),
        ("vllm serve org/m --cpu-offload-gb much", "--cpu-offload-gb"),
        ("vllm serve org/m --max-model-len 1e4", "--max-model-len"),
        ("vllm serve org/m --compilation-config {mode:3", "--compilation-config"),
        ("sglang serve org/m --tp x", "--tensor-parallel-size"),
        ("sglang serve org/m --mem-fraction-static nan", "--mem-fraction-static"),
        ("llama-server -hf org/m -c many", "--ctx-size"),
        ("llama-server -hf org/m -sm rows", "--split-mode"),
        ("trtllm-serve org/m --tp_size x", "--tp_size"),
        ("trtllm-serve org/m --kv_cache_free_gpu_memory_fraction inf", "--kv_cache_free_gpu_memory_fraction"),
    ],
)
def test_a_value_that_the_engine_would_refuse_is_told(config: Path, line: str, flag: str) -> None:
    found = plan(request(config, line, engine_version=None))
    [finding] = [one for one in found.layouts[0].findings if one.id == "flags.value"]
    assert finding.severity is Severity.FAILURE
    assert f"`{flag}` takes" in finding.summary
    assert found.exit_code == EXIT_FINDINGS


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/m --max-model-len 32k --max-num-batched-tokens 8K --kv-cache-memory-bytes 4G",
        "vllm serve org/m --max-model-len -1 -O3 -cc.mode 3 --limit-mm-per-prompt image=1",
        "vllm serve org/m --max-model-len auto --compilation-config 3 --cpu-offload-gb 0.5",
        "sglang serve org/m --chunked-prefill-size -1 --mem-fraction-static 0.8",
        "llama-server -hf org/m -ngl all -np -1 -ts 3,1 -fa on -c 0",
        "llama-server -hf org/m -ngl 99 -fa -c 4096",
        "trtllm-serve org/m --kv_cache_free_gpu_memory_fraction 0.85",
    ],
)
def test_a_value_that_the_engine_takes_is_not_told(config: Path, line: str) -> None:
    found = plan(request(config, line, engine_version=None))
    assert [one.summary for one in found.layouts[0].findings if one.id == "flags.value"] == []


@pytest.mark.parametrize(
    "line",
    [
        'vllm serve org/m --hf-overrides {"num_hidden_layers":4}',
        "vllm serve org/m --hf-overrides.num_hidden_layers 4",
        'vllm serve org/m --hf-overrides {"text_config":{"num_hidden_layers":4}}',
        'sglang serve org/m --json-model-override-args {"num_hidden_layers":4}',
    ],
)
def test_fields_of_the_config_that_the_command_sets_count(config: Path, line: str) -> None:
    engine = line.split(maxsplit=1)[0]
    whole = plan(request(config, f"{engine} serve org/m", engine_version=None)).layouts[0]
    found = plan(request(config, line, engine_version=None)).layouts[0]
    assert found.kv.bytes_per_token == pytest.approx(whole.kv.bytes_per_token / 4, rel=0.01)
    assert found.weights_bytes < whole.weights_bytes


def test_a_stretched_rope_on_the_command_line_allows_longer_requests(config: Path) -> None:
    longer = "--max-model-len 262144 --hf-overrides"
    rope = '{"rope_parameters":{"rope_type":"yarn","factor":2.0,"original_max_position_embeddings":131072}}'
    assert "settings.max_model_len" in {
        one.id for one in plan(request(config, f"vllm serve org/m {longer} {{}}")).layouts[0].findings
    }
    assert plan(request(config, f"vllm serve org/m {longer} {rope}")).fits


def test_a_config_without_heads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_attention_heads": 0}))
    with pytest.raises(UsageError, match="no attention heads"):
        plan(request(path))


def test_a_card_in_no_catalogue_is_told_what_helps() -> None:
    with pytest.raises(UsageError) as caught:
        plan(request(None, "vllm serve Qwen/Qwen3-8B", gpus="RTX 2080 Ti"))
    assert "--gpu-memory-mib" in (caught.value.hint or "")
