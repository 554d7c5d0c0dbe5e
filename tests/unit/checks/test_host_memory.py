"""Host memory: what fires, and what stays silent because it does not touch the engine."""

from dataclasses import replace

import pytest

from bringup.checks.host_memory import CHECK
from bringup.units import GIB, mib
from bringup.values.host import ControlGroupUse, EngineProcess, HostFacts, HostSnapshot, KernelLine

KILLED = "Out of memory: Killed process {pid} ({name}) total-vm:9kB, anon-rss:8kB"
GROUP_KILLED = "Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:9kB"
WHOSE = "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg={group},task={name},pid={pid},uid=0"
DAY_S = 86_400.0


def host(available=120 * GIB, *, lines=(), taken_at=10 * DAY_S, swapped_in=None, **process):
    engine = EngineProcess(
        pid=812, port=8000, children=(830,), cgroup="/system.slice/vllm.service", **process
    )
    facts = HostFacts(memory_total=256 * GIB, memory_available=available, swapped_in=swapped_in)
    return HostSnapshot(
        taken_at=taken_at, host="box", facts=facts, engines=(engine,), kernel_lines=tuple(lines)
    )


def found(make, before, after=None):
    return make.found(make.judge(CHECK, make.deployment(host=before, host_after=after)))


def killed(text, at=9.9 * DAY_S, **words):
    return KernelLine(at=at, text=text.format(**words))


@pytest.mark.parametrize(
    ("available", "expected"),
    [(120 * GIB, {"host_memory": "ok"}), (2 * GIB, {"host_memory.available": "warning"}), (None, {})],
)
def test_what_is_available(make, available, expected):
    assert found(make, host(available)) == expected


def test_without_a_host_nothing_is_said(make):
    assert found(make, None) == {}


@pytest.mark.parametrize(
    ("swapped", "read_back", "fires"),
    [(3 * GIB, 0, True), (mib(10), 0, False), (0, GIB, True), (0, mib(4), False), (None, None, False)],
)
def test_swap_counts_when_it_is_the_engines_or_moves(make, swapped, read_back, fires):
    before = host(swapped=swapped, swapped_in=5 * GIB if read_back is not None else None)
    after = host(swapped=swapped, swapped_in=5 * GIB + read_back if read_back is not None else None)
    assert ("host_memory.swap" in found(make, before, after)) is fires


@pytest.mark.parametrize(
    ("limit", "used", "fires"),
    [
        (64 * GIB, 63.9 * GIB, True),
        (64 * GIB, 30 * GIB, False),
        (mib(700), mib(260), False),
        (mib(700), mib(690), True),
        (64 * GIB, None, False),
        (None, None, False),
    ],
)
def test_the_limit_of_a_control_group_counts_against_what_it_holds(make, limit, used, fires):
    group = ControlGroupUse(memory_limit=limit, memory_used=None if used is None else int(used))
    assert ("host_memory.limit" in found(make, host(group=group))) is fires


@pytest.mark.parametrize(
    ("lines", "fires"),
    [
        ([killed(KILLED, pid=830, name="python3")], True),  # a child
        ([killed(KILLED, pid=44, name="VLLM::Worker_TP")], True),  # a name that only an engine has
        ([killed(KILLED, pid=44, name="python3")], False),  # some program
        ([killed(KILLED, pid=44, name="postgres")], False),
        (
            [
                killed(WHOSE, group="/system.slice/vllm.service", name="python3", pid=44),
                killed(GROUP_KILLED, pid=44, name="python3"),
            ],
            True,
        ),
        (
            [
                killed(WHOSE, group="/system.slice/vllm.service-other", name="python3", pid=44),
                killed(GROUP_KILLED, pid=44, name="python3"),
            ],
            False,
        ),
    ],
)
def test_only_kills_of_the_engine_count(make, lines, fires):
    assert ("host_memory.oom_kill" in found(make, host(lines=lines))) is fires


def test_a_kill_of_last_week_is_a_note_and_says_whose_limit_it_was(make):
    old = killed(GROUP_KILLED, at=1.0 * DAY_S, pid=830, name="python3")
    judgement = make.judge(CHECK, make.deployment(host=host(lines=[old])))
    assert make.found(judgement) == {"host_memory.oom_kill": "note"}
    assert "control group was at its limit" in judgement.findings[0].summary
    assert "MemoryMax" in judgement.findings[0].action


def test_a_kill_before_this_start_is_only_another_process_of_the_name(make):
    line = killed(KILLED, at=9.9 * DAY_S, pid=44, name="VLLM::Worker_TP")
    seen = host(lines=[line])
    engine = replace(seen.engines[0], started_at=9.95 * DAY_S)
    judgement = make.judge(CHECK, make.deployment(host=replace(seen, engines=(engine,))))
    assert make.found(judgement) == {"host_memory.oom_kill": "note"}
    assert "another process of this engine's name" in judgement.findings[0].summary


def test_a_kill_in_another_control_group_is_another_process_too(make):
    lines = [
        killed(WHOSE, group="/system.slice/other.service", name="VLLM::Worker_TP", pid=44),
        killed(GROUP_KILLED, pid=44, name="VLLM::Worker_TP"),
    ]
    judgement = make.judge(CHECK, make.deployment(host=host(lines=lines)))
    assert make.found(judgement) == {"host_memory.oom_kill": "note"}
