"""The search finds where throughput stops growing on servers whose answer is known."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.saturation import Measured, measured, next_concurrency
from bringup.stats.step import Answer, Next
from bringup.values.bench import Rung, RungResult


def search(throughput, *, noise=0.0, half_width=0.0, seed=0, largest=8192, **more):
    """All steps of a search on a server with this throughput, and its answer."""
    random = Random(seed)
    tried = []
    for _ in range(60):
        step = next_concurrency(tried, largest=largest)
        if isinstance(step, Answer):
            return tried, step
        assert step.load == int(step.load)
        tokens = throughput(step.load) * (1 + noise * random.gauss(0, 1))
        tried.append(
            Measured(
                concurrency=int(step.load),
                throughput=tokens,
                half_width=None if half_width is None else half_width * tokens,
                **more,
            )
        )
    raise AssertionError("the search does not end")


def slots(most, each=50.0):
    """A server with so many slots: throughput grows up to them and then not at all."""
    return lambda streams: each * min(streams, most)


def machine(fixed, per_stream):
    """A batch takes `fixed` and so much more per stream: throughput climbs towards 1 / per_stream."""
    return lambda streams: streams / (fixed + per_stream * streams)


@given(st.integers(1, 4000))
def test_slots_are_found_within_a_quarter(most):
    tried, answer = search(slots(most))
    assert answer.is_settled
    assert 0.95 * most <= answer.load <= max(most + 1, 1.25 * 1.0 * most)
    assert len(tried) <= 24


@given(st.integers(1, 2000), st.integers(0, 1000))
def test_noise_within_the_intervals_moves_the_answer_little(most, seed):
    _, answer = search(slots(most), noise=0.01, half_width=0.02, seed=seed)
    assert answer.is_settled
    assert 0.85 * most <= answer.load <= max(most + 1, 1.35 * most)


@given(st.floats(0.001, 0.1), st.floats(0.0001, 0.01))
def test_a_slow_climb_ends_where_a_doubling_brings_less_than_five_percent(fixed, per_stream):
    curve = machine(fixed, per_stream)
    tried, answer = search(curve, largest=1 << 20)
    assert answer.is_settled
    peak = max(one.throughput for one in tried)
    assert curve(answer.load) >= 0.95 * peak
    assert answer.load <= 1 or curve(answer.load / 1.6) < 0.96 * peak


def test_a_server_that_collapses_beyond_its_best_is_not_followed():
    _, answer = search(lambda streams: 50 * streams if streams <= 20 else 600)
    assert 16 <= answer.load <= 20


def test_throughput_that_grows_to_the_end_is_no_saturation():
    tried, answer = search(lambda streams: 50 * streams, largest=100)
    assert (answer.load, answer.is_settled, tried[-1].concurrency) == (None, False, 100)
    assert "still grew at 100 streams" in answer.why


def test_without_intervals_one_flat_step_is_not_enough():
    flat = [Measured(concurrency=1, throughput=100.0), Measured(concurrency=2, throughput=101.0)]
    assert next_concurrency(flat) == Next(load=4, why="throughput still grows, or may")
    assert isinstance(next_concurrency([*flat, Measured(concurrency=4, throughput=101.0)]), Answer)


def test_a_wide_interval_leaves_room_for_growth():
    def step(half):
        return next_concurrency(
            [Measured(concurrency=n, throughput=100.0 + n, half_width=half) for n in (1, 2)]
        )

    assert isinstance(step(0.5), Answer)
    assert step(20.0).load == 4


def test_an_unsteady_load_is_measured_once_more_and_then_given_up():
    shaky = Measured(concurrency=4, throughput=100.0, is_steady=False)
    tried = [Measured(concurrency=2, throughput=60.0), shaky]
    assert next_concurrency(tried).load == 4
    sound = Measured(concurrency=4, throughput=120.0)
    assert next_concurrency([*tried, sound]).load == 8
    given_up = next_concurrency([*tried, shaky])
    assert (given_up.load, given_up.is_settled) == (None, False)
    assert "never became steady" in given_up.why


def test_errors_end_the_search():
    answer = next_concurrency([Measured(concurrency=8, throughput=10.0, failed_share=0.5)])
    assert (answer.load, answer.is_settled) == (None, False)
    assert "50% of the requests failed at 8 streams" in answer.why


def test_repeats_count_as_their_mean():
    tried = [Measured(concurrency=1, throughput=100.0, half_width=1.0)]
    tried += [Measured(concurrency=2, throughput=rate, half_width=1.0) for rate in (90.0, 112.0)]
    assert isinstance(next_concurrency(tried), Answer)  # 101 is no growth, 112 alone would be


@pytest.mark.parametrize("streams", [2, 6])
def test_a_rung_is_seen_with_its_steady_throughput_and_interval(make, streams):
    requests = make.closed_loop(streams=streams, requests=300, spread=0.05)
    seen = measured(make.result(requests, concurrency=streams))
    assert seen.concurrency == streams
    assert seen.throughput == pytest.approx(streams * 50 / (0.05 + 49 * 0.02), rel=0.05)
    assert 0 < seen.half_width < 0.05 * seen.throughput
    assert (seen.is_steady, seen.failed_share) == (True, 0.0)


def test_a_rung_without_its_streams_is_not_steady(make):
    requests = make.closed_loop(streams=4, requests=100)
    assert measured(make.result(requests, concurrency=16)).is_steady is False


def test_what_is_no_closed_loop_is_not_searched():
    assert measured(RungResult(rung=Rung(rate=2.0, requests=5), runs=())) is None
    assert measured(RungResult(rung=Rung(concurrency=2), runs=())) is None


@pytest.mark.parametrize("most", [1, 3, 6, 20])
def test_a_server_with_slots_is_found_from_its_records(make, most):
    tried = []
    for number in range(30):
        step = next_concurrency(tried)
        if isinstance(step, Answer):
            break
        streams = int(step.load)
        requests = make.slots(most=most, streams=streams, requests=max(200, 20 * streams), seed=number)
        tried.append(measured(make.result(requests, concurrency=streams)))
    assert step.is_settled
    assert 0.85 * most <= step.load <= max(most + 1, 1.25 * most)
    assert max(one.throughput for one in tried) == pytest.approx(most * 50, rel=0.06)
