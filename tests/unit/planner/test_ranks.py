"""Which ranks are out of line with the others of their stage."""

import pytest

from bringup.planner.ranks import odd_ranks, ranks_of
from bringup.units import mib
from bringup.values.account import Account, GpuAccount, Holder, Role
from bringup.values.deployment import Deployment, Wanted
from bringup.values.engine import EngineSpec, EngineStatus, ServedModel
from bringup.values.host import Gpu


def deployment(*held_mib: int, size: int | None = 4, engine: str = "vllm", **more: object) -> Deployment:
    holder = Holder(pid=1, name="x", bytes=mib(9), is_engine=bool(more.pop("is_seen", False)))
    gpus = tuple(
        GpuAccount(gpu=Gpu(index=rank), role=Role.MODEL, rank=rank, engine_bytes=mib(held), holders=(holder,))
        for rank, held in enumerate(held_mib)
    )
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine=engine),
        model=ServedModel(id="m"),
        spec=EngineSpec(engine=engine, tensor_parallel_size=size),
        account=Account(gpus=gpus),
        **more,
    )


@pytest.mark.parametrize(
    ("held", "odd"),
    [
        ((9000, 9000, 9000, 9000), []),
        ((9000, 9100, 9190, 9000), []),
        ((9900, 9000, 9000, 9000), []),  # the first has contexts of other processes
        ((9000, 9000, 12_000, 9000), [(2, 3000)]),
        ((9000, 8000, 12_000, 9000), [(2, 3000), (1, -1000)]),
        ((10_300, 9000, 9000, 9000), [(0, 1300)]),
    ],
)
def test_odd_ranks(held, odd):
    found = odd_ranks(deployment(*held))
    assert [(one.one.rank, one.more) for one in found] == [(rank, mib(more)) for rank, more in odd]


def test_cards_that_nobody_says_belong_together_are_no_ranks():
    assert ranks_of(deployment(9000, 4000, size=None)) == []
    assert odd_ranks(deployment(9000, 4000, size=None)) == ()
    assert len(ranks_of(deployment(9000, 4000, size=None, is_seen=True))) == 2
    assert len(ranks_of(deployment(9000, 4000, size=None, wanted=Wanted(gpus=("0", "1"))))) == 2
    assert ranks_of(deployment(9000, 4000, engine="llama_cpp")) == []
