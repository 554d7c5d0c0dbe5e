"""The stated bounds hold the error that a late instrument really made."""

import itertools
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.rung import rung_of
from bringup.stats.self_error import busy_share, self_error
from bringup.stats.tally import tally_of
from bringup.values.bench import GeneratorRun

MS = 1_000_000


def read_late(make, lags, *, tokens, seed):
    """What a loop with these lags recorded of 50 ms and gaps of 20 ms, and its alarms with the same lags."""
    random = Random(seed)
    requests = []
    for index in range(60):
        true = [50 * MS + 20 * MS * number for number in range(tokens)]
        seen = []
        for at in true:
            seen.append(max([at + random.choice(lags), *seen[-1:]]))
        gaps = [b - a for a, b in itertools.pairwise(seen)]
        requests.append(make.made(index, ttft=seen[0], gaps=gaps))
    alarms = tally_of([random.choice(lags) for _ in range(2000)] + lags)
    return rung_of([make.run_of(requests, lag=alarms)], concurrency=1)


@given(
    st.lists(st.integers(0, 30 * MS), min_size=1, max_size=200),
    st.integers(2, 40),
    st.integers(0, 1000),
)
def test_the_means_are_within_the_bounds(make, lags, tokens, seed):
    rung = read_late(make, lags, tokens=tokens, seed=seed)
    assert -1e-9 <= rung.ttft.p50 - 0.05 <= rung.self_error.ttft_s + 1e-6
    assert abs(rung.itl.mean - 0.02) <= rung.self_error.itl_mean_s + 1e-6
    assert abs(rung.tpot.mean - 0.02) <= rung.self_error.itl_mean_s + 1e-6


def test_single_gaps_are_within_their_bound_in_99_of_100(make):
    lags = [100_000] * 993 + [3 * MS] * 7
    rung = read_late(make, lags, tokens=100, seed=1)
    assert rung.itl.p99 - 0.02 <= rung.self_error.itl_gap_s
    assert rung.self_error.itl_gap_s == pytest.approx(0.003)  # the p99 of the lag is only 0.1 ms
    assert rung.self_error.lag_p99_s == pytest.approx(0.0001)


def test_a_few_very_long_waits_are_in_the_bounds_although_the_p99_does_not_see_them(make):
    alarms = tally_of([1000] * 995 + [2_000 * MS] * 5)
    error = self_error([make.run_of([], lag=alarms)], [make.made(gaps=(20 * MS,)).record])
    assert error.lag_p99_s == pytest.approx(1e-6)
    assert error.ttft_s == pytest.approx(0.010002)  # the mean, and a usual wait of the other side
    assert error.itl_mean_s == pytest.approx(2 * 0.010001, rel=1e-4)  # of one gap: both its ends


def test_a_wave_that_ends_together_is_in_the_bounds_although_no_alarm_saw_it(make):
    run = make.run_of([], lag=tally_of([1000] * 1000))
    calm = self_error([run], [make.made(gaps=(20 * MS,) * 9).record])
    wave = self_error([replace(run, turns=tally_of([4 * MS] * 20))], [make.made(gaps=(20 * MS,) * 9).record])
    assert wave.itl_mean_s == pytest.approx(0.004001 / 9, rel=1e-3)
    assert wave.ttft_s - calm.ttft_s == pytest.approx(0.004, rel=1e-3)
    assert wave.lag_p99_s == calm.lag_p99_s


def test_more_tokens_make_the_mean_safer_and_not_the_single_gap(make):
    few = rung_of([make.run_of([make.made(gaps=(20 * MS,) * 9)])], concurrency=1)
    many = rung_of([make.run_of([make.made(gaps=(20 * MS,) * 99)])], concurrency=1)
    assert many.self_error.itl_mean_s == pytest.approx(few.self_error.itl_mean_s / 11)
    assert many.self_error.itl_gap_s == few.self_error.itl_gap_s


def test_half_a_step_of_the_alarms_is_added(make):
    coarse = self_error([make.run_of([], alarm_step_ns=MS)], [])
    fine = self_error([make.run_of([])], [])
    assert coarse.ttft_s - fine.ttft_s == pytest.approx(0.0005)


def test_without_alarms_nothing_is_claimed(make):
    assert self_error([make.run_of([make.made()], lag=tally_of([]))], []) is None


def test_the_busiest_generator_counts(make):
    busy = GeneratorRun(generator="a", records=(), lag=tally_of([5000]), busy_s=1.8, ended=2 * 10**9)
    idle = GeneratorRun(generator="b", records=(), lag=tally_of([5000]), busy_s=0.2, ended=2 * 10**9)
    assert self_error([idle, busy], []).busy_share == pytest.approx(0.9)
    assert busy_share(GeneratorRun(generator="c", records=())) == 0.0
