from bringup.checks.utilisation import CHECK
from bringup.values.host import GpuSample


def judge(make, *gpus, after=()):
    hosts = {"host": make.box(*gpus), "host_after": make.box(*after) if after else None}
    return make.judge(CHECK, make.deployment(**hosts))


def found(make, *gpus, after=()):
    return make.found(judge(make, *gpus, after=after))


def samples(*pairs):
    return tuple(GpuSample(utilization=share, power=power) for share, power in pairs)


def test_at_rest(make):
    gpus = [make.card(index, samples=samples((0.0, 83.0), (0.0, 84.0))) for index in range(4)]
    judgement = judge(make, *gpus)
    assert make.found(judgement) == {"utilisation": "ok"}
    assert judgement.findings[0].summary == "GPUs 0-3: 0 % at 83-84 W in 3 samples"


def test_a_hang_is_full_use_at_little_power(make):
    hung = [
        make.card(
            index, utilization=1.0, power=140.0, samples=samples((1.0, 141.0), (0.99, 139.0), (1.0, 140.0))
        )
        for index in range(4)
    ]
    judgement = judge(make, *hung, after=hung)
    assert make.found(judgement) == {"utilisation": "warning"}
    assert judgement.findings[0].summary == "GPUs 0-3 100 % busy at 139-141 W of 600 W in 8 of 8 samples"


def test_work_draws_power(make):
    busy = make.card(utilization=1.0, power=410.0, samples=samples((1.0, 420.0), (1.0, 400.0), (1.0, 395.0)))
    assert found(make, busy, after=(busy,)) == {"utilisation": "ok"}


def test_a_pause_in_between_is_no_hang(make):
    pausing = make.card(
        utilization=1.0, power=140.0, samples=samples((1.0, 140.0), (0.3, 120.0), (1.0, 140.0))
    )
    assert found(make, pausing) == {"utilisation": "ok"}


def test_one_reading_proves_nothing(make):
    assert found(make, make.card(utilization=1.0, power=140.0)) == {"utilisation": "note"}


def test_little_is_measured_against_the_card(make):
    gpu = make.card(
        utilization=1.0,
        power=140.0,
        power_limit=300.0,
        power_limit_default=300.0,
        samples=samples((1.0, 140.0), (1.0, 140.0), (1.0, 140.0)),
    )
    assert found(make, gpu) == {"utilisation": "ok"}


def test_cards_without_a_model_are_left_out(make):
    # The first question to a card without persistence mode reads 100 %: the driver's own start.
    assert found(make, make.idle_card(0, utilization=1.0, power=242.0)) == {}


def test_not_told(make):
    gpu = make.card(utilization=None, said={"utilization": "[N/A]"})
    assert found(make, gpu) == {"utilisation": "unknown"}
    cut = make.card(utilization=None, mig_mode="Enabled", said={"utilization": "[N/A]"})
    assert found(make, cut) == {}
    assert found(make) == {}
