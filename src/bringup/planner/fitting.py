"""The value of a setting that fits: what a cure says instead of "lower it"."""

import math

from bringup.units import GIB
from bringup.values.model_shape import ModelShape
from bringup.values.start_log import StartLog

MARGIN = GIB // 2  # what a device needs beside a share of it: contexts, libraries, late workspaces
_LARGEST_VOCABULARY = 270_000
_MOST_GPUS = 64
_MOST_WEIGHTS = 0.9  # of what the engine may use: the rest is for a step and some cache
# Bytes per logit of the request that failed, and of what the sampler held then.
_HELD_PER_LOGIT = ((12, 6), (8, 6), (4, 2))
_LOGIT_COPIES = (2, 4, 8, 12)  # bytes per logit: half, float32, 64-bit indices, values and indices of a sort


def divisors(number: int, limit: int) -> tuple[int, ...]:
    """Ways to cut `number` into equal whole parts, up to `limit` of them, most first.

    >>> divisors(52, 8), divisors(40, 3)
    ((4, 2, 1), (2, 1))
    """
    return tuple(parts for parts in range(min(number, limit), 0, -1) if number % parts == 0)


def fits_cut(shape: ModelShape, cuts: int, *, has_whole_experts: bool = False) -> bool:
    """Whether each of `cuts` GPUs gets whole heads, blocks and groups, as far as they are known.

    >>> fits_cut(ModelShape(heads=48, kv_heads=8, expert_intermediate=1536, block=(128, 128)), 8)
    False
    """
    if shape.heads and shape.heads % cuts:
        return False
    if shape.kv_heads and shape.kv_heads % cuts and cuts % shape.kv_heads:
        return False  # fewer KV heads than GPUs are held by several each
    widths = (shape.intermediate, None if has_whole_experts else shape.expert_intermediate)
    steps = (*(shape.block or (1, 1)), shape.group or 1)
    return all(width % cuts == 0 and not any(width // cuts % step for step in steps)
               for width in widths if width)  # fmt: skip


def cuts_that_fit(shape: ModelShape, most: int, *, has_whole_experts: bool = False) -> tuple[int, ...]:
    """Every number of GPUs up to `most` that this model can be cut over, most first; none: heads not known.

    >>> cuts_that_fit(ModelShape(heads=48, kv_heads=8, expert_intermediate=1536, block=(128, 128)), 16)
    (4, 2, 1)
    """
    if shape.heads is None:
        return ()
    sizes = range(most, 0, -1)
    return tuple(size for size in sizes if fits_cut(shape, size, has_whole_experts=has_whole_experts))


def wider_cut(shape: ModelShape, now: int, room: int | None) -> int:
    """Over how many more GPUs to cut: the fewest whose part of the weights is at most `room`.

    Twice as many where the model or the room is not known, or none that it can be cut over is enough.

    >>> wider_cut(ModelShape(heads=64, kv_heads=8, weight_bytes=140 * GIB), 1, 70 * GIB)
    4
    """
    fitting = [size for size in reversed(cuts_that_fit(shape, _MOST_GPUS)) if size > now]
    if shape.weight_bytes and room:
        for size in fitting:
            if shape.weight_bytes / size <= _MOST_WEIGHTS * room:
                return size
    return next((size for size in fitting if size >= 2 * now), 2 * now)


def room_of_sampler(free: int, requested: int | None, vocabulary: int, rows: int) -> tuple[int, int]:
    """What the sampler's trial run had in all: what was free still, and logits that it held already.

    Beside what it asked for last it holds logits of 16 bits, and, once it sorts, a float32 copy of them.

    >>> room_of_sampler(GIB, 1024 * 200_064 * 12, 200_064, 1024)[1] == 1024 * 200_064 * 6
    True
    """
    logits = vocabulary * rows
    size = round((requested or 0) / logits, 1)
    held = next((kept for copies, kept in _HELD_PER_LOGIT if abs(size - copies) < 0.2), 0) * logits
    return free + held, held


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


def share_in_use(start: StartLog | None) -> float | None:
    """The share for weights and pools that SGLang took by itself: what was left of what was free, told apart.

    Source: SGLang `model_runner.py`, `profile_max_num_token`: the pool is what is left after weights less
    (1 - share) of what was free before.
    """
    if start is None or (start.spec is not None and "--max-total-tokens" in start.spec.flags):
        return None  # a pool of a given size leaves what it leaves
    for rank in start.ranks:
        before, left = rank.free_at_start, rank.free_after_pools
        if before and left and 0 < left < before:
            return round(1 - left / before, 2)
    return None


def weights_share(start: StartLog | None) -> float | None:
    """The share of what was free at the start that the weights alone took; None: not told."""
    ranks = start.ranks if start else ()
    return max((rank.weights / rank.free_at_start for rank in ranks if rank.weights and rank.free_at_start),
               default=None)  # fmt: skip


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
