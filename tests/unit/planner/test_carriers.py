"""Which GPUs carry the model, where the driver names no process of the engine."""

import pytest

from bringup.planner.carriers import find_carriers
from bringup.units import mib
from bringup.values.engine import EngineSpec
from bringup.values.host import Gpu, HostSnapshot


def box(*used_mib: int) -> HostSnapshot:
    cards = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", memory_total=mib(97_887), memory_used=mib(used))
        for index, used in enumerate(used_mib)
    )
    return HostSnapshot(taken_at=0.0, host="box", gpus=cards)


HALF = box(90_000, 90_000, 3, 3)


@pytest.mark.parametrize(
    ("host", "environment", "wanted", "count", "indices"),
    [
        (HALF, {}, (), None, [0, 1]),  # nothing says how many
        (HALF, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, (), None, [0, 1]),  # it may use all, and does not
        (HALF, {"CUDA_VISIBLE_DEVICES": "1,0,2"}, (), None, [1, 0]),
        (HALF, {"CUDA_VISIBLE_DEVICES": "2,3"}, (), None, [0, 1]),  # another engine's, or not what it says
        (box(3, 3, 3, 3), {}, (), None, []),
        (HALF, {}, (), 4, [0, 1, 2, 3]),  # the layout means them: that two are empty is the finding
        (HALF, {}, ("0", "1", "2"), None, [0, 1, 2]),
        (HALF, {}, (), 2, [0, 1]),
        (box(3, 90_000, 3, 90_000), {}, (), 2, [1, 3]),
    ],
)
def test_an_empty_card_carries_nothing_unless_it_is_meant_to(host, environment, wanted, count, indices):
    spec = EngineSpec(engine="vllm", environment=environment)
    carriers = find_carriers(host, None, spec, wanted=wanted, count=count)
    assert [gpu.index for gpu in carriers.gpus] == indices
    assert not carriers.is_seen
