"""GPUs as people name them in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a word for a number needs no record of a host
    from collections.abc import Iterable, Sequence

    from bringup.values.host import Gpu

CLOCK_REASONS = {  # bits of NVML's `nvmlClocksEventReasons`
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


def gpus_text(gpus: Iterable[Gpu]) -> str:
    """Their indices with runs drawn together; their addresses where they have none.

    >>> from bringup.values.host import Gpu
    >>> gpus_text([Gpu(index=number) for number in (0, 1, 2, 3, 5)]), gpus_text([Gpu(index=4)])
    ('GPUs 0-3, 5', 'GPU 4')
    """
    listed = list(gpus)
    indices = [gpu.index for gpu in listed if gpu.index is not None]
    if len(indices) < len(listed):
        return ", ".join(gpu.label for gpu in listed)
    return f"GPU{'' if len(listed) == 1 else 's'} {runs_text(indices)}" if listed else "no GPU"


def runs_text(numbers: Sequence[int]) -> str:
    """Numbers with runs drawn together, in order.

    >>> runs_text([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7, 8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)
