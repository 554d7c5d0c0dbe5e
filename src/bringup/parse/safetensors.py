"""Headers of safetensors shards: names, shapes and sizes of all tensors without reading one weight.

Source: the safetensors format, "8 bytes, little-endian, length N of the header; N bytes of JSON; the data".
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bringup.errors import UnreadableAnswer
from bringup.parse.json_value import Json, at, int_at, list_at, text_at
from bringup.values.model import Tensor

PREFIX = 8  # bytes of the header's length
LONGEST_HEADER = 100_000_000  # bytes. Source: safetensors 0.6 `tensor.rs`, `MAX_HEADER_SIZE`
_LFS = b"version https://git-lfs.github.com/spec/"
_MOST_TENSORS = 2_000_000  # far above the 400,000 of the largest published checkpoints

# Bits of one number. Source: safetensors 0.6 `tensor.rs`, `Dtype::bitsize`.
_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file's header."""

    file: str
    tensors: tuple[Tensor, ...]
    needed: int  # bytes that the file must have for all its tensors
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """What `model.safetensors.index.json` says."""

    files: tuple[str, ...]  # in order of first mention
    places: tuple[tuple[str, str], ...]  # (tensor, file)
    total_size: int | None = None  # bytes of all tensors, where it says so


def is_lfs_pointer(start: bytes) -> bool:
    r"""Whether a file is the text that git-lfs leaves in the place of the real one.

    >>> is_lfs_pointer(b"version https://git-lfs.github.com/spec/v1\noid sha256:4f...")
    True
    """
    return start.startswith(_LFS)


def header_length(start: bytes, *, file: str, file_size: int | None = None) -> int:
    """Bytes of JSON after the first eight bytes, `start`.

    Raises:
        UnreadableAnswer: empty, an LFS pointer, cut off, or a length that no header has.
    """
    if not start:
        raise UnreadableAnswer(f"`{file}` is empty (0 bytes)", hint="download the file again")
    if is_lfs_pointer(start):
        raise UnreadableAnswer(
            f"`{file}` is a git-lfs pointer, not the weights", hint="run `git lfs pull` in the model's folder"
        )
    if len(start) < PREFIX:
        raise UnreadableAnswer(f"`{file}` has {len(start)} bytes, too few for a header")
    length = int.from_bytes(start[:PREFIX], "little")
    if not 2 <= length <= LONGEST_HEADER:
        raise UnreadableAnswer(
            f"`{file}` is no safetensors file: its header would have {length:,} bytes",
            hint=f"a header has 2 to {LONGEST_HEADER:,} bytes; the file may be damaged or of another format",
        )
    if start[PREFIX : PREFIX + 1] not in (b"", b"{"):
        raise UnreadableAnswer(f"`{file}` is no safetensors file: its header does not begin with a brace")
    if file_size is not None and PREFIX + length > file_size:
        raise UnreadableAnswer(
            f"`{file}` is cut off: its header has {length:,} bytes, the file {file_size:,}",
            hint="download the file again",
        )
    return length


def read_header(blob: bytes, *, file: str, file_size: int | None = None) -> Shard:
    """The header at the start of `blob`, which may be a whole file or as much as the header needs.

    Raises:
        UnreadableAnswer: not a safetensors header, or one that contradicts itself.
    """
    length = header_length(blob[:64], file=file, file_size=file_size)
    body = blob[PREFIX : PREFIX + length]
    if len(body) < length:
        raise UnreadableAnswer(f"`{file}`: {len(body):,} of {length:,} bytes of the header are there")
    entries = _entries(body, file)
    metadata = entries.pop("__metadata__", {})
    tensors = tuple(_tensor(name, entry, file) for name, entry in entries.items())
    ends = [int_at(entry, "data_offsets", 1) or 0 for entry in entries.values()]
    words = metadata if isinstance(metadata, dict) else {}
    return Shard(
        file=file,
        tensors=tensors,
        needed=PREFIX + length + max(ends, default=0),
        metadata=tuple((key, value) for key, value in words.items() if isinstance(value, str)),
    )


def _entries(body: bytes, file: str) -> dict[str, Json]:
    try:
        entries = cast("Json", json.loads(body))
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"the header of `{file}` is no JSON: {error}", text=_start(body)) from None
    if not isinstance(entries, dict):
        raise UnreadableAnswer(f"the header of `{file}` is no JSON object", text=_start(body))
    if len(entries) > _MOST_TENSORS:
        raise UnreadableAnswer(f"the header of `{file}` lists {len(entries):,} tensors")
    return entries


def _start(body: bytes) -> str:
    return body[:2000].decode("utf-8", "replace")


def _tensor(name: str, entry: Json, file: str) -> Tensor:
    dtype, begin, end = (
        text_at(entry, "dtype"),
        int_at(entry, "data_offsets", 0),
        int_at(entry, "data_offsets", 1),
    )
    sizes = list_at(entry, "shape")
    shape = tuple(
        size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size >= 0
    )
    if dtype is None or begin is None or end is None or not 0 <= begin <= end or len(shape) != len(sizes):
        raise UnreadableAnswer(
            f"`{file}`: tensor `{name}` has no dtype, shape or place", text=str(entry)[:500]
        )
    bits = _BITS.get(dtype)
    if bits is not None and -(-math.prod(shape) * bits // 8) != end - begin:
        raise UnreadableAnswer(
            f"`{file}`: tensor `{name}` of {dtype} {list(shape)} cannot have {end - begin:,} bytes"
        )
    return Tensor(name=name, shape=shape, dtype=dtype, bytes=end - begin, file=file)


def read_index(text: str, *, file: str) -> ShardIndex:
    """The index of a checkpoint in several shards.

    Raises:
        UnreadableAnswer: no JSON, or without a map of tensors to files.
    """
    if is_lfs_pointer(text[:200].encode()):
        raise UnreadableAnswer(f"`{file}` is a git-lfs pointer, not the index", hint="run `git lfs pull`")
    try:
        value = cast("Json", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"`{file}` is no JSON: {error}", text=text[:2000]) from None
    places = at(value, "weight_map")
    if not isinstance(places, dict) or not places:
        raise UnreadableAnswer(f"`{file}` has no `weight_map`", text=text[:2000])
    named = tuple((tensor, place) for tensor, place in places.items() if isinstance(place, str))
    return ShardIndex(
        files=tuple(dict.fromkeys(place for _, place in named)),
        places=named,
        total_size=int_at(value, "metadata", "total_size"),
    )
