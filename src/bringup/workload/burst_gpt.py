"""BurstGPT traces: requests to a chat service over months, with their times and lengths.

Source: HPMLL/BurstGPT, `BurstGPT_1.csv`: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log
Type`, the time in seconds; later files have `Session ID` and `Elapsed time` besides. Failed requests have 0
response tokens.
"""

import csv
from collections.abc import Iterator
from itertools import islice

from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, Source, lines, unreadable

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
_WANTED = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def _looks_like(text: str) -> bool:
    return set(_COLUMNS) <= {name.strip() for name in text.lstrip().partition("\n")[0].split(",")}


def _cut(source: Source) -> Iterator[Raw]:
    rows = lines(source)
    columns = [name.strip() for one in islice(rows, 1) for name in one.text.split(",")]
    for raw in rows:
        cells = next(csv.reader([raw.text]), list[str]())
        yield Raw(raw.line, raw.text, dict(zip(columns, cells, strict=False)))


def _read(raw: Raw, name: str) -> Sample:
    cells = raw.value if isinstance(raw.value, dict) else {}
    try:
        at_s, asked, answered = (float(str(cells[column])) for column in _COLUMNS)
    except (KeyError, ValueError):
        raise unreadable(name, raw.line, f"`{_WANTED}`", raw.text.strip()) from None
    return Sample(input_tokens=max(1, round(asked)), output_tokens=max(1, round(answered)), at_s=at_s)


FORMAT = Format(
    name="burstgpt",
    words="a BurstGPT trace",
    wanted=_WANTED,
    looks_like=_looks_like,
    cut=_cut,
    read=_read,
    has_times=True,
)
