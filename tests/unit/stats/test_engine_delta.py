from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.engine_delta import Window, engine_delta
from bringup.values.bench import Rung
from bringup.values.load import EngineMoment, Lapse, LoadTrace

WINDOW = Window(started=10.0, ended=20.0, idle_from=9.9, idle_until=20.3)
OURS = Rung(requests=8, good=8, input_tokens=400, output_tokens=800, most_open=4)


def moment(at, *, output=0.0, took=0.01, **others):
    told = {"running": 0.0, "waiting": 0.0, "requests": output / 100, "input_tokens": output / 2}
    return EngineMoment(at=at, took=took, output_tokens=output, **(told | others))


def trace(*moments, lapses=()):
    return LoadTrace(engine=moments, lapses=lapses)


QUIET = (moment(9.95, output=1000.0), moment(20.05, output=1800.0))
BUSY = (
    moment(12.0, output=1100.0, running=4.0, waiting=1.0, kv_used_share=0.4),
    moment(15.0, output=1500.0, running=3.0, waiting=2.0, kv_used_share=0.7),
)


def test_the_difference_is_that_of_the_quiet_readings_around_the_rung():
    delta = engine_delta(trace(QUIET[0], *BUSY, QUIET[1]), WINDOW, ours=OURS)
    assert (delta.requests, delta.input_tokens, delta.output_tokens) == (8.0, 400.0, 800.0)
    assert (delta.most_running, delta.most_waiting, delta.most_kv_used_share) == (4.0, 2.0, 0.7)
    assert (delta.is_shared, delta.is_restarted, delta.remarks) == (False, False, ())


def test_gauges_outside_of_the_rung_are_not_its_own():
    busy_before = moment(9.0, output=900.0, running=50.0, kv_used_share=0.9)
    delta = engine_delta(trace(busy_before, QUIET[0], *BUSY, QUIET[1]), WINDOW, ours=OURS)
    assert (delta.most_running, delta.most_kv_used_share) == (4.0, 0.7)


def test_the_last_quiet_reading_counts_what_the_engine_counted_late():
    late = moment(20.2, output=1810.0)
    delta = engine_delta(trace(*QUIET, late), WINDOW)
    assert delta.output_tokens == 810.0


@pytest.mark.parametrize(
    ("moments", "side"),
    [
        ((replace(QUIET[0], took=0.2), QUIET[1]), "before"),  # whole only when the rung ran
        ((replace(QUIET[0], at=9.0), QUIET[1]), "before"),  # asked while something else may have run
        ((QUIET[0], replace(QUIET[1], took=0.5)), "after"),  # whole only when the next rung ran
        ((QUIET[0], replace(QUIET[1], at=19.99)), "after"),
    ],
)
def test_a_reading_that_was_not_quiet_makes_no_difference(moments, side):
    delta = engine_delta(trace(*moments), WINDOW, ours=OURS)
    assert (delta.output_tokens, delta.is_shared) == (None, None)
    assert delta.remarks == (f"no reading of the engine's counters fell into the quiet {side} the rung",)


def test_slow_readings_are_said_to_be_slow():
    slow = (moment(9.0, output=1000.0, took=2.0), moment(19.0, output=1700.0, took=2.04))
    delta = engine_delta(trace(*slow), WINDOW)
    assert delta.remarks == (
        "no reading of the engine's counters fell into the quiet before the rung, a reading took up to 2.0 s",
    )


def test_a_restart_is_seen_although_the_counters_are_higher_in_the_end():
    fallen = (moment(13.0, output=1400.0), moment(14.0, output=3.0), moment(20.05, output=5000.0))
    delta = engine_delta(trace(QUIET[0], *fallen), WINDOW, ours=OURS)
    assert delta.is_restarted
    assert (delta.output_tokens, delta.requests, delta.is_shared) == (None, None, None)
    assert "restarted" in delta.remarks[0]


def test_readings_that_overtake_each_other_are_no_restart():
    slow = moment(12.0, output=1500.0, took=3.0)
    quick = moment(12.5, output=1200.0)
    delta = engine_delta(trace(QUIET[0], slow, quick, QUIET[1]), WINDOW)
    assert not delta.is_restarted
    assert delta.output_tokens == 800.0


def test_a_restart_in_another_rung_is_not_this_ones():
    earlier = (moment(3.0, output=9000.0), moment(4.0, output=0.0))
    delta = engine_delta(trace(*earlier, *QUIET), WINDOW)
    assert (delta.is_restarted, delta.output_tokens) == (False, 800.0)


def test_counters_that_only_one_reading_tells_stay_unknown():
    delta = engine_delta(trace(replace(QUIET[0], requests=None, input_tokens=None), QUIET[1]), WINDOW)
    assert (delta.requests, delta.input_tokens, delta.output_tokens) == (None, None, 800.0)
    assert delta.preemptions is None


def test_the_cache_hit_rate_is_that_of_the_rung():
    before = replace(QUIET[0], cache_queries=1000.0, cache_hits=900.0)
    after = replace(QUIET[1], cache_queries=1400.0, cache_hits=1000.0)
    assert engine_delta(trace(before, after), WINDOW).cache_hit_rate == 0.25
    idle = replace(after, cache_queries=1000.0, cache_hits=900.0)
    assert engine_delta(trace(before, idle), WINDOW).cache_hit_rate is None


@pytest.mark.parametrize(
    ("ours", "counted", "is_shared"),
    [
        (OURS, 800.0, False),
        (OURS, 831.0, False),  # health probes
        (OURS, 840.0, True),
        (replace(OURS, tokens_counted="events"), 840.0, False),  # tokens do not compare, requests do
        (replace(OURS, good=7), 840.0, False),  # a request that failed made tokens too
        (replace(OURS, good=7), 1200.0, True),  # but no four requests
        (replace(OURS, stopped=1), 900.0, False),  # what was under way when the rung ended
        (None, 800.0, None),
    ],
)
def test_more_than_we_asked_for_is_the_work_of_others(ours, counted, is_shared):
    after = moment(20.05, output=1000.0 + counted)
    assert engine_delta(trace(QUIET[0], after), WINDOW, ours=ours).is_shared is is_shared


def test_who_ran_before_we_came_runs_on():
    busy = replace(QUIET[0], running=1.0)
    assert engine_delta(trace(busy, QUIET[1]), WINDOW, ours=OURS).is_shared is True
    assert engine_delta(trace(busy, QUIET[1]), WINDOW, ours=OURS, gauges_lag=True).is_shared is False


def test_a_server_that_counts_nothing_of_ours_does_not_tell_who_used_it():
    silent = [EngineMoment(at=one.at, took=one.took, running=0.0) for one in QUIET]
    assert engine_delta(trace(*silent), WINDOW, ours=OURS).is_shared is None


def test_lapses_of_the_rung_are_counted_and_told():
    lapses = (
        Lapse(at=1.0, took=0.1, words="long ago"),
        Lapse(at=15.0, took=5.0, words="not finished within 5 s"),
        Lapse(at=16.0, took=0.1, words="HTTP 500"),
    )
    delta = engine_delta(trace(*QUIET, lapses=lapses), WINDOW)
    assert delta.remarks == ("2 of 4 readings of the engine's counters failed: not finished within 5 s",)
    assert delta.output_tokens == 800.0


def test_nothing_seen_is_nothing_said():
    delta = engine_delta(trace(), WINDOW, ours=OURS)
    assert delta == replace(delta, requests=None, is_shared=None, is_restarted=False, remarks=())


@given(
    steps=st.lists(st.floats(0, 1000), min_size=2, max_size=30),
    spans=st.lists(st.floats(0, 1), min_size=30, max_size=30),
)
def test_counters_that_only_grow_are_never_a_restart(steps, spans):
    total, moments = 0.0, []
    for number, (step, took) in enumerate(zip(steps, spans, strict=False)):
        total += step
        moments.append(moment(float(number), output=total, took=took))
    window = Window(started=0.5, ended=len(steps) - 1.5)
    assert not engine_delta(trace(*moments), window).is_restarted
