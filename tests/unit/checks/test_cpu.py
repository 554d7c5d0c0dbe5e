"""Processors: clocks, time that others took, quotas, too few of them, a full front."""

import pytest

from bringup.checks.cpu import CHECK
from bringup.values.host import ControlGroupUse, EngineProcess, Gpu, GpuProcess, HostFacts, HostSnapshot


def host(*, at=0.0, gpus=0, facts=None, **process):
    cards = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(gpus))
    return HostSnapshot(
        taken_at=at,
        host="box",
        facts=HostFacts(**(facts or {})),
        engines=(EngineProcess(pid=812, port=8000, **process),),
        gpus=cards,
        processes=tuple(GpuProcess(pid=812, gpu_uuid=card.uuid) for card in cards),
    )


def found(make, before, after=None, engine="vllm"):
    under_test = make.deployment(engine=engine, host=before, host_after=after)
    return make.found(make.judge(CHECK, under_test))


@pytest.mark.parametrize(
    ("governors", "driver", "preference", "fires"),
    [
        (("powersave",), "acpi-cpufreq", None, True),
        (("performance", "powersave"), "amd-pstate", None, True),
        (("powersave",), "intel_pstate", "balance_performance", False),  # there it is the usual one
        (("powersave",), "intel_pstate", "power", True),
        (("powersave",), "amd-pstate-epp", "performance", False),
        (("schedutil",), "acpi-cpufreq", None, False),
        ((), None, None, False),
    ],
)
def test_governor(make, governors, driver, preference, fires):
    facts = {"governors": governors, "clock_driver": driver, "energy_preference": preference}
    assert ("cpu.governor" in found(make, host(facts=facts))) is fires


def times(user, idle, steal):
    return {"processor_s": {"user": user, "idle": idle, "steal": steal}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (times(900.0, 6000.0, 10.0), times(990.0, 6050.0, 50.0), {"cpu.steal": "warning"}),
        (times(900.0, 6000.0, 900.0), times(990.0, 6050.0, 901.0), {"cpu": "ok"}),  # long ago
        (times(900.0, 6000.0, 10.0), times(901.0, 6000.0, 12.0), {}),  # too short to tell
        (times(900.0, 6000.0, 900.0), None, {"cpu.steal": "warning"}),
        (times(900.0, 6000.0, 100.0), None, {"cpu": "ok"}),
        ({}, None, {}),
    ],
)
def test_time_that_other_guests_took(make, before, after, expected):
    after = after and host(facts=after)
    assert found(make, host(facts=before), after) == expected


@pytest.mark.parametrize(("throttled", "fires"), [(60, True), (2, False)])
def test_a_quota_counts_by_what_it_stopped_meanwhile(make, throttled, fires):
    before = ControlGroupUse(processor_limit=4.0, periods=1000, throttled_periods=900)
    after = ControlGroupUse(processor_limit=4.0, periods=1100, throttled_periods=900 + throttled)
    assert ("cpu.quota" in found(make, host(group=before), host(group=after))) is fires


def test_a_group_without_a_quota_is_never_throttled(make):
    group = ControlGroupUse(periods=0, throttled_periods=0)
    assert found(make, host(group=group)) == {}


@pytest.mark.parametrize(
    ("gpus", "allowed", "limit", "fires"),
    [
        (8, "0-3", None, True),
        (8, "0-63", 6.0, True),
        (8, "0-63", None, False),
        (4, "0-5", None, False),
        (0, "0", None, False),
        (8, None, None, False),
    ],
)
def test_fewer_processors_than_gpus(make, gpus, allowed, limit, fires):
    under_test = host(gpus=gpus, cpus_allowed=allowed, group=ControlGroupUse(processor_limit=limit))
    assert ("cpu.few" in found(make, under_test)) is fires


@pytest.mark.parametrize(
    ("engine", "gpus", "busy", "elapsed", "fires"),
    [
        ("vllm", 1, 29.0, 30.0, True),
        ("vllm", 1, 10.0, 30.0, False),
        ("vllm", 0, 29.0, 30.0, False),  # without a GPU it computes there
        ("llama_cpp", 1, 29.0, 30.0, False),  # its first thread waits for the GPU by spinning
        ("vllm", 1, 2.0, 2.0, False),  # too short to tell
    ],
)
def test_a_full_front(make, engine, gpus, busy, elapsed, fires):
    before = host(gpus=gpus, main_thread_s=100.0)
    after = host(at=elapsed, gpus=gpus, main_thread_s=100.0 + busy)
    assert ("cpu.full_front" in found(make, before, after, engine)) is fires
