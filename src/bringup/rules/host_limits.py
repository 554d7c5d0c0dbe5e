"""Limits of the host: open files, locked memory, and how long a wrapper waits.

Seen in: errno 24 as CPython, ZeroMQ and libuv print it; Ollama `llm/server.go`,
vLLM 0.8 to 0.32 `v1/engine/core.py` (5-minute handshake), SGLang `bench_serving.py`, kubelet's probes.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_LIMIT = re.compile(r"[Uu]limit(?: -n)?\D{0,24}(?P<limit>\d{3,7})|nofile\D{0,12}(?P<other>\d{3,7})")
_ENOUGH_FILES = "1048576"  # files; what the kernel lets a process have at most by default
_COMPARE_OLLAMA = re.compile(r"llama runner|ollama", re.IGNORECASE)
_VLLM_HANDSHAKE = re.compile(
    r"front-end process|waiting for engine|RPC[Ss]erver|engine process failed to start"
)


def _files(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    told = case.first(_LIMIT)
    process = case.host.engines[0].limits.get("open files") if case.host and case.host.engines else None
    old = process or ((told[1]["limit"] or told[1]["other"]) if told else "1024")
    return (
        Fix(
            type="file",
            name="systemd LimitNOFILE",
            old=old,
            new=_ENOUGH_FILES,
            cost="a line under [Service]",
        ),
        Fix(
            type="flag", name="ulimit -n", old=old, new="65536", kind="workaround", cost="of this shell only"
        ),
        Fix(type="flag", name="docker --ulimit nofile", old=old, new="1048576:1048576"),
    )


def _longer(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    text = found.string
    groups = found.groupdict()
    if _COMPARE_OLLAMA.search(text) or case.engine == "ollama":
        return (
            Fix(
                type="env", name="OLLAMA_LOAD_TIMEOUT", old="5m", new="30m", cost="a real stall is seen later"
            ),
            Fix(type="file", name="storage", old="slow disk", new="local NVMe"),
        )
    if "robe failed" in text:
        return (
            Fix(
                type="file",
                name="startupProbe failureThreshold",
                new="load time / periodSeconds, doubled: 180 at 10 s",
                old=groups.get("limit"),
                cost="a real stall is seen later",
            ),
        )
    if _VLLM_HANDSHAKE.search(text):
        return (
            Fix(
                type="env",
                name="VLLM_ENGINE_READY_TIMEOUT_S",
                old="600",
                new="3600",
                cost="a real stall is seen later",
            ),
            Fix(
                type="env",
                name="VLLM_RPC_TIMEOUT",
                old="10000",
                new="600000",
                kind="workaround",
                cost="older versions",
            ),
            Fix(
                type="file",
                name="storage",
                old="network",
                new="local NVMe, or page cache warm before the start",
            ),
        )
    return (
        Fix(
            type="flag",
            name="--timeout",
            old=groups.get("limit"),
            new="3600",
            cost="a real stall is seen later",
        ),
        Fix(type="file", name="storage", old="network", new="local NVMe"),
    )


SIGNS = (
    Sign(  # vLLM's early warning quotes the error: "This can cause fd limit errors like ..."
        kind="host.fd_limit",
        pattern=re.compile(
            r"^(?!.*This can cause).*?(?:Too many open files|\[?Errno 24\]|os error 24|EMFILE"
            r"|accept\(\) out of system resource|\[Errno 23\]|inotify (?:instance|watch) limit reached)",
            re.IGNORECASE,
        ),
        sure=0.94,
        summary="the process may not open more files or sockets",
        explanation="Each request takes sockets; the soft limit is often 1024. Some servers drop connections "
        "instead of saying so.",
        fixes=_files,
        next_measurement="grep 'open files' /proc/PID/limits; ls /proc/PID/fd | wc -l",
    ),
    Sign(
        kind="host.process_limit",
        pattern=re.compile(
            r"can't start new thread|pthread_create failed.*(?:Resource temporarily unavailable"
            r"|error code 11)"
            r"|[Tt]hread creation failed: Resource temporarily"
            r"|fork: (?:retry: )?Resource temporarily unavailable"
            r"|what\(\): +(?:thread: )?Resource temporarily unavailable"
            r"|^\W*(?:(?:BlockingIO|OS)Error: \[Errno 11\] )Resource temporarily unavailable"
            r"|pids\.max.*(?:reached|exceeded)|cgroup: fork rejected by pids controller"
        ),
        sure=0.9,
        summary="the process may not start more threads or processes",
        explanation="Every rank starts one thread per core in several libraries; pids.max or "
        "`ulimit -u` is reached.",
        fixes=(
            Fix(type="flag", name="docker --pids-limit", new="-1", cost="none on a host of your own"),
            Fix(type="file", name="systemd TasksMax", new="infinity"),
            Fix(type="env", name="OMP_NUM_THREADS", new="4", kind="workaround", cost="slower CPU work"),
        ),
        next_measurement="cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current; ulimit -u",
    ),
    Sign(
        kind="host.memlock",
        pattern=re.compile(
            r"Call to ibv_\w+ failed with (?:error |\d+ )?Cannot allocate memory|ibv_(?:create"
            r"|reg)\w+.*ENOMEM"
            r"|failed to mlock (?P<size>\d+)-byte buffer"
        ),
        sure=0.9,
        summary="the process may not lock as much memory as it wants to",
        explanation="RDMA and `--mlock` need pinned memory; the default limit is 64 KiB to 8 MiB.",
        fixes=(
            Fix(type="file", name="systemd LimitMEMLOCK", old="8M", new="infinity", cost="none"),
            Fix(type="flag", name="docker --ulimit memlock", old="64k", new="-1:-1"),
        ),
        next_measurement="grep 'locked memory' /proc/PID/limits",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="host.load_timeout",
        pattern=re.compile(
            r"timed out waiting for llama runner to start(?: - progress (?P<progress>[\d.]+))?"
            r"|llama runner process no longer running.*timeout"
        ),
        sure=0.9,
        summary="Ollama gave up while the model loaded (progress {progress})",
        explanation="The time-out counts time without progress: a value that stands still is a stall or a "
        "very slow disk.",
        fixes=_longer,
        next_measurement="iostat -x 5 while it loads; the progress value: standing still or only slow",
    ),
    Sign(
        kind="host.load_timeout",
        pattern=re.compile(
            r"[Ss]tartup probe failed|[Ll]iveness probe failed|Container \S+ failed (?:startup"
            r"|liveness) probe, will be restarted"
        ),
        sure=0.6,
        summary="the cluster's probe ended the container before it had loaded",
        explanation="The engine itself names no error: its log ends while it loads.",
        fixes=_longer,
        next_measurement="kubectl describe pod; the engine's own time to load",
    ),
    Sign(
        kind="host.load_timeout",
        pattern=re.compile(
            r"Timed out waiting for engine(?:s| core proc\w*) to (?:start"
            r"|send initial message)(?:.*Waited (?P<limit>\d+) ?s)?"
        ),
        sure=0.85,
        summary="vLLM's front end gave up while its engines loaded (limit {limit} s)",
        explanation="Weights from slow storage take longer than the default 600 s. If a rank has an error of "
        "its own, that is "
        "the cause.",
        fixes=_longer,
        next_measurement="the engine's own loading speed (s/it of the shards); iostat -x 5 while it loads",
    ),
    Sign(
        kind="host.load_timeout",
        pattern=re.compile(
            r"Did not receive response from front-end process within (?P<limit>\d+)"
            r"|engine process failed to start|RPCServer (?:process )?.*(?:failed to start|did not start)"
        ),
        unless=re.compile(r"OutOfMemory|CUDA out of memory"),
        sure=0.55,
        summary="one process waited longer for another than it may while that one loaded",
        explanation="Several data-parallel ranks on one slow disk are a common reason; if one rank has an "
        "error of its own, "
        "that is the cause and this only its echo.",
        fixes=_longer,
        next_measurement="the earliest error of each rank; iostat -x 5 while it loads",
    ),
    Sign(
        kind="host.load_timeout",
        pattern=re.compile(
            r"did not become ready within (?P<wait>\d+)|(?:[Ss]erver|[Ee]ngine|[Mm]odel) (?:failed to start"
            r"|did not (?:start|become ready)|not ready) (?:with)?in (?:the )?"
            r"(?:timeout period|allocated time|(?P<limit>\d+) ?s)|[Tt]im(?:ed"
            r"|e) ?out (?:while )?waiting for (?:the )?(?:server|model|engine|"
            r"vllm|sglang)\b.*(?:start|load|ready|health)"
            r"|Initialization failed\. warmup error.*[Tt]imed? ?out"
        ),
        sure=0.6,
        summary="a wrapper gave up while the engine loaded",
        explanation="The engine itself names no error.",
        fixes=_longer,
        next_measurement="the engine's own log: where it stood, and its loading speed",
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="limits of the host: files and patience",
    literals=(
        "oo many open files",
        "Errno 24",
        "os error 24",
        "EMFILE",
        "out of system resource",
        "ulimit",
        "nofile",
        "Cannot allocate memory",
        "start new thread",
        "Resource temporarily",
        "pids.max",
        "pids controller",
        "too many open files",
        "Errno 23",
        "inotify ",
        "failed to mlock",
        "llama runner",
        "probe failed",
        "failed startup probe",
        "failed liveness probe",
        "front-end process",
        "failed to start",
        "RPCServer",
        "did not start",
        "did not become ready",
        "not ready",
        "imeout waiting for",
        "imed out waiting for",
        "imed out while waiting for",
        "warmup error",
    ),
    read=read_signs(SIGNS),
    meaning="The host refused something that the engine needs, or something around it did not wait long "
    "enough.",
    told_apart="Open files and patience each have a text of their own. A time-out is the cause only when no "
    "rank has an "
    "error before it; systemd's own time-out is `systemd.timeout`.",
    cure="LimitNOFILE, a time-out that fits the measured load time.",
    source="CPython errno texts; libzmq; ollama llm/server.go; "
    "vllm/v1/engine/core.py HANDSHAKE_TIMEOUT_MINS; kubelet prober",
)
