"""Pictures made for an exercise, as PNG: one colour, or one digit. No library, so nothing to install.

Source: RFC 2083 (PNG), RFC 2397 (`data:` URLs).
"""

import base64
import struct
import zlib

_SIDE = 224  # pixels: what vision models cut pictures to, at the least
_SEGMENTS = {  # digit -> which of the seven bars of a display are lit
    "0": "abcdef",
    "1": "bc",
    "2": "abged",
    "3": "abgcd",
    "4": "fgbc",
    "5": "afgcd",
    "6": "afgedc",
    "7": "abc",
    "8": "abcdefg",
    "9": "abcdfg",
}
# bar -> (left, top, right, bottom) in 224ths of the side
_BARS = {
    "a": (64, 24, 160, 44),
    "b": (140, 24, 160, 122),
    "c": (140, 102, 160, 200),
    "d": (64, 180, 160, 200),
    "e": (64, 102, 84, 200),
    "f": (64, 24, 84, 122),
    "g": (64, 102, 160, 122),
}
Colour = tuple[int, int, int]  # red, green, blue, 0..255


def plain_picture(colour: Colour) -> str:
    """Data URL of a square of one colour."""
    return _data_url([bytes(colour) * _SIDE] * _SIDE)


def digit_picture(digit: str) -> str:
    """Data URL of one digit, black on white, as a seven-segment display shows it."""
    rows = [bytearray(b"\xff" * 3 * _SIDE) for _ in range(_SIDE)]
    for name in _SEGMENTS[digit]:
        left, top, right, bottom = _BARS[name]
        for row in rows[top:bottom]:
            row[3 * left : 3 * right] = bytes(3 * (right - left))
    return _data_url([bytes(row) for row in rows])


def _data_url(rows: list[bytes]) -> str:
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)  # 8 bits, red green blue
    pixels = zlib.compress(b"".join(b"\x00" + row for row in rows), 9)  # filter type 0 before each row
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
