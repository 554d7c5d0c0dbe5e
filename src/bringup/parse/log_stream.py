r"""The lines of a log of any length that may matter, read piece by piece in bounded memory.

A log is searched for all texts that anybody reads at once; only lines with one of them are looked at, their
neighbours come along, and of one text only so many: a log of a gigabyte and one of a page give a case of the
same size.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from bringup.parse.literals import Literals
from bringup.units import KIB, MIB

_BEFORE, _AFTER = 2, 5  # neighbours of a line with a text
_HEAD, _TAIL = 60, 60  # lines at both ends that are always kept
_MOST_OF_A_TEXT = 400  # lines
_MOST_WHEN_FULL = 8  # lines of one text once the room is used up: a new one must not be lost
_ROOM = 24 * MIB  # bytes of lines
_LONGEST = 48 * KIB  # bytes of one line: SGLang prints its arguments in 10 KiB
_WINDOW = 4096  # bytes kept around the text of a longer line
_BLOCK = MIB  # bytes that are searched at once
_LONGEST_PIECE = 4 * MIB  # bytes without a line end that are searched as they are
_SMALL = 512 * KIB  # bytes of a log that may be read a second time


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLine:
    """A line as it stood in the log."""

    number: int  # 1-based
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLines:
    """What a log was cut down to."""

    lines: tuple[KeptLine, ...]
    total_lines: int
    total_bytes: int
    has_zeros: bool = False  # it is no text
    whole: bytes | None = None  # the log as it came in, where it is small


@dataclass(slots=True)
class _Line:
    """A line within the block that is searched."""

    number: int
    start: int
    end: int


class LineSieve:
    """Takes a log in pieces and keeps what may matter of it."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._literals = Literals(texts)
        self._counts = [0] * len(texts)
        self._kept: dict[int, bytes] = {}
        self._room = _ROOM
        self._pieces: list[bytes] = []  # not searched yet
        self._waiting = 0  # bytes in them
        self._is_open = False  # whether the line that the number is of has begun
        self._number = 1  # of the line that the next block begins with
        self._bytes = 0
        self._after = 0  # neighbours still wanted at the beginning of the next block
        self._tail: deque[tuple[int, bytes]] = deque(maxlen=_TAIL)
        self._zeros = 0
        self._whole: list[bytes] = []  # nothing once it is no small log any more

    def feed(self, piece: bytes) -> None:
        """Take the next piece, cut anywhere."""
        self._bytes += len(piece)
        if self._bytes <= _SMALL:
            self._whole.append(piece)
        else:
            self._whole.clear()
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting >= _BLOCK:
            self._take(is_last=False)

    def finish(self) -> KeptLines:
        """All that was kept, in the order of the log."""
        self._take(is_last=True)
        self._number += self._is_open
        for number, line in self._tail:
            self._kept.setdefault(number, line)
        return KeptLines(
            lines=tuple(
                KeptLine(number=number, raw=line.decode("utf-8", "replace"))
                for number, line in sorted(self._kept.items())
            ),
            total_lines=self._number - 1,
            total_bytes=self._bytes,
            has_zeros=self._zeros > self._bytes // 100,
            whole=b"".join(self._whole) if self._bytes <= _SMALL else None,
        )

    def _take(self, *, is_last: bool) -> None:
        """Search what has come in, up to its last line end; without one only when it is very long."""
        data = b"".join(self._pieces)
        cut = len(data) if is_last else data.rfind(b"\n") + 1
        if not cut and len(data) > _LONGEST_PIECE:
            cut = len(data)
        self._pieces = [data[cut:]] if cut < len(data) else []
        self._waiting = 0  # the rest is joined again with the next block only
        if cut:
            self._search(data[:cut])
            self._is_open = data[cut - 1 : cut] != b"\n"

    def _search(self, block: bytes) -> None:
        """Keep what matters of whole lines."""
        if b"\0" in block:
            self._zeros += block.count(0)
        self._keep_first(block, max(self._after, _HEAD + 1 - self._number))
        self._after = 0
        line = _Line(self._number, 0, -1)
        texts: set[int] = set()
        for text, start, end in self._literals.find(block):
            if start > line.end:
                self._judge(block, line, texts)
                begin = block.rfind(b"\n", 0, start) + 1
                number = line.number + block.count(b"\n", line.start, begin)
                stop = block.find(b"\n", end)
                line = _Line(number, begin, len(block) if stop < 0 else stop)
                texts = set()
            texts.add(text)
        self._judge(block, line, texts)
        self._remember_tail(block)
        self._number += block.count(b"\n")

    def _judge(self, block: bytes, line: _Line, texts: set[int]) -> None:
        """Keep the line and its neighbours unless enough lines with the same texts were kept."""
        if not texts:
            return
        most = _MOST_OF_A_TEXT if self._room > 0 else _MOST_WHEN_FULL
        is_wanted = any(self._counts[text] < most for text in texts)
        for text in texts:
            self._counts[text] += 1
        if not is_wanted:
            return
        whole = _shortened(block, line, self._literals)
        self._room -= len(whole) - len(self._kept.get(line.number, b""))
        self._kept[line.number] = whole  # also where its beginning was kept as a neighbour
        self._keep_before(block, line)
        end, number = line.end, line.number
        for place in range(_AFTER):
            begin = end + 1
            if begin >= len(block):
                self._after = max(self._after, _AFTER - place)
                return
            stop = block.find(b"\n", begin)
            end, number = (len(block) if stop < 0 else stop), number + 1
            self._keep(number, block[begin : min(end, begin + _LONGEST)])

    def _keep_before(self, block: bytes, line: _Line) -> None:
        end, number = line.start - 1, line.number
        for _ in range(_BEFORE):
            if end <= 0:
                break
            begin = block.rfind(b"\n", 0, end) + 1
            number -= 1
            self._keep(number, block[begin : min(end, begin + _LONGEST)])
            end = begin - 1
        for earlier, text in list(self._tail)[-_BEFORE:]:
            if earlier >= line.number - _BEFORE:
                self._keep(earlier, text)

    def _keep_first(self, block: bytes, count: int) -> None:
        begin = 0
        for place in range(count):
            if begin >= len(block):
                break
            stop = block.find(b"\n", begin)
            end = len(block) if stop < 0 else stop
            self._keep(self._number + place, block[begin : min(end, begin + _LONGEST)])
            begin = end + 1

    def _remember_tail(self, block: bytes) -> None:
        """The block's last lines, in case no further ones come."""
        found: list[tuple[int, bytes]] = []
        end = len(block) - 1 if block.endswith(b"\n") else len(block)
        number = self._number + block.count(b"\n", 0, end)
        while end >= 0 and len(found) < _TAIL:
            begin = block.rfind(b"\n", 0, end) + 1
            found.append((number, block[begin : min(end, begin + _LONGEST)]))
            number, end = number - 1, begin - 1
        self._tail.extend(reversed(found))

    def _keep(self, number: int, line: bytes) -> None:
        if number not in self._kept:
            self._room -= len(line)
            self._kept[number] = line


def _shortened(block: bytes, line: _Line, literals: Literals) -> bytes:
    """The line, of a very long one its beginning and what stands around the first text beyond it."""
    if line.end - line.start <= _LONGEST:
        return block[line.start : line.end]
    whole = block[line.start : line.end]
    head = whole[: _LONGEST // 2]
    for _, start, end in literals.find(whole):
        if end > len(head):
            return head + b" ... " + whole[max(len(head), start - _WINDOW) : end + _WINDOW]
    return head
