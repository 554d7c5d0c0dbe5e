r"""What a file is by its first bytes, as loaders print them: as text, in hexadecimal, as a length.

A loader that finds other bytes than it expects prints those that it found. They are the beginning of what was
downloaded instead: the text of a Git LFS pointer, a web page, an archive, another format, nothing.
"""

import re
from enum import StrEnum

_SHORTEST = 3  # bytes that tell anything
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{6,16})")
_LENGTH = 8  # bytes of the length that a safetensors file begins with


class Beginning(StrEnum):
    """What begins so."""

    LFS_POINTER = "a Git LFS pointer"
    WEB_PAGE = "a web page"
    ARCHIVE = "an archive"
    OLD_GGML = "a file of an older ggml format"
    GGUF = "a GGUF file"
    SAFETENSORS = "a safetensors file"
    JSON = "a JSON text"
    PICKLE = "a PyTorch file"
    ZEROS = "zeros"


_BY_BYTES = (
    (re.compile(rb"vers(?:i(?:o(?:n.?)?)?)?$|version "), Beginning.LFS_POINTER),
    (re.compile(rb"\s*<(?:!(?i:d|-)|(?i:h(?:t|e)|\?xm|b))"), Beginning.WEB_PAGE),
    (
        re.compile(rb"PK(?:\x03\x04|$|[^A-Za-z])|\x1f\x8b|BZh|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!|ustar"),
        Beginning.ARCHIVE,
    ),
    (re.compile(rb"(?:tjgg|fmgg|lmgg|algg|ggjt|ggmf|ggml|ggla)"), Beginning.OLD_GGML),
    (re.compile(rb"GGUF"), Beginning.GGUF),
    (re.compile(rb"\{[\"\s]|\[\{"), Beginning.JSON),
    (re.compile(rb"\x80[\x02-\x05]"), Beginning.PICKLE),
    (re.compile(rb"[^\x00][\x00-\xff]{1,3}\x00{3,5}|.[^\x00]\x00\x00$", re.DOTALL), Beginning.SAFETENSORS),
    (re.compile(rb"\x00+$"), Beginning.ZEROS),
)


def beginning_of(printed: str) -> Beginning | None:
    """What begins with these bytes, printed as text or in hexadecimal in either order.

    >>> beginning_of("73726576"), beginning_of("0x3c21444f"), beginning_of("vers"), beginning_of("PK")
    (<Beginning.LFS_POINTER: 'a Git LFS pointer'>, <Beginning.WEB_PAGE: 'a web page'>, \
<Beginning.LFS_POINTER: 'a Git LFS pointer'>, <Beginning.ARCHIVE: 'an archive'>)
    >>> beginning_of("12345678")
    """
    number = _HEX.fullmatch(printed.strip())
    if number is None:
        return _of_bytes(printed.encode())
    digits = number[1].zfill(len(number[1]) + len(number[1]) % 2)
    found = bytes.fromhex(digits)
    return _of_bytes(found[::-1]) or _of_bytes(found)


def beginning_of_length(length: int) -> Beginning | None:
    """What a file is whose first eight bytes make this length.

    >>> beginning_of_length(int.from_bytes(b"version ", "little"))
    <Beginning.LFS_POINTER: 'a Git LFS pointer'>
    """
    if length < 0 or length >= 1 << (8 * _LENGTH):
        return None
    found = _of_bytes(length.to_bytes(_LENGTH, "little"))
    return None if found is Beginning.SAFETENSORS else found


def _of_bytes(found: bytes) -> Beginning | None:
    if len(found) < _SHORTEST and found != b"PK":
        return None
    return next((what for pattern, what in _BY_BYTES if pattern.match(found)), None)
