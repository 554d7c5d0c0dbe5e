"""`bringup plan` as it is typed."""

import json
from pathlib import Path

from click.testing import CliRunner, Result
from small_model import CONFIG

from bringup.cli.plan import command


def run(tmp_path: Path, *own: str, engine: str = "vllm serve org/m") -> Result:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    words = ["--gpus", "1x RTX 4090", "--engine-version", "0.32.0", "--model-config", str(path), *own]
    return CliRunner().invoke(command, words, obj=tuple(engine.split()))


def test_what_fits_is_0_and_what_does_not_6(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path, engine="vllm serve org/m --gpu-memory-utilization 0.05").exit_code == 6


def test_warnings_are_1(tmp_path: Path) -> None:
    assert run(tmp_path, "--concurrency", "100000").exit_code == 1


def test_json_on_standard_output_even_when_it_does_not_fit(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", engine="vllm serve org/m --gpu-memory-utilization 0.05")
    assert json.loads(result.stdout)["fits"] is False


def test_length_of_prompt_and_answer_together_is_the_context(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", "--input-tokens", "3000", "--output-tokens", "1000")
    assert json.loads(result.stdout)["layouts"][0]["requests"]["context_tokens"] == 4000
