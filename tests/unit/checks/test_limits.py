"""Limits that are near, and those that do not matter to this engine."""

import pytest

from bringup.checks.limits import CHECK
from bringup.units import GIB, mib
from bringup.values.engine import EngineStatus
from bringup.values.host import ControlGroupUse, EngineProcess, HostSnapshot


def found(make, *, running=None, argv=(), files=None, limits=None, **process):
    engine = EngineProcess(pid=812, port=8000, argv=argv, open_files=files, limits=limits or {}, **process)
    host = HostSnapshot(taken_at=0.0, host="box", engines=(engine,))
    under_test = make.deployment(host=host)
    status = EngineStatus(engine="vllm", max_running=running)
    return make.found(
        make.judge(
            CHECK, type(under_test)(url=under_test.url, engine=status, model=under_test.model, host=host)
        )
    )


@pytest.mark.parametrize(
    ("files", "limit", "running", "expected"),
    [
        (80, "65535", 256, {"limits": "ok"}),
        (80, "1024", 256, {"limits": "ok"}),
        (80, "1024", 1024, {"limits.open_files": "warning"}),
        (1000, "1024", None, {"limits.open_files": "warning"}),
        (80, "unlimited", 1024, {"limits": "ok"}),
        (None, "1024", 1024, {}),
    ],
)
def test_open_files_against_the_requests_that_may_come(make, files, limit, running, expected):
    assert found(make, files=files, limits={"open files": limit}, running=running) == expected


@pytest.mark.parametrize(("tasks", "fires"), [(500, True), (100, False), (None, False)])
def test_threads(make, tasks, fires):
    group = ControlGroupUse(task_limit=512, tasks=tasks)
    assert ("limits.threads" in found(make, group=group)) is fires


@pytest.mark.parametrize(
    ("argv", "limit", "locked", "fires"),
    [
        (("llama-server", "--mlock"), "8388608", mib(4), True),
        (("llama-server",), "8388608", 0, False),
        (("llama-server", "--mlock"), "unlimited", 8 * GIB, False),
        (("llama-server", "--mlock"), "8388608", 8 * GIB, False),  # root is not bound by it
    ],
)
def test_locked_memory_counts_when_it_was_asked_for(make, argv, limit, locked, fires):
    ids = found(make, argv=argv, limits={"locked memory": limit}, locked=locked, resident=8 * GIB)
    assert ("limits.locked_memory" in ids) is fires


@pytest.mark.parametrize(("limit", "fires"), [("262144", True), ("8388608", False), ("unlimited", False)])
def test_stack(make, limit, fires):
    assert ("limits.stack" in found(make, limits={"stack size": limit})) is fires


def test_without_a_process_nothing_is_said(make):
    host = HostSnapshot(taken_at=0.0, host="box")
    assert make.found(make.judge(CHECK, make.deployment(host=host))) == {}
