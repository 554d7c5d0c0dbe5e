from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats.energy_cost import cost_per_million_tokens, joules_per_token
from bringup.stats.gpu_use import gpu_use
from bringup.units import GIB
from bringup.values.load import GpuMoment, GpuTrace


def card(index, *moments):
    return GpuTrace(index=index, moments=moments)


def steady(index, *, watts=250.0, begin=0.0, end=10.0, step=0.2, **others):
    """A card that draws the same all the time; its readings do not lie on the seconds."""
    count = round((end - begin) / step) + 1
    told = {"utilization": 0.97, "memory_used": 90 * GIB} | others
    return card(index, *(GpuMoment(at=begin + 0.07 + step * n, power=watts, **told) for n in range(count)))


def with_counter(trace, *, watts):
    return replace(trace, moments=tuple(replace(one, energy=1e6 + watts * one.at) for one in trace.moments))


def test_power_is_integrated_over_exactly_the_rung():
    use = gpu_use([steady(0)], started=2.0, ended=7.5, indices={0}, source="nvidia-smi")
    assert use.joules == pytest.approx(250.0 * 5.5)
    assert use.mean_watts == pytest.approx(250.0)
    assert use.source == "nvidia-smi power, 5 readings a second"
    assert use.peak_memory == (90 * GIB,)
    assert (use.gpus, use.indices, use.remarks) == (1, (0,), ())


def test_a_ramp_is_cut_at_the_borders():
    ramp = card(0, *(GpuMoment(at=float(at), power=100.0 * at) for at in range(11)))
    use = gpu_use([ramp], started=2.5, ended=4.25, indices={0})
    assert use.joules == pytest.approx(50 * (4.25**2 - 2.5**2))


def test_the_cards_own_counter_is_worth_more_than_its_power():
    trace = with_counter(steady(0, watts=999.0), watts=250.0)
    use = gpu_use([trace], started=2.0, ended=3.1, indices={0}, source="NVML")
    assert use.joules == pytest.approx(250.0 * 1.1)
    assert use.source == "NVML energy counter"


def test_a_counter_that_stands_still_or_falls_is_not_believed():
    for energies in ([5.0] * 51, [float(50 - n) for n in range(51)]):
        trace = steady(0)
        moments = [replace(one, energy=joules) for one, joules in zip(trace.moments, energies, strict=True)]
        use = gpu_use([card(0, *moments)], started=2.0, ended=4.0, indices={0}, source="NVML")
        assert use.joules == pytest.approx(500.0)
        assert use.source == "NVML power, 5 readings a second"


def test_cards_with_and_without_a_counter_add_up():
    cards = [with_counter(steady(0), watts=250.0), steady(1, watts=100.0)]
    use = gpu_use(cards, started=1.0, ended=9.0, indices={0, 1}, source="NVML")
    assert use.joules == pytest.approx(350.0 * 8)
    assert use.source == "NVML power, 5 readings a second"


def test_only_the_engines_cards_count():
    use = gpu_use([steady(0), steady(1, watts=100.0)], started=1.0, ended=2.0, indices={1})
    assert (use.joules, use.indices) == (pytest.approx(100.0), (1,))


def test_where_they_are_not_known_those_at_work_count_and_that_is_said():
    cards = [steady(0, utilization=0.0), steady(1), steady(2), steady(3, utilization=0.01)]
    use = gpu_use(cards, started=1.0, ended=2.0)
    assert (use.indices, use.joules) == ((1, 2), pytest.approx(500.0))
    assert use.remarks == ("which GPUs are the engine's is not known: those at work count (1, 2)",)


def test_no_gpu_and_no_gpu_at_work_are_said():
    assert gpu_use([], started=0.0, ended=1.0).remarks == ("no GPU seen: joules not measured",)
    idle = gpu_use([steady(0, utilization=0.0)], started=1.0, ended=2.0)
    assert (idle.gpus, idle.joules) == (0, None)
    assert idle.remarks == ("no GPU was at work: joules not measured",)


def test_one_card_without_readings_leaves_the_sum_unknown():
    use = gpu_use([steady(0)], started=1.0, ended=2.0, indices={0, 1})
    assert (use.joules, use.mean_watts) == (None, None)
    assert use.remarks == ("no reading of GPU 1: joules not measured",)
    silent = replace(steady(1), moments=tuple(replace(one, power=None) for one in steady(1).moments))
    use = gpu_use([steady(0), silent], started=1.0, ended=2.0, indices={0, 1})
    assert use.joules is None
    assert use.remarks == ("GPU 1: its power is not told",)


@pytest.mark.parametrize(("begin", "end"), [(3.5, 10.0), (0.0, 6.0)])
def test_readings_that_do_not_reach_over_the_rung_give_no_joules(begin, end):
    use = gpu_use([steady(0, begin=begin, end=end)], started=2.0, ended=8.0, indices={0})
    assert use.joules is None
    assert use.remarks == ("GPU 0: its readings do not cover the rung",)


def test_the_nearest_reading_holds_a_moment_beyond_the_last():
    use = gpu_use([steady(0, begin=2.3, end=7.0)], started=2.0, ended=7.9, indices={0})
    assert use.joules == pytest.approx(250.0 * 5.9)
    counted = with_counter(steady(0, begin=2.3, end=7.0), watts=90.0)
    assert gpu_use([counted], started=2.0, ended=7.9, indices={0}).joules == pytest.approx(90.0 * 5.9)


def test_a_gap_is_said_and_a_big_one_is_not_bridged():
    moments = steady(0, end=100.0).moments
    gap = [one for one in moments if not 40.0 < one.at < 44.0]
    use = gpu_use([card(0, *gap)], started=1.0, ended=99.0, indices={0})
    assert use.joules == pytest.approx(250.0 * 98)
    assert use.remarks == ("GPU 0: its power was not read for 4.2 s",)
    use = gpu_use([card(0, *gap)], started=35.0, ended=50.0, indices={0})
    assert use.joules is None


def test_a_rung_shorter_than_the_interval_is_between_two_readings():
    use = gpu_use([steady(0)], started=2.1, ended=2.2, indices={0})
    assert use.joules == pytest.approx(25.0)
    assert use.peak_memory == (90 * GIB,)


def test_what_held_the_clocks_has_its_share_of_the_time():
    moments = [
        replace(one, clocks_event_reasons=0x4 if number % 4 == 0 else 0x1)
        for number, one in enumerate(steady(2).moments)
    ]
    hot = [replace(one, clocks_event_reasons=0x20 | 0x40) for one in steady(3).moments]
    cards = [card(2, *moments), card(3, *hot)]
    use = gpu_use(cards, started=2.0, ended=6.0, indices={2, 3})
    assert use.throttled == (
        "GPU 2: power limit (25 % of the time)",
        "GPU 3: heat (driver) (100 % of the time)",
        "GPU 3: heat (hardware) (100 % of the time)",
    )


def test_the_peak_is_that_of_the_rung():
    moments = [replace(one, memory_used=round(one.at * GIB)) for one in steady(0).moments]
    use = gpu_use([card(0, *moments)], started=2.0, ended=6.0, indices={0})
    assert use.peak_memory[0] == round(max(one.at for one in moments if one.at <= 6.0) * GIB)


@given(
    watts=st.lists(st.floats(0, 1000), min_size=12, max_size=12),
    cut=st.floats(1.0, 9.0),
)
def test_the_joules_of_two_rungs_side_by_side_are_those_of_one(watts, cut):
    trace = card(0, *(GpuMoment(at=float(at), power=one) for at, one in enumerate(watts)))
    begin, end = 0.5, 10.5
    parts = [gpu_use([trace], started=a, ended=b, indices={0}).joules for a, b in ((begin, cut), (cut, end))]
    whole = gpu_use([trace], started=begin, ended=end, indices={0}).joules
    assert sum(parts) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"per_gpu_hour": 2.0, "gpus": 4}, 8.0),
        ({"per_gpu_hour": 2.0}, None),  # how many GPUs it takes is not known
        ({"per_kwh": 0.5, "joules": 3_600_000.0}, 0.5),
        ({"per_kwh": 0.5}, None),
        ({"per_gpu_hour": 2.0, "gpus": 1, "per_kwh": 0.5, "joules": 7_200_000.0}, 3.0),
        ({"per_gpu_hour": 2.0, "gpus": 1, "per_kwh": 0.5}, None),  # half a sum is no sum
        ({"gpus": 4, "joules": 1.0}, None),
    ],
)
def test_a_million_tokens_cost_what_was_priced(told, cost):
    assert cost_per_million_tokens(tokens=1_000_000, seconds=3600.0, **told) == cost


def test_no_tokens_have_no_price():
    assert cost_per_million_tokens(tokens=0, seconds=1.0, gpus=1, per_gpu_hour=1.0) is None
    assert joules_per_token(joules=1.0, tokens=0) is None
    assert joules_per_token(joules=None, tokens=7) is None
