"""JSON text to a plain value, and typed access to its parts: what is not there or of another type is None."""

import json
import re
from typing import cast

from bringup.errors import UnreadableAnswer

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def read_json(text: str) -> Json:
    """The value of a JSON text. Half a surrogate pair, which no output takes, becomes U+FFFD.

    Raises:
        UnreadableAnswer: not JSON.
    """
    try:
        value = cast("Json", json.loads(text))
        return _whole_characters(value) if _SURROGATE.search(text) else value
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"not JSON: {error}", text=text) from None


def _whole_characters(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(part) for part in value]
    if isinstance(value, dict):
        return {str(_whole_characters(name)): _whole_characters(part) for name, part in value.items()}
    return value


def json_or_none(text: str) -> Json:
    """The value of a JSON text; None when it is not JSON."""
    try:
        return read_json(text)
    except UnreadableAnswer:
        return None


def at(value: Json, *path: str | int) -> Json:
    """The part of `value` at `path`; None when any step is missing.

    >>> at({"data": [{"id": "m"}]}, "data", 0, "id")
    'm'
    >>> at({"data": []}, "data", 0, "id") is None
    True
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Json, *path: str | int) -> str | None:
    """The string at `path`, or None."""
    found = at(value, *path)
    return found if isinstance(found, str) else None


def int_at(value: Json, *path: str | int) -> int | None:
    """The whole number at `path`, or None; a bool is no number, 2048.0 is one."""
    found = at(value, *path)
    if isinstance(found, float) and found.is_integer():
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def float_at(value: Json, *path: str | int) -> float | None:
    """The number at `path` as a float, or None."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:  # a whole number of more than 308 digits
        return None


def bool_at(value: Json, *path: str | int) -> bool | None:
    """The boolean at `path`, or None."""
    found = at(value, *path)
    return found if isinstance(found, bool) else None


def list_at(value: Json, *path: str | int) -> list[Json]:
    """The list at `path`; empty when there is none."""
    found = at(value, *path)
    return found if isinstance(found, list) else []
