"""Shared memory counts for an engine of several ranks, as the engine sees it."""

import pytest

from bringup.checks.shm import CHECK
from bringup.units import GIB, mib
from bringup.values.engine import EngineSpec
from bringup.values.host import EngineProcess, Gpu, GpuProcess, HostFacts, HostSnapshot


def found(make, *, ranks=2, engine="vllm", host_shm=32 * GIB, gpus=0, **process):
    cards = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(gpus))
    host = HostSnapshot(
        taken_at=0.0,
        host="box",
        facts=HostFacts(shm_total=host_shm, shm_available=host_shm),
        engines=(EngineProcess(pid=812, port=8000, **process),),
        gpus=cards,
        processes=tuple(GpuProcess(pid=812, gpu_uuid=card.uuid) for card in cards),
    )
    spec = EngineSpec(engine=engine, tensor_parallel_size=ranks)
    return make.found(make.judge(CHECK, make.deployment(engine=engine, host=host, spec=spec)))


@pytest.mark.parametrize(
    ("total", "available", "severity"),
    [
        (mib(64), mib(60), "warning"),
        (32 * GIB, mib(10), "warning"),
        (32 * GIB, 30 * GIB, "ok"),
    ],
)
def test_room_in_shared_memory(make, total, available, severity):
    assert found(make, shm_total=total, shm_available=available) == {"shm": severity}


def test_one_rank_needs_none(make):
    assert found(make, ranks=1, shm_total=mib(64), shm_available=mib(64)) == {}


def test_llama_cpp_has_no_ranks(make):
    assert found(make, engine="llama_cpp", shm_total=mib(64), shm_available=mib(64)) == {}


def test_gpus_that_are_held_are_ranks_too(make):
    assert found(make, ranks=None, gpus=2, shm_total=mib(64), shm_available=mib(64)) == {"shm": "warning"}


def test_the_hosts_own_counts_for_an_engine_in_no_container(make):
    assert found(make, host_shm=mib(64)) == {"shm": "warning"}
    assert found(make, host_shm=mib(64), container="docker:3f2c") == {}
    assert found(make, host_shm=None) == {}
