"""The bytes of a log, piece by piece: a file, standard input, what a command prints; packed or not."""

import codecs
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from bringup.errors import HostError, UsageError
from bringup.transport.ssh_errors import explain
from bringup.units import MIB

_PIECE = MIB
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}  # PowerShell's `> file`
_SSH_FAILED = 255  # its own exit status, not the command's
_MOST_SAID = 400  # characters of what a command says went wrong


def read_file(path: Path) -> Iterator[bytes]:
    """The file's bytes, unpacked.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", hint="name the file in it")
        with path.open("rb") as stream:
            if stream.peek(4).startswith(_ZSTD):
                yield from read_command(("zstd", "-dcq", "--", str(path)), what=f"unpack {path}")
                return
            yield from unpacked(iter(lambda: stream.read(_PIECE), b""), name=str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def read_input() -> Iterator[bytes]:
    """What comes in on standard input, unpacked."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stream:
        yield from unpacked(iter(lambda: stream.read(_PIECE) or b"", b""), name="standard input")


def read_command(argv: Sequence[str], *, what: str, host: str | None = None) -> Iterator[bytes]:
    """What a command prints. What it says beside that is told only when it fails.

    Raises:
        HostError: it is not there, it failed, or the host it runs on was not reached.
    """
    if shutil.which(argv[0]) is None:
        raise HostError(f"cannot {what}: `{argv[0]}` is not installed here")
    with _running(argv) as (process, said):
        if process.stdout is not None:
            yield from iter(lambda: process.stdout.read(_PIECE) if process.stdout else b"", b"")
        status = process.wait()
        said.seek(0)
        words = said.read().decode("utf-8", "replace").strip()
    if status == _SSH_FAILED and argv[0] == "ssh" and host:
        raise explain(host, words, doing="connect to")
    if status:
        raise HostError(f"cannot {what}: {words[-_MOST_SAID:] or f'exit status {status}'}")


@contextmanager
def _running(argv: Sequence[str]) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    """The started command and what it complains about; ended when nobody reads it any longer."""
    with (
        TemporaryFile() as said,
        subprocess.Popen(
            tuple(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        ) as process,
    ):
        try:
            yield process, said
        finally:
            if process.poll() is None:
                process.kill()


def unpacked(pieces: Iterable[bytes], *, name: str) -> Iterator[bytes]:
    """The bytes as UTF-8 text: gzip and UTF-16 are recognised by their first bytes.

    Raises:
        UsageError: packed in a way that is not read here, or broken.
    """
    source = iter(pieces)
    first = next(source, b"")
    while len(first) < 4 and (more := next(source, b"")):
        first += more
    if first.startswith(_ZSTD):
        raise UsageError(f"{name} is packed with zstd", hint="`zstd -dc FILE | bringup diagnose -` reads it")
    chain = _chained(first, source)
    wide = next((encoding for mark, encoding in _WIDE.items() if first.startswith(mark)), None)
    if first.startswith(_GZIP):
        yield from _gunzipped(chain, name)
    elif wide:
        decoder = codecs.getincrementaldecoder(wide)("replace")
        yield from (decoder.decode(piece).encode("utf-8", "replace") for piece in chain)
    else:
        yield from chain


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gunzipped(pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Every member of a gzip file, one after the other; a cut end gives what there is."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                text = unpacker.decompress(rest, _PIECE)
                if text:
                    yield text
                rest = unpacker.unconsumed_tail
                if unpacker.eof:
                    rest = unpacker.unused_data.lstrip(b"\0")
                    unpacker = zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise UsageError(f"cannot unpack {name}: {error}") from None
