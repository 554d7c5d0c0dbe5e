"""Real SGLang on this machine's processor. It is slow there, so it is started once."""

from pathlib import Path

import pytest

from counted import counted
from running_engine import calm, running

pytestmark = pytest.mark.engine
MODEL = "smollm2-135m-instruct"
POOL_TOKENS = 8192


@pytest.fixture(scope="module")
def python(engine_python) -> Path:
    return engine_python("sglang")


@pytest.fixture(scope="module")
def engine(python, engine_python, folder_of, log_of):
    folder = folder_of("converted", MODEL, engine_python("vllm"))

    def argv(port: int) -> tuple[str, ...]:
        program = (str(python), "-m", "sglang.launch_server", "--model-path", str(folder))
        place = ("--served-model-name", folder.name, "--host", "127.0.0.1", "--port", str(port))
        plain = ("--attention-backend", "torch_native", "--disable-cuda-graph", "--disable-overlap-schedule")
        size = (
            "--max-total-tokens",
            str(POOL_TOKENS),
            "--mem-fraction-static",
            "0.3",
            "--context-length",
            "2048",
        )
        return (*program, *place, "--device", "cpu", *plain, *size, "--enable-metrics")

    with running(argv, log=log_of("sglang"), engine="sglang", model=folder.name, limit_s=420.0) as started:
        yield started


def test_its_log_is_calm_and_tells_the_start(engine):
    told = calm(engine.child.log)
    assert told["capacity"]["kv_tokens"] == POOL_TOKENS
    assert told["capacity"]["context_tokens"] == 2048
    assert told["capacity"]["kv_bytes"] == pytest.approx(POOL_TOKENS * 23_040, rel=0.05)  # printed as 0.09 GB
    assert sum(one["seconds"] or 0.0 for one in told["phases"]) > 1.0


def test_its_host_memory_is_as_its_rules_say(engine, verify):
    found = verify(engine, "--only", "memory_by_design", "--only", "headroom", "--only", "kv_capacity")
    planned, held = found.memory()
    assert held == pytest.approx(planned, rel=0.05)
    severities = found.severities()
    assert severities["memory_by_design"] == severities["kv_capacity"] == "ok"
    assert severities["headroom"] in ("ok", "note")  # a small machine has less than may still come


def test_its_counters_tell_what_was_sent_to_the_token(engine):
    for one in counted(engine, kind="sglang", model=MODEL, rungs=(1, 3)):
        told = (one.engine.requests, one.engine.input_tokens, one.engine.output_tokens)
        assert told == (one.ours.requests, one.ours.input_tokens, one.ours.output_tokens)
        assert (one.engine.is_shared, one.engine.is_restarted) == (False, False)


def test_a_healthy_engine_with_a_weak_model_passes(engine, verify):
    found = verify(engine, "--full", "--budget", "900")
    assert (found.engine["engine"], found.engine["version"]) == ("sglang", "0.5.23")
    assert found.engine["kv"]["tokens"] == POOL_TOKENS
    assert found.report["facts"]["model"]["context_tokens"] == 2048
    assert found.bad() == {}
    assert found.exit_code == 0
    severities = found.severities()
    for name in (
        "alive",
        "cancel",
        "context_limit",
        "exposure",
        "fact",
        "garble",
        "json_schema",
        "streaming",
    ):
        assert severities[name] == "ok", name
    assert severities["bad_requests.unknown_model"] == "note"  # it takes any name
