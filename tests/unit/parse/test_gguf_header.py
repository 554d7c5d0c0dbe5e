"""Headers of GGUF files, whole, cut and hostile."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UnreadableAnswer
from bringup.parse.gguf_header import read_gguf

STRING, ARRAY, U32, F32, BOOL = 8, 9, 4, 6, 7


def text(value, order="<"):
    return struct.pack(order + "Q", len(value.encode())) + value.encode()


def header(entries=(), tensors=(), *, version=3, order="<"):
    """A header of (key, type, packed value) and (name, shape, type number)."""
    out = b"GGUF" + struct.pack(order + "IQQ", version, len(tensors), len(entries))
    for key, kind, value in entries:
        out += text(key, order) + struct.pack(order + "I", kind) + value
    for name, shape, kind in tensors:
        out += text(name, order) + struct.pack(order + "I", len(shape))
        out += struct.pack(order + "Q" * len(shape), *shape) + struct.pack(order + "IQ", kind, 0)
    return out


def words(*values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(text(value) for value in values)


ENTRIES = (
    ("general.architecture", STRING, text("llama")),
    ("llama.block_count", U32, struct.pack("<I", 30)),
    ("llama.rope.freq_base", F32, struct.pack("<f", 1e5)),
    ("tokenizer.ggml.add_bos_token", BOOL, b"\x01"),
    ("llama.attention.head_count_kv", ARRAY, struct.pack("<IQ3I", U32, 3, 8, 0, 8)),
    ("tokenizer.ggml.tokens", ARRAY, words(*(f"t{number}" for number in range(5000)))),
)
TENSORS = (
    ("token_embd.weight", (576, 49152), 14),
    ("blk.0.ffn_up.weight", (512, 8), 39),
    ("norm", (576,), 0),
)


def test_metadata_and_tensors_are_read():
    found = read_gguf(header(ENTRIES, TENSORS) + b"\0" * 64, file="m.gguf")
    assert found is not None
    assert found.version == 3
    assert found.metadata["general.architecture"] == "llama"
    assert found.metadata["llama.block_count"] == 30
    assert found.metadata["tokenizer.ggml.add_bos_token"] is True
    assert found.metadata["llama.attention.head_count_kv"] == (8, 0, 8)
    assert found.metadata["tokenizer.ggml.tokens"] == ()  # a vocabulary is counted, not kept
    assert found.lengths["tokenizer.ggml.tokens"] == 5000
    assert [(tensor.dtype, tensor.bytes) for tensor in found.tensors] == [
        ("Q6_K", 576 * 49152 // 256 * 210),
        ("MXFP4", 512 * 8 // 32 * 17),
        ("F32", 576 * 4),
    ]
    assert found.data_offset % 32 == 0
    assert found.data_offset >= len(header(ENTRIES, TENSORS))
    assert found.split is None


def test_a_part_of_several_says_which():
    u16 = 2
    entries = (("split.no", u16, struct.pack("<H", 1)), ("split.count", u16, struct.pack("<H", 3)))
    found = read_gguf(header(entries), file="m-00002-of-00003.gguf")
    assert found is not None
    assert found.split == (1, 3)


def test_big_endian_files():
    entries = (("llama.block_count", U32, struct.pack(">I", 30)),)
    found = read_gguf(header(entries, order=">"), file="m.gguf")
    assert found is not None
    assert found.metadata == {"llama.block_count": 30}


def test_more_bytes_are_asked_for_until_the_header_is_whole():
    whole = header(ENTRIES, TENSORS)
    for size in (1, 3, 4, 10, 60, len(whole) - 1):
        assert read_gguf(whole[:size], file="m.gguf") is None
    assert read_gguf(whole, file="m.gguf") is not None


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs", "no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60), "a string of"),
        (header([("a", 99, b"")]), "unknown type 99"),
        (header([("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "a list of lists"),
        (header([("a", ARRAY, struct.pack("<IQ", STRING, 1 << 60))]), "strings"),
        (header((), [("a", (32,), 77)]), "unknown type 77"),
        (header((), [("a", (1,) * 9, 0)]), "9 dimensions"),
        (header((), [("a", (1 << 40, 1 << 40), 0)]), "weights"),
    ],
)
def test_what_is_no_header_is_refused_in_words(start, says):
    with pytest.raises(UnreadableAnswer, match=says):
        read_gguf(start, file="m.gguf")


def test_a_cut_file_is_told_from_a_blob_that_is_too_short():
    whole = header(ENTRIES, TENSORS)
    with pytest.raises(UnreadableAnswer, match="within its header"):
        read_gguf(whole[:60], file="m.gguf", file_size=60)
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read_gguf(whole, file="m.gguf", file_size=len(whole) + 100)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(rest):
    with suppress(UnreadableAnswer):
        read_gguf(b"GGUF" + rest, file="x", file_size=4 + len(rest))
