import pytest

from bringup.checks.clocks_and_heat import CHECK


def judge(make, before, after=(), **more):
    hosts = {"host": make.box(*before), "host_after": make.box(*after) if after else None}
    return make.judge(CHECK, make.deployment(**hosts, **more))


def found(make, before, after=(), **more):
    return make.found(judge(make, before, after, **more))


def test_cool_and_at_rest(make):
    judgement = judge(make, [make.card(0, temperature_margin=46.0), make.card(1, temperature=38.0)])
    assert make.found(judgement) == {"clocks_and_heat": "ok"}
    assert judgement.findings[0].summary == "38-41 C; 46 degrees left or more; clocks held by: idle"
    assert judgement.measurements[0].value == 41.0


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x8, "hardware slowdown"),
        (0x20, "heat (driver)"),
        (0x40, "heat (hardware)"),
        (0x80, "power brake"),
        (0x48, "hardware slowdown, heat (hardware)"),
    ],
)
def test_a_harmful_reason_is_named(make, mask, words):
    judgement = judge(make, [make.card(0), make.card(1, clocks_event_reasons=mask | 0x4)])
    assert make.found(judgement) == {"clocks_and_heat.slowed": "warning"}
    assert judgement.findings[0].summary == f"GPU 1 slowed by {words}, up to 41 C"


@pytest.mark.parametrize("mask", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100])
def test_the_power_limit_alone_is_normal(make, mask):
    assert found(make, [make.card(clocks_event_reasons=mask)]) == {"clocks_and_heat": "ok"}


def test_what_only_the_second_look_shows_counts(make):
    after = make.card(clocks_event_reasons=0x40)
    assert found(make, [make.card()], [after]) == {"clocks_and_heat.slowed": "warning"}


def test_a_card_that_does_not_matter_is_only_noted(make):
    gpus = [make.card(0), make.idle_card(1, clocks_event_reasons=0x40)]
    assert found(make, gpus) == {"clocks_and_heat.slowed": "note"}


def test_counters_tell_what_happened_between_the_looks(make):
    before = [make.card(slowed_by_hardware_heat=2.0)]
    judgement = judge(make, before, [make.card(slowed_by_hardware_heat=3.5)])
    assert make.found(judgement) == {"clocks_and_heat.counted": "warning"}
    assert "1.5 s by heat (hardware)" in judgement.findings[0].summary
    assert found(make, before, [make.card(slowed_by_hardware_heat=2.0)]) == {"clocks_and_heat": "ok"}
    assert found(make, before) == {"clocks_and_heat": "ok"}


@pytest.mark.parametrize(
    "hot",
    [
        {"temperature": 90.0},
        {"temperature_margin": 0.0},
        {"temperature_margin": -2.0},
        {"memory_temperature": 96.0},
    ],
)
def test_no_degrees_left(make, hot):
    assert found(make, [make.card(**hot)]) == {"clocks_and_heat.hot": "warning"}


def test_a_hot_card_with_degrees_left_is_within_its_limits(make):
    assert found(make, [make.card(temperature=88.0, temperature_margin=4.0)]) == {"clocks_and_heat": "ok"}


def test_heat_is_told_once(make):
    gpu = make.card(temperature=95.0, clocks_event_reasons=0x40)
    assert found(make, [gpu]) == {"clocks_and_heat.slowed": "warning"}


def test_a_low_clock_at_work_without_a_reason(make):
    slow = make.card(utilization=1.0, clock_sm=345.0, clocks_event_reasons=0)
    judgement = judge(make, [slow], [slow])
    assert make.found(judgement) == {"clocks_and_heat.low": "warning"}
    assert judgement.findings[0].summary == "GPU 0 at 345 MHz while working"
    assert found(make, [slow]) == {"clocks_and_heat": "ok"}  # one look proves nothing
    capped = make.card(utilization=1.0, clock_sm=345.0, clocks_event_reasons=0x4)
    assert found(make, [capped], [capped]) == {"clocks_and_heat": "ok"}


def test_reasons_that_are_not_told_are_not_taken_for_none(make):
    judgement = judge(make, [make.card(clocks_event_reasons=None)])
    assert make.found(judgement) == {"clocks_and_heat": "note"}
    assert "not told on GPU 0" in judgement.findings[0].summary


def test_nothing_told(make):
    gpu = make.card(temperature=None, clocks_event_reasons=None, said={"temperature": "[N/A]"})
    assert found(make, [gpu]) == {"clocks_and_heat.unread": "unknown"}
    assert found(make, [make.card(temperature=None, clocks_event_reasons=None)]) == {}
    assert found(make, []) == {}
