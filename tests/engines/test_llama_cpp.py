"""The demo's engine, llama.cpp in a process of its own, with the demo's weights: part of every test run."""

import asyncio
import importlib.util
import socket
import sys
from pathlib import Path

import pytest

from bringup.transport.process import Child
from counted import counted
from running_engine import calm, running

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
NAME = "smollm2-135m-instruct"
ALWAYS_GOOD = (
    "alive",
    "context_limit",
    "exposure",
    "fact",
    "garble",
    "logprobs",
    "models_endpoint",
    "stopping",
    "streaming",
)
GOOD_IN_FULL = ("cancel", "determinism", "json_schema", "json_schema.nested", "system_prompt")


def argv(weights: Path, port: int) -> tuple[str, ...]:
    options = ("--model", str(weights), "--alias", NAME, "--port", str(port), "--threads", "2")
    return (sys.executable, "-m", "bringup.transport.demo_engine", *options)


@pytest.fixture(scope="module")
def engine(weights, log_of):
    source = Path(__file__).parents[2] / "src"
    environment = {"OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(source)}
    with running(
        lambda port: argv(weights, port),
        log=log_of("demo"),
        engine="llama_cpp",
        model=NAME,
        environment=environment,
        limit_s=120.0,
    ) as started:
        yield started


def test_its_log_is_calm_and_tells_the_start(engine):
    told = calm(engine.child.log)
    assert told["capacity"]["kv_tokens"] == 8192
    assert told["capacity"]["context_tokens"] == 2048
    assert told["capacity"]["running"] == 4
    assert sum(one["seconds"] or 0.0 for one in told["phases"]) > 0.0


def test_what_runs_is_known(engine, verify):
    found = verify(engine, "--quick", "--only", "models_endpoint", "--only", "exposure")
    assert found.engine["engine"] == "llama_cpp"
    assert found.engine["kv"]["slots"] == found.engine["max_running"] == 4
    assert found.report["facts"]["model"]["id"] == NAME
    assert found.report["facts"]["model"]["context_tokens"] == 8192 // 4  # a slot's share
    assert found.report["facts"]["model"]["parameters"] == 134_515_008
    process = next(one for one in found.report["facts"]["host"]["engines"] if one["port"] == engine.port)
    assert process["pid"] == engine.child.pid
    assert process["address"] == "127.0.0.1"


def test_its_host_memory_is_as_its_rules_say(engine, verify, weights):
    found = verify(engine, "--only", "memory_by_design", "--only", "headroom", "--only", "kv_capacity")
    planned, held = found.memory()
    assert held == pytest.approx(planned, rel=0.05)
    lines = {line["name"]: line["bytes"] for line in found.report["facts"]["account"]["host"]["lines"]}
    assert lines["weights"] == weights.stat().st_size  # the whole file is mapped and has been read
    assert lines["kv_pool"] == 8192 * 23_040  # each slot has a cache of its own, as its memory shows
    severities = found.severities()
    assert severities["memory_by_design"] == severities["kv_capacity"] == "ok"
    assert severities["headroom"] in ("ok", "note")  # a small machine has less than may still come


@pytest.mark.parametrize("depth", ["--quick", "--full"])
def test_a_healthy_engine_with_a_weak_model_passes(engine, verify, depth):
    found = verify(engine, depth)
    assert found.bad() == {}
    assert found.exit_code == 0
    assert found.report["verdict"] == "works"
    good = (*ALWAYS_GOOD, *GOOD_IN_FULL) if depth == "--full" else ALWAYS_GOOD
    assert {name: found.severities().get(name) for name in good} == dict.fromkeys(good, "ok")
    assert found.severities()["arithmetic"] == "note"  # this model cannot calculate, and nothing is broken
    assert engine.child.is_alive()


def test_its_counters_tell_what_was_sent_to_the_token(engine):
    for one in counted(engine, kind="llama_cpp", model=NAME, rungs=(1, 3, 9)):
        told = (one.engine.input_tokens, one.engine.output_tokens)
        assert told == (one.ours.input_tokens, one.ours.output_tokens)
        assert (one.engine.is_shared, one.engine.is_restarted) == (False, False)
        assert one.engine.most_running is None or 0 <= one.engine.most_running <= 4


def test_nothing_is_left_of_it(weights, log_of):
    source = Path(__file__).parents[2] / "src"
    with running(
        lambda port: argv(weights, port),
        log=log_of("demo-stopped"),
        engine="llama_cpp",
        model=NAME,
        environment={"PYTHONPATH": str(source)},
        limit_s=120.0,
    ) as started:
        child, port = started.child, started.port
    assert not child.is_alive()
    assert not Path(f"/proc/{child.pid}").exists()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))
    asyncio.run(Child(popen=child.popen, log=child.log).stop())  # ending it again does no harm
