import pytest

from bringup.checks.power_state import CHECK
from bringup.units import mib
from bringup.values.account import Account, GpuAccount, Role


def judge(make, *gpus, **more):
    return make.judge(CHECK, make.deployment(host=make.box(*gpus), **more))


def found(make, *gpus, **more):
    return make.found(judge(make, *gpus, **more))


def case_a(make):
    powers = (84.30, 84.49, 82.39, 81.89)
    idle = (34.31, 33.58, 33.58, 32.60)
    return (
        *(make.card(index, power=power) for index, power in enumerate(powers)),
        *(make.idle_card(index + 4, power=power) for index, power in enumerate(idle)),
    )


def test_four_with_a_model_and_four_idle_add_up(make):
    judgement = judge(make, *case_a(make))
    assert make.found(judgement) == {"power_state": "ok"}
    summary = judgement.findings[0].summary
    assert summary == "4 x 83.3 W with the model at rest + 4 x 33.5 W idle = 467 W (limit 600 W)"
    assert judgement.measurements[0].value == pytest.approx(467.1, abs=0.1)
    assert len(judgement.measurements) == 1


def test_a_day_costs_what_the_price_says(make):
    judgement = judge(make, *case_a(make), price_per_kwh=0.30)
    # 467.14 W x 24 h = 11.211 kWh
    assert judgement.measurements[1].value == pytest.approx(3.36)
    assert judgement.findings[0].summary.endswith("= 467 W (limit 600 W), 3.36 a day")


def test_a_card_that_does_not_take_part(make):
    gpus = [make.card(index) for index in range(3)]
    judgement = judge(make, *gpus, make.card(3, power=32.0, performance_state="P8"))
    assert make.found(judgement) == {"power_state": "ok", "power_state.outlier": "warning"}
    assert judgement.findings[1].summary == "GPU 3 draws 32 W, the others with the model 83 W"


def test_of_two_that_differ_the_one_that_does_less_is_named(make):
    judgement = judge(make, make.card(0), make.card(1, power=32.0))
    assert judgement.findings[1].summary.startswith("GPU 1 draws 32 W")


def test_an_idle_card_that_draws_much_is_only_noted(make):
    gpus = [make.idle_card(index) for index in range(3)]
    assert found(make, *gpus, make.idle_card(3, power=90.0))["power_state.outlier"] == "note"


def test_cards_of_two_kinds_are_no_outliers_of_each_other(make):
    gpus = [make.card(index) for index in range(3)]
    assert found(make, *gpus, make.card(3, name="NVIDIA L40S", power=110.0)) == {"power_state": "ok"}


def test_cards_at_work_may_differ_more(make):
    busy = [make.card(index, utilization=1.0, power=300.0) for index in range(3)]
    assert found(make, *busy, make.card(3, utilization=1.0, power=200.0)) == {"power_state": "ok"}
    assert found(make, *busy, make.card(3, utilization=1.0, power=100.0))["power_state.outlier"] == "warning"


def test_a_cap_for_all_is_noted(make):
    gpus = [make.card(index, power_limit=300.0) for index in range(4)]
    judgement = judge(make, *gpus)
    assert make.found(judgement) == {"power_state": "ok", "power_state.cap": "note"}
    assert judgement.findings[1].summary == "GPUs 0-3 capped to 300 W, of 600 W by default"


def test_a_card_made_for_300_watts_is_not_capped(make):
    name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    gpus = [make.card(index, name=name, power_limit=300.0, power_limit_default=300.0) for index in range(4)]
    assert found(make, *gpus) == {"power_state": "ok"}


def test_the_catalogue_knows_the_limit_where_the_driver_does_not(make):
    gpu = make.card(0, power_limit=300.0, power_limit_default=None)
    assert found(make, gpu) == {"power_state": "ok"}
    assert found(make, gpu, card_power={gpu.name: 600.0})["power_state.cap"] == "note"
    assert found(make, gpu, card_power={gpu.name: 300.0}) == {"power_state": "ok"}


def test_limits_that_differ_among_cards_that_share_the_model(make):
    gpus = [make.card(index) for index in range(3)]
    judgement = judge(make, *gpus, make.card(3, power_limit=300.0))
    assert make.found(judgement)["power_state.cap"] == "warning"
    assert judgement.findings[1].summary.startswith("GPU 3 may draw 300 W, others with the model up to 600")
    assert found(make, *gpus, make.idle_card(3, power_limit=300.0))["power_state.cap"] == "note"


def test_persistence_mode_off(make):
    assert found(make, make.card(persistence_mode="Disabled"))["power_state.persistence"] == "note"
    assert found(make, make.card(persistence_mode=None)) == {"power_state": "ok"}


def test_power_that_is_not_told_is_not_zero(make):
    silent = make.card(1, power=None, said={"power": "[N/A]"})
    assert found(make, silent) == {"power_state.unread": "unknown"}
    judgement = judge(make, make.card(0), silent)
    assert make.found(judgement) == {"power_state": "ok", "power_state.unread": "unknown"}
    assert judgement.measurements[0].value == 83.0


def test_what_was_not_asked_is_not_spoken_of(make):
    assert found(make, make.card(power=None, said={})) == {}
    assert found(make) == {}
    assert make.found(make.judge(CHECK, make.deployment())) == {}


def test_the_model_is_where_the_memory_is_or_a_process(make):
    unified = make.card(memory_used=None, memory_total=None, power=11.2)
    assert "W idle" in judge(make, unified).findings[0].summary
    full = make.card(memory_used=mib(2000))
    assert "W with the model" in judge(make, full).findings[0].summary
    untold = make.card(memory_used=mib(2000), utilization=None)
    assert "at rest" not in judge(make, untold).findings[0].summary


def test_a_card_that_somebody_else_fills_does_not_carry_the_model(make):
    gpus = (make.card(0), make.card(1, power=300.0))
    account = Account(
        gpus=(GpuAccount(gpu=gpus[0], role=Role.MODEL), GpuAccount(gpu=gpus[1], role=Role.OTHER))
    )
    judgement = judge(make, *gpus, account=account)
    assert make.found(judgement) == {"power_state": "ok"}
    assert judgement.findings[0].summary == (
        "1 x 83.0 W with the model at rest + 1 x 300.0 W in other use = 383 W (limit 600 W)"
    )


def test_a_card_that_is_meant_and_empty_does_not_carry_the_model(make):
    gpus = (make.card(0), make.idle_card(1))
    account = Account(gpus=tuple(GpuAccount(gpu=gpu, role=Role.MODEL) for gpu in gpus))
    assert (
        judge(make, *gpus, account=account)
        .findings[0]
        .summary.startswith("1 x 83.0 W with the model at rest + 1 x 33.5 W idle")
    )
