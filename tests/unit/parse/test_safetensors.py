"""Headers of safetensors shards, whole, broken and hostile."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UnreadableAnswer
from bringup.parse.safetensors import header_length, is_lfs_pointer, read_header, read_index
from bringup.parse.shard_check import shard_findings
from bringup.values.finding import Severity

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4976698672\n"


def blob(entries, *, length=None):
    body = json.dumps(entries).encode()
    return struct.pack("<Q", len(body) if length is None else length) + body


def entry(dtype="BF16", shape=(4, 8), begin=0, end=64):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_names_shapes_and_sizes_are_read():
    start = blob(
        {"__metadata__": {"format": "pt"}, "a.weight": entry(), "b.scale": entry("F8_E8M0", (3,), 64, 67)}
    )
    shard = read_header(start, file="model.safetensors", file_size=len(start) + 67)
    assert [(tensor.name, tensor.shape, tensor.dtype, tensor.bytes) for tensor in shard.tensors] == [
        ("a.weight", (4, 8), "BF16", 64),
        ("b.scale", (3,), "F8_E8M0", 3),
    ]
    assert shard.needed == len(start) + 67
    assert shard.metadata == (("format", "pt"),)


def test_the_data_need_not_be_there():
    start = blob({"a": entry()})
    assert read_header(start + b"\0" * 5, file="x").needed == len(start) + 64


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"", "is empty"),
        (POINTER, "git-lfs pointer"),
        (b"\x10\0\0", "3 bytes"),
        (struct.pack("<Q", 100_000_000_000) + b"{}", "would have 100,000,000,000 bytes"),
        (struct.pack("<Q", 0) + b"{}", "would have 0 bytes"),
        (b"PK\x03\x04" + b"\0" * 60, "no safetensors file"),
        (blob({"a": entry()}, length=4000), "of 4,000 bytes of the header are there"),
        (struct.pack("<Q", 4) + b"{[]}", "no JSON"),
        (struct.pack("<Q", 2) + b"[]", "begin with a brace"),
        (blob({"a": {"dtype": "BF16", "shape": [2]}}), "no dtype, shape or place"),
        (blob({"a": entry(begin=64, end=0)}), "no dtype, shape or place"),
        (blob({"a": entry(shape=(-4, 8))}), "no dtype, shape or place"),
        (blob({"a": entry(shape=(4, 9))}), "cannot have 64 bytes"),
        (blob({"a": "nothing"}), "no dtype, shape or place"),
        (struct.pack("<Q", 60_001) + b'{"a":' + b"[" * 59_996, "no JSON"),
    ],
)
def test_what_is_no_header_is_refused_in_words(start, says):
    with pytest.raises(UnreadableAnswer, match=says):
        read_header(start, file="model-00001-of-00002.safetensors")


def test_a_header_longer_than_its_file_is_a_cut_file():
    with pytest.raises(UnreadableAnswer, match="cut off"):
        header_length(struct.pack("<Q", 5000), file="x", file_size=4000)


def test_types_to_come_are_taken_at_their_word():
    shard = read_header(blob({"a": entry("F2_E1M0", (4, 8), 0, 8)}), file="x")
    assert shard.tensors[0].bytes == 8


def test_half_byte_types_round_up():
    shard = read_header(blob({"a": entry("F4", (3,), 0, 2)}), file="x")
    assert shard.tensors[0].bytes == 2


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(start):
    with suppress(UnreadableAnswer):
        read_header(start, file="x", file_size=len(start))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    )
)
def test_no_json_crashes_the_reader(value):
    with suppress(UnreadableAnswer):
        read_header(blob(value), file="x")


def test_the_index_gives_files_in_order():
    text = json.dumps({"metadata": {"total_size": 10}, "weight_map": {"a": "1", "b": "2", "c": "1"}})
    index = read_index(text, file="model.safetensors.index.json")
    assert index.files == ("1", "2")
    assert index.total_size == 10


@pytest.mark.parametrize(
    ("text", "says"), [("", "no JSON"), ("{}", "weight_map"), (POINTER.decode(), "git-lfs")]
)
def test_an_index_that_is_none(text, says):
    with pytest.raises(UnreadableAnswer, match=says):
        read_index(text, file="model.safetensors.index.json")


def shards(**names):
    found = [
        read_header(blob({name: entry() for name in tensors}), file=f"{file}.safetensors".replace("_", "-"))
        for file, tensors in names.items()
    ]
    return found, {shard.file: max(shard.needed, 5000) for shard in found}


def index_of(found):
    places = {tensor.name: shard.file for shard in found for tensor in shard.tensors}
    return read_index(json.dumps({"weight_map": places}), file="index")


def ids(*args):
    return [(finding.id, finding.severity) for finding in shard_findings(*args)]


def test_a_whole_checkpoint_has_nothing_wrong():
    found, sizes = shards(model_00001_of_00002=["a"], model_00002_of_00002=["b"])
    assert shard_findings(found, sizes, index_of(found)) == ()
    assert shard_findings(found, sizes) == ()


def test_missing_shards_by_index_and_by_their_numbers():
    found, sizes = shards(model_00001_of_00002=["a"], model_00002_of_00002=["b"])
    index = index_of(found)
    del sizes["model-00002-of-00002.safetensors"]
    for args in ((found[:1], sizes, index), (found[:1], sizes)):
        (finding,) = shard_findings(*args)
        assert finding.id == "weights.missing_shard"
        assert "model-00002-of-00002.safetensors" in finding.summary


def test_pointers_and_empty_files_are_told_by_their_size():
    found, sizes = shards(model=["a"])
    assert ids([], {"model.safetensors": len(POINTER)}) == [("weights.lfs_pointer", Severity.FAILURE)]
    assert ids([], {"model.safetensors": 0}) == [("weights.lfs_pointer", Severity.FAILURE)]
    assert ids(found, sizes) == []


def test_a_file_shorter_than_its_header_promises_is_cut_off():
    found = [read_header(blob({"a": entry("U8", (9000,), 0, 9000)}), file="model.safetensors")]
    assert ids(found, {"model.safetensors": 8000}) == [("weights.truncated", Severity.FAILURE)]


def test_two_sets_of_files_side_by_side():
    found, sizes = shards(model=["a"], consolidated=["layers.a"])
    assert ids(found, sizes) == [("weights.naming_schemes", Severity.WARNING)]
    assert ids(found, sizes, index_of(found[:1])) == [("weights.extra_files", Severity.NOTE)]
    found, sizes = shards(model=["a"], copy=["a"])
    assert ids(found, sizes) == [("weights.double", Severity.FAILURE)]


def test_an_index_of_another_revision():
    found, sizes = shards(model=["a"])
    index = read_index(json.dumps({"weight_map": {"b": "model.safetensors"}}), file="index")
    assert ids(found, sizes, index) == [("weights.index_mismatch", Severity.FAILURE)]


def test_a_pointer_is_told_from_weights():
    assert is_lfs_pointer(POINTER)
    assert not is_lfs_pointer(blob({"a": entry()}))
