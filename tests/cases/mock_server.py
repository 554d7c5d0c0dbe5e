"""The mock server with exact timing, compiled for the test from the sources beside the repository."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "shared" / "tools" / "mockllm.c"


@contextmanager
def mock_server(folder: Path, *options: str) -> Iterator[int]:
    """The port of a running mock server; skips where it cannot be compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not SOURCE.exists():
        pytest.skip(f"{SOURCE} and a C compiler are needed for the mock server")
    program = folder / "mockllm"
    subprocess.run([compiler, "-O2", "-w", "-o", program, SOURCE], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = (program, "--port", str(port), *options)
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        server.stderr.readline()  # it listens
        try:
            yield port
        finally:
            server.terminate()
            server.stderr.read()
