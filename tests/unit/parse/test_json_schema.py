import math

import pytest

from bringup.errors import UnreadableAnswer
from bringup.parse.json_schema import read_strict_json, violations


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "{'a': 1}", "", "{} {}", "[" * 200_000])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(UnreadableAnswer):
        read_strict_json(text)


def test_numbers_beyond_python_are_infinite():
    assert read_strict_json("1e1000") == math.inf
    assert read_strict_json("-1" + "0" * 5000) == -math.inf
    assert read_strict_json("12") == 12


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (1, {"type": "integer"}, ()),
        (1.0, {"type": "integer"}, ()),
        (1.5, {"type": "integer"}, ("the value is a number, not an integer",)),
        (math.inf, {"type": "integer"}, ("the value is a number, not an integer",)),
        (True, {"type": "integer"}, ("the value is a boolean, not an integer",)),
        (True, {"type": "number"}, ("the value is a boolean, not a number",)),
        (math.inf, {"type": "number"}, ()),
        (None, {"type": "null"}, ()),
        ("c", {"enum": ["a", "b"]}, ("the value is none of the values allowed",)),
        ([1, "x"], {"items": {"type": "number"}}, ("an item of the value is a string, not a number",)),
        ([], {"type": "array", "minItems": 1}, ("the value has 0 items, not 1 or more",)),
        ([1, 2], {"maxItems": 1}, ("the value has 2 items, not 1 or fewer",)),
        ({}, {"required": ["a", "b"]}, ("`a` is missing", "`b` is missing")),
        ({"a": 1}, {"additionalProperties": False}, ("`a` is not in the schema",)),
        ({"a": 1}, {}, ()),
    ],
)
def test_what_is_not_as_the_schema_wants_it(value, schema, said):
    assert violations(value, schema) == said
