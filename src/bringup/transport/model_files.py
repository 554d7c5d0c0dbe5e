"""Files of a model on this machine: configs, and the headers of weight files. Never a weight."""

from pathlib import Path

from bringup.errors import UsageError
from bringup.parse.gguf_header import GgufHeader, read_gguf
from bringup.parse.safetensors import PREFIX, Shard, header_length, read_header
from bringup.units import GIB, MIB

_FIRST_READ = 16 * MIB  # of a GGUF file; a header with a large vocabulary has about 10 MiB
_MOST = GIB
_MOST_TEXT = 128 * MIB  # guess: the largest index has about 10 MiB


def read_text(path: Path) -> str:
    """The text of a small file.

    Raises:
        UsageError: not there, not readable, no text, or far larger than any config.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_TEXT + 1)
        if len(raw) <= _MOST_TEXT:
            return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is no text: {error.reason}") from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    raise UsageError(f"`{path}` has more than {_MOST_TEXT // MIB} MiB: no config or index has")


def text_or_none(path: Path) -> str | None:
    """The text of a file that need not be there."""
    return read_text(path) if path.is_file() else None


def weight_files(folder: Path) -> dict[str, int]:
    """Bytes of each safetensors file right in a folder."""
    return {path.name: _size(path) for path in sorted(folder.glob("*.safetensors"))}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # a link whose goal is gone: as good as empty


def read_shard(path: Path) -> Shard:
    """The header of one safetensors file.

    Raises:
        UnreadableAnswer: the file is none.
        UsageError: it cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(64)
            length = header_length(start, file=path.name, file_size=size)
            blob = start + file.read(PREFIX + length - len(start))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return read_header(blob, file=path.name, file_size=size)


def read_gguf_file(path: Path) -> GgufHeader:
    """The header of one GGUF file.

    Raises:
        UnreadableAnswer: the file is none.
        UsageError: it cannot be read.
    """
    try:
        size = path.stat().st_size
        wanted = _FIRST_READ
        with path.open("rb") as file:
            while True:
                file.seek(0)
                header = read_gguf(file.read(wanted), file=path.name, file_size=size)
                if header is not None:
                    return header
                if wanted >= _MOST:
                    raise UsageError(f"the header of `{path}` has more than {_MOST // MIB} MiB")
                wanted *= 4
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
