"""Brings a small real model up on this machine, verifies it in full, and takes it down again."""

import importlib.util
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from bringup import registry
from bringup.engines import Engine
from bringup.errors import EngineError, UsageError
from bringup.flows.exercise import Step
from bringup.flows.reach import reach
from bringup.flows.ready import Progress, wait_until_ready
from bringup.flows.verify import Verification, VerifyRequest, verify
from bringup.machine import Target as HostTarget
from bringup.transport.http_stream import target_of
from bringup.transport.process import Child, free_port, start
from bringup.transport.weights import SMOLLM2, made_cache_folder, require_gguf, weights_file
from bringup.values.deployment import Depth, Wanted

_READY_LIMIT_S = 120.0
_PORT_TRIES = 3
_NEEDED_FLAGS = ("avx2", "fma", "f16c", "bmi2")  # what the engine's x86-64 build was compiled for


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """How the demo is run."""

    depth: Depth = Depth.FULL
    threads: int = 2
    weights: Path | None = None  # a GGUF of the user's instead of the packaged one


async def demo(
    request: DemoRequest, *, say: Callable[[str], None], on_step: Callable[[Step], None]
) -> Verification:
    """The verification of the demo's model. The engine is stopped whatever happens.

    Raises:
        EngineError: the engine did not start, or this processor cannot run it.
        UsageError: the `demo` extra is not installed, or the weights are no GGUF file.
        HostError: the weights could not be fetched.
    """
    _require_engine()
    if request.weights is not None:
        require_gguf(request.weights)
    weights = request.weights or weights_file(SMOLLM2, say=say)
    alias = SMOLLM2.alias if request.weights is None else request.weights.stem
    child, port = await _started(weights, alias, request.threads, say)
    try:
        target = target_of(f"http://127.0.0.1:{port}")
        async with reach(target, host=None) as world:
            return await verify(
                VerifyRequest(
                    url=target.url,
                    depth=request.depth,
                    wanted=Wanted(model=alias),
                    target=HostTarget(port=port, folders=(("model", str(weights.parent)),)),
                ),
                world,
                on_step=on_step,
            )
    finally:
        say(f"stopping the engine (pid {child.pid})")
        await child.stop()


async def _started(weights: Path, alias: str, threads: int, say: Callable[[str], None]) -> tuple[Child, int]:
    """The engine, ready to answer, and its port."""
    log = made_cache_folder() / "demo-engine.log"
    for attempt in range(1, _PORT_TRIES + 1):
        port = free_port()
        say(f"starting llama.cpp with {alias} on 127.0.0.1:{port}")
        child = start(
            _argv(weights, alias, port, threads), log=log, environment={"OMP_WAIT_POLICY": "passive"}
        )
        try:
            target = target_of(f"http://127.0.0.1:{port}")
            async with reach(target, host=None) as world:
                await wait_until_ready(
                    world.endpoint,
                    expected_model=alias,
                    engine=_engine(),
                    is_alive=child.is_alive,
                    owns_port=partial(child.owns_port, port),
                    limit_s=_READY_LIMIT_S,
                    on_progress=lambda progress: say(_words(progress)),
                )
        except BaseException as error:
            tail = child.log_tail()
            await child.stop()
            if not isinstance(error, EngineError):
                raise
            if "bind" in tail and attempt < _PORT_TRIES:
                say(f"port {port} was taken meanwhile, trying another")
                continue
            raise EngineError(f"{error.message}\n{tail}", hint=_hint(tail, log)) from None
        return child, port
    raise EngineError("no free loopback port was to be had")


def _engine() -> Engine:
    return cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))["llama_cpp"]


def _hint(tail: str, log: Path) -> str:
    """What to do about an engine that did not start."""
    if "libgomp.so" in tail:
        return "the engine needs the OpenMP library, which this system lacks: `apt install libgomp1`"
    return f"its whole output is in {log}"


def _words(progress: Progress) -> str:
    return f"{progress.text} ({progress.elapsed_s:.1f} s)"


def _argv(weights: Path, alias: str, port: int, threads: int) -> tuple[str, ...]:
    options = ("--model", str(weights), "--alias", alias, "--port", str(port), "--threads", str(threads))
    return (sys.executable, "-m", "bringup.transport.demo_engine", *options)


def _require_engine() -> None:
    """Raises unless the engine package is here and this processor can run it."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(
            "the demo needs the package `xllamacpp`, which is not installed",
            hint='`pip install "bringup[demo]"` installs it',
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), None)
    missing = [flag for flag in _NEEDED_FLAGS if flags is not None and flag not in flags]
    if missing:
        raise EngineError(
            f"this processor cannot run the demo's engine: it lacks {', '.join(missing)}",
            hint="the engine needs an x86-64 processor with AVX2 (2013 or later), or a 64-bit ARM one",
        )
