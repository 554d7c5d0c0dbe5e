"""Looks at a rung while it runs: how far it is, and whether it has measured enough."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from bringup.load.fleet import Fleet
from bringup.load.page import Counts, Wish
from bringup.stats.interval import Batch, batch_interval, batches_of
from bringup.values.bench import GeneratorRun

_SHOWN_S = 0.25
_RATE_S = 2.0  # the rate that is shown is that of the last seconds
_KNOWN_TO = 0.02  # half width of the token rate's interval, as a share, at which a rung ends by itself
_LEAST_TICKS = 50  # five seconds of steady load
_WAVES = 3  # finished requests per stream before a rung may end: the first wave begins all at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a rung is."""

    title: str  # "8 streams"
    counts: Counts
    tokens_per_s: float  # events, of the last seconds
    seconds: float
    left_s: float | None  # None: nobody knows


@dataclass(slots=True, kw_only=True)
class RungWatch:
    """Watches one rung. `ends_itself`: it may end as soon as its token rate is known well enough."""

    fleet: Fleet
    title: str
    streams: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    ends_itself: bool = False
    on_progress: Callable[[Progress], None] = lambda _progress: None
    clock: Callable[[], float] = time.monotonic
    tick_s: float = 0.1
    stopped_because: str = ""
    _ticks: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])  # since it was steady
    _recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    async def run(self, running: Coroutine[Any, Any, tuple[GeneratorRun, ...]]) -> tuple[GeneratorRun, ...]:
        """The records of the rung, watched until it ends."""
        task = asyncio.ensure_future(running)
        begun = self.clock()
        shown = -_SHOWN_S
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self.tick_s)
                now, counts = self.clock(), self.fleet.counts()
                self._note(now, counts)
                if now - shown >= _SHOWN_S and not task.done():
                    shown = now
                    self.on_progress(self._progress(now - begun, counts))
                if self.ends_itself and not self.stopped_because and self._is_known(counts):
                    self.fleet.ask(Wish.FINISH)
            return await task
        finally:
            task.cancel()

    def _note(self, now: float, counts: Counts) -> None:
        self._recent.append((now, counts.events))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RATE_S:
            self._recent.popleft()
        streams = self.streams or 1
        if counts.finished >= streams and counts.running >= 0.95 * streams:
            self._ticks.append((now, counts.events))

    def _progress(self, seconds: float, counts: Counts) -> Progress:
        (first, before), (last, after) = self._recent[0], self._recent[-1]
        return Progress(
            title=self.title,
            counts=counts,
            tokens_per_s=(after - before) / (last - first) if last > first else 0.0,
            seconds=seconds,
            left_s=self._left(seconds, counts),
        )

    def _left(self, seconds: float, counts: Counts) -> float | None:
        found: list[float] = []
        if self.duration_s is not None:
            found.append(max(0.0, self.duration_s - seconds))
        if self.requests is not None and counts.finished:
            found.append(seconds * (self.requests - counts.finished) / counts.finished)
        return min(found, default=None)

    def _is_known(self, counts: Counts) -> bool:
        """Whether the token rate is known well enough, by batch means over its steady time."""
        if len(self._ticks) < _LEAST_TICKS or counts.finished < _WAVES * (self.streams or 1):
            return False
        (first, _), (last, _) = self._ticks[0], self._ticks[-1]
        gains = [
            float(after - before)
            for (_, before), (_, after) in zip(self._ticks, self._ticks[1:], strict=False)
        ]
        tick_s = (last - first) / len(gains)
        stay_s = (last - first) * (self.streams or 1) / max(1, counts.finished)
        batches = batches_of(gains, together=max(1, round(stay_s / tick_s)))
        interval = batch_interval([Batch(size=one.size * tick_s, total=one.total) for one in batches])
        if interval is None or interval.relative > _KNOWN_TO:
            return False
        self.stopped_because = f"its token rate was known to {100 * interval.relative:.1f} %"
        return True
