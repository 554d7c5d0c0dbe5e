"""`bringup plan --against-log` and `--measured` as they are typed."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from small_model import CONFIG

from bringup.cli.plan import command
from bringup.errors import UsageError
from bringup.flows.start_log import find_start

LOG = """\
INFO 02-01 10:00:00 [utils.py:253] non-default args: {'model_tag': 'org/m', 'max_num_seqs': 256}
INFO 02-01 10:00:20 [core.py:93] Initializing a V1 LLM engine (v0.16.0) with config: model='org/m'
INFO 02-01 10:02:20 [gpu_model_runner.py:3610] Model loading took WEIGHTS GiB memory and 1.28 seconds
INFO 02-01 10:03:20 [gpu_worker.py:350] Available KV cache memory: POOL GiB
INFO 02-01 10:03:21 [kv_cache_utils.py:1287] GPU KV cache size: TOKENS tokens
INFO 02-01 10:03:40 [gpu_worker.py:450] Free memory on device (23.10/23.52 GiB) on startup. Nothing more.
INFO:     Application startup complete.
"""


def log(tmp_path: Path, weights: str = "2.79", pool: str = "16.62", tokens: str = "544,592") -> Path:
    path = tmp_path / "engine.log"
    path.write_text(LOG.replace("WEIGHTS", weights).replace("POOL", pool).replace("TOKENS", tokens))
    return path


def run(tmp_path: Path, *words: str, engine: str = "") -> Result:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    words = ("--model-config", str(path), *words)
    return CliRunner().invoke(command, list(words), obj=tuple(engine.split()))


def test_the_logs_own_command_version_and_card_are_planned(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", "--against-log", str(log(tmp_path)))
    body = json.loads(result.stdout)
    assert body["schema"] == "bringup/plan/1"
    assert body["engine_version"] == "0.16.0"
    assert body["layouts"][0]["command"] == ["vllm", "serve", "org/m", "--max-num-seqs", "256"]
    assert body["gpus"]["cuda_total_bytes"] == 24_084 * 1024**2
    against = body["against_log"]
    assert against["is_ready"] is True
    assert [line["name"] for line in against["lines"]] == ["free_at_start", "weights", "kv_pool", "kv_tokens"]
    weights = against["lines"][1]
    assert weights["evidence"]["line"] == 3
    assert weights["difference"] == weights["log"] - weights["predicted"]
    assert result.exit_code == 0, result.output


def test_what_nothing_explains_is_a_warning_and_1(tmp_path: Path) -> None:
    path = log(tmp_path, weights="6.79", pool="12.62", tokens="413,488")
    result = run(tmp_path, "--against-log", str(path), "--no-color")
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert text.startswith("fits, differs from the log")
    assert "no rule explains the difference" in text
    assert "Model loading took 6.79 GiB" in text
    body = json.loads(run(tmp_path, "--json", "--against-log", str(path)).stdout)
    assert {line["name"]: line["agreement"] for line in body["against_log"]["lines"]} == {
        "free_at_start": "inside",
        "weights": "unexplained",
        "kv_pool": "explained",
        "kv_tokens": "explained",
    }


def test_what_the_user_gives_goes_before_the_log(tmp_path: Path) -> None:
    words = (
        "--json",
        "--against-log",
        str(log(tmp_path)),
        "--gpus",
        "1x RTX 4090",
        "--engine-version",
        "0.11.0",
    )
    result = run(tmp_path, *words, engine="vllm serve org/m --max-num-seqs 64")
    body = json.loads(result.stdout)
    assert body["engine_version"] == "0.11.0"
    assert body["gpus"]["name"] == "NVIDIA GeForce RTX 4090"
    assert body["layouts"][0]["command"][-1] == "64"


def test_a_plan_without_a_log_has_no_such_key(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", "--gpus", "1x RTX 4090", engine="vllm serve org/m")
    assert "against_log" not in json.loads(result.stdout)


def test_measured_figures_are_said_to_be_so(tmp_path: Path) -> None:
    words = ("--gpus", "1x RTX 4090", "--engine-version", "0.16.0", "--measured", str(log(tmp_path)))
    result = run(tmp_path, "--json", *words, engine="vllm serve org/m --max-num-seqs 256")
    layout = json.loads(result.stdout)["layouts"][0]
    origins = {line["name"]: line["origin"] for line in layout["ledger"]}
    assert origins["activations"] == "measured"
    assert any(finding["id"] == "plan.measured" for finding in layout["findings"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\x7fELF\0\0\0\1", "is no text"),
        (b"hello\nworld\n", "no start of an engine"),
        (b"[TensorRT-LLM][INFO] Engine version 0.16.0\n", "a log of TensorRT-LLM"),
        (b"\x1f\x8b\x08broken", "cannot read"),
    ],
)
def test_what_is_no_log_is_said_with_2(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(content)
    result = run(tmp_path, "--gpus", "1x RTX 4090", "--against-log", str(path))
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert words in str(result.exception)


def test_a_log_without_arguments_asks_for_the_command(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text("INFO 02-01 10:02:20 [a.py:1] Model loading took 2.79 GiB memory and 1.28 seconds\n")
    result = run(tmp_path, "--gpus", "1x RTX 4090", "--against-log", str(path))
    assert isinstance(result.exception, UsageError)
    assert "does not show how the engine was started" in str(result.exception)


def test_a_log_that_names_no_card_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text("".join(log(tmp_path).read_text().splitlines(keepends=True)[:5]))
    result = run(tmp_path, "--against-log", str(path))
    assert isinstance(result.exception, UsageError)
    assert "does not say on which GPUs" in str(result.exception)


SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "engines"


@pytest.mark.parametrize(
    ("name", "tokens"), [("vllm/startup_full_compile.log", 46_592), ("sglang/startup2.log", 8_192)]
)
def test_a_real_start_without_a_gpu_is_met_to_the_token(tmp_path: Path, name: str, tokens: int) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {path}: the logs of real engines are kept outside the project")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SMALL))
    words = ["--json", "--model-config", str(config), "--against-log", str(path)]
    result = CliRunner().invoke(command, words, obj=())
    assert result.exit_code == 0, result.output
    found = {line["name"]: line for line in json.loads(result.stdout)["against_log"]["lines"]}
    assert (found["kv_tokens"]["predicted"], found["kv_tokens"]["log"]) == (tokens, tokens)
    assert found["kv_pool"]["agreement"] == "equal"
    assert "free_at_start" not in found


def test_a_packed_log_is_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "engine.log.gz"
    packed.write_bytes(gzip.compress(log(tmp_path).read_bytes()))
    assert find_start(packed).start.kv_tokens == 544_592
