"""What keeps the engine running, and what will stop it one day."""

import pytest

from bringup.checks.service import CHECK
from bringup.values.host import ContainerSettings, EngineProcess, HostSnapshot, ServiceUnit

SOUND = {
    "Type": "simple",
    "Restart": "on-failure",
    "RestartUSec": "10s",
    "StartLimitBurst": "5",
    "StartLimitIntervalUSec": "10s",
    "KillMode": "control-group",
}


def unit(properties=None, **fields):
    usual = {"enabled": "enabled", "restarts": 0, "restart_policy": "on-failure", "stop_limit_s": 90.0}
    return ServiceUnit(name="vllm.service", properties={**SOUND, **(properties or {})}, **{**usual, **fields})


def found(make, **process):
    host = HostSnapshot(taken_at=0.0, host="box", engines=(EngineProcess(pid=812, port=8000, **process),))
    return make.found(make.judge(CHECK, make.deployment(host=host)))


LOADED = {"ExecMainStartTimestampMonotonic": "100000000", "ActiveEnterTimestampMonotonic": "178000000"}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (unit(), {"service": "ok"}),
        (unit(enabled="disabled"), {"service.boot": "warning"}),
        (unit(enabled="transient"), {"service.boot": "warning"}),
        (unit(enabled="static"), {"service": "ok"}),  # something else may want it
        (unit(enabled=None), {"service": "ok"}),
        (unit(is_user_unit=True, lingers=False), {"service.boot": "warning"}),
        (unit(is_user_unit=True, lingers=True), {"service": "ok"}),
        (unit(is_user_unit=True, lingers=None), {"service": "ok"}),
        (unit(restart_policy="no"), {"service.restart": "note"}),
        (unit({"RestartUSec": "100ms"}), {"service.restart": "note"}),
        (unit({"RestartUSec": "100ms", "StartLimitIntervalUSec": "0"}), {"service": "ok"}),
        (unit(restarts=1), {"service.restarts": "note"}),
        (unit(restarts=7), {"service.restarts": "warning"}),
        (unit({"Type": "notify", **LOADED}, start_limit_s=90.0), {"service.start_limit": "warning"}),
        (
            unit({"ExecStartPost": "{ path=/w }", **LOADED}, start_limit_s=90.0),
            {"service.start_limit": "warning"},
        ),
        (unit(LOADED, start_limit_s=90.0), {"service": "ok"}),  # simple: nobody waits for it
        (unit({"Type": "notify", **LOADED}, start_limit_s=float("inf")), {"service": "ok"}),
        (unit({"Type": "notify", **LOADED}, start_limit_s=3600.0), {"service": "ok"}),
        (unit({"Type": "notify"}, start_limit_s=90.0), {"service": "ok"}),
        (unit({"KillMode": "process"}), {"service.kill_mode": "warning"}),
        (unit(stop_limit_s=5.0), {"service.stop_limit": "note"}),
        (unit(stop_limit_s=float("inf")), {"service": "ok"}),
    ],
)
def test_unit(make, one, expected):
    assert found(make, unit=one) == expected


def test_restarts_of_last_month_are_a_note(make):
    started_at = -8 * 24 * 3600.0
    assert found(make, unit=unit(restarts=7), started_at=started_at) == {"service.restarts": "note"}
    assert found(make, unit=unit(restarts=7), started_at=-60.0) == {"service.restarts": "warning"}


def test_the_unit_of_a_login_or_of_docker_is_not_the_engines(make):
    for name in ("ssh.service", "docker.service", "cron.service"):
        assert found(make, unit=ServiceUnit(name=name, properties=SOUND, enabled="disabled")) == {}


def test_a_unit_that_systemd_did_not_tell_of_is_not_judged(make):
    assert found(make, unit=ServiceUnit(name="vllm.service")) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ContainerSettings(tool="docker", name="vllm", restart_policy="no"), {"service.restart": "note"}),
        (ContainerSettings(tool="docker", restart_policy="no", is_removed_at_end=True), {}),
        (ContainerSettings(tool="docker", restart_policy="unless-stopped", restarts=0), {}),
        (
            ContainerSettings(tool="docker", restart_policy="always", restarts=9),
            {"service.restarts": "warning"},
        ),
    ],
)
def test_container(make, settings, expected):
    assert found(make, container="docker:3f2c", container_settings=settings) == expected


def test_a_container_that_a_unit_runs_is_that_units(make):
    settings = ContainerSettings(tool="docker", restart_policy="no")
    assert found(make, unit=unit(), container_settings=settings) == {"service": "ok"}


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("/user.slice/user-0.slice/session-3.scope", {"service.boot": "note"}),
        ("/user.slice/user-1000.slice/user@1000.service/tmux.scope", {}),
        ("/", {}),
        (None, {}),
    ],
)
def test_by_hand(make, cgroup, expected):
    assert found(make, cgroup=cgroup) == expected


def test_without_a_process_nothing_is_said(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {}
