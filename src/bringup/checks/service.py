"""Whether what runs the engine keeps it running: its systemd unit, or its container's restart policy.

Source: systemd.service(5), systemd.unit(5), systemd.kill(5), loginctl(1), docker-run(1).
"""

import math
from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.proc import whole_number
from bringup.parse.systemd import read_time_span
from bringup.units import seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.host import ContainerSettings, EngineProcess, ServiceUnit

_MANY = 3  # restarts from which it is no accident
_SETTLED_S = 7 * 24 * 3600.0  # since the last one: whatever it was, it is over
_NEAR = 0.5  # share of the start limit that a start took; the next one may take twice as long
_SHORT_STOP_S = 10.0  # guess: answers that are being written take longer than that
_MICROSECOND = 1e-6
_EXPECTED = "started at boot, started again after a fault, with time enough to load and to end"
# Services in whose control group an engine can stand without being theirs.
_HOSTS_OTHERS = frozenset(
    f"{name}.service" for name in ("ssh", "sshd", "cron", "crond", "atd", "docker", "containerd", "slurmd")
)
_NOT_AT_BOOT = {
    "disabled": "is not enabled",
    "transient": "is transient (made by `systemd-run`)",
    "enabled-runtime": "is enabled only until the next boot",
    "masked": "is masked",
    "masked-runtime": "is masked",
}


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What will stop the service one day; that all is well, when a unit or container says so."""
    _ = replies
    process = deployment.process_after or deployment.process
    if process is None:
        return Judgement(findings=())
    is_settled = _has_run_for(deployment, process) >= _SETTLED_S
    unit = None if process.unit is None or process.unit.name in _HOSTS_OTHERS else process.unit
    if unit is not None:
        found = tuple(_unit(unit, is_settled=is_settled)) or (_sound(unit),) if unit.properties else ()
    elif process.container_settings is not None:
        found = tuple(_container(process.container_settings, is_settled=is_settled))
    else:
        found = tuple(_by_hand(process))
    return Judgement(findings=found)


def _has_run_for(deployment: Deployment, process: EngineProcess) -> float:
    """Seconds since the process began; 0 where it is not known."""
    host = deployment.host_after or deployment.host
    return host.taken_at - process.started_at if host is not None and process.started_at is not None else 0.0


def _sound(unit: ServiceUnit) -> Finding:
    summary = f"{unit.name} starts at boot and after a fault (Restart={unit.restart_policy})"
    return Finding(id="service", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _unit(unit: ServiceUnit, *, is_settled: bool) -> Iterator[Finding]:
    yield from _boot(unit)
    yield from _restart(unit)
    yield from _restarts(
        unit.name,
        unit.restarts,
        f"journalctl -u {unit.name}",
        _property(unit, "NRestarts"),
        is_settled=is_settled,
    )
    yield from _start_limit(unit)
    yield from _ending(unit)


def _boot(unit: ServiceUnit) -> Iterator[Finding]:
    words = _NOT_AT_BOOT.get(unit.enabled or "")
    manager = "systemctl --user" if unit.is_user_unit else "systemctl"
    if words is not None:
        yield Finding(
            id="service.boot",
            severity=Severity.WARNING,
            summary=f"{unit.name} {words}",
            expected=_EXPECTED,
            explanation="after a reboot of the host the model is not served",
            action=f"`{manager} enable {unit.name}`"
            if unit.enabled == "disabled"
            else "write a unit file for it and enable that",
            evidence=(_property(unit, "UnitFileState"),),
        )
    elif unit.is_user_unit and unit.lingers is False:
        yield Finding(
            id="service.boot",
            severity=Severity.WARNING,
            summary=f"{unit.name} is a user's unit and ends with the user's last session",
            expected=_EXPECTED,
            explanation="without lingering a user's systemd runs only while the user is logged in",
            action="`loginctl enable-linger` for that user, or make it a unit of the system",
            evidence=(Evidence(source="/var/lib/systemd/linger", text="the user is not there"),),
        )


def _restart(unit: ServiceUnit) -> Iterator[Finding]:
    if unit.restart_policy == "no":
        yield Finding(
            id="service.restart",
            severity=Severity.NOTE,
            summary=f"nothing starts {unit.name} again when the engine dies (Restart=no)",
            expected=_EXPECTED,
            explanation="an engine that died of one request stays down until somebody looks",
            action="set `Restart=on-failure` and `RestartSec=10`",
            evidence=(_property(unit, "Restart"),),
            fixes=(Fix(type="service", name="Restart", old="no", new="on-failure"),),
        )
        return
    pause = read_time_span(unit.properties.get("RestartUSec"))
    window = read_time_span(unit.properties.get("StartLimitIntervalUSec"))
    burst = whole_number(unit.properties.get("StartLimitBurst"))
    if unit.restart_policy is None or pause is None or not window or not burst or pause * burst >= window:
        return
    yield Finding(
        id="service.restart",
        severity=Severity.NOTE,
        summary=f"{burst} quick faults leave {unit.name} down: it tries again after {seconds_text(pause)}",
        expected=_EXPECTED,
        explanation=f"systemd gives up after {burst} starts in {seconds_text(window)}: a driver that is late "
        "at boot is enough",
        action="set `RestartSec=10`, or `StartLimitIntervalSec=0`",
        evidence=(
            Evidence(
                source="systemctl show",
                text=f"RestartUSec={unit.properties.get('RestartUSec')} StartLimitBurst={burst} "
                f"StartLimitIntervalUSec={unit.properties.get('StartLimitIntervalUSec')}",
            ),
        ),
        fixes=(Fix(type="service", name="RestartSec", old=unit.properties.get("RestartUSec"), new="10"),),
    )


def _restarts(
    name: str, count: int | None, where: str, evidence: Evidence, *, is_settled: bool
) -> Iterator[Finding]:
    if not count:
        return
    times = "once" if count == 1 else f"{count} times"
    yield Finding(
        id="service.restarts",
        severity=Severity.WARNING if count >= _MANY and not is_settled else Severity.NOTE,
        summary=f"{name} was started again {times} after it had ended",
        expected=_EXPECTED,
        explanation="each time every running request was lost and the model had to load",
        action=f"read why in `{where}`",
        evidence=(evidence,),
    )


def _start_limit(unit: ServiceUnit) -> Iterator[Finding]:
    """Only a unit that tells systemd when it is ready, or waits for it in ExecStartPost, can be too slow."""
    limit, took = unit.start_limit_s, _start_took(unit)
    waits = unit.properties.get("Type") in {"notify", "notify-reload", "forking"} or bool(
        unit.properties.get("ExecStartPost")
    )
    if not waits or limit is None or took is None or math.isinf(limit) or took < _NEAR * limit:
        return
    yield Finding(
        id="service.start_limit",
        severity=Severity.WARNING,
        summary=f"{unit.name} took {seconds_text(took)} to start; at {seconds_text(limit)} it is killed",
        expected=_EXPECTED,
        explanation="with cold disks or without compiled kernels loading takes several times as long",
        action="set `TimeoutStartSec=infinity`",
        evidence=(_property(unit, "TimeoutStartUSec"),),
        fixes=(
            Fix(
                type="service",
                name="TimeoutStartSec",
                old=unit.properties.get("TimeoutStartUSec"),
                new="infinity",
            ),
        ),
    )


def _start_took(unit: ServiceUnit) -> float | None:
    started = whole_number(unit.properties.get("ExecMainStartTimestampMonotonic"))
    active = whole_number(unit.properties.get("ActiveEnterTimestampMonotonic"))
    if not started or not active or active < started:
        return None
    return (active - started) * _MICROSECOND


def _ending(unit: ServiceUnit) -> Iterator[Finding]:
    mode = unit.properties.get("KillMode")
    if mode in {"process", "none"}:
        yield Finding(
            id="service.kill_mode",
            severity=Severity.WARNING,
            summary=f"stopping {unit.name} leaves the engine's other processes alive (KillMode={mode})",
            expected=_EXPECTED,
            explanation="workers that stay hold the GPUs' memory, and the next start finds no room",
            action="remove `KillMode=`, or set `KillMode=mixed`",
            evidence=(_property(unit, "KillMode"),),
            fixes=(Fix(type="service", name="KillMode", old=mode, new="mixed"),),
        )
    limit = unit.stop_limit_s
    if limit is not None and 0 < limit < _SHORT_STOP_S:
        yield Finding(
            id="service.stop_limit",
            severity=Severity.NOTE,
            summary=f"{unit.name} is killed {seconds_text(limit)} after it was told to stop",
            expected=_EXPECTED,
            explanation="answers that are being written are cut off",
            action="set `TimeoutStopSec=60`",
            evidence=(_property(unit, "TimeoutStopUSec"),),
        )


def _container(settings: ContainerSettings, *, is_settled: bool) -> Iterator[Finding]:
    name = settings.name or "the container"
    source = f"{settings.tool} inspect"
    # What is removed at its end has something else that starts it, a unit or a person.
    if settings.restart_policy == "no" and not settings.is_removed_at_end:
        yield Finding(
            id="service.restart",
            severity=Severity.NOTE,
            summary=f"nothing starts {name} again after a fault or a reboot",
            expected=_EXPECTED,
            explanation="an engine that died of one request stays down until somebody looks",
            action=f"`{settings.tool} update --restart unless-stopped {settings.name or 'NAME'}`",
            evidence=(Evidence(source=source, text="RestartPolicy: no"),),
        )
    logs = f"{settings.tool} logs {settings.name or 'NAME'}"
    evidence = Evidence(source=source, text=f"RestartCount: {settings.restarts}")
    yield from _restarts(name, settings.restarts, logs, evidence, is_settled=is_settled)


def _by_hand(process: EngineProcess) -> Iterator[Finding]:
    """An engine in a login session. Other places of a process say nothing of who starts it."""
    parts = (process.cgroup or "").split("/")
    session = next((part for part in parts if part.startswith("session-") and part.endswith(".scope")), None)
    if session is None:
        return
    yield Finding(
        id="service.boot",
        severity=Severity.NOTE,
        summary="the engine was started by hand in a login session",
        expected=_EXPECTED,
        explanation="after a fault or a reboot the model is not served; logging out may end it",
        action="run it as a systemd unit or a container with a restart policy",
        evidence=(Evidence(source=f"control group of process {process.pid}", text=process.cgroup or ""),),
    )


def _property(unit: ServiceUnit, name: str) -> Evidence:
    return Evidence(source=f"systemctl show {unit.name}", text=f"{name}={unit.properties.get(name, '')}")


CHECK = Check(
    title="is kept running",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
