"""Messages of the engines' own Python code, each with its place in the source."""

import json
import random
from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule
from bringup.values.finding import Finding

_TABLE = Path(__file__).parents[2] / "golden" / "rules" / "python_messages.jsonl"
_ROWS = [json.loads(row) for row in _TABLE.read_text().splitlines()]
CASES: tuple[tuple[str, str], ...] = tuple((row["kind"], "\n".join(row["lines"]) + "\n") for row in _ROWS)
_PREFIXES = (
    "(EngineCore_DP0 pid=4711) ERROR 05-28 10:00:09 [core.py:700] ",
    "[2026-03-01 10:00:00 TP1] ",
    "2026-03-01T10:00:01.123456789Z stderr F ",
    "[rank2]: ",
)


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return load_rules()


def _findings(text: str, rules: dict[str, Rule]) -> tuple[Finding, ...]:
    return diagnose(sift([text.encode()], rules), rules, source="test").findings


@pytest.mark.parametrize(
    ("kind", "text"), CASES, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(CASES)]
)
def test_a_message_is_named_first(kind: str, text: str, rules: dict[str, Rule]) -> None:
    assert _findings(text, rules)[0].id == kind


@pytest.mark.parametrize("prefix", _PREFIXES)
def test_prefixes_change_nothing(prefix: str, rules: dict[str, Rule]) -> None:
    for kind, text in random.Random(prefix).sample(CASES, 20):
        if text.startswith("(Ray"):
            continue  # brings its own
        lines = "".join(f"{prefix}{line}\n" for line in text.splitlines())
        assert _findings(lines, rules)[0].id == kind, lines


def test_every_message_has_its_place_in_a_source() -> None:
    assert all(row["from"] for row in _ROWS)


def _first(text: str, rules: dict[str, Rule]) -> Finding:
    return _findings(text, rules)[0]


def _fixes(text: str, rules: dict[str, Rule]) -> dict[str, str | None]:
    return {fix.name: fix.new for fix in _first(text, rules).fixes}


def test_a_step_smaller_than_a_request_is_raised_to_it(rules: dict[str, Rule]) -> None:
    fixes = _fixes("ValueError: max_num_batched_tokens (700) is smaller than max_model_len (9000).\n", rules)
    assert fixes["--max-num-batched-tokens"] == "9000"
    assert fixes["--max-model-len"] == "700"


def test_a_rank_is_raised_to_the_next_that_the_engine_takes(rules: dict[str, Rule]) -> None:
    assert _fixes("ValueError: LoRA rank 72 is greater than max_lora_rank 16.\n", rules) == {
        "--max-lora-rank": "128"
    }


def test_stages_are_cut_where_layers_divide(rules: dict[str, Rule]) -> None:
    said = "ValueError: Total number of hidden layers (39) must be divisible by pipeline parallel size (4).\n"
    assert _fixes(said, rules)["--pipeline-parallel-size"] == "3"


def test_flags_that_a_refusal_names_are_what_to_change(rules: dict[str, Rule]) -> None:
    said = "AssertionError: --enable-foo-overlap requires --disable-bar-cache to be set\n"
    assert set(_fixes(said, rules)) == {"--enable-foo-overlap", "--disable-bar-cache"}


def test_a_bare_assertion_is_told_by_its_condition(rules: dict[str, Rule]) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/lib/python3.12/site-packages/sglang/srt/server_args.py", line 9, in check_server_args\n'
        "    assert self.foo_size <= self.bar_size\n"
        "AssertionError\n"
    )
    found = _first(text, rules)
    assert found.id == "pkg.cli_flag"
    assert "self.foo_size <= self.bar_size" in found.summary


_CAUGHT = (
    "Traceback (most recent call last):\n"
    '  File "/opt/lib/python3.12/site-packages/vllm/config/model.py", line 9, in verify\n'
    "    raise ValueError(x)\n"
    "ValueError: something that was caught and passed over\n"
)
_STARTED = (
    "INFO 05-28 10:00:01 [api_server.py:1] vLLM API server version 0.11.0\n"
    "{}"
    "INFO:     Started server process [1]\n"
    "INFO:     Waiting for application startup.\n"
    "INFO:     Application startup complete.\n"
    "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"
)


@pytest.mark.parametrize(
    "error",
    [
        _CAUGHT,
        "ValueError: --enable-foo-overlap requires --disable-bar-cache to be set\n",
    ],
)
def test_a_refusal_that_the_start_got_past_is_no_failure(error: str, rules: dict[str, Rule]) -> None:
    assert _first(_STARTED.format(error), rules).severity in ("ok", "note")


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: This model's maximum context length is 96 tokens. However, you requested 99 tokens\n",
        "openai.NotFoundError: Error code: 404 - {'message': 'The model `foo` does not exist.'}\n",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
        "  --enable-foo           Enable foo. Must not be used with --disable-bar.\n",
        "ValueError: 'a' is not in list\n",
        "INFO the tokenizer class does not support fast decoding of bytes\n",
    ],
)
def test_what_is_no_refusal_of_settings_is_none(text: str, rules: dict[str, Rule]) -> None:
    assert all(finding.severity not in ("failure", "warning") for finding in _findings(text, rules))


def test_errors_of_other_matters_are_not_told_by_their_place(rules: dict[str, Rule]) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/lib/python3.12/site-packages/vllm/config/vllm.py", line 9, in __post_init__\n'
        "    x = y(z)\n"
        "RuntimeError: CUDA error: initialization error\n"
    )
    assert all(finding.id != "pkg.cli_flag" for finding in _findings(text, rules))
