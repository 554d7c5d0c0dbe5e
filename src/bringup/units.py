"""Bytes, seconds and watts: the only place that knows 1024.

Bytes are `int`. Everything else is a float in its SI unit, named with its unit where it crosses a boundary.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_STEPS = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def mib(count: float) -> int:
    """Bytes in `count` MiB, rounded to a whole byte.

    >>> mib(97887)
    102641958912
    """
    return round(count * MIB)


def in_mib(size: int) -> float:
    """MiB in `size` bytes.

    >>> in_mib(102641958912)
    97887.0
    """
    return size / MIB


def bytes_text(size: int) -> str:
    """A size a person reads: one decimal, binary unit, the sign kept.

    >>> bytes_text(102641958912), bytes_text(512), bytes_text(-3 * MIB)
    ('95.6 GiB', '512 B', '-3.0 MiB')
    """
    for step, unit in _STEPS:
        if abs(size) >= step:
            return f"{size / step:,.1f} {unit}"
    return f"{size} B"


def mib_text(size: int) -> str:
    """A size in whole MiB with thousands marked, as nvidia-smi counts.

    >>> mib_text(101419319296)
    '96,721 MiB'
    """
    return f"{round(size / MIB):,} MiB"


def seconds_text(seconds: float) -> str:
    """A duration with three significant figures.

    >>> seconds_text(0.0421), seconds_text(1.234), seconds_text(75.2), seconds_text(3600)
    ('42.1 ms', '1.23 s', '75.2 s', '1 h 0 min')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
