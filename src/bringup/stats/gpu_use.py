"""What the GPUs took over a rung: energy over exactly its time, memory, and what held their clocks.

Energy comes from the card's own counter where it has one, else power is integrated by trapezoids between the
readings; at the rung's borders both are interpolated. Cards of data centres update `power.draw` only for a
part of the time (measured by others on A100 and H100), so the counter is worth more.

Source: NVML `nvmlDeviceGetTotalEnergyConsumption` (Volta and later), `nvmlClocksEventReasons`.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bringup.values.bench import GpuUse
from bringup.values.gpu_words import CLOCK_REASONS, runs_text
from bringup.values.load import GpuMoment, GpuTrace

_HELD = ("power limit", "hardware slowdown", "heat (driver)", "heat (hardware)", "power brake")
_BUSY = 0.05  # mean utilization above which a card takes part in the load
_EDGE_S = 1.0  # guess: so far outside of the readings the nearest one still holds
_GAP_S = 3.0  # guess: power may have been anything meanwhile
_NOTABLE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _Energy:
    """What one card took, how that is known, and what is to be said of it."""

    joules: float | None
    is_counted: bool = False  # by the card itself
    remark: str = ""


def gpu_use(
    traces: Sequence[GpuTrace],
    *,
    started: float,
    ended: float,
    indices: Collection[int] | None = None,
    source: str = "",
) -> GpuUse:
    """What the GPUs took between two moments of the readings' own axis.

    `indices` are the engine's GPUs; None: not known, and all that were busy count.
    """
    chosen = [one for one in traces if _counts(one, indices, started, ended)]
    energies = [_energy(one.moments, started, ended) for one in chosen]
    told = [one.joules for one in energies if one.joules is not None]
    is_whole = len(told) == len(chosen) and len(chosen) >= len(set(indices or ()))
    joules = sum(told) if told and is_whole else None
    seconds = ended - started
    return GpuUse(
        gpus=len(chosen),
        indices=tuple(one.index for one in chosen),
        joules=joules,
        mean_watts=None if joules is None or seconds <= 0 else joules / seconds,
        peak_memory=tuple(_peak_memory(one.moments, started, ended) for one in chosen),
        throttled=tuple(line for one in chosen for line in _throttled(one, started, ended)),
        source=_source(source, chosen, energies),
        remarks=tuple(_remarks(traces, chosen, energies, indices)),
    )


def _counts(trace: GpuTrace, indices: Collection[int] | None, started: float, ended: float) -> bool:
    """Whether the card is one of the engine's, or where these are not known, whether it was at work."""
    if indices is not None:
        return trace.index in indices
    near = _near(trace.moments, started, ended)
    told = [one.utilization for one in near if one.utilization is not None]
    return bool(near) and (not told or sum(told) / len(told) >= _BUSY)


def _near(moments: Sequence[GpuMoment], started: float, ended: float) -> list[GpuMoment]:
    """The readings within; where there is none, the nearest on both sides."""
    inside = [one for one in moments if started <= one.at <= ended]
    if inside:
        return inside
    earlier = [one for one in moments if started - _EDGE_S <= one.at < started]
    later = [one for one in moments if ended < one.at <= ended + _EDGE_S]
    return earlier[-1:] + later[:1]


def _energy(moments: Sequence[GpuMoment], started: float, ended: float) -> _Energy:
    """The joules of one card: from its counter, else from its power."""
    counted = [(one.at, one.energy) for one in moments if one.energy is not None]
    drawn = [(one.at, one.power) for one in moments if one.power is not None]
    joules = _counted(counted, started, ended)
    if joules is not None and (joules > 0 or not any(watts > 0 for _, watts in drawn)):
        return _Energy(joules=joules, is_counted=True)
    return _integrated(drawn, started, ended)


def _counted(points: Sequence[tuple[float, float]], started: float, ended: float) -> float | None:
    """The growth of the counter; None when it does not reach over the rung or fell in it."""
    first, last = _counter_at(points, started), _counter_at(points, ended)
    if first is None or last is None:
        return None
    inside = [first, *(value for at, value in points if started < at < ended), last]
    if any(later < earlier for earlier, later in pairwise(inside)):
        return None
    return last - first


def _counter_at(points: Sequence[tuple[float, float]], moment: float) -> float | None:
    """The counter at a moment, on the line through the two readings next to it."""
    if len(points) < 2 or not points[0][0] - _EDGE_S <= moment <= points[-1][0] + _EDGE_S:
        return None
    place = min(max(bisect_right(points, moment, key=lambda point: point[0]), 1), len(points) - 1)
    (begin, low), (end, high) = points[place - 1], points[place]
    return high if end <= begin else low + (high - low) * (moment - begin) / (end - begin)


def _integrated(points: Sequence[tuple[float, float]], started: float, ended: float) -> _Energy:
    """Trapezoids between the readings of power, cut at the rung's borders."""
    if not points:
        return _Energy(joules=None, remark="its power is not told")
    if points[0][0] > started + _EDGE_S or points[-1][0] < ended - _EDGE_S:
        return _Energy(joules=None, remark="its readings do not cover the rung")
    inside = [point for point in points if started < point[0] < ended]
    whole = [(started, _watts_at(points, started)), *inside, (ended, _watts_at(points, ended))]
    joules = sum((end - begin) * (low + high) / 2 for (begin, low), (end, high) in pairwise(whole))
    gap = _longest_gap(points, started, ended)
    if gap <= _GAP_S:
        return _Energy(joules=joules)
    remark = f"its power was not read for {gap:.1f} s"
    return _Energy(joules=joules if gap <= (ended - started) / 10 else None, remark=remark)


def _watts_at(points: Sequence[tuple[float, float]], moment: float) -> float:
    """Power at a moment, on the line between its neighbours; outside of all readings the nearest holds."""
    place = bisect_right(points, moment, key=lambda point: point[0])
    if place in (0, len(points)):
        return points[min(place, len(points) - 1)][1]
    (begin, low), (end, high) = points[place - 1], points[place]
    return low + (high - low) * (moment - begin) / (end - begin)


def _longest_gap(points: Sequence[tuple[float, float]], started: float, ended: float) -> float:
    """The longest time without a reading that touches the rung."""
    gaps = [end - begin for (begin, _), (end, _) in pairwise(points) if end > started and begin < ended]
    return max(gaps, default=0.0)


def _peak_memory(moments: Sequence[GpuMoment], started: float, ended: float) -> int | None:
    near = _near(moments, started, ended)
    return max((one.memory_used for one in near if one.memory_used is not None), default=None)


def _throttled(trace: GpuTrace, started: float, ended: float) -> Iterator[str]:
    """What held the clocks of one card, with its share of the readings."""
    masks = [
        one.clocks_event_reasons
        for one in _near(trace.moments, started, ended)
        if one.clocks_event_reasons is not None
    ]
    for bit, name in CLOCK_REASONS.items():
        share = sum(bool(mask & bit) for mask in masks) / len(masks) if masks else 0.0
        if name in _HELD and share >= _NOTABLE_SHARE:
            yield f"GPU {trace.index}: {name} ({100 * share:.0f} % of the time)"


def _source(tool: str, chosen: Sequence[GpuTrace], energies: Sequence[_Energy]) -> str:
    """How the joules are known: "NVML energy counter", "nvidia-smi power, 5 readings a second"."""
    if not chosen or all(one.joules is None for one in energies):
        return tool
    if all(one.is_counted for one in energies):
        return f"{tool} energy counter".strip()
    steps = [later.at - one.at for trace in chosen for one, later in pairwise(trace.moments)]
    rate = len(steps) / sum(steps) if steps and sum(steps) > 0 else 0.0
    return f"{tool} power, {rate:.0f} readings a second".strip()


def _remarks(
    traces: Sequence[GpuTrace],
    chosen: Sequence[GpuTrace],
    energies: Sequence[_Energy],
    indices: Collection[int] | None,
) -> Iterator[str]:
    """What could not be measured, and what is taken for granted."""
    if not traces:
        yield "no GPU seen: joules not measured"
        return
    if not chosen:
        yield (
            "no GPU was at work: joules not measured"
            if indices is None
            else "no reading of the engine's GPUs"
        )
        return
    names = runs_text([one.index for one in chosen])
    if indices is None:
        yield f"which GPUs are the engine's is not known: those at work count ({names})"
    silent = sorted(set(indices or ()) - {one.index for one in chosen})
    if silent:
        yield f"no reading of GPU {runs_text(silent)}: joules not measured"
    for trace, energy in zip(chosen, energies, strict=True):
        if energy.remark:
            yield f"GPU {trace.index}: {energy.remark}"
