"""A result of `bench` as it was written: JSON -> records.

The names on the wire say their unit; `WIRE` is the one list of them, for the writer too.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from bringup.errors import UsageError
from bringup.parse.json_value import Json, json_or_none
from bringup.values.bench import (
    BenchResult,
    BenchRun,
    GeneratorRun,
    RequestRecord,
    Rung,
    RungResult,
    SelfTest,
)

SCHEMA = "bringup/bench/1"
WIRE: Mapping[str, str] = {
    "ttft": "ttft_s",
    "itl": "itl_s",
    "event_gap": "event_gap_s",
    "tpot": "tpot_s",
    "e2e": "e2e_s",
    "queued": "queued_s",
    "connect": "connect_s",
    "started_at": "started_at_s",
    "peak_memory": "peak_memory_bytes",
    "mean_watts": "mean_power_w",
}
_OURS = {wire: ours for ours, wire in WIRE.items()}
# The nanoseconds of a record, of which the names on the wire say so.
RECORD_TIMES = ("sent", "scheduled", "ready", "connect", "headers", "first", "last", "ended", "gaps")
_RECORD_NAMES = {f"{name}_ns": name for name in RECORD_TIMES}


def read_bench_result(text: str, *, name: str) -> BenchResult:
    """The result in a file of `bench`; with the records of its rungs where they were kept.

    Raises:
        UsageError: no result of `bench`, or of a version that is not known here.
    """
    body = json_or_none(text)
    if not isinstance(body, dict) or not str(body.get("schema", "")).startswith("bringup/bench/"):
        raise UsageError(
            f"`{name}` is no result of `bringup bench`", hint="write one with `bringup bench URL -o FILE`"
        )
    if body["schema"] != SCHEMA:
        raise UsageError(f"`{name}` has the schema `{body['schema']}`, known here is `{SCHEMA}`")
    try:
        return _result(body)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"`{name}` is damaged: {error}") from None


def _result(body: Mapping[str, Json]) -> BenchResult:
    rungs = [_mapping(one) for one in _list(body["rungs"])]
    fields = {field.name for field in dataclasses.fields(BenchRun)}
    plain = {
        name: value
        for key, value in body.items()
        if (name := _OURS.get(key, key)) in fields and name != "rungs"
    }
    plain["findings"] = [_finding(_mapping(one)) for one in _list(body.get("findings", []))]
    instrument = _mapping(body.get("instrument", {}))
    plain |= {
        "generators": instrument.get("generators", 1),
        "warm_up": instrument.get("warm_up_requests", 0),
    }
    run = msgspec.convert(plain, BenchRun)
    told = instrument.get("self_test")
    run = dataclasses.replace(
        run,
        self_test=msgspec.convert(told, SelfTest) if told is not None else None,
        rungs=tuple(_rung(one) for one in rungs),
    )
    results = tuple(
        RungResult(rung=rung, runs=tuple(_run(_mapping(part)) for part in _list(one.get("runs", []))))
        for rung, one in zip(run.rungs, rungs, strict=True)
    )
    return BenchResult(run=run, results=results)


def _rung(body: Mapping[str, Json]) -> Rung:
    plain = _renamed({key: value for key, value in body.items() if key != "runs"})
    if isinstance(gpu := plain.get("gpu"), dict):
        plain["gpu"] = _renamed(gpu)
    return msgspec.convert(plain, Rung)


def _run(body: Mapping[str, Json]) -> GeneratorRun:
    columns = _mapping(body["records"])
    names = [_RECORD_NAMES.get(name, name) for name in columns]
    rows: Sequence[tuple[Json, ...]] = list(zip(*(_list(column) for column in columns.values()), strict=True))
    records = [dict(zip(names, row, strict=True)) for row in rows]
    plain = {key: value for key, value in body.items() if key != "records"}
    run = msgspec.convert({**plain, "records": []}, GeneratorRun, str_keys=True)
    return dataclasses.replace(run, records=msgspec.convert(records, tuple[RequestRecord, ...]))


def _renamed(fields: Mapping[str, Json]) -> dict[str, Json]:
    """The same under the names of the records."""
    return {_OURS.get(name, name): value for name, value in fields.items()}


def _finding(body: Mapping[str, Json]) -> dict[str, Json]:
    fixes = [_mapping(one) for one in _list(body.get("fixes", []))]
    named = {"from": "old", "to": "new"}
    return {
        **body,
        "fixes": [{named.get(key, key): value for key, value in fix.items()} for fix in fixes],
    }


def _mapping(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError("wanted an object")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError("wanted a list")
    return cast("list[Json]", value)
