from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.workload.lengths import lengths_from_lines, read_lengths


def drawn(text, count=4000):
    source = Random(1)
    lengths = read_lengths(text, option="--input-tokens")
    return lengths, [lengths.draw(source) for _ in range(count)]


@pytest.mark.parametrize("text", ["512", " 512 ", "1_024"])
def test_a_fixed_length_is_always_the_same(text):
    lengths, found = drawn(text, 10)
    assert {lengths.fixed} == set(found) == {int(text)}


@given(low=st.integers(1, 500), more=st.integers(0, 500))
def test_a_range_gives_all_its_lengths_and_no_other(low, more):
    lengths, found = drawn(f"{low}:{low + more}", 200)
    assert low <= min(found) <= max(found) <= low + more
    assert (lengths.least, lengths.most) == (low, low + more)


def test_a_range_includes_both_ends_and_is_even():
    _, found = drawn("7:9")
    assert [found.count(length) / len(found) for length in (7, 8, 9)] == pytest.approx([1 / 3] * 3, abs=0.03)


@pytest.mark.parametrize("text", ["512+-20%", "512±20%"])
def test_a_share_around_a_length(text):
    lengths, _ = drawn(text, 1)
    assert lengths.bins == ((410, 614),)


@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_a_curve_has_the_asked_mean_and_deviation(kind):
    lengths, found = drawn(f"{kind}:500,120")
    mean = sum(found) / len(found)
    deviation = (sum((one - mean) ** 2 for one in found) / len(found)) ** 0.5
    assert mean == pytest.approx(500, rel=0.02)
    assert deviation == pytest.approx(120, rel=0.06)
    assert lengths.average == 500
    skew = sum((one - mean) ** 3 for one in found) / len(found) / deviation**3
    assert (skew > 0.4) is (kind == "lognormal")


def test_a_curve_keeps_its_bounds():
    _, found = drawn("normal:500,400,100:800")
    assert (min(found), max(found)) == (100, 800)


def test_a_curve_without_bounds_gives_at_least_one_token():
    assert min(drawn("normal:10,40")[1]) == 1


def test_a_histogram_keeps_its_weights():
    lengths, found = drawn("512=70,2048=20,100:199=10")
    assert found.count(512) / len(found) == pytest.approx(0.7, abs=0.03)
    assert sum(one < 200 for one in found) / len(found) == pytest.approx(0.1, abs=0.02)
    assert lengths.average == pytest.approx(0.7 * 512 + 0.2 * 2048 + 0.1 * 149.5)


def test_a_histogram_from_a_file():
    lengths = lengths_from_lines(["length,count\n", "\n", "100,3\n", "200 1 # few\n"], name="h.csv")
    assert lengths.average == 125
    assert lengths.words == "histogram h.csv"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "no lengths"),
        ("many", "no lengths"),
        ("-5", "no lengths"),
        ("1.5", "no lengths"),
        ("0", "0 tokens"),
        ("9:3", "9:3 ends before it begins"),
        ("normal:512", "no lengths"),
        ("normal:0,5", "no length that a request can have"),
        ("512=0", "all weights are 0"),
        ("512=1,x=2", "found `x=2`"),
        ("0=1,5=1", "0 tokens"),
        ("9999999999", "no length that a request can have"),
    ],
)
def test_what_is_no_length_is_said(text, wanted):
    with pytest.raises(UsageError, match=wanted) as raised:
        read_lengths(text, option="--input-tokens")
    assert f"--input-tokens {text}" in raised.value.message
    assert raised.value.hint


def test_a_line_of_a_histogram_that_is_none_is_named():
    with pytest.raises(UsageError, match=r"found `many,3` in `h.csv`, line 3"):
        lengths_from_lines(["100,3", "200,1", "many,3"], name="h.csv")
    with pytest.raises(UsageError, match="no line `LENGTH,COUNT`"):
        lengths_from_lines([], name="h.csv")
