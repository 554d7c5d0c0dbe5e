"""The account of a host's memory: it adds up, and says what is beyond the rules."""

import pytest

from bringup.planner.host_account import host_account, is_on_processor
from bringup.units import GIB, mib
from bringup.values.engine import EngineSpec, EngineStatus
from bringup.values.host import ControlGroupUse, EngineProcess, Gpu, HostFacts, HostSnapshot
from bringup.values.plan import HostPlan, LedgerLine, Origin

NO_GPU = "no NVIDIA GPU on this host"


def line(name: str, size: int, low: int | None = None, high: int | None = None) -> LedgerLine:
    return LedgerLine(
        name=name,
        bytes=mib(size),
        low=mib(size if low is None else low),
        high=mib(size if high is None else high),
        origin=Origin.RULE,
        formula=f"{size} MiB",
    )


PLAN = HostPlan(ledger=(line("weights", 100), line("kv_pool", 200), line("program", 50, 30, 80)))


def host(total: int = 16 * GIB, available: int | None = 10 * GIB, **more: object) -> HostSnapshot:
    facts = HostFacts(memory_total=total, memory_available=available, memory_limit=more.pop("limit", None))
    return HostSnapshot(taken_at=0.0, host="h", facts=facts, **{"gpu_state": NO_GPU, **more})


def account(
    resident: int | None, plan: HostPlan | None = PLAN, seen: HostSnapshot | None = None, **more: object
):
    size = None if resident is None else mib(resident)
    return host_account(seen or host(), EngineProcess(pid=1, resident=size, **more), plan)


def parts(found) -> dict[str, int]:
    return {one.name: one.bytes for one in found.lines}


@pytest.mark.parametrize("resident", [10, 290, 330, 350, 380, 381, 900, 15_000])
@pytest.mark.parametrize("plan", [PLAN, None])
def test_every_byte_is_in_one_line(resident, plan):
    found = account(resident, plan)
    assert sum(parts(found).values()) == found.memory_total == 16 * GIB
    assert all(size >= 0 for size in parts(found).values())


def test_what_is_left_of_the_sum_is_the_program():
    found = account(345)
    assert parts(found)["program"] == mib(45)
    assert found.unexplained == 0
    assert found.left == 10 * GIB


@pytest.mark.parametrize(("resident", "beyond"), [(330, 0), (380, 0), (480, 100), (250, -80)])
def test_what_is_beyond_the_rules(resident, beyond):
    assert account(resident).unexplained == mib(beyond)


def test_a_line_that_is_only_bounded_gives_way_to_the_program():
    plan = HostPlan(ledger=(*PLAN.ledger[:2], line("prompt_cache", 90, 0, 180), PLAN.ledger[2]))
    found = account(340, plan)
    assert parts(found)["prompt_cache"] == mib(10)
    assert parts(found)["program"] == mib(30)
    assert found.unexplained == 0


def test_a_control_group_is_what_can_be_had():
    group = ControlGroupUse(memory_limit=GIB, memory_used=mib(400))
    found = account(345, group=group)
    assert found.is_limited
    assert found.memory_total == GIB
    assert parts(found)["other_programs"] == mib(55)
    assert found.left == GIB - mib(400)


def test_a_limit_above_the_host_is_none():
    found = account(345, group=ControlGroupUse(memory_limit=64 * GIB, memory_used=0))
    assert not found.is_limited
    assert found.memory_total == 16 * GIB


@pytest.mark.parametrize(("resident", "seen"), [(None, None), (345, host(available=None)), (17 * 1024, None)])
def test_unknown_stays_unknown(resident, seen):
    assert account(resident, seen=seen) is None


def on(seen: HostSnapshot, engine: str = "vllm", *, told=None, flags=None, devices=()) -> bool:
    spec = EngineSpec(engine=engine, flags=flags) if flags is not None else None
    return is_on_processor(
        seen, EngineProcess(pid=1, gpu_devices=devices), EngineStatus(engine=engine, flags=told or {}), spec
    )


def test_who_carries_the_model():
    with_gpu = host(gpus=(Gpu(index=0),), gpu_state=None)
    assert on(host())
    assert not on(with_gpu)
    assert not on(host(gpu_state="nvidia-smi: no answer within 10 s"))  # whether there is one is not known
    assert not on(host(), devices=("/dev/nvidia0",))
    assert on(with_gpu, "sglang", told={"device": "cpu"})
    assert on(with_gpu, "llama_cpp", flags={"--n-gpu-layers": "0"})
    assert not on(with_gpu, "llama_cpp", flags={"--n-gpu-layers": "0"}, devices=("/dev/nvidia0",))
    assert not on(with_gpu, "llama_cpp", flags={"--n-gpu-layers": "99"})
