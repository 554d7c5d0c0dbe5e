"""Recordings to bytes and files, and back. Every string of a recording passes redaction here."""

import gzip
import importlib
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import msgspec

from bringup.errors import UsageError
from bringup.transport.files import require_writable, write_file
from bringup.transport.scrub import scrub
from bringup.values.recording import Recording

SCHEMA = "bringup/recording/1"
_FAMILY, _VERSION = SCHEMA.rsplit("/", 1)
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SIZE_LIMIT = 1_000_000_000  # bytes after decompression; real ones are below 100 MB


def encode(recording: Recording, secrets: Collection[str] = ()) -> bytes:
    """JSON of the recording, without secrets; `secrets` are the user's own, gone wherever they appear."""
    return msgspec.json.encode(scrub(recording, secrets))


def decode(data: bytes, source: str = "recording") -> Recording:
    """The recording in JSON bytes.

    Raises:
        UsageError: not a recording, or one of a newer schema.
    """
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{source}` is not a recording: {error}", hint=_WANTED) from None
    schema = cast("dict[str, object]", head).get("schema") if isinstance(head, dict) else None
    if not isinstance(schema, str) or schema.rpartition("/")[0] != _FAMILY:
        raise UsageError(f"`{source}` is not a recording: its schema is {_shown(schema)}", hint=_WANTED)
    version = schema.rpartition("/")[2]
    if version != _VERSION:
        raise UsageError(
            f"`{source}` has the schema `{schema}`, this bringup reads `{SCHEMA}`",
            hint="a newer bringup wrote it: upgrade, then replay it again",
        )
    try:
        return msgspec.convert(head, Recording)
    except msgspec.ValidationError as error:
        raise UsageError(f"`{source}` is a damaged recording: {error}", hint=_WANTED) from None


_WANTED = "wanted a file that `--record FILE` wrote"


def _shown(schema: object) -> str:
    return f"`{schema}`" if isinstance(schema, str) else "missing"


def save(path: Path, recording: Recording, secrets: Collection[str] = ()) -> None:
    """Write the recording whole or not at all, readable by its owner only; `.zst` means zstd, else gzip.

    Raises:
        UsageError: the file cannot be written.
    """
    data = encode(recording, secrets)
    packed = _zstd().compress(data) if path.suffix == ".zst" else gzip.compress(data, 6, mtime=0)
    write_file(path, packed, is_private=True)


def require_savable(path: Path) -> None:
    """Raises unless `save` can write there.

    Raises:
        UsageError: it cannot.
    """
    if path.suffix == ".zst":
        _zstd()
    require_writable(path)


def load(path: Path) -> Recording:
    """The recording in a file: gzip, zstd or plain JSON, told apart by content.

    Raises:
        UsageError: no such file, not a recording, or one of a newer schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the recording `{path}`: {error.strerror}") from None
    try:
        data = _unpacked(data)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise UsageError(f"`{path}` is not a recording, or was cut off: {error}", hint=_WANTED) from None
    return decode(data, str(path))


def _unpacked(data: bytes) -> bytes:
    if data.startswith(_GZIP):
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(data, _SIZE_LIMIT)
        if unpacker.unconsumed_tail:
            raise ValueError(f"more than {_SIZE_LIMIT} bytes")
        if not unpacker.eof:
            raise EOFError("the end is missing")
        return data
    if data.startswith(_ZSTD):
        return cast("bytes", _zstd().decompress(data))
    return data


def _zstd() -> Any:
    """Python's own zstd module, or the package that brings it.

    Raises:
        UsageError: neither is there.
    """
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise UsageError(
        "this Python cannot read or write zstd",
        hint="write to `.json.gz` or unpack with `zstd -d`; or use Python 3.14, or `pip install zstandard`",
    )
