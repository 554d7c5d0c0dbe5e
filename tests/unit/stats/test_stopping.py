"""A rung ends when its means are known, not before."""

from random import Random

import pytest

from bringup.stats.stopping import Progress, StopRule, why_stop, why_stop_early


def records(make, **asked):
    return [one.record for one in make.closed_loop(**asked)]


def test_enough_even_requests_are_enough(make):
    found = records(make, streams=4, requests=100, spread=0.05)
    assert why_stop(found, together=4, rule=StopRule()).startswith("the mean of ttft, tpot, e2e is known to ")


def test_the_order_of_the_records_does_not_matter(make):
    found = records(make, streams=4, requests=100, spread=0.05)
    assert why_stop(found[::-1], together=4, rule=StopRule()) == why_stop(found, together=4, rule=StopRule())


def test_uneven_requests_need_more(make):
    rule = StopRule(relative=0.05)
    assert why_stop(records(make, streams=4, requests=60, spread=1.0), together=4, rule=rule) is None
    assert why_stop(records(make, streams=4, requests=6000, spread=1.0), together=4, rule=rule) is not None


@pytest.mark.parametrize(("requests", "streams"), [(49, 1), (79, 16), (0, 1)])
def test_few_requests_or_few_waves_never_stop(make, requests, streams):
    found = records(make, streams=streams, requests=requests, spread=0.0)
    assert why_stop(found, together=streams, rule=StopRule()) is None


def test_failed_requests_are_no_evidence(make):
    found = [make.made(i, error="http 500").record for i in range(1000)]
    assert why_stop(found, together=1, rule=StopRule()) is None


def test_single_tokens_have_no_time_per_token_and_still_stop(make):
    found = [make.made(i, sent=i * make.second).record for i in range(100)]
    assert why_stop(found, together=1, rule=StopRule()) == "the mean of ttft, e2e is known to 0.0%"


def test_a_stop_means_that_the_truth_is_near(make):
    """Looking after every 30 requests, the mean that was stopped at is within the bound 9 times of 10."""
    rule, near, runs = StopRule(relative=0.05), 0, 40
    for seed in range(runs):
        found = records(make, streams=2, requests=1500, spread=0.5, tokens=3, seed=seed)
        for seen in range(30, 1501, 30):
            if why_stop(found[:seen], together=2, rule=rule):
                break
        took = [(one.first - one.sent) / 1e9 for one in found[:seen]]
        true = 0.05 * 2.718281828 ** (0.5**2 / 2)
        near += abs(sum(took) / len(took) / true - 1) <= rule.relative
    assert near / runs >= 0.9


def progress(*, rate, streams, stay, spread=0.0, seconds=100.0, seed=0):
    random, events, at, found = Random(seed), 0.0, 0.0, []
    while at < seconds:
        at += 0.2
        events += 0.2 * rate * (1 + spread * random.gauss(0, 1))
        found.append(Progress(at_s=at, finished=int(streams * at / stay), events=int(events)))
    return found


def test_progress_with_a_steady_rate_is_enough():
    readings = progress(rate=400, streams=8, stay=2.0, spread=0.1)
    assert "events per second" in why_stop_early(readings, streams=8, rule=StopRule())


def test_the_ups_and_downs_within_a_wave_are_not_taken_for_chance():
    """All tokens of each wave of 2 s come in its second half: the rate over whole waves is steady."""
    readings = [
        Progress(
            at_s=step / 5, finished=81 * step // 100, events=400 * (step // 10) + max(0, step % 10 - 5) * 80
        )
        for step in range(150)
    ]
    assert why_stop_early(readings, streams=8, rule=StopRule()) is not None


@pytest.mark.parametrize(
    "asked",
    [
        {"seconds": 8.0, "stay": 2.0},  # four waves
        {"seconds": 100.0, "stay": 60.0},
        {"seconds": 60.0, "stay": 2.0, "spread": 6.0},
        {"seconds": 0.2, "stay": 2.0},
    ],
)
def test_progress_that_settles_nothing(asked):
    readings = progress(rate=400, streams=8, **asked)
    assert why_stop_early(readings, streams=8, rule=StopRule()) is None
