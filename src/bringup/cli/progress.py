"""Progress on standard error: one line that is rewritten on a terminal, plain lines elsewhere."""

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Self

from bringup.flows.exercise import Step

_QUIET_S = 2.0  # seconds between lines where nothing can be rewritten


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

    def step(self, step: Step) -> None:
        """One step of the run."""
        if not self._enabled:
            return
        text = f"[{step.done}/{step.total}] {step.title}"
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
