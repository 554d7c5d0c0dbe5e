import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.workload.source import InMemory, elements, head, lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=6), VALUES, max_size=4), max_size=8)


class Cut:
    """A text in pieces that are cut at given places."""

    name = "cut.json"

    def __init__(self, text, places):
        ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
        self.pieces = [text[start:end] for start, end in itertools.pairwise(ends)]

    def __iter__(self):
        return iter(self.pieces)


PLACES = st.lists(st.integers(0, 10_000), max_size=40)


@given(objects=OBJECTS, places=PLACES, indent=st.sampled_from([None, 1]))
def test_an_array_has_the_same_objects_however_it_is_cut(objects, places, indent):
    text = json.dumps(objects, indent=indent, ensure_ascii=False)
    found = list(elements(Cut(text, places)))
    assert [one.value for one in found] == objects
    rows = text.split("\n")
    assert all(rows[one.line - 1].lstrip(" [").startswith("{") for one in found)


@given(rows=st.lists(st.text(alphabet=st.characters(blacklist_characters="\n")), max_size=12), places=PLACES)
def test_lines_are_the_same_however_they_are_cut(rows, places):
    found = list(lines(Cut("\n".join(rows), places)))
    wanted = [(number, row) for number, row in enumerate(rows, 1) if row and not row.isspace()]
    assert [(one.line, one.text) for one in found] == [
        (number, row.removeprefix("\ufeff") if number == 1 else row) for number, row in wanted
    ]


@pytest.mark.parametrize(
    ("text", "wanted", "line"),
    [
        ("", "`]` at the end of the array", 1),
        ("{}", "a JSON array", 1),
        ('[{"a": 1},\n 7]', "an object of the array", 2),
        ('[{"a": 1},\n\n {"b": ', "a whole JSON object", 3),
        ('[{"a": 1}\n', "`]` at the end of the array", 2),
    ],
)
def test_what_is_no_array_of_objects_is_named_with_its_line(text, wanted, line):
    with pytest.raises(UsageError, match=f"wanted {wanted}, found .* in `x.json`, line {line}"):
        list(elements(InMemory(name="x.json", text=text)))


def test_what_follows_the_array_is_not_read():
    assert len(list(elements(InMemory(name="x", text='[{"a": 1}] tail')))) == 1


def test_the_head_needs_no_whole_file():
    def pieces():
        yield "\ufeff" + "x" * 70_000
        raise AssertionError("read on")

    class Endless:
        name = "endless"

        def __iter__(self):
            return pieces()

    assert head(Endless()) == "x" * 65_535 or head(Endless()) == "x" * 65_536


def test_a_long_object_in_small_pieces_is_not_tried_at_every_piece(monkeypatch):
    tries = []
    original = json.JSONDecoder.raw_decode

    def counting(self, text, at=0):
        tries.append(len(text) - at)
        return original(self, text, at)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counting)
    text = json.dumps([{"a": "x" * 200_000}])
    assert len(list(elements(Cut(text, range(0, len(text), 500))))) == 1
    assert sum(tries) < 10 * len(text)
