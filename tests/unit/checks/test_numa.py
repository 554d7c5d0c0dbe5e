"""Where the engine is bound, against where its GPUs are."""

import pytest

from bringup.checks.numa import CHECK
from bringup.values.host import EngineProcess, Gpu, GpuProcess, HostSnapshot, NumaNode, PciDevice

TWO = (NumaNode(index=0, cpus="0-31"), NumaNode(index=1, cpus="32-63"))
GRACE = (*TWO, NumaNode(index=2, cpus=""))


def found(make, gpu_nodes=(1, 1), nodes=TWO, **process):
    gpus = tuple(
        Gpu(index=number, uuid=f"GPU-{number}", bus_id=f"0000:0{number}:00.0")
        for number in range(len(gpu_nodes))
    )
    host = HostSnapshot(
        taken_at=0.0,
        host="box",
        numa_nodes=nodes,
        gpus=gpus,
        pci_devices=tuple(
            PciDevice(address=gpu.bus_id, numa_node=node) for gpu, node in zip(gpus, gpu_nodes, strict=True)
        ),
        processes=tuple(GpuProcess(pid=830, gpu_uuid=gpu.uuid) for gpu in gpus),
        engines=(EngineProcess(pid=812, port=8000, children=(830,), **process),),
    )
    return make.found(make.judge(CHECK, make.deployment(host=host)))


EVERYWHERE = {"cpus_allowed": "0-63", "memory_nodes_allowed": "0-1", "memory_policy": "default"}


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ({}, {"numa": "ok"}),
        ({"cpus_allowed": "0-31"}, {"numa.processors": "warning"}),
        ({"cpus_allowed": "40-50"}, {"numa": "ok"}),
        ({"memory_policy": "bind:0"}, {"numa.memory": "warning"}),
        ({"memory_policy": "prefer:0"}, {"numa.memory": "warning"}),
        ({"memory_policy": "bind=static:0-1"}, {"numa": "ok"}),
        ({"memory_policy": "interleave:0-1"}, {"numa": "ok"}),
        ({"memory_nodes_allowed": "0"}, {"numa.memory": "warning"}),
        ({"memory_policy": None}, {"numa": "ok"}),
        ({"cpus_allowed": None, "memory_nodes_allowed": None, "memory_policy": None}, {}),
    ],
)
def test_bound(make, bound, expected):
    assert found(make, **{**EVERYWHERE, **bound}) == expected


def test_gpus_on_both_nodes_and_an_engine_on_one(make):
    assert found(make, (0, 1), **{**EVERYWHERE, "cpus_allowed": "0-31"}) == {"numa.processors": "warning"}


def test_a_node_without_processors_is_none_to_run_on(make):
    assert found(make, (2,), GRACE, **EVERYWHERE | {"memory_nodes_allowed": "0-2"}) == {"numa": "ok"}


@pytest.mark.parametrize("gpu_nodes", [(), (None, 1), (None,)])
def test_gpus_whose_node_is_not_known_say_nothing(make, gpu_nodes):
    assert found(make, gpu_nodes, **{**EVERYWHERE, "cpus_allowed": "0-31"}) == {}


def test_one_node_says_nothing(make):
    assert found(make, (0,), TWO[:1], cpus_allowed="0", memory_nodes_allowed="0") == {}
