"""A run of `bench` as JSON, schema `bringup/bench/1`. Times and sizes say their unit in their names."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast

from bringup.parse.bench_result import RECORD_TIMES, SCHEMA, WIRE
from bringup.report.plain import plain_record
from bringup.values.bench import BenchResult, BenchRun, GeneratorRun, RequestRecord, Rung

_APART = frozenset({"rungs", "findings", "self_test", "generators", "warm_up"})  # have a place of their own


def render_bench_json(run: BenchRun) -> str:
    """The run as one JSON object with two-space indent and a final newline."""
    return json.dumps(_body(run, [_rung(rung) for rung in run.rungs]), indent=2, ensure_ascii=False) + "\n"


def render_bench_result(result: BenchResult) -> str:
    """The same with every request of every rung, compact: what two runs are compared by."""
    rungs = [{**_rung(one.rung), "runs": [_generator_run(run) for run in one.runs]} for one in result.results]
    return json.dumps(_body(result.run, rungs), separators=(",", ":"), ensure_ascii=False) + "\n"


def _body(run: BenchRun, rungs: Sequence[dict[str, object]]) -> dict[str, object]:
    plain = _plain_fields(run, without=_APART)
    return {
        "schema": SCHEMA,
        "url": plain.pop("url"),
        "model": plain.pop("model"),
        "instrument": _instrument(run),
        "rungs": list(rungs),
        "findings": [plain_record(finding) for finding in run.findings],
        **plain,
    }


def _instrument(run: BenchRun) -> dict[str, object]:
    """The worst over all rungs; of a run without one what the self-test says."""
    errors = [rung.self_error for rung in run.rungs if rung.self_error is not None]
    test = run.self_test

    def most(name: str) -> float | None:
        return max((cast("float", getattr(one, name)) for one in errors), default=None)

    lags = {name: most(name) for name in ("lag_p50_s", "lag_p99_s")}
    if not errors and test is not None:
        lags = {"lag_p50_s": test.lag_p50_s, "lag_p99_s": test.lag_p99_s}
    return {
        **lags,
        "busy_share": most("busy_share"),
        "ttft_error_s": most("ttft_s"),
        "itl_mean_error_s": most("itl_mean_s"),
        "itl_gap_error_s": most("itl_gap_s"),
        "generators": run.generators,
        "warm_up_requests": run.warm_up,
        "self_test": _plain(test),
    }


def _rung(rung: Rung) -> dict[str, object]:
    return _plain_fields(rung)


def _generator_run(run: GeneratorRun) -> dict[str, object]:
    return {**_plain_fields(run, without=frozenset({"records"})), "records": record_columns(run.records)}


def record_columns(records: Sequence[RequestRecord]) -> dict[str, list[object]]:
    """The records by column; a column in which nothing was ever told is left out."""
    columns: dict[str, list[object]] = {}
    for field in dataclasses.fields(RequestRecord):
        values = [_plain(getattr(record, field.name)) for record in records]
        # `sent` and `index` have no default and so always stand there: the number of rows is theirs.
        if all(value == field.default for value in values) and field.default is not dataclasses.MISSING:
            continue
        columns[f"{field.name}_ns" if field.name in RECORD_TIMES else field.name] = values
    return columns


def wire_name(record: type, field: str) -> str:
    """The name of a record's field in JSON.

    >>> wire_name(Rung, "ttft"), wire_name(RequestRecord, "sent")
    ('ttft_s', 'sent_ns')
    """
    if record is RequestRecord:
        return f"{field}_ns" if field in RECORD_TIMES else field
    return WIRE.get(field, field)


def _plain_fields(record: object, *, without: frozenset[str] = frozenset()) -> dict[str, object]:
    fields = dataclasses.fields(cast("Any", record))
    return {
        WIRE.get(field.name, field.name): _plain(getattr(record, field.name))
        for field in fields
        if field.name not in without
    }


def _plain(value: object) -> object:
    """`value` as dictionaries, lists and scalars."""
    if value is None or isinstance(value, str | int | float):
        return value.value if isinstance(value, Enum) else value
    if dataclasses.is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in cast("Sequence[object]", value)]
    return str(value)
