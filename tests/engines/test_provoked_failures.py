"""Starts that are made to fail, each diagnosed from the log that the engine itself wrote.

vLLM and SGLang start as `BRINGUP_ENGINES` says; `BRINGUP_PROVOKE=all` adds slow and rare ways to fail.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bringup.transport.process import Child, free_port, start
from provocations import (
    LAST_SHARD,
    LFS_POINTER,
    CannotProvokeError,
    Place,
    Provocation,
    config_with,
    copied,
    full_cache,
    gguf_field,
    gguf_with,
    memory_limit,
    port_in_use,
    replaced,
    shortened,
    without_template,
)
from running_engine import bringup

pytestmark = pytest.mark.engine
ALL = os.environ.get("BRINGUP_PROVOKE") == "all"
NAME = "provoked"
LIMIT_S = 420.0  # a start that has not failed by then is ended; a busy machine imports for minutes
SERVE = Path(__file__).parent / "serve_llama_cpp.py"
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
ARCHITECTURE = b"general.architecture" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")

IN_ANY_FOLDER = (
    Provocation(
        name="missing-folder", kinds=("file.missing_shard",), cited="untrained-qwen3", breaks=shutil.rmtree
    ),
    Provocation(
        name="unknown-architecture",
        kinds=("model.arch_unknown",),
        cited="qwen9",
        breaks=config_with(architectures=["Qwen9ForCausalLM"], model_type="qwen9"),
    ),
    Provocation(
        name="missing-shard",
        kinds=("file.missing_shard",),
        cited=LAST_SHARD,
        breaks=lambda model: (model / LAST_SHARD).unlink(),
    ),
    Provocation(
        name="truncated-shard",
        kinds=("file.corrupt",),
        cited="SafetensorError",
        breaks=lambda model: shortened(model / LAST_SHARD),
    ),
    Provocation(
        name="pointer-for-shard",
        kinds=("file.lfs_pointer",),
        cited="Error",
        breaks=lambda model: replaced(model / LAST_SHARD, LFS_POINTER.encode()),
        is_essential=False,
    ),
    Provocation(
        name="tensors-of-another-size",
        kinds=("file.param_mismatch",),
        cited="",
        breaks=config_with(hidden_size=512),
        is_essential=False,
    ),
)
VLLM = (
    *IN_ANY_FOLDER,
    Provocation(
        name="unknown-flag",
        kinds=("pkg.cli_flag",),
        cited="--max-model-length",
        options=("--max-model-length", "2048"),
    ),
    Provocation(
        name="unknown-quantisation",
        kinds=("pkg.cli_flag",),
        cited="awq_marlin9",
        options=("--quantization", "awq_marlin9"),
    ),
    Provocation(
        name="quantisation-of-another-checkpoint",
        kinds=("file.param_mismatch",),
        cited="awq",
        options=("--quantization", "awq"),
        is_essential=False,
    ),
    Provocation(
        name="heads-over-three",
        kinds=("shard.heads",),
        cited="attention heads (8)",
        options=("--tensor-parallel-size", "3"),
    ),
    Provocation(
        name="context-beyond-the-model",
        kinds=("pkg.cli_flag",),
        cited="9999999",
        options=("--max-model-len", "9999999"),
    ),
    Provocation(
        name="context-beyond-the-cache",
        kinds=("mem.kv_too_small",),
        cited="4194304",
        breaks=config_with(max_position_embeddings=4_194_304),
        options=("--max-model-len", "4194304"),
    ),
    Provocation(name="port-in-use", kinds=("host.port",), cited="Address already in use", around=port_in_use),
    Provocation(
        name="unknown-parser",
        kinds=("api.tool_parser",),
        cited="nonsense",
        options=("--enable-auto-tool-choice", "--tool-call-parser", "nonsense"),
        is_essential=False,
    ),
    Provocation(
        name="memory-limit",
        kinds=("host.ram_oom",),
        cited="",
        around=memory_limit(600),
        is_essential=False,
    ),
    Provocation(
        name="disk-full",
        kinds=("host.disk_full",),
        cited="No space left on device",
        around=full_cache,
        is_compiled=True,
        is_essential=False,
    ),
    Provocation(
        name="no-chat-template",
        kinds=("api.chat_template",),
        cited="chat template",
        breaks=without_template,
        is_asked=True,
        is_essential=False,
    ),
)
SGLANG = (
    *IN_ANY_FOLDER,
    Provocation(
        name="unknown-flag", kinds=("pkg.cli_flag",), cited="--nonsense", options=("--nonsense", "4")
    ),
    Provocation(
        name="unknown-quantisation",
        kinds=("pkg.cli_flag",),
        cited="awq_marlin9",
        options=("--quantization", "awq_marlin9"),
    ),
    Provocation(
        name="ranks-without-cores",
        kinds=("pkg.cli_flag",),
        cited="SGLANG_CPU_OMP_THREADS_BIND",
        options=("--tp-size", "3"),
        is_essential=False,
    ),
    Provocation(
        name="context-beyond-the-model",
        kinds=("pkg.cli_flag",),
        cited="9999999",
        options=("--context-length", "9999999"),
    ),
    Provocation(
        name="unknown-parser",
        kinds=("api.tool_parser", "pkg.cli_flag"),
        cited="nonsense",
        options=("--tool-call-parser", "nonsense"),
        is_essential=False,
    ),
    Provocation(
        name="quantisation-of-another-checkpoint",
        kinds=("file.param_mismatch", "pkg.cli_flag", "arch.quant_capability"),
        cited="awq",
        options=("--quantization", "awq"),
        is_essential=False,
    ),
    Provocation(
        name="port-in-use",
        kinds=("host.port",),
        cited="address already in use",
        around=port_in_use,
        told="address already in use",  # and it stays, waiting for its shutdown
        is_essential=False,
    ),
    Provocation(
        name="memory-limit",
        kinds=("host.ram_oom",),
        cited="",
        around=memory_limit(600),
        is_essential=False,
    ),
)
LLAMA_CPP = (
    Provocation(name="missing-file", kinds=("file.missing_shard",), cited="gguf", breaks=Path.unlink),
    Provocation(name="truncated-file", kinds=("file.corrupt",), cited="tensor", breaks=shortened),
    Provocation(
        name="pointer-for-file",
        kinds=("file.lfs_pointer",),
        cited="'vers'",
        breaks=lambda model: replaced(model, LFS_POINTER.encode()),
    ),
    Provocation(
        name="page-for-file",
        kinds=("file.corrupt", "gguf.wrong_file"),
        cited="'<!DO'",
        breaks=lambda model: replaced(model, b"<!DOCTYPE html><html></html>".ljust(4096)),
    ),
    Provocation(
        name="unknown-architecture",
        kinds=("gguf.arch",),
        cited="'llamz'",
        breaks=gguf_with(ARCHITECTURE + b"llama", ARCHITECTURE + b"llamz"),
    ),
    Provocation(
        name="missing-tensor",
        kinds=("gguf.tensors",),
        cited="blk.30",
        breaks=gguf_field("llama.block_count", 31),
    ),
    Provocation(name="port-in-use", kinds=("host.port",), cited="bind", around=port_in_use),
    Provocation(
        name="context-beyond-memory", kinds=("mem.kv_none",), cited="kv cache", options=("20000000",)
    ),
    Provocation(name="memory-limit", kinds=("host.ram_oom",), cited="Killed", around=memory_limit(120)),
)


def parameters(provocations: tuple[Provocation, ...]) -> list[Any]:
    wanted = "only with BRINGUP_PROVOKE=all"
    return [
        pytest.param(
            one, id=one.name, marks=() if ALL or one.is_essential else pytest.mark.skip(reason=wanted)
        )
        for one in provocations
    ]


@pytest.fixture
def provoked(tmp_path: Path, log_of: Callable[[str], Path]) -> Callable[..., None]:
    """Lets a start fail, and holds the diagnosis of its log to the provocation."""

    def outcome(
        one: Provocation, *, engine: str, model: Path, argv: Callable[[Place], tuple[str, ...]]
    ) -> None:
        copy = copied(model, tmp_path)
        place = Place(model=copy, port=free_port(), folder=tmp_path)
        log = log_of(f"provoked-{engine}-{one.name}")
        try:
            one.breaks(copy)
            with one.around(place) as around:
                environment = {**OFFLINE, **around.environment}
                child = start((*around.argv, *argv(place), *one.options), log=log, environment=environment)
                has_failed = failed(child, place.port, one)
        except CannotProvokeError as reason:
            pytest.skip(str(reason))
        finally:
            shutil.rmtree(copy, ignore_errors=True) if copy.is_dir() else copy.unlink(missing_ok=True)
        tail = f"{child.log_tail(30)}\n(all of it: {log})"
        assert has_failed, f"no failure within {LIMIT_S:g} s\n{tail}"
        hold(log, one, tail)

    return outcome


def failed(child: Child, port: int, one: Provocation) -> bool:
    """Whether the start, or the first request where one is asked, has failed. Nothing is left of it."""
    deadline = time.monotonic() + LIMIT_S
    answer = None
    try:
        while child.is_alive() and time.monotonic() < deadline:
            if one.told and one.told in child.log.read_text(errors="replace"):
                return True
            if one.is_asked and (answer := refusal(port)) is not None:
                return True
            time.sleep(0.2)
        return not child.is_alive() and not one.is_asked
    finally:
        asyncio.run(child.stop())
        if answer is not None:  # vLLM's own log has the status alone
            with child.log.open("a") as log:
                log.write(f"\nopenai.BadRequestError: Error code: 400 - {answer}\n")


def refusal(port: int) -> str | None:
    """The answer to a chat request where it is an error; None where there is none."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps({"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=60.0).close()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return None
    return None


def hold(log: Path, one: Provocation, tail: str) -> None:
    """The first finding is the cause, and quotes lines that stand in the log under their numbers."""
    done = bringup("diagnose", str(log), "--json", "--quiet")
    assert "Traceback" not in done.stderr, done.stderr
    finding = json.loads(done.stdout)["findings"][0]
    assert finding["id"] in one.kinds, f"{finding['id']}: {finding['summary']}\n{tail}"
    assert done.returncode == 1
    written = log.read_bytes().decode(errors="replace").split("\n")  # progress bars return within a line
    quoted = finding["evidence"]
    assert quoted
    for evidence in quoted:
        assert evidence["text"].strip()[:60] in written[evidence["line"] - 1]
    assert any(one.cited in evidence["text"] for evidence in quoted), quoted


@pytest.mark.parametrize("one", parameters(VLLM))
def test_vllm(one, engine_python, folder_of, provoked):
    python = engine_python("vllm")
    folder = folder_of("random", "untrained-qwen3", python)

    def argv(place: Place) -> tuple[str, ...]:
        program = (str(python), str(python.parent / "vllm"), "serve", str(place.model))
        where = ("--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(place.port))
        return (*program, *where, "--max-num-seqs", "4", *(() if one.is_compiled else ("--enforce-eager",)))

    provoked(one, engine="vllm", model=folder, argv=argv)


@pytest.mark.parametrize("one", parameters(SGLANG))
def test_sglang(one, engine_python, folder_of, provoked):
    python = engine_python("sglang")
    folder = folder_of("random", "untrained-qwen3", engine_python("vllm"))

    def argv(place: Place) -> tuple[str, ...]:
        program = (str(python), "-m", "sglang.launch_server", "--model-path", str(place.model))
        where = ("--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(place.port))
        plain = ("--attention-backend", "torch_native", "--disable-cuda-graph", "--disable-overlap-schedule")
        return (*program, *where, "--device", "cpu", *plain, "--mem-fraction-static", "0.3")

    provoked(one, engine="sglang", model=folder, argv=argv)


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
@pytest.mark.parametrize("one", parameters(LLAMA_CPP))
def test_llama_cpp(one, weights, provoked):
    def argv(place: Place) -> tuple[str, ...]:
        return (sys.executable, str(SERVE), str(place.model), str(place.port), NAME)

    provoked(one, engine="llama-cpp", model=weights, argv=argv)


def test_a_unit_that_is_stopped_by_its_time_limit():
    if shutil.which("systemd-run") is None or not Path("/run/systemd/system").is_dir():
        pytest.skip("systemd does not run here")
    unit = f"bringup-test-{os.getpid()}"
    limits = ("--property=Type=notify", "--property=TimeoutStartSec=2")
    argv = ("systemd-run", "--wait", "--quiet", f"--unit={unit}", *limits, "sleep", "60")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60.0)
    if "Failed to start transient service unit" in done.stderr or "denied" in done.stderr:
        pytest.skip(f"no unit can be started here: {done.stderr.strip()}")
    found = json.loads(bringup("diagnose", "--unit", unit, "--json", "--quiet").stdout)["findings"][0]
    assert found["id"] == "systemd.timeout"
    assert any("start operation timed out" in evidence["text"] for evidence in found["evidence"])
