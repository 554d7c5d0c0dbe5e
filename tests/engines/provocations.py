"""Ways in which a start is made to fail: what is broken, and the kinds that its log must be diagnosed as."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

LFS_POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 4728904\n"
)
LAST_SHARD = "model-00002-of-00002.safetensors"
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")  # version 1, then version 2


class CannotProvokeError(Exception):
    """This machine does not allow this one; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one start takes place."""

    model: Path  # a copy that may be broken
    port: int
    folder: Path  # empty, for whatever else is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is put around a start."""

    argv: tuple[str, ...] = ()  # before the program
    environment: Mapping[str, str] = field(default_factory=dict)


Surroundings = Callable[[Place], AbstractContextManager[Around]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provocation:
    """One way to fail."""

    name: str
    kinds: tuple[str, ...]  # any of them is right
    cited: str  # stands in a deciding line
    breaks: Callable[[Path], None] = lambda _model: None
    options: tuple[str, ...] = ()  # of the engine's command
    around: Surroundings = lambda _place: nullcontext(Around())
    is_asked: bool = False  # it comes up, and fails the first chat request
    told: str = ""  # in its log once it has failed, where the engine does not end by itself
    is_compiled: bool = False  # kernels are compiled, which other starts are spared
    is_essential: bool = True  # the others want BRINGUP_PROVOKE=all


def copied(model: Path, folder: Path) -> Path:
    """A copy whose files may be replaced: of links for a folder, of bytes for one file."""
    if model.is_file():
        return Path(shutil.copyfile(model, folder / model.name))
    copy = folder / model.name
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).symlink_to(file)
    return copy


def replaced(path: Path, content: bytes) -> None:
    """A file of a copy with other content; the original stays as it is."""
    path.unlink()
    path.write_bytes(content)


def config_with(**fields: object) -> Callable[[Path], None]:
    """Breaks `config.json`."""

    def breaks(model: Path) -> None:
        path = model / "config.json"
        replaced(path, json.dumps({**json.loads(path.read_text()), **fields}).encode())

    return breaks


def shortened(path: Path) -> None:
    """Breaks a shard or a GGUF: half of it is there."""
    replaced(path, path.read_bytes()[: path.stat().st_size // 2])


def without_template(model: Path) -> None:
    """Takes the chat template out of the tokenizer's settings."""
    path = model / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["chat_template"]
    replaced(path, json.dumps(settings).encode())


def gguf_with(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Breaks a field of a GGUF."""

    def breaks(model: Path) -> None:
        content = model.read_bytes()
        assert content.count(old) == 1
        replaced(model, content.replace(old, new))

    return breaks


def gguf_field(name: str, value: int) -> Callable[[Path], None]:
    """Breaks a whole number among the fields of a GGUF."""

    def breaks(model: Path) -> None:
        content = model.read_bytes()
        mark = name.encode() + (4).to_bytes(4, "little")  # the type: 32 bits without a sign
        at = content.index(mark) + len(mark)
        replaced(model, content[:at] + value.to_bytes(4, "little") + content[at + 4 :])

    return breaks


@contextmanager
def port_in_use(place: Place) -> Iterator[Around]:
    """Somebody else listens there."""
    with socket.create_server(("127.0.0.1", place.port)):
        yield Around()


@contextmanager
def _full_disk(place: Place, size: str) -> Iterator[Path]:
    disk = place.folder / "disk"
    disk.mkdir()
    argv = ("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk))
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        raise CannotProvokeError("a small file system cannot be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(("umount", "--lazy", str(disk)), check=True)


@contextmanager
def full_cache(place: Place) -> Iterator[Around]:
    """Caches on a disk that is soon full."""
    with _full_disk(place, "64k") as disk:
        names = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")
        yield Around(environment={name: str(disk / name.lower()) for name in names})


def memory_limit(mebibytes: int) -> Surroundings:
    """A start inside a control group whose memory is soon full, from a shell that says who was killed."""

    @contextmanager
    def limited(place: Place) -> Iterator[Around]:
        group = _memory_group(f"bringup-test-{place.port}", mebibytes)
        try:
            script = f'echo $$ > {group}/cgroup.procs; "$@"; exit $?'
            yield Around(argv=("bash", "-c", script, "start.sh"))
        finally:
            _remove_group(group)

    return limited


def _remove_group(group: Path) -> None:
    """The group gone, with whatever a start that was killed has left in it."""
    give_up = time.monotonic() + 20.0
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def _memory_group(name: str, mebibytes: int) -> Path:
    limits = ("memory.limit_in_bytes", "memory.max")
    for parent in MEMORY_GROUPS:
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        limit = next((group / one for one in limits if (group / one).exists()), None)
        if limit is not None:
            limit.write_text(f"{mebibytes}M")
            return group
        group.rmdir()
    raise CannotProvokeError("no control group with a memory limit can be made here")
