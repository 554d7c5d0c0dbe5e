from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.text_difference import first_difference


@given(st.text(), st.text())
def test_none_only_for_equal_texts(one, other):
    assert (first_difference(one, other) is None) is (one == other)


def test_one_text_that_ends_earlier():
    assert first_difference("1 2 3", "1 2") == "at character 4: `1 2 3` against `1 2`"


def test_long_texts_are_quoted_around_the_place():
    place = first_difference("a" * 100 + "x" + "b" * 100, "a" * 100 + "y" + "b" * 100)
    assert place is not None
    assert place.startswith("at character 101: `...")
    assert len(place) < 150
