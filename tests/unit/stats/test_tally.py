"""Tallies hold every duration: the same quantiles as the sorted list, however they were merged."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.tally import (
    count,
    distribution,
    distribution_of,
    mean_ns,
    merge,
    place,
    quantile_ns,
    tally_of,
)
from bringup.values.bench import Tally

DURATIONS = st.lists(st.integers(min_value=0, max_value=10**11), min_size=1, max_size=60)
SHARES = st.integers(min_value=1, max_value=1000).map(lambda thousandth: thousandth / 1000)


@given(DURATIONS, SHARES)
def test_a_quantile_is_that_of_the_sorted_list_to_one_microsecond(durations, share):
    at = math.ceil(Fraction(str(share)) * len(durations))
    exact = sorted(durations)[at - 1]
    assert abs(quantile_ns(tally_of(durations), share) - exact) < 1000


@given(DURATIONS, st.lists(st.integers(min_value=0, max_value=4), min_size=60, max_size=60), st.randoms())
def test_any_split_merged_in_any_order_is_the_whole(durations, owners, random):
    parts = [
        tally_of([one for one, owner in zip(durations, owners, strict=False) if owner == number])
        for number in range(5)
    ]
    random.shuffle(parts)
    assert merge([merge(parts[:2]), merge(parts[2:])]) == tally_of(durations)


@given(DURATIONS)
def test_a_tally_and_a_list_give_the_same_figures(durations):
    ours, exact = distribution(tally_of(durations)), distribution_of(durations)
    assert (ours.count, ours.min, ours.max) == (exact.count, exact.min, exact.max)
    assert ours.mean == pytest.approx(exact.mean, rel=1e-12)
    for name in ("p50", "p90", "p95", "p99"):
        assert abs(getattr(ours, name) - getattr(exact, name)) <= 1e-6


@given(DURATIONS)
def test_figures_ascend_and_stay_within_the_extremes(durations):
    figures = distribution(tally_of(durations))
    ordered = [figures.min, figures.p50, figures.p90, figures.p95, figures.p99, figures.max]
    assert ordered == sorted(ordered)
    assert figures.min <= figures.mean * (1 + 1e-12)
    assert figures.mean <= figures.max * (1 + 1e-12)


def test_a_microsecond_holds_what_lies_from_it_up_to_the_next_one():
    assert tally_of([1_000, 1_999, 2_000]).counts == {1: 2, 2: 1}
    assert quantile_ns(tally_of([500, 1_999, 5_000]), 0.5) == 1_000


def test_the_mean_is_exact_to_the_nanosecond():
    assert mean_ns(tally_of([1, 2, 999])) == 334
    assert distribution(tally_of([1, 2, 999])).mean == pytest.approx(334e-9)


def test_places_are_those_of_the_written_share():
    assert [place(share, 100) for share in (0.07, 0.29, 0.57, 0.58, 1.0)] == [7, 29, 57, 58, 100]
    assert place(0.99, 101) == 100
    assert place(0.999, 3) == 3


def test_nothing_is_not_zero():
    assert (distribution(Tally()), distribution_of([]), quantile_ns(Tally(), 0.5), mean_ns(Tally())) == (
        None,
    ) * 4
    assert merge([]) == Tally() == tally_of([])
    assert count(Tally()) == 0
