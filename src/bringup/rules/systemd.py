"""The unit that runs the engine: its time limit, its environment, its sandbox.

Seen in: systemd 249 to 257 `src/core/service.c` ("start operation timed out. Terminating."),
`src/core/exec-invoke.c` (exit states 200 to 243), llama.cpp `common/` ("Failed to determine HF cache
directory"), CPython `pwd`, `pathlib`.
"""

import re

from bringup.parse.case_facts import seconds_between
from bringup.rules import Match, Rule, Sign, match_of
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.host import ServiceUnit

_TIMEOUT = re.compile(
    r"start(?:-pre|-post)? operation timed out\. Terminating|Failed with result 'timeout'|Start(?:-pre"
    r"|-post)?-?limit.*timed out"
    r"|State 'start(?:-pre|-post)?' timed out|Job \S+/start timed out|start request timed out"
    r"|Unit \S+ start operation timed out"
)
_STOPPING = re.compile(r"State 'stop-\w+' timed out|stop operation timed out")
_STARTING = re.compile(r"(?P<unit>[\w@.-]+\.service)")
_MINUTE = 60
_MARGIN = 3  # a cold page cache, and a larger model next time: three times what was seen


def _fix(type_: str, name: str, new: str, *, old: str | None = None, cost: str = "") -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind="cure", cost=cost)


def _unit(case: Case) -> ServiceUnit | None:
    engines = case.host.engines if case.host else ()
    return next((engine.unit for engine in engines if engine.unit), None)


def _load_seconds(case: Case) -> float | None:
    """How long the start took, or had taken when it was ended."""
    told = [phase.seconds for phase in case.facts.phases if phase.seconds] if case.facts else []
    return sum(told) if told else seconds_between(case)


def _timeout(case: Case) -> tuple[Match, ...]:
    lines = [line for line, _ in case.matches(_TIMEOUT)]
    if not lines or (case.first(_STOPPING) and not any("start" in line.text for line in lines)):
        return ()
    unit = _unit(case)
    seen = _load_seconds(case)
    name = _STARTING.search(lines[0].text)
    at_least = int(seen * _MARGIN / _MINUTE + 1) * _MINUTE if seen and seen > 0 else None
    old = f"{unit.start_limit_s:.0f}s" if unit and unit.start_limit_s else "90s (systemd's default)"
    took = f" after {seen:.0f} s" if seen else ""
    return (
        Match(
            kind="systemd.timeout",
            sure=0.95,
            lines=tuple(lines[:4]),
            summary=f"systemd ended {name['unit'] if name else 'the unit'}{took} because it had not come up "
            f"in time",
            explanation="The engine was still loading: its log names no error. `Start request repeated too "
            "quickly` and exit "
            "-15 of workers only follow.",
            fixes=(
                _fix("file", "TimeoutStartSec", "infinity", old=old, cost="with a readiness probe beside it"),
                *((_fix("file", "TimeoutStartSec", f"{at_least}s", old=old),) if at_least else ()),
            ),
            next_measurement="systemctl show UNIT -p TimeoutStartUSec -p Type; journalctl -u UNIT -b | head",
        ),
    )


_HOME = (
    _fix("env", "HF_HUB_CACHE", "/var/lib/llama/hf", cost="owned by the unit's user"),
    _fix("env", "HOME", "/var/lib/llama", cost="or the user's own home: Environment=HOME=... in the unit"),
    _fix("env", "HF_HOME", "a folder that the unit's user may write"),
)
SIGNS = (
    Sign(
        kind="systemd.env",
        pattern=re.compile(
            r"Failed to determine HF cache directory|Could not determine home directory"
            r"|HOME (?:environment variable )?(?:is )?not (?:set|defined)"
            r"|getpwuid\(\): uid not found|\$HOME is not defined"
        ),
        sure=0.93,
        summary="the process has no home: its environment lacks HOME",
        explanation="It works from a shell. Units and containers with a bare user start without HOME, PATH "
        "and caches.",
        fixes=_HOME,
        next_measurement="systemctl show UNIT -p Environment -p User -p DynamicUser; systemctl cat UNIT",
    ),
    Sign(
        kind="systemd.env",
        pattern=re.compile(
            r"(?:PermissionError|Permission denied|Read-only file system)\b.*(?:'|\s)(?P<path>(?:/root"
            r"|/home/\S+?|/nonexistent)?/\.(?:cache|config|local|triton|vllm)\S*"
            r"|/[^'\s]*/(?:vllm|flashinfer|huggingface|torch|triton|outlines|modelscope)\S*)"
            r"|There was a problem when trying to write in your cache folder"
        ),
        sure=0.85,
        summary="the process may not write its cache ({path})",
        explanation="ProtectHome, ProtectSystem or DynamicUser of the unit, or another user's folder.",
        fixes=(*_HOME, _fix("file", "ReadWritePaths", "the cache folder, in the unit")),
        next_measurement="systemctl show UNIT -p User -p ProtectHome -p ProtectSystem -p ReadWritePaths",
    ),
    Sign(
        kind="systemd.env",
        pattern=re.compile(
            r"(?i:(?:could not|couldn't|unable to|failed to|cannot|can't) (?:create|make|write)"
            r"|\bmkdir:? |\bmakedirs|\bopen) ?[^\n]*?[`'\"\s](?P<path>/(?!dev/|proc/|sys/)[^\s'\"`:]+)[^\n]*"
            r"(?i:permission denied|read-only file system|EACCES|EROFS)"
        ),
        unless=re.compile(r"OCI runtime|nvidia-container-cli|overlayfs"),
        sure=0.8,
        summary="the service may not create or write {path}",
        explanation="The user that it runs as does not own the folder, or the sandbox of the unit hides it.",
        fixes=(
            _fix("file", "owner of the folder", "the user that the service runs as (chown -R)"),
            _fix("file", "ReadWritePaths", "the folder, in the unit"),
            *_HOME[1:],
        ),
        next_measurement="systemctl show UNIT -p User -p DynamicUser -p ReadWritePaths; namei -l PATH",
    ),
    Sign(
        kind="systemd.env",
        pattern=re.compile(
            r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>(?!/dev/|/proc/|/sys/)[^']+)'"
        ),
        needs=re.compile(r"\bmkdir\(|\bmakedirs\b|in mkdir\b"),
        sure=0.8,
        summary="the process may not create {path}",
        explanation="The user that it runs as does not own the folder above it, or a sandbox hides it.",
        fixes=(_fix("file", "owner of the folder", "the user that the service runs as"), *_HOME),
        next_measurement="systemctl show UNIT -p User -p ReadWritePaths; namei -l PATH",
    ),
    Sign(
        kind="systemd.env",
        pattern=re.compile(
            r"status=(?P<state>2[0-4]\d/[A-Z_]+)|Failed at step (?P<step>[A-Z_]+) spawning"
            r"|(?:Failed|Unable) to locate executable|Changing to the requested working directory failed"
            r"|Failed to (?:determine (?:user|group) credentials|load environment files"
            r"|set up mount namespacing"
            r"|set up credentials)|Neither a valid executable name nor an absolute path"
            r"|has a bad unit file setting"
            r"|Unit configuration has fatal error|Service has no ExecStart="
        ),
        sure=0.92,
        summary="systemd could not start the command at all ({state})",
        explanation="203/EXEC: the path in ExecStart is wrong or not executable. 200/CHDIR: "
        "WorkingDirectory. 217/USER: the user. "
        "226/NAMESPACE: a path of the sandbox does not exist.",
        fixes=(
            _fix("file", "ExecStart, WorkingDirectory, User of the unit", "paths and names that exist"),
            _fix("env", "PATH", "the virtual environment's bin folder first"),
        ),
        next_measurement="systemd-analyze verify UNIT; systemctl cat UNIT",
    ),
    Sign(
        kind="systemd.env",
        pattern=re.compile(r"MemoryDenyWriteExecute|PrivateDevices=(?:yes|true)|DevicePolicy=closed"),
        sure=0.6,
        summary="the unit's sandbox hides devices or forbids generated code",
        explanation="PrivateDevices hides /dev/nvidia*; MemoryDenyWriteExecute stops every JIT compiler.",
        fixes=(
            _fix("file", "PrivateDevices", "no", old="yes"),
            _fix("file", "MemoryDenyWriteExecute", "no", old="yes"),
        ),
        next_measurement="systemd-analyze security UNIT; systemctl cat UNIT",
    ),
    Sign(
        kind="systemd.order",
        pattern=re.compile(
            r"nvidia: loading out-of-tree module|NVRM: loading NVIDIA UNIX|nvidia-persistenced.*Started"
        ),
        needs=re.compile(
            r"no compatible GPUs|No CUDA GPUs|no CUDA-capable|couldn't communicate with the NVIDIA driver"
        ),
        sure=0.5,
        summary="the service and the NVIDIA modules start in the same boot: it may have been first",
        fixes=(
            _fix(
                "file",
                "After",
                "nvidia-persistenced.service, in the unit; ExecStartPre=/usr/bin/nvidia-smi -L",
            ),
        ),
        next_measurement="journalctl -b -o short-monotonic | grep -E 'nvidia|Started'",
    ),
)


def _order(case: Case) -> tuple[Match, ...]:
    """The driver came up after the engine had looked for it."""
    sign = SIGNS[-1]
    if sign.needs is None:
        return ()
    missed, loaded = case.first(sign.needs), case.first(sign.pattern)
    if not missed or not loaded or missed[0].number > loaded[0].number:
        return ()
    return (
        Match(
            kind="systemd.order",
            sure=0.95,
            lines=(missed[0], loaded[0]),
            summary="the service looked for a GPU before the driver was loaded",
            fixes=(
                _fix(
                    "file",
                    "After",
                    "nvidia-persistenced.service, in the unit; ExecStartPre=/usr/bin/nvidia-smi -L",
                ),
                _fix("file", "ExecStartPre", "/usr/bin/nvidia-smi -L, with Restart=on-failure"),
            ),
            next_measurement="journalctl -b -o short-monotonic | grep -E 'nvidia|Started'",
        ),
    )


def read(case: Case) -> tuple[Match, ...]:
    """What the unit is to blame for."""
    order = _order(case)
    told = [match_of(sign, case) for sign in SIGNS if not (order and sign.kind == "systemd.order")]
    best: dict[str, Match] = {}
    for match in (*_timeout(case), *order, *(match for match in told if match)):
        if match.kind not in best or match.sure > best[match.kind].sure:
            best[match.kind] = match
    return tuple(best.values())


RULE = Rule(
    kinds=("systemd.timeout", "systemd.env", "systemd.order"),
    title="the systemd unit",
    literals=(
        "timed out",
        "result 'timeout'",
        "HF cache directory",
        "home directory",
        "HOME ",
        "getpwuid",
        "$HOME",
        "/.cache",
        "/.config",
        "/.local",
        "/.triton",
        "/.vllm",
        "Permission denied: '/",
        "cache folder",
        "ermission denied",
        "ead-only file system",
        "EACCES",
        "status=2",
        "Failed at step",
        "locate executable",
        "working directory failed",
        "Failed to determine ",
        "Failed to load environment files",
        "Failed to set up ",
        "Neither a valid executable",
        "bad unit file setting",
        "has fatal error, unit will not",
        "Service has no ExecStart=",
        "MemoryDenyWriteExecute",
        "PrivateDevices",
        "DevicePolicy",
        "nvidia: loading",
        "NVRM: loading",
        "nvidia-persistenced",
        "no compatible GPUs",
        "No CUDA GPUs",
        "no CUDA-capable",
        "couldn't communicate",
    ),
    read=read,
    meaning="systemd ended the start, or gave the process too little: no home, no path, no devices.",
    told_apart="systemd's own line says so; the engine's log just ends. A wrapper's time-out is "
    "`host.load_timeout`.",
    cure="TimeoutStartSec from the time the load really took, Environment= lines, a sandbox with devices, "
    "After= the driver.",
    source="systemd src/core/service.c, src/shared/exit-status.c; llama.cpp common/; systemd.exec(5), "
    "systemd.service(5)",
)
