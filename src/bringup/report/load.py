"""What was sampled beside the burst, as a table with sparklines."""

from collections.abc import Callable, Sequence

from bringup.units import in_mib
from bringup.values.load import EngineMoment, GpuMoment, LoadTrace
from bringup.values.report import Cell, Table

_LEVELS = "▁▂▃▄▅▆▇█"
_COLUMNS = 32

_OF_GPU: tuple[tuple[str, str, Callable[[GpuMoment], float | None]], ...] = (
    ("memory", "MiB", lambda moment: None if moment.memory_used is None else in_mib(moment.memory_used)),
    ("power", "W", lambda moment: moment.power),
    ("busy", "%", lambda moment: None if moment.utilization is None else 100 * moment.utilization),
    ("clock", "MHz", lambda moment: moment.clock_sm),
    ("temperature", "°C", lambda moment: moment.temperature),
    ("PCIe generation", "", lambda moment: moment.pcie_generation),
)
_OF_ENGINE: tuple[tuple[str, str, Callable[[EngineMoment], float | None]], ...] = (
    ("requests running", "", lambda moment: moment.running),
    ("requests waiting", "", lambda moment: moment.waiting),
    ("KV cache in use", "%", lambda moment: _percent(moment.kv_used_share)),
)


def load_table(trace: LoadTrace) -> Table:
    """Least, most and course of every series that was told; a row without change says so by being flat."""
    rows: list[tuple[Cell, ...]] = []
    for name, unit, read in _OF_ENGINE:
        rows += _row(name, unit, [read(moment) for moment in trace.engine])
    for one in trace.gpus:
        for name, unit, read_gpu in _OF_GPU:
            rows += _row(f"GPU {one.index} {name}", unit, [read_gpu(moment) for moment in one.moments])
    return Table(title="Under load", columns=("what", "least", "most", "unit", "course"), rows=tuple(rows))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _row(name: str, unit: str, values: Sequence[float | None]) -> list[tuple[Cell, ...]]:
    told = [value for value in values if value is not None]
    if not told:
        return []
    return [(name, _figure(min(told)), _figure(max(told)), unit, sparkline(told))]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def sparkline(values: Sequence[float], *, columns: int = _COLUMNS) -> str:
    """The course of a series in one line of blocks, each the most of its part of the time.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7]), sparkline([5, 5, 5]), sparkline([])
    ('▁▂▃▄▅▆▇█', '▁▁▁', '')
    """
    count = min(columns, len(values))
    parts = [
        max(values[part * len(values) // count : (part + 1) * len(values) // count]) for part in range(count)
    ]
    if not parts:
        return ""
    low, high = min(parts), max(parts)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((part - low) * scale)] for part in parts)
