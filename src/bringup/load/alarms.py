"""Alarms finer than the event loop's own.

libuv counts in whole milliseconds, a timer of the kernel in nanoseconds: an inter-token latency of 20 ms is
judged against a lag of 0.2 ms, which a loop that only knows milliseconds could not even measure.
"""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # the values of TFD_NONBLOCK and TFD_CLOEXEC (timerfd_create(2))
_ABSOLUTE = 1
_COARSE_NS = 1_000_000


class _Span(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Span), ("value", _Span))


class Alarm:
    """Calls `ring` at or after the moment it is set to; setting it again moves it.

    Attributes:
        step_ns: the resolution; 1 where the kernel has timers as files, else a millisecond.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._interval_ns = 0
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _kernel_timer()
        self.step_ns = 1 if self._fd is not None else _COARSE_NS
        if self._fd is not None:
            loop.add_reader(self._fd, self._rang)

    def set(self, at_ns: int, interval_ns: int = 0) -> None:
        """Ring at `at_ns` of the monotonic clock, at once when that is past; then every `interval_ns`."""
        self._interval_ns = interval_ns
        if self._fd is not None:
            setting = _Setting(_span(interval_ns), _span(max(1, at_ns)))
            _libc().timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0, at_ns - time.monotonic_ns()) / 1e9, self._called)

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _called(self) -> None:
        if self._interval_ns:
            self._handle = self._loop.call_later(self._interval_ns / 1e9, self._called)
        self._ring()

    def _rang(self) -> None:
        if self._fd is None:
            return
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew between the ring and this call
        self._ring()


def _span(nanoseconds: int) -> _Span:
    return _Span(*divmod(nanoseconds, 1_000_000_000))


def _libc() -> ctypes.CDLL:
    global _loaded  # noqa: PLW0603 - the C library of the process, found once
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded


_loaded: ctypes.CDLL | None = None


def _kernel_timer() -> int | None:
    if sys.platform != "linux":
        return None
    try:
        fd = _libc().timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
    except (OSError, AttributeError):
        return None
    return fd if fd >= 0 else None


class Heartbeat:
    """Beats every few milliseconds and keeps how late each beat was served: the lag of all in this loop.

    A loop that was away over several beats counts as late for each of them, so that the lags are those of
    arrivals at random moments and not only of the beats that were served.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval_ns: int, beat: Callable[[int], None] | None = None
    ) -> None:
        self.lags: dict[int, int] = {}  # microseconds -> how often
        self.total_ns = 0
        self.most_ns = 0
        self.least_ns: int | None = None
        self._interval_ns = interval_ns
        self._beat = beat
        self._alarm = Alarm(loop, self._served)
        self.step_ns = self._alarm.step_ns
        self._due = time.monotonic_ns() + interval_ns
        self._alarm.set(self._due, interval_ns)

    def forget(self) -> None:
        """Begin anew: what was measured so far belongs to nobody."""
        self.lags, self.total_ns, self.most_ns, self.least_ns = {}, 0, 0, None

    def close(self) -> None:
        """Beat no more."""
        self._alarm.close()

    def _served(self) -> None:
        now = time.monotonic_ns()
        lags = self.lags
        while self._due <= now:
            lag = now - self._due
            micros = lag // 1000
            lags[micros] = lags.get(micros, 0) + 1
            self.total_ns += lag
            self.most_ns = max(self.most_ns, lag)
            if self.least_ns is None or lag < self.least_ns:
                self.least_ns = lag
            self._due += self._interval_ns
        if self._beat is not None:
            self._beat(now)
