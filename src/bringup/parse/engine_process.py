"""The table of processes to the engines in it: which process answers on which port."""

import itertools
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from bringup.parse.control_group import read_control_group
from bringup.parse.proc import ControlGroup, read_cgroup, read_limits, whole_number
from bringup.parse.process_table import OWN_SPACE, Details, Listener, Main, ProcessTable
from bringup.parse.process_use import read_container, read_room, read_seconds
from bringup.parse.redact import redact_argv, redact_environment
from bringup.parse.systemd import read_unit
from bringup.values.host import EngineProcess, ServiceUnit

_PROGRAMS = frozenset(
    (
        "aphrodite",
        "koboldcpp",
        "lmdeploy",
        "llamafile",
        "mlc_llm",
        "ollama",
        "sglang",
        "text-generation-launcher",
        "text-generation-router",
        "text-generation-server",
        "tritonserver",
        "trtllm-serve",
        "vllm",
    )
)
_MODULES = frozenset(
    (
        "aphrodite",
        "ktransformers",
        "llama_cpp",
        "lmdeploy",
        "mlc_llm",
        "sglang",
        "tensorrt_llm",
        "text_generation_server",
        "vllm",
        "xllamacpp",
    )
)
_STARTERS = ("python", "pypy", "uv", "bash", "sh", "tini", "dumb-init", "env", "numactl")
_PROXIES = frozenset(("docker-proxy", "rootlessport", "rootlessport-child", "slirp4netns", "pasta", "conmon"))
_CLIENTS = frozenset(("docker", "podman", "nerdctl", "systemd-nspawn"))
_USUAL_PORTS = (
    8000,
    30000,
    8080,
    11434,
    23333,
    3000,
)  # vLLM and TensorRT-LLM, SGLang, llama.cpp, Ollama, LMDeploy, TGI


def is_engine(argv: tuple[str, ...] | list[str]) -> bool:
    """True when a command line is a known engine's, also under its interpreter or with a process title.

    >>> is_engine(("/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "serve", "m"))
    True
    >>> is_engine(("python3", "-m", "sglang.launch_server", "--port", "30000"))
    True
    >>> is_engine(("nginx", "-c", "/etc/vllm/nginx.conf")), is_engine(("VLLM::EngineCore",))
    (False, True)
    >>> is_engine(("python3",)), is_engine(())
    (False, False)
    """
    if not argv:
        return False
    if _is_program(argv[0]) or argv[0].startswith(("VLLM::", "sglang::")):
        return True
    return PurePosixPath(argv[0]).name.startswith(_STARTERS) and _starts_engine(list(argv[1:9]))


def _starts_engine(words: list[str]) -> bool:
    """True when the first thing that an interpreter or a small init is told to run is an engine."""
    for word, following in itertools.pairwise([*words, ""]):
        if word == "-m":
            return following.partition(".")[0] in _MODULES
        if _is_program(word):
            return True
        # `bash -c "vllm serve .."` starts an engine and is none; any other script is someone else's.
        if word == "-c" or word.endswith(".py"):
            return False
    return False


def _is_program(word: str) -> bool:
    name = PurePosixPath(word).name.removesuffix(".py").removesuffix(".exe")
    return name in _PROGRAMS or name.startswith(("llama-server", "koboldcpp"))


@dataclass(slots=True, kw_only=True)
class _Search:
    """The table and what was found out on the way."""

    table: ProcessTable
    missing: list[str] = field(default_factory=list[str])

    def sockets(self, pid: int) -> list[Listener]:
        """Sockets that `pid` listens on."""
        held = (self.table.listeners.get(inode) for inode in self.table.holds.get(pid, ()))
        return [listener for listener in held if listener is not None]

    def argv(self, pid: int) -> list[str]:
        """Its command line; empty when not told."""
        found = self.table.details.get(pid)
        return found.argv if found else []

    def top(self, pids: list[int]) -> int:
        """Of several holders of one socket the one that the others descend from."""
        return min(pids, key=lambda pid: (len(self.table.ancestors(pid)), pid))


def read_engines(table: ProcessTable) -> tuple[tuple[EngineProcess, ...], tuple[str, ...]]:
    """The engine that was asked for, first, then the others on the host; and what could not be seen."""
    search = _Search(table=table)
    if table.no_proc is not None:
        return (), (f"the engine's process: no /proc on this host ({table.no_proc})",)
    search.missing += [f"the named container: {words}" for words in table.refused if table.container]
    wanted = _wanted(search)
    engines = [_engine(search, pid, socket, is_wanted=True) for pid, socket in wanted]
    taken = {pid for pid, _ in wanted}
    for pid in sorted(table.holds):
        if pid not in taken and is_engine(search.argv(pid)) and not _is_under(search, pid, taken):
            taken.add(pid)
            engines.append(_engine(search, pid, _usual_socket(search, pid)))
    if not engines and not search.missing and table.asker:
        search.missing.append(
            f"engines of other users: user id {table.asker} may not look into their sockets"
        )
    return tuple(engines), tuple(dict.fromkeys(search.missing))


def _is_under(search: _Search, pid: int, taken: set[int]) -> bool:
    """True for a worker of an engine that has its own row, or will have it: only the topmost one is told."""
    above = search.table.ancestors(pid)[1:]
    return any(other in taken or is_engine(search.argv(other)) for other in above)


def _wanted(search: _Search) -> list[tuple[int, Listener | None]]:
    """The process that was asked for, with the socket it answers on; several when the port is not unique."""
    named = [main for main in search.table.mains if not main.is_published]
    if search.table.unit and not any(main.kind == "unit" for main in named):
        search.missing.append(
            _without_process(search.table.unit, search.table.units.get(search.table.unit, {}))
        )
    if search.table.container and not any(main.kind != "unit" for main in named) and not search.table.refused:
        search.missing.append(
            f"the process of container {search.table.container}: no docker, podman or LXC names it"
        )
    by_name = [found for main in named if (found := _below(search, main)) is not None]
    by_port = _on_port(search)
    if any(socket is not None and socket.port == search.table.port for _, socket in by_name):
        return by_name
    # A unit that runs `docker run` has the client as its main process; the port's owner is the engine then.
    clients = [main for main in named if main.kind == "unit" and _program(search, main.pid) in _CLIENTS]
    if clients and by_port:
        return by_port
    if by_name and by_port:
        search.missing.append(
            f"what was named does not listen on port {search.table.port}: "
            f"process {by_name[0][0]} is named, process {by_port[0][0]} listens"
        )
    return [*by_name, *(found for found in by_port if found[0] not in {pid for pid, _ in by_name})]


def _program(search: _Search, pid: int) -> str:
    return PurePosixPath((search.argv(pid) or [""])[0]).name


def _without_process(unit: str, properties: dict[str, str]) -> str:
    state = properties.get("ActiveState")
    if state is None:
        return f"the process of unit {unit}: systemd does not answer"
    if properties.get("LoadState") == "not-found":
        return f"the process of unit {unit}: systemd knows no unit of that name"
    why = f" ({properties['Result']})" if properties.get("Result") not in {None, "", "success"} else ""
    restarts = (
        f", restarted {properties['NRestarts']} times" if properties.get("NRestarts", "0") != "0" else ""
    )
    return f"the process of unit {unit}: it has none, the unit is {state}{why}{restarts}"


def _below(search: _Search, main: Main) -> tuple[int, Listener | None] | None:
    """The process at or below `main` that listens on the wanted port, else the engine there, else itself."""
    family = search.table.family(main.pid)
    port = search.table.port
    for pid in family:
        for socket in search.sockets(pid):
            if socket.port == port:
                return pid, socket
    listening = [pid for pid in family if search.sockets(pid)]
    engines = [pid for pid in listening if is_engine(search.argv(pid))]
    if engines or listening:
        pid = search.top(engines or listening)
        return pid, _usual_socket(search, pid)
    return (main.pid, None) if main.pid in search.table.details else None


def _usual_socket(search: _Search, pid: int) -> Listener | None:
    """Of all sockets of an engine the one that answers requests: the port it was told, or a usual one."""
    sockets = search.sockets(pid)
    argv = search.argv(pid)
    told = [
        whole_number(value)
        for flag, value in itertools.pairwise(argv)
        if flag in {"--port", "-p", "--server-port", "--http-port"}
    ]
    told += [
        whole_number(word.partition("=")[2])
        for word in argv
        if word.startswith(("--port=", "--server-port="))
    ]
    for port in (*told, *_USUAL_PORTS):
        for socket in sockets:
            if socket.port == port:
                return socket
    return min(sockets, key=lambda socket: socket.port, default=None)


def _on_port(search: _Search) -> list[tuple[int, Listener | None]]:
    table = search.table
    if table.port is None:
        return []
    sockets = [socket for socket in table.listeners.values() if socket.port == table.port]
    own = [socket for socket in sockets if socket.space == OWN_SPACE]
    holders = [(pid, socket) for socket in own for pid in table.holds if socket.inode in table.holds[pid]]
    proxies = [pid for pid, _ in holders if _program(search, pid) in _PROXIES]
    real = [(pid, socket) for pid, socket in holders if pid not in proxies]
    if real:
        return _tops(search, real)
    published = _published(search, own)
    if published:
        return published
    if proxies:
        search.missing.append(_forwarded(search, proxies[0]))
        return []
    if own:
        search.missing.append(_hidden_owner(search, own[0]))
        return []
    return _in_other_spaces(search, [socket for socket in sockets if socket.space != OWN_SPACE])


def _tops(search: _Search, holders: list[tuple[int, Listener]]) -> list[tuple[int, Listener | None]]:
    """The topmost holder of each family: workers inherit the socket, strangers bind another address."""
    pids = {pid for pid, _ in holders}
    tops: dict[int, Listener | None] = {}
    for pid, socket in holders:
        if not pids & set(search.table.ancestors(pid)[1:]):
            tops.setdefault(pid, socket)
    if len(tops) > 1:
        told = ", ".join(f"process {pid} at {socket.address}" for pid, socket in tops.items() if socket)
        search.missing.append(f"which process answers on port {search.table.port}: {told} all listen there")
    return sorted(tops.items(), key=lambda found: (not is_engine(search.argv(found[0])), found[0]))


def _published(search: _Search, own: list[Listener]) -> list[tuple[int, Listener | None]]:
    """The engine in the container that the port is forwarded to, told with the port on the host."""
    found: list[tuple[int, Listener | None]] = []
    for main in search.table.mains:
        below = _below(search, main) if main.is_published else None
        if below is None:
            continue
        pid, inside = below
        outside = own[0] if own else inside
        if outside is not None and search.table.port is not None:
            outside = replace(outside, port=search.table.port)
        found.append((pid, outside))
    return found


def _in_other_spaces(search: _Search, sockets: list[Listener]) -> list[tuple[int, Listener | None]]:
    table = search.table
    found: list[tuple[int, Listener | None]] = []
    for socket in sockets:
        holders = [pid for pid in table.holds if socket.inode in table.holds[pid]]
        if holders:
            found.append((search.top(holders), socket))
    if len(found) > 1:
        pids = ", ".join(str(pid) for pid, _ in found)
        search.missing.append(
            f"which process answers on port {table.port}: {len(found)} containers have one (processes {pids})"
        )
    if not found:
        limits = (
            "" if table.asker == 0 else f"; user id {table.asker} may not look into other network namespaces"
        )
        search.missing.append(f"the process on port {table.port}: nothing listens there on this host{limits}")
    return found


def _hidden_owner(search: _Search, socket: Listener) -> str:
    table = search.table
    where = f"the process on port {table.port}: not visible, its socket belongs to user id {socket.uid}"
    if table.asker != 0:
        return f"{where} and user id {table.asker} may not look into it; ask as that user or as root"
    return f"{where} and no process that can be seen from here holds it (a container on the host's network?)"


def _forwarded(search: _Search, pid: int) -> str:
    argv = search.argv(pid)
    inside = dict(itertools.pairwise(argv))
    target = f"{inside.get('-container-ip', 'a container')}:{inside.get('-container-port', '?')}"
    return (
        f"the process on port {search.table.port}: not visible, process {pid} forwards the port to {target} "
        "and docker or podman do not say to whom; name the container or ask as root"
    )


def _engine(search: _Search, pid: int, socket: Listener | None, *, is_wanted: bool = False) -> EngineProcess:
    table = search.table
    details = table.details.get(pid, Details())
    group = read_cgroup("\n".join(details.cgroup))
    family = table.family(pid)
    uid = (details.status.get("Uid") or "").split("\t")[0] or None
    devices = {path for member in family for path in table.devices.get(member, ())}
    start = table.starts.get(pid)
    room = read_room(details.use.get("shm"))
    is_dated = start is not None and table.boot is not None and table.ticks
    for what in details.unreadable:
        search.missing.append(f"the {what} of process {pid}: user id {table.asker} may not read it")
    return EngineProcess(
        pid=pid,
        port=socket.port if socket else None,
        address=socket.address if socket else None,
        argv=redact_argv(tuple(details.argv)),
        environment=redact_environment(details.environment),
        executable=details.executable,
        user=details.login or uid,
        started_at=(table.boot or 0) + (start or 0) / (table.ticks or 1) if is_dated else None,
        cgroup=group.path if group else None,
        container=(group.container if group else None) or _main_container(search, pid),
        unit=_service(search, pid, group, is_wanted=is_wanted),
        children=tuple(family[1:]),
        gpu_devices=tuple(sorted(devices)),
        resident=_resident(search, family),
        swapped=_total(table.swap, family),
        locked=_total(table.locked, family),
        threads=_total(table.threads, family),
        name=details.status.get("Name") or None,
        cpus_allowed=details.status.get("Cpus_allowed_list") or None,
        memory_nodes_allowed=details.status.get("Mems_allowed_list") or None,
        memory_policy=details.use.get("policy") or None,
        open_files=whole_number(details.use.get("files")),
        main_thread_s=read_seconds(details.use.get("ticks"), table.ticks),
        shm_total=room[0],
        shm_available=room[1],
        group=read_control_group(details.groups),
        container_settings=read_container(details.box),
        limits=read_limits("\n".join(details.limits)),
    )


def _main_container(search: _Search, pid: int) -> str | None:
    """Kind and id of the container that was named or found by its port, where the control group has none."""
    above = search.table.ancestors(pid)
    return next(
        (
            f"{main.kind}:{main.name}"
            for main in search.table.mains
            if main.kind != "unit" and main.pid in above
        ),
        None,
    )


def _service(search: _Search, pid: int, group: ControlGroup | None, *, is_wanted: bool) -> ServiceUnit | None:
    units = search.table.units
    named = search.table.unit
    above = search.table.ancestors(pid)
    # What the user named is the unit, even where it only runs a client of docker.
    mains = [main.pid for main in search.table.mains if main.kind == "unit"]
    is_its_client = any(_program(search, main) in _CLIENTS for main in mains)
    if named in units and ((is_wanted and is_its_client) or set(mains) & set(above)):
        return read_unit(named, units[named])
    if group is None or group.unit is None:
        return None
    if group.is_foreign_unit:
        search.missing.append(
            f"unit {group.unit} of process {pid}: its systemd runs inside {group.container}, ask there"
        )
        return ServiceUnit(name=group.unit)
    if group.unit not in units:
        whose = "that user's own systemd" if group.is_user_unit else "systemd"
        search.missing.append(f"unit {group.unit} of process {pid}: {whose} does not answer")
    lingers = {"yes": True, "no": False}.get(search.table.details.get(pid, Details()).use.get("lingers", ""))
    unit = read_unit(group.unit, units.get(group.unit, {}))
    return replace(unit, is_user_unit=group.is_user_unit, lingers=lingers)


def _total(sizes: dict[int, int], family: list[int]) -> int | None:
    """The sum over the family; None when one of it does not tell."""
    known = [sizes[pid] for pid in family if pid in sizes]
    return sum(known) if len(known) == len(family) else None


def _resident(search: _Search, family: list[int]) -> int | None:
    """Bytes of the whole family: proportional where the kernel lets us, else plain, else None."""
    table = search.table
    sizes = [table.pss.get(pid, table.rss.get(pid)) for pid in family]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        search.missing.append(
            f"memory of process {family[0]}: {len(sizes) - len(known)} of its {len(sizes)} do not tell"
        )
        return None
    if any(pid not in table.pss for pid in family) and len(family) > 1:
        search.missing.append(
            f"memory of process {family[0]}: shared pages count once per process (no smaps_rollup)"
        )
    return sum(known)
