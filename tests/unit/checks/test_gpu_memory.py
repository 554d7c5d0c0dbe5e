from dataclasses import replace

import pytest

from bringup.checks.gpu_memory import CHECK
from bringup.units import mib
from bringup.values.deployment import Wanted
from bringup.values.host import Gpu, HostSnapshot


def gpus(*used, total=97887, reserved=636):
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}0f3",
            bus_id=f"0000:{index + 1:02x}:00.0",
            memory_total=mib(total),
            memory_reserved=mib(reserved),
            memory_used=None if figure is None else mib(figure),
        )
        for index, figure in enumerate(used)
    )


def host(*used, **more):
    return HostSnapshot(taken_at=0.0, host="gpubox", gpus=gpus(*used), **more)


def judge(make, before, after, wanted=()):
    under_test = make.deployment(host=before, host_after=after, wanted=Wanted(gpus=wanted))
    return make.judge(CHECK, under_test)


def found(make, before, after, wanted=()):
    return make.found(judge(make, before, after, wanted))


def test_unchanged(make):
    judgement = judge(make, host(50_000, 3), host(50_010, 3))
    assert make.found(judgement) == {"gpu_memory": "ok"}
    assert [figure.value for figure in judgement.measurements] == [mib(10), 0]


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        (50_000, 50_300, "note"),
        (50_000, 52_000, "warning"),
        (96_721, 96_900, "warning"),
        (50_000, 49_000, "ok"),
    ],
)
def test_growth(make, before, after, severity):
    assert found(make, host(before), host(after)) == {"gpu_memory": severity}


def test_the_figure_stands_in_the_summary(make):
    summary = judge(make, host(50_000, 3), host(50_300, 3)).findings[0].summary
    assert "300 MiB" in summary
    assert "GPU 0" in summary


def test_only_the_gpus_meant_count(make):
    assert found(make, host(50_000, 3), host(50_000, 9_000), wanted=("0",)) == {"gpu_memory": "ok"}


@pytest.mark.parametrize("name", ["0", "GPU-00f3", "gpu-00f", "0000:01:00.0", "00000000:01:00.0", "01:00.0"])
def test_a_gpu_goes_by_index_uuid_or_bus_id(make, name):
    assert found(make, host(5), host(5), wanted=(name,)) == {"gpu_memory": "ok"}


@pytest.mark.parametrize("name", ["7", "GPU-ffff", "0000:99:00.0", "0001:01:00.0"])
def test_a_gpu_that_is_not_there(make, name):
    assert found(make, host(5), host(5), wanted=("0", name)) == {
        "gpu_memory.gpus": "failure",
        "gpu_memory": "ok",
    }


def test_a_gpu_that_vanishes(make):
    before, after = host(5, 6), host(5, 6)
    after = replace(after, gpus=after.gpus[:1])
    assert found(make, before, after)["gpu_memory.lost"] == "failure"


def test_gpus_are_paired_by_uuid_when_the_order_changes(make):
    before = host(50_000, 3)
    after = replace(before, gpus=tuple(reversed(before.gpus)))
    assert found(make, before, after) == {"gpu_memory": "ok"}


def test_no_figure(make):
    assert found(make, host(None), host(None)) == {"gpu_memory": "unknown"}
    assert found(make, host(5, None), host(5, None))["gpu_memory"] == "unknown"


def test_a_host_without_gpus_is_a_normal_answer(make):
    bare = HostSnapshot(taken_at=0.0, host="local", gpu_state="no NVIDIA GPU on this host")
    assert found(make, bare, bare) == {"gpu_memory": "note"}
    assert found(make, bare, bare, wanted=("0",)) == {"gpu_memory.gpus": "failure"}


def test_not_measured(make):
    assert found(make, None, None) == {"gpu_memory": "unknown"}
    sick = HostSnapshot(taken_at=0.0, host="local", gpu_state="nvidia-smi did not answer within 10 s")
    assert found(make, sick, sick) == {"gpu_memory": "unknown"}
    assert found(make, sick, sick, wanted=("0",)) == {"gpu_memory.gpus": "unknown"}
    assert found(make, host(5), None) == {"gpu_memory": "unknown"}
    assert found(make, host(5), sick) == {"gpu_memory": "unknown"}
