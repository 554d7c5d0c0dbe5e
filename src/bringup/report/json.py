"""A report as JSON, schema `bringup/report/1`. Sizes are bytes, times seconds, and say so in their names."""

import msgspec

from bringup.report.plain import plain_record
from bringup.values.report import Report

SCHEMA = "bringup/report/1"


def render_json(report: Report) -> str:
    """The report as one JSON object with two-space indent and a final newline."""
    encoded = msgspec.json.encode({"schema": SCHEMA, **plain_record(report)})
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
