"""Reads the GPUs of this machine through NVML, in a process of its own.

A driver that hangs holds whoever asked it, and generators fork from the process that measures: so the library
is loaded by a child, `python -m bringup.transport.nvml`, that prints lines (`parse/nvml_lines.py`) and is
left behind when it does not end. A byte on its standard input makes it read at once: at the borders of a
rung the energy counter is read there and not between two readings.

Source: NVML API reference; extra `nvml` (nvidia-ml-py).
"""

import asyncio
import contextlib
import importlib
import importlib.util
import os
import select
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bringup.transport.spawn import started

INTERVAL_S = 0.2
_LATER_INTERVAL_S = 1.0  # after ten minutes: a long run must not fill the memory with readings
_LATER_AFTER_S = 600.0
_NONE = "@none "
_READ, _QUIT = b"r", b"q"
_LINE_LIMIT = 65_536
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")


def has_driver() -> bool:
    """Whether this machine may have a GPU of NVIDIA: its driver shows itself, or that of WSL or Jetson."""
    return any(Path(place).exists() for place in _DRIVERS)


def is_installed() -> bool:
    """Whether the extra `nvml` is there."""
    return importlib.util.find_spec("pynvml") is not None


@dataclass(slots=True)
class NvmlReader:
    """The child, from `start` to `stop`. Its lines are given to `take` as they come."""

    take: Callable[[str], None]
    why_none: str = ""  # why there are no readings, once that is known
    answered: asyncio.Event = field(default_factory=asyncio.Event)  # the first line came, or the child ended
    _process: Process | None = None
    _listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the child; it reads from now on, five times a second."""
        starting = asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", __name__, stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            limit=_LINE_LIMIT, start_new_session=True,
        )  # fmt: skip
        try:
            self._process = await started(starting)
        except OSError as error:
            self.why_none = f"NVML's process could not be started: {error.strerror}"
            self.answered.set()
            return
        self._listening = asyncio.create_task(self._listen(self._process))

    async def ended(self) -> None:
        """Wait until the child has ended by itself."""
        if self._listening is not None:
            await asyncio.wait({self._listening})

    def read_now(self) -> None:
        """Ask for a reading in between."""
        self._say(_READ)

    async def stop(self, *, limit_s: float) -> None:
        """One more reading, and the end of the child; a child that hangs is left behind, killed."""
        self._say(_QUIT)
        if self._process is None or self._listening is None:
            return
        if (await asyncio.wait({self._listening}, timeout=limit_s))[1]:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait({self._listening}, timeout=limit_s)
        self._listening.cancel()  # a process that hangs in the kernel does not even end when it is killed
        if self._process.stdin is not None:
            self._process.stdin.close()
        waiting = asyncio.create_task(self._process.wait())
        if (await asyncio.wait({waiting}, timeout=limit_s))[1]:
            waiting.cancel()

    def _say(self, word: bytes) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.returncode is None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(word)

    async def _listen(self, process: Process) -> None:
        if process.stdout is None:
            return
        try:
            while line := await process.stdout.readline():
                text = line.decode("ascii", "replace")
                if text.startswith(_NONE):
                    self.why_none = text.removeprefix(_NONE).strip()
                else:
                    self.take(text)
                    self.answered.set()
        except ValueError:  # a line beyond the limit
            self.why_none = "NVML's process printed no lines"
        finally:
            self.answered.set()


def lines(nvml: Any, handles: Mapping[int, Any]) -> Iterator[str]:
    """One reading of every card; a card that answers nothing has a line of dashes."""
    for index, handle in handles.items():
        at = time.monotonic_ns()
        values = (
            _told(nvml, lambda card=handle: nvml.nvmlDeviceGetTotalEnergyConsumption(card)),
            _power(nvml, handle),
            _memory(nvml, handle),
            _told(nvml, lambda card=handle: nvml.nvmlDeviceGetUtilizationRates(card).gpu),
            _told(nvml, lambda card=handle: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM)),
            _told(nvml, lambda card=handle: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU)),
            _reasons(nvml, handle),
        )
        energy, power, memory, *others = ("-" if value is None else str(value) for value in values)
        yield " ".join((str(at), str(index), memory, power, energy, *others))


def _told(nvml: Any, ask: Callable[[], Any]) -> int | None:
    """The answer; None where this card, driver or library has none."""
    try:
        return int(ask())
    except (nvml.NVMLError, AttributeError):
        return None


def _power(nvml: Any, handle: Any) -> int | None:
    """Milliwatts of the moment where the driver tells them apart, else the average of a second."""

    def instant() -> int:
        field_id = nvml.NVML_FI_DEV_POWER_INSTANT
        (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field_id])
        if value.nvmlReturn != 0:
            raise AttributeError(field_id)
        return value.value.uiVal

    told = _told(nvml, instant)
    return told or _told(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))


def _memory(nvml: Any, handle: Any) -> int | None:
    """Bytes in use without what the driver holds, as nvidia-smi shows them."""
    told = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    return told if told is not None else _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _reasons(nvml: Any, handle: Any) -> int | None:
    """What holds the clocks, as a bit mask; the second name is that of drivers before R535."""
    told = _told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if told is not None:
        return told
    return _told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def main(out: TextIO = sys.stdout) -> None:
    """Readings of every card until standard input says or ends otherwise, or whoever started it is gone."""
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        handles = dict(_cards(nvml))
    except nvml.NVMLError as error:
        print(f"{_NONE}{error}", file=out, flush=True)
        return
    if not handles:
        print(f"{_NONE}no GPU", file=out, flush=True)
        return
    begun, parent, is_over = time.monotonic(), os.getppid(), False
    while not is_over:
        print("\n".join(lines(nvml, handles)), file=out, flush=True)
        is_over = _is_over(begun, parent)
    print("\n".join(lines(nvml, handles)), file=out, flush=True)


def _cards(nvml: Any) -> Iterator[tuple[int, Any]]:
    """Every card that answers, by its index: a lost one does not take the others along."""
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            yield index, nvml.nvmlDeviceGetHandleByIndex(index)


def _is_over(begun: float, parent: int) -> bool:
    """Whether it is time to end; comes back when the next reading is due."""
    interval = INTERVAL_S if time.monotonic() - begun < _LATER_AFTER_S else _LATER_INTERVAL_S
    ready, _, _ = select.select([sys.stdin], [], [], interval)
    word = os.read(sys.stdin.fileno(), 64) if ready else _READ
    return not word or _QUIT in word or os.getppid() != parent


if __name__ == "__main__":
    main()
