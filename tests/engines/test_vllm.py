"""Real vLLM on this machine's processor: sound, with untrained weights, and dying on its first request."""

from pathlib import Path

import pytest

from counted import counted
from running_engine import calm, running

pytestmark = pytest.mark.engine
MODEL = "smollm2-135m-instruct"
CACHE_GIB = 1
BLOCK_TOKENS = 128  # vLLM's on a CPU
CACHE = CACHE_GIB * 1024**3
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB)}
TWO_WORKERS = {**ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": "0|1"}  # both on one NUMA node


@pytest.fixture(scope="module")
def python(engine_python) -> Path:
    return engine_python("vllm")


def argv(python: Path, folder: Path, port: int, *more: str) -> tuple[str, ...]:
    program = (
        str(python),
        str(python.parent / "vllm"),
        "serve",
        str(folder),
        "--served-model-name",
        folder.name,
    )
    place = ("--host", "127.0.0.1", "--port", str(port))
    return (*program, *place, "--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager", *more)


def blocks(*, layers: int, kv_heads: int, head_dim: int) -> int:
    """Whole blocks in the cache: keys and values of two bytes each."""
    bytes_per_token = 2 * layers * kv_heads * head_dim * 2
    return CACHE // (bytes_per_token * BLOCK_TOKENS)


@pytest.fixture(scope="module")
def engine(python, folder_of, log_of):
    folder = folder_of("converted", MODEL, python)
    with running(
        lambda port: argv(python, folder, port),
        log=log_of("vllm"),
        engine="vllm",
        model=folder.name,
        environment=ENVIRONMENT,
    ) as started:
        yield started


def test_its_log_is_calm_and_tells_the_start(engine):
    told = calm(engine.child.log)
    assert told["capacity"]["kv_tokens"] == 364 * BLOCK_TOKENS
    assert told["capacity"]["context_tokens"] == 2048
    assert told["capacity"]["kv_bytes"] == CACHE
    seconds = {one["name"]: one["seconds"] for one in told["phases"]}
    assert sum(value or 0.0 for value in seconds.values()) > 1.0
    assert {"communicators", "weights", "kv_cache"} <= set(seconds)


def test_what_runs_is_known(engine, verify):
    found = verify(engine, "--quick", "--only", "models_endpoint", "--only", "exposure")
    assert (found.engine["engine"], found.engine["version"]) == ("vllm", "0.32.0")
    expected = blocks(layers=30, kv_heads=3, head_dim=64)  # 23,040 bytes per token
    assert expected == 364
    kv = found.engine["kv"]
    assert (kv["blocks"], kv["block_tokens"], kv["tokens"]) == (
        expected,
        BLOCK_TOKENS,
        expected * BLOCK_TOKENS,
    )
    assert found.report["facts"]["model"]["context_tokens"] == 2048
    process = next(one for one in found.report["facts"]["host"]["engines"] if one["port"] == engine.port)
    assert "--enforce-eager" in process["argv"]
    assert len(process["children"]) >= 1  # the engine core


def test_its_host_memory_is_as_its_rules_say(engine, verify):
    found = verify(engine, "--only", "memory_by_design", "--only", "headroom", "--only", "kv_capacity")
    planned, held = found.memory()
    assert held == pytest.approx(planned, rel=0.05)
    lines = {line["name"]: line["bytes"] for line in found.report["facts"]["account"]["host"]["lines"]}
    assert lines["kv_pool"] == 46_592 * 23_040
    severities = found.severities()
    assert severities["memory_by_design"] == severities["kv_capacity"] == "ok"
    assert severities["headroom"] in ("ok", "note")  # a small machine has less than may still come


def test_its_counters_tell_what_was_sent_to_the_token(engine):
    for one in counted(engine, kind="vllm", model=MODEL, rungs=(1, 3, 9)):
        told = (one.engine.requests, one.engine.input_tokens, one.engine.output_tokens)
        assert told == (one.ours.requests, one.ours.input_tokens, one.ours.output_tokens)
        assert (one.engine.is_shared, one.engine.is_restarted) == (False, False)


@pytest.mark.parametrize("depth", ["--quick", "--full"])
def test_a_healthy_engine_with_a_weak_model_passes(engine, verify, depth):
    found = verify(engine, depth)
    assert found.bad() == {}
    assert found.exit_code == 0
    severities = found.severities()
    for name in ("alive", "context_limit", "exposure", "fact", "garble", "logprobs", "streaming"):
        assert severities[name] == "ok", name
    assert severities["models_endpoint.context"] == "ok"  # as its command line says
    if depth == "--full":
        assert severities["bad_requests"] == severities["cancel"] == severities["json_schema"] == "ok"
        assert severities["tool_call"] == "note"  # started without a parser


def test_untrained_weights_over_two_workers_are_not_taken_for_a_model(python, folder_of, log_of, verify):
    folder = folder_of("random", "untrained-qwen3", python)
    with running(
        lambda port: argv(python, folder, port, "--tensor-parallel-size", "2"),
        log=log_of("vllm-untrained"),
        engine="vllm",
        model=folder.name,
        environment=TWO_WORKERS,
    ) as started:
        found = verify(started, "--quick")
    assert found.exit_code == 1
    assert found.report["verdict"] == "broken"
    severities = found.severities()
    assert "failure" in {severities.get("garble"), severities.get("garble.loops")}
    assert severities["logprobs.guessing"] in ("warning", "failure")
    assert severities["alive"] == severities["streaming"] == "ok"  # the engine itself is sound
    # each of two workers has half of the heads and a cache of its own
    assert found.engine["kv"]["tokens"] == BLOCK_TOKENS * blocks(layers=4, kv_heads=2, head_dim=32)


def test_ready_healthy_and_dead_after_its_first_request(python, folder_of, log_of, verify):
    folder = folder_of("random-experts", "untrained-qwen3-experts", python)
    parallel = ("--tensor-parallel-size", "2", "--enable-expert-parallel")
    with running(
        lambda port: argv(python, folder, port, *parallel),
        log=log_of("vllm-experts"),
        engine="vllm",
        model=folder.name,
        environment=TWO_WORKERS,
        first_request=False,
    ) as started:
        found = verify(started)
    assert found.exit_code == 1
    assert found.report["verdict"] == "broken"
    assert found.report["findings"][0]["id"] == "alive"  # what users must read first
    assert found.severities()["alive"] == "failure"
    assert found.engine["is_healthy"] is True  # it was, when it was identified
