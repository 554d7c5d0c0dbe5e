"""Readings of every GPU a few times a second: what `nvidia-smi --query-gpu=... -lms 200` printed for a while.

A line `@fields index,...` says the columns of the rows that follow it. A line `@at` says the host's uptime:
the first when the script began, the others when a round of readings came.

Source: the loop option of nvidia-smi (`--help`, drivers 390 to 610).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from bringup.parse.nvidia_smi import read_gpu, read_rows
from bringup.values.host import GpuSample
from bringup.values.load import GpuMoment

INTERVAL_S = 0.2
_MOST_S = 60.0  # no tool that goes on takes longer for a round
_INSTANT = "power.draw.instant"  # where it is told, it is worth more than the average of a second
_OLD = (  # fields that every driver since 390 knows
    "index",
    "memory.used",
    "power.draw",
    "utilization.gpu",
    "clocks.sm",
    "temperature.gpu",
    "pcie.link.gen.current",
    "pcie.link.width.current",
)
_REASONS = "clocks_throttle_reasons.active"  # renamed in R535, and the old name stayed
FIELD_SETS = ((*_OLD, _REASONS, _INSTANT), (*_OLD, _REASONS), _OLD)  # the next where one is refused


def read_moments(text: str, *, begun_at: float) -> dict[int, tuple[GpuMoment, ...]]:
    r"""Readings by GPU index, with their times; the script began at `begun_at` seconds.

    Where the text does not tell when a round came, or a tool held several back and they came at once, the
    first is at `begun_at` and the others follow by the interval. A row without an index is left out.

    >>> read_moments("@fields index,power.draw\n0, 90.5\n0, 91.5\n", begun_at=1.0)[0][1].at
    1.2
    """
    found: dict[int, list[GpuMoment]] = {}
    rounds: dict[int, list[float | None]] = {}  # by GPU, the uptime when each of its readings came
    columns: tuple[str, ...] = ()
    uptimes: list[float] = []
    whole = text[: text.rfind("\n") + 1]  # a cut last line may hold half a number
    for line in whole.split("\n"):
        if line.startswith("@fields "):
            columns = tuple(line.removeprefix("@fields ").strip().split(","))
            continue
        if line.startswith("@at "):
            uptimes += _number(line.removeprefix("@at "))
        if not columns or not line.strip() or line.startswith("@"):
            continue
        for row in read_rows(f"{line}\n", columns).rows:
            index, moment = _moment(row)
            if index is not None:
                found.setdefault(index, []).append(moment)
                rounds.setdefault(index, []).append(uptimes[-1] if uptimes else None)
    return {
        index: _timed(moments, _delays(rounds[index], uptimes[0] if uptimes else None), begun_at)
        for index, moments in found.items()
    }


def _number(text: str) -> list[float]:
    """The number, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return []
    return [number] if math.isfinite(number) else []


def _delays(rounds: Sequence[float | None], first: float | None) -> list[float]:
    """How long after the script's begin each reading came."""
    told = [at - first for at in rounds if at is not None and first is not None]
    is_told = len(told) == len(rounds) and all(
        INTERVAL_S / 2 <= later - one <= _MOST_S for one, later in pairwise(told)
    )
    return told if is_told else [number * INTERVAL_S for number in range(len(rounds))]


def _timed(moments: Sequence[GpuMoment], delays: Sequence[float], begun_at: float) -> tuple[GpuMoment, ...]:
    return tuple(
        replace(moment, at=round(begun_at + delay, 3)) for moment, delay in zip(moments, delays, strict=True)
    )


def read_samples(text: str) -> dict[int, tuple[GpuSample, ...]]:
    r"""The same readings as samples of about one second.

    >>> read_samples("@fields index,utilization.gpu,power.draw\n0, 100, 141.20\n0, 99, 140.02\n")[0][1].power
    140.02
    """
    return {
        index: tuple(
            GpuSample(
                utilization=moment.utilization,
                power=moment.power,
                clock_sm=moment.clock_sm,
                pcie_generation=moment.pcie_generation,
            )
            for moment in moments
        )
        for index, moments in read_moments(text, begun_at=0.0).items()
    }


def _moment(row: dict[str, str]) -> tuple[int | None, GpuMoment]:
    """Whose reading it is, and the reading."""
    is_told = row.get(_INSTANT, "")[:1].isdecimal()
    gpu = read_gpu({**row, "power.draw": row[_INSTANT]} if is_told else row)
    moment = GpuMoment(
        at=0.0,
        memory_used=gpu.memory_used,
        power=gpu.power,
        utilization=gpu.utilization,
        clock_sm=gpu.clock_sm,
        temperature=gpu.temperature,
        pcie_generation=gpu.pcie_generation,
        pcie_width=gpu.pcie_width,
        clocks_event_reasons=gpu.clocks_event_reasons,
    )
    return gpu.index, moment
