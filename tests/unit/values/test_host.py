from dataclasses import replace

import pytest

from bringup.units import mib
from bringup.values.deployment import Deployment, Wanted
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.host import EngineProcess, Gpu, HostSnapshot

CARD = Gpu(
    index=2,
    uuid="GPU-5f1c0a77-0000",
    bus_id="0000:c1:00.0",
    memory_total=mib(97_887),
    memory_reserved=mib(636),
    memory_used=mib(96_721),
    memory_free=mib(530),
)


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("2", True),
        (" 2 ", True),
        ("1", False),
        ("GPU-5f1c0a77-0000", True),
        ("gpu-5F1C", True),
        ("GPU-9", False),
        ("c1:00.0", True),
        ("0000:C1:00.0", True),
        ("00000000:c1:00.0", True),
        ("0001:c1:00.0", False),
        ("c2:00.0", False),
        ("", False),
    ],
)
def test_a_gpu_answers_to_its_index_its_uuid_and_its_bus_id(name, is_it):
    assert CARD.is_named(name) is is_it


def test_a_gpu_without_a_name_of_that_kind_is_never_meant_by_one():
    silent = Gpu(index=None)
    assert not any(silent.is_named(name) for name in ("0", "GPU-5", "c1:00.0", ""))


def test_what_is_left_is_total_without_reserve_and_use():
    assert CARD.memory_headroom == mib(530)


def test_without_a_reserve_the_drivers_own_figure_counts_and_none_is_made_up():
    untold = replace(CARD, memory_reserved=None)
    assert untold.memory_headroom == mib(530)
    assert replace(untold, memory_free=None).memory_headroom is None
    assert replace(CARD, memory_used=None, memory_free=None).memory_headroom is None


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://gpubox:8000", 8000),
        ("http://[::1]:8001/base", 8001),
        ("https://llm.example/base", 443),
        ("http://[fe80::1]", 80),
    ],
)
def test_several_engines_on_one_host_are_told_apart_by_the_urls_port(url, port):
    engines = (*(EngineProcess(pid=one, port=one) for one in (80, 443, 8000, 8001)), EngineProcess(pid=7))
    deployment = Deployment(
        url=url,
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        host=HostSnapshot(taken_at=0.0, host="gpubox", engines=engines),
    )
    assert deployment.port == port
    assert deployment.process is not None
    assert deployment.process.pid == port
    assert deployment.process_after is None


def test_the_gpus_meant_are_the_named_ones_in_every_spelling():
    host = HostSnapshot(
        taken_at=0.0, host="h", gpus=(CARD, Gpu(index=3, uuid="GPU-9", bus_id="0000:e1:00.0"))
    )
    deployment = Deployment(
        url="http://h:1", engine=EngineStatus(engine="vllm"), model=ServedModel(id="m"), host=host
    )
    assert [gpu.index for gpu in deployment.gpus] == [2, 3]
    for name in ("3", "GPU-9", "e1:00.0"):
        meant = replace(deployment, wanted=Wanted(gpus=(name,)))
        assert [gpu.index for gpu in meant.gpus] == [3]
