"""The rungs of a run as CSV: one row each, every figure a column, times in seconds."""

import csv
import dataclasses
import io
from typing import cast

from bringup.values.bench import BenchRun, Distribution, EngineDelta, GpuUse, Rung, SelfError

_LATENCIES = ("ttft", "itl", "event_gap", "tpot", "e2e", "queued", "connect")
_PARTS = {"self_error": SelfError, "engine": EngineDelta, "gpu": GpuUse}
_FIGURES = ("count", "mean", "p50", "p90", "p95", "p99", "max", "min")
_PLAIN = tuple(
    field.name for field in dataclasses.fields(Rung) if field.name not in (*_LATENCIES, *_PARTS, "errors")
)


def render_bench_csv(run: BenchRun) -> str:
    """A line of names and a line per rung; what is not known is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_names())
    for rung in run.rungs:
        writer.writerow(["" if cell is None else cell for cell in (run.model, *_cells(rung))])
    return out.getvalue()


def _names() -> list[str]:
    names = ["model", *_PLAIN, "errors"]
    names += [
        f"{latency}_{figure}{'' if figure == 'count' else '_s'}"
        for latency in _LATENCIES
        for figure in _FIGURES
    ]
    names += [f"{part}_{field.name}" for part, kind in _PARTS.items() for field in dataclasses.fields(kind)]
    return names


def _cells(rung: Rung) -> list[object]:
    cells: list[object] = [getattr(rung, name) for name in _PLAIN]
    cells.append("; ".join(f"{name}: {count}" for name, count in rung.errors.items()) or None)
    for name in _LATENCIES:
        found: Distribution | None = getattr(rung, name)
        cells += [None if found is None else getattr(found, figure) for figure in _FIGURES]
    for name, kind in _PARTS.items():
        part = getattr(rung, name)
        values = (None if part is None else getattr(part, field.name) for field in dataclasses.fields(kind))
        cells += [_joined(value) for value in values]
    return cells


def _joined(value: object) -> object:
    return "; ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value
