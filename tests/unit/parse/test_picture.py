import base64
import struct
import zlib

import pytest

from bringup.parse.picture import digit_picture, plain_picture


def pixels(url: str) -> list[bytes]:
    """Rows of a data URL, read by the PNG specification; checksums are compared."""
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, data, kinds = 8, b"", []
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, content = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert zlib.crc32(kind + content) == checksum
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, bits, colour, *_ = struct.unpack(">IIBBBBB", content)
            assert (bits, colour) == (8, 2)
        if kind == b"IDAT":
            data += content
        place += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    raw = zlib.decompress(data)
    stride = 1 + 3 * width
    assert len(raw) == stride * height
    rows = [raw[start : start + stride] for start in range(0, len(raw), stride)]
    assert all(row[0] == 0 for row in rows)
    return [row[1:] for row in rows]


def test_a_plain_picture_is_of_one_colour():
    rows = pixels(plain_picture((255, 0, 0)))
    assert set(rows) == {b"\xff\x00\x00" * 224}


def test_a_seven_is_lit_above_and_on_the_right_only():
    rows = pixels(digit_picture("7"))
    black, white = b"\x00" * 3, b"\xff" * 3

    def at(x, y):
        return rows[y][3 * x : 3 * x + 3]

    assert at(110, 30) == black  # top
    assert at(150, 70) == black  # upper right
    assert at(150, 150) == black  # lower right
    assert at(70, 70) == white  # upper left
    assert at(110, 110) == white  # middle
    assert at(110, 190) == white  # bottom


@pytest.mark.parametrize("digit", "0123456789")
def test_every_digit_looks_different(digit):
    assert [other for other in "0123456789" if digit_picture(other) == digit_picture(digit)] == [digit]
