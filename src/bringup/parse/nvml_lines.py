"""What the NVML process prints: one line per card and reading, to a moment of that card.

Its fields are the monotonic clock in nanoseconds, index, memory in use in bytes, power in mW, energy in mJ,
utilization in percent, SM clock in MHz, temperature in degrees and the event reasons; `-` is not told.
"""

from bringup.values.load import GpuMoment

_FIELDS = 9


def read_line(line: str, *, begun_ns: int) -> tuple[int, GpuMoment] | None:
    """The card's index and its reading, on an axis of seconds from `begun_ns`; None for any other line.

    >>> index, moment = read_line("2000000000 1 1024 250500 - 97 1980 61 4", begun_ns=1_500_000_000)
    >>> index, moment.at, moment.power, moment.energy, moment.utilization
    (1, 0.5, 250.5, None, 0.97)
    """
    words = line.split()
    if len(words) != _FIELDS or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    numbers = [int(word) if word.isdecimal() else None for word in words]
    at, index, memory, milliwatts, millijoules, percent, clock, temperature, reasons = numbers
    if at is None or index is None:
        return None
    return index, GpuMoment(
        at=(at - begun_ns) / 1e9,
        memory_used=memory,
        power=None if milliwatts is None else milliwatts / 1000,
        energy=None if millijoules is None else millijoules / 1000,
        utilization=None if percent is None else percent / 100,
        clock_sm=clock,
        temperature=temperature,
        clocks_event_reasons=reasons,
    )
