"""What differs is shown, what does not is not, and how often chance is taken for a difference is known."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from bringup.stats.compare import compare, compare_rungs
from bringup.values.bench import Rung, RungResult


def pairs(make, count, **other):
    """Results of the same server twice, with other seeds."""
    for seed in range(count):
        one = make.closed_loop(streams=4, requests=160, tokens=20, seed=2 * seed)
        two = make.closed_loop(streams=4, requests=160, tokens=20, seed=2 * seed + 1, **other)
        yield make.result(one, concurrency=4), make.result(two, concurrency=4)


def verdicts(make, count, **other):
    """How often each figure was said to differ, and how often it was judged."""
    shown, judged = Counter(), Counter()
    for seed, (one, two) in enumerate(pairs(make, count, **other)):
        for found in compare_rungs(one, two, seed=seed):
            judged[found.figure] += found.low is not None
            shown[found.figure] += found.verdict in {"higher", "lower"}
    return shown, judged


def test_chance_is_taken_for_a_difference_about_as_often_as_stated(make):
    """At 95 %: 2 of 40, in each figure at most 7 of 40 (1 of 2000 by chance) and 5 % +- 4 % over all."""
    shown, judged = verdicts(make, 40)
    figures = [figure for figure in judged if judged[figure]]
    assert {"ttft mean", "ttft p50", "ttft p90", "tpot mean", "e2e mean", "e2e p90"} <= set(figures)
    assert all(judged[figure] == 40 for figure in figures)
    assert max(shown[figure] for figure in figures) <= 7
    latencies = [figure for figure in figures if " per second" not in figure]
    share = sum(shown[figure] for figure in latencies) / (40 * len(latencies))
    assert 0.01 <= share <= 0.09


def test_five_percent_are_seen(make):
    one = make.result(make.closed_loop(streams=8, requests=4000, seed=1), concurrency=8)
    slow = make.closed_loop(streams=8, requests=4000, seed=2, ttft=0.0525, itl=0.021)
    found = {each.figure: each for each in compare_rungs(one, make.result(slow, concurrency=8))}
    for figure in ("ttft mean", "ttft p50", "tpot mean", "tpot p50", "e2e mean", "e2e p50", "e2e p99"):
        assert found[figure].verdict == "higher", figure
        assert found[figure].is_better is False
        assert found[figure].change_low < 0.05 < found[figure].change_high, figure
    for figure in ("output tokens per second", "requests per second"):
        assert (found[figure].verdict, found[figure].is_better) == ("lower", False)
    back = {each.figure: each for each in compare_rungs(make.result(slow, concurrency=8), one)}
    assert (back["e2e mean"].verdict, back["e2e mean"].is_better) == ("lower", True)


def test_a_run_does_not_differ_from_itself_and_the_interval_says_how_well_that_is_known(make):
    one = make.result(make.closed_loop(streams=4, requests=2000, seed=1), concurrency=4)
    for found in compare_rungs(one, one):
        assert found.verdict in {"no difference shown", "not known"}
        assert found.is_better is None
        if found.low is not None:
            assert found.low <= 0 <= found.high


def drifting(make, seed):
    """A server whose time to the first token wanders: each resembles the one before."""
    random, drift, requests = Random(seed), 0.0, []
    for index in range(1600):
        drift = 0.97 * drift + 0.243 * random.gauss(0, 1)
        requests.append(make.made(index, sent=index * 10**7, ttft=int(5e7 * 2.718 ** (0.2 * drift))))
    return make.result(requests, concurrency=80)


def test_requests_that_resemble_each_other_are_fewer_than_they_seem(make):
    """Taken for independent, more than half of such pairs would be said to differ."""
    shown = Counter()
    for seed in range(20):
        for found in compare_rungs(drifting(make, seed), drifting(make, seed + 100), seed=seed):
            assert found.low is not None or not found.figure.startswith("ttft p50")
            shown[found.figure] += found.verdict in {"higher", "lower"}
    assert shown["ttft mean"] <= 4
    assert shown["ttft p50"] <= 4


def test_the_same_seed_gives_the_same_answer(make):
    one, two = next(pairs(make, 1))
    assert compare_rungs(one, two, seed=3) == compare_rungs(one, two, seed=3)
    assert compare_rungs(one, two, seed=3) != compare_rungs(one, two, seed=4)


def test_too_few_requests_settle_nothing(make):
    one = make.result(make.closed_loop(streams=4, requests=16, seed=1), concurrency=4)
    two = make.result(make.closed_loop(streams=4, requests=16, seed=2, ttft=0.5), concurrency=4)
    found = {each.figure: each for each in compare_rungs(one, two)}
    assert {each.verdict for each in found.values()} == {"not known"}
    assert found["ttft mean"].change > 1


def test_the_p99_of_a_few_hundred_requests_is_not_judged(make):
    one, two = next(pairs(make, 1))
    found = {each.figure: each for each in compare_rungs(one, two)}
    assert found["e2e p99"].verdict == "not known"
    assert found["e2e p90"].verdict != "not known"


def test_figures_without_records_stand_there_without_a_verdict(make):
    one = make.result(make.closed_loop(streams=4, requests=200, seed=1), concurrency=4)
    bare = RungResult(rung=one.rung, runs=())
    for found in compare_rungs(bare, bare):
        assert (found.verdict, found.low) == ("not known", None)
        assert found.before == found.after
        assert found.before is not None


def test_rungs_are_paired_by_what_was_asked(make):
    requests = make.closed_loop(streams=2, requests=100)
    two, four = make.result(requests, concurrency=2), make.result(requests, concurrency=4)
    rate = RungResult(rung=Rung(rate=2.5), runs=())
    found = compare([two, four], [four, rate])
    assert [one.concurrency for one in found.rungs] == [4]
    assert (found.only_before, found.only_after) == (("2 streams",), ("2.5 requests/s",))
    assert found.by_chance == pytest.approx(0.05 * found.judged)
    assert found.judged >= 6


def test_an_estimated_gap_is_not_held_against_an_exact_one(make):
    one = make.result(make.closed_loop(streams=2, requests=100), concurrency=2)
    other = replace(one, rung=replace(one.rung, itl_is_estimated=True))
    assert "itl p99" in {each.figure for each in compare_rungs(one, one)}
    assert "itl p99" not in {each.figure for each in compare_rungs(one, other)}
