"""What one tensor takes once the allocator has rounded it: engines that count blocks count it too."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from bringup.units import MIB

_SMALLEST = 512  # bytes. Source: PyTorch 2.9 `c10/cuda/CUDACachingAllocator.h`, `kMinBlockSize`
_LARGE = 10 * MIB  # from here a tensor has a segment of its own. Source: the same, `kMinLargeAlloc`
_SHARED = 20 * MIB  # tensors of 1 to 10 MiB share segments of this. Source: the same, `kLargeBuffer`
_STEP = 2 * MIB  # segments are whole multiples. Source: the same, `kRoundLarge`
_KEPT_WHOLE = MIB  # a rest up to here is not split off. Source: the same, `kSmallSize`


def round_up(value: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `value`.

    >>> round_up(151936, 64), round_up(65, 64)
    (151936, 128)
    """
    return -(-value // step) * step


# Layers are alike, so few sizes come again and again.
@lru_cache(maxsize=4096)
def allocated_bytes(size: int, *, split_limit: int | None = None) -> int:
    """Bytes of the allocator's block behind a tensor of `size` bytes.

    A tensor of 10 MiB or more gets a segment of whole 2 MiB; a rest of up to 1 MiB stays with the block,
    a larger one is split off. Above `split_limit` nothing is split off: the block is the segment.
    Source: PyTorch 2.9 `CUDACachingAllocator.cpp`, `should_split`, `get_allocation_size`; checked against the
    logged 30.5855 GiB of Qwen3-32B at TP2, which without the rounding would be 30.5225.

    >>> allocated_bytes(125 * MIB) // MIB  # a down_proj shard of Qwen3-32B at TP2
    126
    >>> allocated_bytes(1000), allocated_bytes(int(120.5 * MIB)) // MIB
    (1024, 120)
    """
    size = round_up(size, _SMALLEST)
    if size < _LARGE:
        return size
    segment = round_up(size, _STEP)
    if split_limit is not None and size > split_limit:
        return segment
    return size if segment - size > _KEPT_WHOLE else segment


def is_shared(size: int) -> bool:
    """Whether a tensor lies in a segment with others of its kind: 1 to 10 MiB."""
    return _KEPT_WHOLE < size < _LARGE


@dataclass(frozen=True, slots=True)
class Shared:
    """Segments that tensors between 1 and 10 MiB share."""

    held: int  # bytes of the segments
    given_away: int  # rests of up to 1 MiB, given to the tensor before them


def shared_segments(sizes: Iterable[int]) -> Shared:
    """The segments of tensors between 1 and 10 MiB, filled first fit in this order.

    >>> shared_segments([9 * MIB, int(4.5 * MIB), 9 * MIB, int(4.5 * MIB)]).held // MIB
    40
    >>> shared_segments([512, 12 * MIB]).held  # small tensors share otherwise, larger ones do not
    0
    >>> shared_segments([int(9.75 * MIB)] * 2).given_away // 1024
    512
    """
    rooms: list[int] = []  # left in segments that may still take something
    segments = given = 0
    for size in sizes:
        if not is_shared(size):
            continue
        place = next((number for number, room in enumerate(rooms) if room >= size), None)
        if place is None:
            rooms.append(_SHARED)
            segments, place = segments + 1, len(rooms) - 1
        rooms[place] -= size
        if rooms[place] <= _KEPT_WHOLE:
            given += rooms.pop(place)
    return Shared(segments * _SHARED, given)


@dataclass(slots=True)
class Segments:
    """What the driver has given out: segments, and what of them is free again.

    The smallest free block that is large enough is taken, and a new segment only where there is none.
    Source: PyTorch 2.9 `CUDACachingAllocator.cpp`, `get_free_block`, `alloc_block`.
    """

    held: int = 0  # bytes of all segments
    _small: list[int] = field(default_factory=list[int])  # free blocks, ascending
    _large: list[int] = field(default_factory=list[int])

    def take(self, size: int) -> int:
        """Bytes of the block that a tensor gets.

        >>> segments = Segments()
        >>> segments.give(segments.take(64 * MIB))  # made and dropped before the weights come
        >>> [segments.take(15 * MIB) // MIB for _ in range(3)], segments.held // MIB
        ([15, 15, 15], 64)
        """
        size = max(_SMALLEST, round_up(size, _SMALLEST))
        is_small = size <= _KEPT_WHOLE
        free = self._small if is_small else self._large
        place = bisect_left(free, size)
        if place < len(free):
            block = free.pop(place)
        else:
            block = _STEP if is_small else _SHARED if size < _LARGE else round_up(size, _STEP)
            self.held += block
        rest = block - size
        if rest < _SMALLEST or (rest <= _KEPT_WHOLE and not is_small):
            return block
        insort(free, rest)
        return size

    def give(self, block: int) -> None:
        """Put a block back."""
        insort(self._small if block <= _KEPT_WHOLE else self._large, block)
