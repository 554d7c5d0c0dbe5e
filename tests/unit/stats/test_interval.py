"""Intervals hold the true mean as often as they say, also when neighbours resemble each other."""

import math
from random import Random

import pytest

from bringup.stats.interval import Batch, Interval, batch_interval, batches_of, student_t, value_interval


def chained(random, length, likeness):
    """Values around 10 of which each resembles the one before."""
    found, drift = [], random.gauss(0, 1)
    for _ in range(length):
        drift = likeness * drift + math.sqrt(1 - likeness**2) * random.gauss(0, 1)
        found.append(10 + drift)
    return found


@pytest.mark.parametrize(("likeness", "together"), [(0.0, 1), (0.0, 16), (0.8, 16), (0.9, 40)])
def test_95_percent_of_the_intervals_hold_the_mean(likeness, together):
    random = Random(7)
    intervals = [value_interval(chained(random, 600, likeness), together=together) for _ in range(400)]
    held = sum(one.low <= 10 <= one.high for one in intervals)
    assert 0.90 <= held / 400 <= 0.985


def test_taking_neighbours_for_independent_promises_too_much():
    random = Random(7)
    naive = [value_interval(chained(random, 600, 0.9)[::1], together=1) for _ in range(200)]
    fair = [value_interval(chained(random, 600, 0.9), together=60) for _ in range(200)]
    assert sum(one.half_width for one in fair) > 1.2 * sum(one.half_width for one in naive)


def test_fewer_than_five_batches_tell_nothing():
    assert value_interval([1.0] * 39, together=8) is None
    assert value_interval([1.0] * 40, together=8) == Interval(mean=1.0, low=1.0, high=1.0)
    assert value_interval([]) is None
    assert batch_interval([Batch(size=0, total=0)] * 20) is None


def test_batches_hold_every_value_once():
    for length in (0, 1, 7, 29, 30, 31, 100, 1001):
        values = list(range(length))
        batches = batches_of(values)
        assert sum(batch.total for batch in batches) == sum(values)
        assert sum(batch.size for batch in batches) == length
        assert len(batches) == min(30, length)


def test_batches_of_unequal_size_have_the_mean_of_all_values():
    batches = [Batch(size=size, total=size * 2.0) for size in (1, 10, 3, 7, 100)]
    interval = batch_interval(batches)
    assert (interval.mean, interval.half_width) == (2.0, pytest.approx(0.0))


def test_a_higher_confidence_is_a_wider_interval():
    values = chained(Random(1), 100, 0.0)
    widths = [value_interval(values, confidence=share).half_width for share in (0.8, 0.95, 0.99)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_around_zero_no_share_is_narrow():
    assert Interval(mean=0.0, low=0.0, high=0.0).relative == math.inf


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [(0.95, 4, 2.776), (0.95, 9, 2.262), (0.95, 29, 2.045), (0.9, 9, 1.833), (0.99, 29, 2.756)],
)
def test_students_t_is_that_of_the_tables(confidence, freedom, table):
    assert student_t(confidence, freedom) == pytest.approx(table, rel=0.004)
