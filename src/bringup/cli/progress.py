"""Progress on standard error: one line that is rewritten on a terminal, plain lines elsewhere."""

import os
import shutil
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bringup.units import bytes_text

if TYPE_CHECKING:  # the flows of a verification are not loaded for a diagnosis
    from bringup.flows.exercise import Step

_QUIET_S = 2.0  # seconds between lines where nothing can be rewritten
_BETWEEN_S = 0.5  # seconds between two counts of bytes


class ProgressLine:
    """Shows what is being asked, until it is left."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._rewrites = enabled and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def step(self, step: "Step") -> None:
        """One step of the run."""
        self.tell(f"[{step.done}/{step.total}] {step.title}")

    def tell(self, text: str) -> None:
        """What is going on now."""
        if not self._enabled:
            return
        if self._rewrites:
            room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be rewritten
            sys.stderr.write(f"\r\x1b[2K{text[:room]}")
            sys.stderr.flush()
        elif time.monotonic() - self._said_at >= _QUIET_S:
            self._said_at = time.monotonic()
            print(text, file=sys.stderr)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._enabled:
            self._clear()
            print(text, file=sys.stderr)

    def _clear(self) -> None:
        if self._rewrites:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


class BytesLine:
    """Shows how much of something long was read, once it takes more than two seconds."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._line = ProgressLine(enabled=enabled)
        self._begun = self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def read(self, done: int) -> None:
        """So many bytes were read."""
        now = time.monotonic()
        if now - self._begun >= _QUIET_S and now - self._said_at >= _BETWEEN_S:
            self._said_at = now
            self._line.tell(f"read {bytes_text(done)}, {bytes_text(round(done / (now - self._begun)))}/s")
