"""Which GPUs carry the model, for checks that only want to know that."""

import pytest

from bringup.values.account import Account, GpuAccount, Role
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineSpec, EngineStatus, ServedModel
from bringup.values.host import EngineProcess, Gpu, GpuProcess, HostSnapshot

CARDS = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(4))


def deployment(*, holder=None, carrying=None, ranks=None):
    held = tuple(GpuProcess(pid=holder, gpu_uuid=card.uuid) for card in CARDS[:2]) if holder else ()
    process = EngineProcess(pid=812, port=8000, children=(830,))
    roles = None if carrying is None else [Role.MODEL if one in carrying else Role.IDLE for one in range(4)]
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        host=HostSnapshot(taken_at=0.0, host="box", gpus=CARDS, processes=held, engines=(process,)),
        spec=EngineSpec(engine="vllm", tensor_parallel_size=ranks),
        account=roles
        and Account(
            gpus=tuple(GpuAccount(gpu=card, role=role) for card, role in zip(CARDS, roles, strict=True))
        ),
    )


@pytest.mark.parametrize(
    ("seen", "indices"),
    [
        ({"holder": 830}, [0, 1]),  # a child of the listener
        ({"holder": 99}, []),  # somebody else
        ({}, []),
        ({"carrying": (1, 2, 3)}, [1, 2, 3]),  # the account knows where the driver says nothing
        ({"holder": 812, "carrying": ()}, [0, 1]),
    ],
)
def test_carriers(seen, indices):
    assert [gpu.index for gpu in deployment(**seen).carriers] == indices


def test_ranks_are_what_is_wanted_or_what_is_held():
    assert deployment(ranks=4).ranks == 4
    assert deployment(holder=812, ranks=1).ranks == 2
    assert deployment().ranks == 0
