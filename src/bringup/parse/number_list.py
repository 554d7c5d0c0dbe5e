"""Lists of numbers as the kernel prints them for processors and memory nodes.

Source: `lib/bitmap-str.c` of the kernel (`%*pbl`).
"""

import re

_LARGEST = 8_192  # processors that a kernel is built for at most; more is a garbled text
_LONGEST = 4_096  # characters


def read_number_list(text: str | None) -> frozenset[int] | None:
    """The numbers; None when it is no such list. "" is a list of none.

    >>> sorted(read_number_list("0-2,8")), read_number_list(""), read_number_list("x")
    ([0, 1, 2, 8], frozenset(), None)
    """
    if text is None or len(text) > _LONGEST:
        return None
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last > _LARGEST:
            return None
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def number_list_text(numbers: frozenset[int]) -> str:
    """The numbers as the kernel prints them.

    >>> number_list_text(frozenset((0, 1, 2, 8)))
    '0-2,8'
    """
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
