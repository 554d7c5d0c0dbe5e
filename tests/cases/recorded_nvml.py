"""The real nvidia-ml-py on a library with recorded values, compiled for the test."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("recorded_nvml.c")


def recorded_nvml(folder: Path, monkeypatch: pytest.MonkeyPatch, *, mode: str = "") -> None:
    """Lets every child process find the recorded library in place of the driver's; skips where it cannot."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or importlib.util.find_spec("pynvml") is None:
        pytest.skip("a C compiler and nvidia-ml-py are needed for the library with recorded values")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("RECORDED_NVML", mode)
