"""Other builds of llama.cpp than the demo's: a ready `llama-server`, and one of early 2026."""

from pathlib import Path

import pytest

from running_engine import calm, running

pytestmark = pytest.mark.engine
NAME = "smollm2-135m-instruct"
SERVE = Path(__file__).parent / "serve_llama_cpp.py"


def llama_server(python: Path, weights: Path, port: int) -> tuple[str, ...]:
    place = ("--host", "127.0.0.1", "--port", str(port), "--alias", NAME)
    size = ("-c", "8192", "-np", "4", "-t", "2")
    program = str(python.parent / "llama-server-vulkan")
    return (program, "-m", str(weights), *place, *size, "--metrics", "--slots", "--jinja")


def in_process(python: Path, weights: Path, port: int) -> tuple[str, ...]:
    return (str(python), str(SERVE), str(weights), str(port), NAME)


@pytest.mark.parametrize(("package", "argv"), [("llama-server", llama_server), ("llama-cpp-old", in_process)])
def test_a_healthy_engine_with_a_weak_model_passes(package, argv, engine_python, weights, log_of, verify):
    python = engine_python(package)
    with running(
        lambda port: argv(python, weights, port),
        log=log_of(package),
        engine="llama_cpp",
        model=NAME,
        environment={"OMP_WAIT_POLICY": "passive"},
        limit_s=120.0,
    ) as started:
        found = verify(started, "--full")
    capacity = calm(started.child.log)["capacity"]
    assert (capacity["kv_tokens"], capacity["context_tokens"], capacity["running"]) == (8192, 2048, 4)
    assert found.engine["engine"] == "llama_cpp"
    assert found.engine["kv"]["slots"] == 4
    assert found.report["facts"]["model"]["context_tokens"] == 2048
    assert found.bad() == {}
    assert found.exit_code == 0
    severities = found.severities()
    assert severities["bad_requests.malformed_json"] == "note"  # status 500, as these builds do
    for name in ("alive", "cancel", "context_limit", "exposure", "fact", "garble", "streaming"):
        assert severities[name] == "ok", name
