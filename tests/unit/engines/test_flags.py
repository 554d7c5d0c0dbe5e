"""An engine's own command line, as users and `/proc` spell it, reads to the same wishes."""

from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import registry
from bringup.engines import Engine, spec_of
from bringup.values.engine import EngineSpec

ENGINES = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))


def read(line: str) -> EngineSpec:
    spec = spec_of(ENGINES, line.split())
    assert spec is not None, line
    return spec


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/m-7B --tensor-parallel-size 4 --max-model-len 32768 --port 9000",
        "vllm serve org/m-7B --tensor_parallel_size=4 --max_model_len=32768 --port=9000",
        "vllm serve org/m-7B -tp 4 --max-model-len 32K --port 9000",
        "vllm serve --enforce-eager org/m-7B -tp 4 --max-model-len 32768 --port 9000",
        "/venv/bin/python3 /venv/bin/vllm serve org/m-7B -tp=4 --max-model-len 32768 --port 9000",
        "python -m vllm.entrypoints.openai.api_server --model org/m-7B -tp 4 --max-model-len 32K --port 9000",
        "python3 -m vllm.entrypoints.cli.main serve org/m-7B -tp 4 --max-model-len 32768 --port 9000",
        "env A=0,1 numactl -N 0 vllm serve org/m-7B -tp 4 --max-model-len 32768 --port 9000",
        "docker run -p 1:2 vllm/vllm-openai:v0.11 --model org/m-7B -tp 4 --max-model-len 32768 --port 9000",
    ],
)
def test_vllm_in_every_spelling(line: str) -> None:
    spec = read(line)
    assert (spec.engine, spec.model, spec.served_names) == ("vllm", "org/m-7B", ("org/m-7B",))
    assert (spec.tensor_parallel_size, spec.context_tokens, spec.port) == (4, 32768, 9000)
    assert spec.argv == tuple(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "python -m sglang.launch_server --model-path org/m --tp 8 --context-length 4096",
        "python3 -m sglang.launch_server --model org/m --tp-size=8 --context_length 4096",
        "sglang serve --model-path org/m --tensor-parallel-size 8 --context-length 4096",
        "sglang serve org/m --tp 8 --enable-metrics --context-length 4096",
    ],
)
def test_sglang_in_every_spelling(line: str) -> None:
    spec = read(f"{line} --served-model-name x")
    assert (spec.engine, spec.model, spec.served_names) == ("sglang", "org/m", ("x",))
    assert (spec.tensor_parallel_size, spec.context_tokens, spec.port) == (8, 4096, 30000)


@pytest.mark.parametrize(
    ("line", "context"),
    [
        ("llama-server -m /m/q.gguf -c 8192 -np 4", 2048),  # as recorded from a running server
        ("llama-server --model /m/q.gguf --ctx-size 8192 --parallel 4", 2048),
        ("llama-server -m /m/q.gguf -c 8192 -np 4 -kvu", 8192),
        ("llama-server -m /m/q.gguf -c 8192", 8192),
        ("llama-server -m /m/q.gguf -c 0 -ngl -1", None),
        ("llama-server -m /m/q.gguf -c 1000 -np 3", 512),  # a share is padded to 256
        ("C:\\llama\\llama-server.exe -m /m/q.gguf", None),
        ("docker run ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/q.gguf -c 4096 -np 1", 4096),
    ],
)
def test_llama_server_shares_its_context(line: str, context: int | None) -> None:
    spec = read(line)
    assert (spec.engine, spec.model, spec.port) == ("llama_cpp", "/m/q.gguf", 8080)
    assert spec.context_tokens == context
    assert spec.tensor_parallel_size is None


def test_llama_server_aliases_and_negative_values() -> None:
    spec = read("llama-server-vulkan -hf org/m-GGUF:Q4_K_M -a one,two -ngl -1 --jinja --metrics")
    assert (spec.model, spec.served_names) == ("org/m-GGUF:Q4_K_M", ("one", "two"))
    assert spec.flags["--n-gpu-layers"] == "-1"
    assert spec.flags["--jinja"] == ""


@pytest.mark.parametrize(
    "line",
    [
        "trtllm-serve org/m --tp_size 4 --max_seq_len 8192 --port 8001",
        "trtllm-serve serve org/m --tp-size 4 --max-seq-len=8192 --port 8001",
    ],
)
def test_trtllm_serve(line: str) -> None:
    spec = read(line)
    assert (spec.engine, spec.model, spec.tensor_parallel_size) == ("tensorrt_llm", "org/m", 4)
    assert (spec.context_tokens, spec.port) == (8192, 8001)


def test_the_others() -> None:
    lmdeploy = read(
        "lmdeploy serve api_server org/m --tp 2 --session-len 4096 --server-port 1234 --model-name x"
    )
    assert (lmdeploy.engine, lmdeploy.model, lmdeploy.served_names) == ("lmdeploy", "org/m", ("x",))
    assert (lmdeploy.tensor_parallel_size, lmdeploy.context_tokens, lmdeploy.port) == (2, 4096, 1234)
    tgi = read("text-generation-launcher --model-id org/m --num-shard 2 --max-total-tokens 4096 -p 8081")
    assert (tgi.engine, tgi.model, tgi.tensor_parallel_size, tgi.context_tokens, tgi.port) == (
        "tgi",
        "org/m",
        2,
        4096,
        8081,
    )
    assert read("/usr/local/bin/ollama serve").port == 11434


def test_unknown_flags_are_kept() -> None:
    spec = read("vllm serve m --some-new-flag 7 --another-new-one --compilation_config.pass_config.fuse true")
    assert spec.flags["--some-new-flag"] == "7"
    assert spec.flags["--another-new-one"] == ""
    assert spec.flags["--compilation-config.pass_config.fuse"] == "true"


def test_several_served_names_and_json_values() -> None:
    argv = ("vllm", "serve", "m", "--served-model-name", "a", "b", "--hf-overrides", '{"x": 1, "y": [2]}')
    spec = spec_of(ENGINES, argv)
    assert spec is not None
    assert spec.served_names == ("a", "b")
    assert spec.flags["--hf-overrides"] == '{"x": 1, "y": [2]}'


def test_the_last_of_two_wins_and_auto_is_no_number() -> None:
    spec = read("vllm serve m --max-model-len 10 --max-model-len auto --port 1 --port 2")
    assert (spec.context_tokens, spec.port) == (None, 2)


def test_defaults_are_the_engines_own() -> None:
    spec = read("vllm serve m")
    assert (spec.port, spec.tensor_parallel_size, spec.context_tokens) == (8000, 1, None)


def test_a_shell_command_is_looked_into() -> None:
    argv = ("/bin/sh", "-c", "source /venv/bin/activate && exec vllm serve 'my model' --port 8123")
    spec = spec_of(ENGINES, argv)
    assert spec is not None
    assert (spec.model, spec.port) == ("my model", 8123)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "python -m http.server",
        "vllm bench serve --model m",
        "vllm",
        "ollama run qwen",
        "nginx",
        "less vllm.log",
    ],
)
def test_other_commands_are_nobodys(line: str) -> None:
    assert spec_of(ENGINES, line.split()) is None


words = st.sampled_from(
    [
        "vllm",
        "serve",
        "-m",
        "sglang.launch_server",
        "llama-server",
        "--port",
        "-c",
        "--",
        "-",
        "=",
        "--=1",
        "x",
    ]
)


@settings(deadline=None)
@given(st.lists(words | st.text(max_size=10) | st.just("9" * 5000), max_size=10))
def test_no_argument_list_crashes(argv: list[str]) -> None:
    spec = spec_of(ENGINES, argv)
    assert spec is None or spec.argv == tuple(argv)
