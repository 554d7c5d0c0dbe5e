"""The value of a setting that fits: what a cure says instead of "lower it"."""

import math

from bringup.units import GIB

MARGIN = GIB // 2  # what a device needs beside a share of it: contexts, libraries, late workspaces
_LARGEST_VOCABULARY = 270_000
_LOGIT_COPIES = (2, 4, 8, 12)  # bytes per logit: half, float32, 64-bit indices, values and indices of a sort


def divisors(number: int, limit: int) -> tuple[int, ...]:
    """Ways to cut `number` into equal whole parts, up to `limit` of them, most first.

    >>> divisors(52, 8), divisors(40, 3)
    ((4, 2, 1), (2, 1))
    """
    return tuple(parts for parts in range(min(number, limit), 0, -1) if number % parts == 0)


def cut_that_keeps_blocks(part: int, block: int, cuts: int | None) -> tuple[int, int] | None:
    """Into how many fewer parts a size is to be cut so that each holds whole blocks: (times fewer, cuts).

    `part` is what is too small now, one of `cuts` (0 in the answer where they are not known). None: no way.

    >>> cut_that_keeps_blocks(192, 128, 8), cut_that_keeps_blocks(192, 128, None)
    ((2, 4), (2, 0))
    """
    if cuts is None:
        times = math.lcm(part, block) // part
        return (times, 0) if times & (times - 1) == 0 else None
    whole = part * cuts
    fitting = [size for size in divisors(cuts, cuts - 1) if whole // size % block == 0]
    return (cuts // fitting[0], fitting[0]) if fitting else None


def share_that_fits(free: int, total: int, margin: int = MARGIN) -> float | None:
    """The largest share of `total`, in hundredths, that leaves `margin` of what is free; None: not even 5 %.

    >>> share_that_fits(31 * GIB, 47 * GIB), share_that_fits(GIB // 4, 47 * GIB)
    (0.64, None)
    """
    share = math.floor((free - margin) / total * 100) / 100
    return share if share >= 0.05 else None


def share_with_room(share: float, room: int, total: int | None) -> float:
    """`share` less what `room` bytes are of `total`, in hundredths, a fiftieth less at least.

    >>> share_with_room(0.9, 2 * GIB, 80 * GIB), share_with_room(0.92, 0, None)
    (0.87, 0.9)
    """
    less = max(0.02, room / total if total else 0.0)
    return max(0.05, round(math.floor((share - less) * 100 + 1e-6) / 100, 2))


def sequences_that_fit(free: int, vocabulary: int, bytes_per_logit: float, now: int) -> int:
    """How many requests may run at once so that their logits fit into `free`: a power of two, 256 at most.

    >>> sequences_that_fit(GIB // 2, 200_064, 38.5, 1024), sequences_that_fit(8 * GIB, 32_000, 11.0, 1024)
    (64, 256)
    """
    fitting = int(free / (vocabulary * bytes_per_logit))
    most = min(fitting, 256, max(1, now // 2))
    return 1 << (max(1, most).bit_length() - 1)


def vocabulary_of(requested: int, rows: int) -> int | None:
    """The vocabulary, or a bound of it, that a buffer of `requested` bytes for `rows` requests tells of.

    >>> vocabulary_of(298 * 1024 * 1024, 1024)
    152576
    """
    per_row = requested / rows
    return next(
        (int(per_row / size) for size in _LOGIT_COPIES if per_row / size <= _LARGEST_VOCABULARY), None
    )


def length_that_fits(length: int, need: float, available: float) -> int:
    """The longest request whose cache fits, where one of `length` tokens needs `need`: in steps of 16 tokens.

    >>> length_that_fits(100_000, 4.26, 4.25)
    99520
    """
    # Sizes are printed with two decimals: half of the last digit may be missing.
    fitting = length * max(0.0, available - 0.005) / (need + 0.005)
    return max(16, int(fitting) // 16 * 16)
