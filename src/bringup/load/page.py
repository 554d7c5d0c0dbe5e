"""A page of memory shared by the generators and whoever started them: counters up, a wish to stop down.

Each generator writes its own row a few times a second, from its heartbeat; nothing waits for anybody.
"""

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum

_ROW = struct.Struct("8q")


class Wish(IntEnum):
    """What the generators are to do."""

    GO = 0
    FINISH = 1  # send nothing more, let what runs come to its end
    CUT = 2  # hang up


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a generator is."""

    started: int = 0
    finished: int = 0  # good or bad
    failed: int = 0
    running: int = 0
    events: int = 0  # of token events parsed so far
    lag_us: int = 0  # of the latest beat
    first_tokens: int = 0


class Page:
    """Rows of counters, one per generator."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._memory = mmap.mmap(-1, _ROW.size * rows)

    def write(self, row: int, counts: Counts) -> None:
        """A generator tells how far it is."""
        _ROW.pack_into(
            self._memory,
            _ROW.size * row,
            self.wish(row),
            counts.started,
            counts.finished,
            counts.failed,
            counts.running,
            counts.events,
            counts.lag_us,
            counts.first_tokens,
        )

    def read(self, row: int) -> Counts:
        """How far one generator is."""
        return Counts(*_ROW.unpack_from(self._memory, _ROW.size * row)[1:])

    def total(self) -> Counts:
        """How far all are together; the lag is the largest."""
        rows = [self.read(row) for row in range(self.rows)]
        return Counts(
            started=sum(row.started for row in rows),
            finished=sum(row.finished for row in rows),
            failed=sum(row.failed for row in rows),
            running=sum(row.running for row in rows),
            events=sum(row.events for row in rows),
            lag_us=max((row.lag_us for row in rows), default=0),
            first_tokens=sum(row.first_tokens for row in rows),
        )

    def wish(self, row: int = 0) -> int:
        """What the generator of that row is to do."""
        return struct.unpack_from("q", self._memory, _ROW.size * row)[0]

    def ask(self, wish: Wish) -> None:
        """Tell every generator what to do; `Wish.GO` also forgets what was counted."""
        for row in range(self.rows):
            struct.pack_into("q", self._memory, _ROW.size * row, wish)
            if wish == Wish.GO:
                self.write(row, Counts())
