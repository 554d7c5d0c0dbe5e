"""Where two texts part."""

_AROUND = 24  # characters quoted before and after the place


def first_difference(one: str, other: str) -> str | None:
    """The place where two texts first differ, quoted from both; None when they are equal.

    >>> first_difference("1, 2, 3", "1, 2; 3")
    'at character 5: `1, 2, 3` against `1, 2; 3`'
    >>> first_difference("same", "same") is None
    True
    """
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False), start=1)
    place = next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)) + 1)
    return f"at character {place}: `{_around(one, place)}` against `{_around(other, place)}`"


def _around(text: str, place: int) -> str:
    start, end = max(0, place - 1 - _AROUND), place - 1 + _AROUND
    before, after = "..." if start else "", "..." if end < len(text) else ""
    quoted = text[start:end].replace("\n", "\\n")
    return f"{before}{quoted}{after}"
