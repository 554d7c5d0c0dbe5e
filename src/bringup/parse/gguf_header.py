"""The header of a GGUF file: metadata and the place of every tensor, without its data.

Source: llama.cpp, `docs/gguf.md`; sizes of the types from gguf-py 0.17, `constants.py`.
"""

import math
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from bringup.errors import UnreadableAnswer
from bringup.values.model import Tensor

MAGIC = b"GGUF"
_MOST_ENTRIES = 1_000_000  # of metadata, of tensors
_MOST_DIMENSIONS = 8
_LONGEST_STRING = 64_000_000  # bytes; chat templates have up to a few hundred thousand
_KEPT = 4096  # elements: longer lists (vocabularies) are counted, not kept

# Number of the type -> name, weights in one block, bytes of it.
_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
_SCALARS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What stands before the data of a GGUF file."""

    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int  # bytes; where the data begins
    lengths: dict[str, int] = field(default_factory=dict[str, int])  # of every list, kept or not
    split: tuple[int, int] | None = None  # (number of this file from 0, files in all)

    @property
    def needed(self) -> int:
        """Bytes that the file must have at least, alignment apart."""
        return self.data_offset + sum(tensor.bytes for tensor in self.tensors)


class _MoreNeeded(Exception):  # noqa: N818 - no error: the blob is shorter than the header
    pass


class _Reader:
    """A place in the blob that moves on."""

    def __init__(self, blob: bytes, file: str) -> None:
        self.blob, self.file, self.at, self.order = blob, file, 0, "<"

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.blob):
            raise _MoreNeeded
        self.at += size
        return self.blob[self.at - size : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack(self.order + form, self.take(struct.calcsize(form)))[0])

    def scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self.string()
        form = _SCALARS.get(kind)
        if form is None:
            self.fail(f"metadata of unknown type {kind}")
        value: Scalar = struct.unpack(self.order + form, self.take(struct.calcsize(form)))[0]
        return value

    def string(self) -> str:
        size = self.number("Q")
        if size > _LONGEST_STRING:
            self.fail(f"a string of {size:,} bytes")
        return self.take(size).decode("utf-8", "replace")

    def fail(self, what: str) -> NoReturn:
        raise UnreadableAnswer(
            f"`{self.file}`: {what} at byte {self.at:,} of the GGUF header",
            hint="the file may be damaged, or of a newer version of the format",
        )


def read_gguf(blob: bytes, *, file: str, file_size: int | None = None) -> GgufHeader | None:
    """The header at the start of `blob`; None where more bytes are needed for it.

    Raises:
        UnreadableAnswer: not a GGUF file, or one that contradicts itself.
    """
    if not blob:
        raise UnreadableAnswer(f"`{file}` is empty (0 bytes)", hint="download the file again")
    if not blob.startswith(MAGIC[: len(blob)]):
        raise UnreadableAnswer(f"`{file}` is no GGUF file: it starts with {blob[:4]!r}")
    reader = _Reader(blob, file)
    try:
        header = _header(reader)
    except _MoreNeeded:
        if file_size is not None and len(blob) >= file_size:
            raise UnreadableAnswer(
                f"`{file}` is cut off within its header", hint="download the file again"
            ) from None
        return None
    if file_size is not None and header.needed > file_size:
        raise UnreadableAnswer(
            f"`{file}` is cut off: {file_size:,} of at least {header.needed:,} bytes are there",
            hint="download the file again",
        )
    return header


def read_gguf_start(blob: bytes, *, file: str) -> GgufHeader:
    """As much of the metadata as `blob` has whole, and no tensors: what the model is stands first.

    Raises:
        UnreadableAnswer: not a GGUF file, or one that contradicts itself.
    """
    if not blob.startswith(MAGIC):
        raise UnreadableAnswer(f"`{file}` is no GGUF file: it starts with {blob[:4]!r}")
    reader = _Reader(blob, file)
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    version = 0
    with suppress(_MoreNeeded):
        version, _, entries = _counts(reader)
        _metadata(reader, entries, metadata, lengths)
    return GgufHeader(version=version, metadata=metadata, tensors=(), data_offset=0, lengths=lengths)


def _counts(reader: _Reader) -> tuple[int, int, int]:
    """Version, tensors, entries of metadata."""
    reader.take(len(MAGIC))
    version = reader.number("I")
    if version > 0xFFFF:  # written on a big-endian machine
        reader.order = ">"
        version = int.from_bytes(reader.blob[4:8], "big")
    if version not in (2, 3):
        reader.fail(f"version {version}")
    tensors, entries = reader.number("Q"), reader.number("Q")
    if tensors > _MOST_ENTRIES or entries > _MOST_ENTRIES:
        reader.fail(f"{tensors:,} tensors and {entries:,} entries of metadata")
    return version, tensors, entries


def _metadata(reader: _Reader, entries: int, metadata: dict[str, Value], lengths: dict[str, int]) -> None:
    """Fills both, entry by entry, so that what was read stays where the blob ends."""
    for _ in range(entries):
        key = reader.string()
        kind = reader.number("I")
        if kind == _ARRAY:
            metadata[key], lengths[key] = _array(reader)
        else:
            metadata[key] = reader.scalar(kind)


def _header(reader: _Reader) -> GgufHeader:
    version, tensors, entries = _counts(reader)
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    _metadata(reader, entries, metadata, lengths)
    infos = tuple(_info(reader) for _ in range(tensors))
    alignment = metadata.get("general.alignment", 32)
    step = alignment if isinstance(alignment, int) and alignment > 0 else 32
    return GgufHeader(
        version=version,
        metadata=metadata,
        tensors=infos,
        data_offset=-(-reader.at // step) * step,
        lengths=lengths,
        split=_split(metadata),
    )


def _array(reader: _Reader) -> tuple[tuple[Scalar, ...], int]:
    """The elements of a list, none where it is long, and their number."""
    kind, count = reader.number("I"), reader.number("Q")
    if kind == _ARRAY:
        reader.fail("a list of lists")
    if kind != _STRING:
        form = _SCALARS.get(kind)
        if form is None:
            reader.fail(f"a list of unknown type {kind}")
        if count > _KEPT:
            reader.take(count * struct.calcsize(form))
            return (), count
    if count > _LONGEST_STRING:
        reader.fail(f"a list of {count:,} strings")
    kept: list[Scalar] = []
    for _ in range(count):
        value = reader.scalar(kind)
        if count <= _KEPT:
            kept.append(value)
    return tuple(kept), count


def _info(reader: _Reader) -> Tensor:
    name = reader.string()
    dimensions = reader.number("I")
    if dimensions > _MOST_DIMENSIONS:
        reader.fail(f"tensor `{name}` with {dimensions} dimensions")
    shape = tuple(reader.number("Q") for _ in range(dimensions))
    kind = reader.number("I")
    reader.take(8)  # the offset: sizes come from the shape
    if kind not in _TYPES:
        reader.fail(f"tensor `{name}` of unknown type {kind}")
    word, block, size = _TYPES[kind]
    count = math.prod(shape)
    if count > 1 << 50:
        reader.fail(f"tensor `{name}` with {count:,} weights")
    return Tensor(name=name, shape=shape, dtype=word, bytes=-(-count // block) * size, file=reader.file)


def _split(metadata: Mapping[str, Value]) -> tuple[int, int] | None:
    number, count = metadata.get("split.no"), metadata.get("split.count")
    if isinstance(number, int) and isinstance(count, int) and count > 1:
        return number, count
    return None
