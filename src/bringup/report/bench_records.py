"""Every request of a run, one a line or one a row: JSON Lines, or Parquet where pyarrow is installed."""

import importlib
import json
from collections.abc import Iterator
from typing import Any, cast

from bringup.report.bench_json import record_columns
from bringup.values.bench import BenchResult


def render_jsonl(result: BenchResult) -> str:
    """One JSON object per request; what was never told is left out."""
    return "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in _rows(result))


def render_parquet(result: BenchResult) -> bytes:
    """The same as one Parquet file, compressed with zstd."""
    arrow, parquet = (cast("Any", importlib.import_module(name)) for name in ("pyarrow", "pyarrow.parquet"))
    rows = list(_rows(result))
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = arrow.table({name: [row.get(name) for row in rows] for name in names})
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return cast("bytes", sink.getvalue().to_pybytes())


def _rows(result: BenchResult) -> Iterator[dict[str, object]]:
    for number, one in enumerate(result.results, 1):
        for run in one.runs:
            columns = record_columns(run.records)
            load: dict[str, object] = {"concurrency": one.rung.concurrency, "rate": one.rung.rate}
            for values in zip(*columns.values(), strict=True):
                told = dict(zip(columns, values, strict=True))
                yield {"load": number, **load, "generator": run.generator, **told}
