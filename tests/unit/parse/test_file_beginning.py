"""First bytes of files as loaders print them."""

import pytest

from bringup.parse.file_beginning import Beginning, beginning_of, beginning_of_length


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"vers", Beginning.LFS_POINTER),
        (b"<!DO", Beginning.WEB_PAGE),
        (b"<htm", Beginning.WEB_PAGE),
        (b"PK\x03\x04", Beginning.ARCHIVE),
        (b"tjgg", Beginning.OLD_GGML),
        (b"GGUF", Beginning.GGUF),
        (b"\x00\x00\x00\x00", Beginning.ZEROS),
    ],
)
def test_bytes_are_known_in_both_orders(start: bytes, what: Beginning) -> None:
    assert beginning_of(start.hex()) is what
    assert beginning_of(f"0x{start[::-1].hex()}") is what


def test_a_length_tells_what_was_read_as_one() -> None:
    assert beginning_of_length(int.from_bytes(b"<!DOCTYP", "little")) is Beginning.WEB_PAGE
    assert beginning_of_length(int.from_bytes(b"version ", "little")) is Beginning.LFS_POINTER
    assert beginning_of_length(12_345) is None
    assert beginning_of_length(1 << 70) is None


@pytest.mark.parametrize("printed", ["deadbeef", "x", "", "12"])
def test_other_bytes_tell_nothing(printed: str) -> None:
    assert beginning_of(printed) is None
