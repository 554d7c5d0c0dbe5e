"""The search finds the largest load within the limits where that load is known."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.slo_search import Search, Trial, next_load, trial, wilson
from bringup.stats.step import Answer, Next
from bringup.values.bench import Rung, Slo

SHARE = 0.99


def run(search, share_at, *, requests=1000, seed=None):
    """All trials of a search on a server that keeps the limits for this share of the requests."""
    random = Random(seed)
    tried = []
    for _ in range(200):
        step = next_load(tried, search)
        if isinstance(step, Answer):
            return tried, step
        share = share_at(step.load)
        kept = (
            round(share * requests) if seed is None else sum(random.random() < share for _ in range(requests))
        )
        tried.append(Trial(load=step.load, kept=kept, asked=requests))
    raise AssertionError("the search does not end")


@given(st.integers(1, 6000))
def test_the_last_good_concurrency_is_found_to_five_percent(most):
    tried, answer = run(Search(slo=Slo(share=SHARE)), lambda load: 1.0 if load <= most else 0.5)
    assert answer.is_settled
    assert answer.load <= most <= max(answer.load, 1.05 * answer.load)
    assert len(tried) <= 30


@given(st.floats(0.05, 500), st.floats(0.5, 20))
def test_the_last_good_rate_is_found_to_five_percent(most, start):
    search = Search(slo=Slo(share=SHARE), start=start, largest=1e6, is_whole=False)
    _, answer = run(search, lambda load: 1.0 if load <= most else 0.5)
    if most < start / 64:
        assert answer.load is None
    else:
        assert answer.load <= most <= 1.051 * answer.load


@given(st.integers(0, 10_000))
def test_a_queue_of_known_answer_is_found_in_spite_of_chance(seed):
    """M/M/1: a stay is longer than t in exp(-(capacity - rate) * t) of all cases."""
    capacity, limit = 100.0, 0.5
    answer_is = capacity + math.log(1 - SHARE) / limit  # 90.8 requests per second

    def share_at(rate):
        return 1 - math.exp(-(capacity - rate) * limit) if rate < capacity else 0.0

    search = Search(slo=Slo(e2e_s=limit, share=SHARE), start=1, largest=1e4, is_whole=False)
    tried, answer = run(search, share_at, requests=2000, seed=seed)
    assert answer.load == pytest.approx(answer_is, rel=0.08)
    assert len(tried) <= 40


def test_a_bound_that_chance_could_have_decided_is_asked_again_and_may_turn():
    search = Search(slo=Slo(share=SHARE))
    tried = [
        Trial(load=1, kept=1000, asked=1000),
        Trial(load=2, kept=1000, asked=1000),
        Trial(load=4, kept=900, asked=1000),
        Trial(load=3, kept=989, asked=1000),  # one short of 990
    ]
    step = next_load(tried, search)
    assert (step.load, step.why) == (3, "once more: chance could have decided it")
    turned = [*tried, Trial(load=3, kept=999, asked=1000)]
    assert next_load(turned, search).load == 3
    answer = next_load([*turned, Trial(load=3, kept=996, asked=1000)], search)
    assert (answer.load, answer.is_settled) == (3, True)


def test_no_load_is_measured_more_than_three_times_for_chance():
    tried, answer = run(
        Search(slo=Slo(share=SHARE)), lambda load: 0.9901 if load <= 7 else 0.9899, requests=9000
    )
    assert answer.load == 7
    assert max(sum(one.load == load for one in tried) for load in {one.load for one in tried}) <= 3


def test_a_larger_load_that_keeps_the_limits_by_chance_does_not_count():
    tried = [
        Trial(load=4, kept=100, asked=100),
        Trial(load=5, kept=10, asked=100),
        Trial(load=8, kept=100, asked=100),
    ]
    tried += [Trial(load=4, kept=100, asked=100)] * 2
    assert next_load(tried, Search(slo=Slo(share=0.9))).load == 4


def test_nothing_keeps_the_limits():
    _, answer = run(Search(slo=Slo(share=SHARE), start=8), lambda _: 0.2)
    assert (answer.load, answer.is_settled) == (None, True)
    assert "not even a load of 1" in answer.why


def test_everything_keeps_the_limits():
    _, answer = run(Search(slo=Slo(share=SHARE), largest=100), lambda _: 1.0)
    assert (answer.load, answer.is_settled) == (100, False)


def test_a_server_that_contradicts_itself_ends_the_search():
    tried = [Trial(load=load, kept=load % 2, asked=1) for load in range(1, 61)]
    answer = next_load(tried, Search(slo=Slo(share=SHARE)))
    assert (answer.load, answer.is_settled) == (59, False)


def test_the_first_load_is_the_one_asked_for():
    assert next_load([], Search(slo=Slo(), start=2.5, is_whole=False)) == Next(load=2.5, why="the first")


def test_a_rung_is_seen_with_its_failures():
    assert trial(Rung(concurrency=4, good=9, errors={"reset": 1}, in_slo=8)) == Trial(
        load=4, kept=8, asked=10
    )
    assert trial(Rung(rate=2.5, good=9, in_slo=9)).load == 2.5
    assert trial(Rung(concurrency=4, good=9)) is None
    assert trial(Rung(concurrency=4, in_slo=0)) is None


@pytest.mark.parametrize(("kept", "asked"), [(0, 10), (5, 10), (10, 10), (990, 1000)])
def test_wilsons_bounds_hold_the_share_and_stay_in_range(kept, asked):
    low, high = wilson(kept, asked)
    assert -1e-12 <= low <= kept / asked + 1e-12 <= high + 2e-12
    assert high <= 1 + 1e-12
    wider_low, wider_high = wilson(kept, asked, confidence=0.99)
    assert wider_low < low + 1e-12
    assert wider_high > high - 1e-12


@pytest.mark.parametrize("seed", [1, 2])
def test_a_queue_is_found_from_its_records(make, seed):
    """M/M/1 at 20 per second: a stay beyond 1 s in exp(-(20 - rate)) of all cases, 5 % at 17.0 per second."""
    slo = Slo(e2e_s=1.0, share=0.95)
    search = Search(slo=slo, start=1.0, largest=100.0, is_whole=False)
    tried = []
    for number in range(60):
        step = next_load(tried, search)
        if isinstance(step, Answer):
            break
        requests = make.queue(rate=step.load, capacity=20, requests=2500, seed=100 * seed + number)
        tried.append(trial(make.result(requests, rate=step.load, slo=slo).rung))
    assert step.load == pytest.approx(20 + math.log(0.05), rel=0.12)
