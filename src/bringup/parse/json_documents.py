"""JSON in the output of tools that print other things too: warnings before it, several documents in a row."""

import json
import re
from collections.abc import Iterator

from bringup.parse.json_value import Json, json_or_none

_OPENING = re.compile(r"^[ \t]*([\[{])", re.MULTILINE)
_MOST_TRIES = 64  # each try may read to the end: text of a million brackets must not take minutes
_DECODER = json.JSONDecoder()


def json_documents(text: str) -> tuple[Json, ...]:
    r"""The JSON objects and lists that begin on a line of their own; whatever is not JSON is passed over.

    A document that was cut off is none: half a figure would be a wrong one.

    >>> json_documents('[WARN] slow\n{"a": 1}\n[{"b": "N/A"}]\n{"c":')
    ({'a': 1}, [{'b': 'N/A'}])
    """
    return tuple(_documents(text))


def _documents(text: str) -> Iterator[Json]:
    position = 0
    for _ in range(_MOST_TRIES):
        match = _OPENING.search(text, position)
        if match is None:
            return
        start = match.start(1)
        try:
            _, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
            continue
        yield json_or_none(text[start:end])
        position = end
