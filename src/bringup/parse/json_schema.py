"""Whether a text is JSON of a given schema: the part of JSON Schema that the checks use, nothing more.

It survives what models write: numbers beyond any float, endless integers, nesting without end.

Source: the words of JSON Schema 2020-12 of these names.
"""

import json
import math
from typing import NoReturn, cast

from bringup.errors import UnreadableAnswer
from bringup.parse.json_value import Json, at, list_at, text_at


def read_strict_json(text: str) -> Json:
    """The value of a JSON text; a number too large for Python becomes infinity.

    Raises:
        UnreadableAnswer: not JSON by the standard; `NaN` and `Infinity` are not.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"not JSON: {error}", text=text) from None
    return cast("Json", value)


def violations(value: Json, schema: Json, place: str = "the value") -> tuple[str, ...]:
    """What of `value` is not as `schema` wants it, in words; empty when all is.

    Known: type, enum, properties, required, additionalProperties: false, items, minItems, maxItems.

    >>> violations({"n": "x"}, {"type": "object", "properties": {"n": {"type": "number"}}})
    ('`n` is a string, not a number',)
    """
    wanted = text_at(schema, "type")
    if wanted is not None and not _is_of(value, wanted):
        return (f"{place} is {_article(_kind(value))}, not {_article(wanted)}",)
    choices = at(schema, "enum")
    if isinstance(choices, list) and value not in choices:
        return (f"{place} is none of the values allowed",)
    if isinstance(value, dict):
        return _in_object(value, schema)
    if isinstance(value, list):
        return _in_list(value, schema, place)
    return ()


def _in_object(value: dict[str, Json], schema: Json) -> tuple[str, ...]:
    known = at(schema, "properties")
    properties = known if isinstance(known, dict) else {}
    found = [f"`{name}` is missing" for name in list_at(schema, "required") if name not in value]
    if at(schema, "additionalProperties") is False:
        found += [f"`{name}` is not in the schema" for name in value if name not in properties]
    for name, part in properties.items():
        if name in value:
            found += violations(value[name], part, f"`{name}`")
    return tuple(found)


def _in_list(value: list[Json], schema: Json, place: str) -> tuple[str, ...]:
    least, most = at(schema, "minItems"), at(schema, "maxItems")
    if isinstance(least, int) and len(value) < least:
        return (f"{place} has {len(value)} items, not {least} or more",)
    if isinstance(most, int) and len(value) > most:
        return (f"{place} has {len(value)} items, not {most} or fewer",)
    items = at(schema, "items")
    return tuple(one for item in value for one in violations(item, items, f"an item of {place}"))


def _is_of(value: Json, wanted: str) -> bool:
    if wanted == "integer":
        is_whole_float = isinstance(value, float) and math.isfinite(value) and value.is_integer()
        return (isinstance(value, int) and not isinstance(value, bool)) or is_whole_float
    return _kind(value) == wanted


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _whole(digits: str) -> int | float:
    """An integer, or infinity where Python refuses to read so many digits."""
    try:
        return int(digits)
    except ValueError:
        return -math.inf if digits.startswith("-") else math.inf


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is no JSON number")
