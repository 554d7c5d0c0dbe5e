"""The answer of the question for the engine's process, line by line, to one table.

Each line begins with a word that says what it is: `listen INODE SPACE ADDRESS UID`, `owner PID INODE`,
`kin PID PARENT START`, `arg PID TEXT` and so on. A line that is cut or garbled is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bringup.parse.proc import read_socket_address, whole_number
from bringup.units import KIB

OWN_SPACE = "self"  # the network namespace of the asker


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A TCP socket that listens."""

    inode: int
    space: str  # "self", or a process in the other network namespace
    address: str
    port: int
    uid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Main:
    """A process that was asked for by the name of its unit or container, or that a port is forwarded to."""

    pid: int
    kind: str  # "unit", "docker", "podman", "lxc"
    name: str
    is_published: bool = False  # found by the forwarded port


@dataclass(slots=True, kw_only=True)
class Details:
    """What `/proc/PID` says, as text."""

    argv: list[str] = field(default_factory=list[str])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    status: dict[str, str] = field(default_factory=dict[str, str])
    cgroup: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])
    login: str | None = None
    executable: str | None = None
    unreadable: list[str] = field(default_factory=list[str])
    use: dict[str, str] = field(default_factory=dict[str, str])  # "files" -> "63"
    groups: list[str] = field(default_factory=list[str])  # "LEVEL FILE VALUE"
    box: str | None = None  # "TOOL KEY=VALUE .."


@dataclass(slots=True, kw_only=True)
class ProcessTable:
    """Everything the answer says."""

    port: int | None = None
    unit: str | None = None
    container: str | None = None
    asker: int | None = None  # user id of who asked
    no_proc: str | None = None  # the system's name, where there is no /proc
    boot: int | None = None  # Unix time, seconds
    ticks: int | None = None  # per second
    mains: list[Main] = field(default_factory=list[Main])
    refused: list[str] = field(default_factory=list[str])
    listeners: dict[int, Listener] = field(default_factory=dict[int, Listener])
    holds: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # pid -> inodes
    parents: dict[int, int] = field(default_factory=dict[int, int])
    starts: dict[int, int] = field(default_factory=dict[int, int])  # pid -> ticks since boot
    devices: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    details: dict[int, Details] = field(default_factory=dict[int, Details])
    units: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    rss: dict[int, int] = field(default_factory=dict[int, int])  # bytes
    pss: dict[int, int] = field(default_factory=dict[int, int])  # bytes
    swap: dict[int, int] = field(default_factory=dict[int, int])  # bytes
    locked: dict[int, int] = field(default_factory=dict[int, int])  # bytes
    threads: dict[int, int] = field(default_factory=dict[int, int])
    is_whole: bool = False  # the last line came

    def ancestors(self, pid: int) -> list[int]:
        """`pid`, its parent, and so on, as far as the table knows; ends in a loop of garbled rows too."""
        line = [pid]
        while (above := self.parents.get(line[-1])) is not None and above not in line:
            line.append(above)
        return line

    def family(self, pid: int) -> list[int]:
        """`pid` and all below it, in order of number."""
        below = (other for other in self.parents if other != pid and pid in self.ancestors(other))
        return [pid, *sorted(below)]


def read_process_table(text: str) -> ProcessTable:
    """The table; what cannot be read is not in it. Never raises."""
    table = ProcessTable()
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        reader = _READERS.get(kind)
        if reader is not None:
            reader(table, rest)
    return table


def _want(table: ProcessTable, rest: str) -> None:
    what, _, value = rest.partition(" ")
    if value in {"", "none"}:
        return
    if what == "port":
        table.port = whole_number(value)
    elif what == "unit":
        table.unit = value
    elif what == "container":
        table.container = value


def _main(table: ProcessTable, rest: str, *, is_published: bool = False) -> None:
    pid, _, named = rest.partition(" ")
    kind, _, name = named.partition(" ")
    number = whole_number(pid)
    if number and kind and name:
        table.mains.append(Main(pid=number, kind=kind, name=name, is_published=is_published))


def _published(table: ProcessTable, rest: str) -> None:
    _main(table, rest, is_published=True)


def _clock(table: ProcessTable, rest: str) -> None:
    boot, _, ticks = rest.partition(" ")
    table.boot = whole_number(boot)
    table.ticks = whole_number(ticks)


def _asker(table: ProcessTable, rest: str) -> None:
    table.asker = whole_number(rest)


def _absent(table: ProcessTable, rest: str) -> None:
    table.no_proc = rest or "an unknown system"
    table.is_whole = True  # there is nothing more to say


def _refused(table: ProcessTable, rest: str) -> None:
    table.refused.append(rest)


def _listen(table: ProcessTable, rest: str) -> None:
    parts = rest.split(" ")
    place = read_socket_address(parts[2]) if len(parts) == 4 else None
    inode = whole_number(parts[0])
    if place is not None and inode is not None:
        address, port = place
        table.listeners[inode] = Listener(
            inode=inode, space=parts[1], address=address, port=port, uid=whole_number(parts[3])
        )


def _owner(table: ProcessTable, rest: str) -> None:
    pid, _, inode = rest.partition(" ")
    if (number := whole_number(pid)) and (socket := whole_number(inode)) is not None:
        table.holds.setdefault(number, []).append(socket)


def _kin(table: ProcessTable, rest: str) -> None:
    numbers = [whole_number(part) for part in rest.split(" ")]
    if len(numbers) == 3 and numbers[0] and numbers[1] is not None:
        table.parents[numbers[0]] = numbers[1]
        if numbers[2] is not None:
            table.starts[numbers[0]] = numbers[2]


def _device(table: ProcessTable, rest: str) -> None:
    pid, _, path = rest.partition(" ")
    if (number := whole_number(pid)) and path:
        table.devices.setdefault(number, []).append(path)


def _memory(table: ProcessTable, rest: str, sizes: dict[int, int]) -> None:
    del table
    pid, _, size = rest.partition(" ")
    if (number := whole_number(pid)) and (count := whole_number(size)) is not None and count >= 0:
        sizes[number] = count * KIB


def _rss(table: ProcessTable, rest: str) -> None:
    _memory(table, rest, table.rss)


def _pss(table: ProcessTable, rest: str) -> None:
    _memory(table, rest, table.pss)


def _swap(table: ProcessTable, rest: str) -> None:
    _memory(table, rest, table.swap)


def _locked(table: ProcessTable, rest: str) -> None:
    _memory(table, rest, table.locked)


def _threads(table: ProcessTable, rest: str) -> None:
    pid, _, text = rest.partition(" ")
    if (number := whole_number(pid)) and (count := whole_number(text)) is not None and count > 0:
        table.threads[number] = count


def _unit(table: ProcessTable, rest: str) -> None:
    name, _, assignment = rest.partition(" ")
    key, sign, value = assignment.partition("=")
    if sign:
        table.units.setdefault(name, {})[key] = value


def _end(table: ProcessTable, rest: str) -> None:
    table.is_whole = not rest


def _detail(add: Callable[[Details, str], None]) -> Callable[[ProcessTable, str], None]:
    """A reader of `KIND PID TEXT` lines."""

    def read(table: ProcessTable, rest: str) -> None:
        pid, _, text = rest.partition(" ")
        if number := whole_number(pid):
            # The script prints line ends inside an argument or a value as \x01.
            add(table.details.setdefault(number, Details()), text.replace("\x01", "\n"))

    return read


def _add_environment(details: Details, text: str) -> None:
    name, sign, value = text.partition("=")
    if sign:
        details.environment[name] = value


def _add_status(details: Details, text: str) -> None:
    name, _, value = text.partition(":")
    details.status[name] = value.strip()


def _add_login(details: Details, text: str) -> None:
    details.login = text.strip() or None


def _add_executable(details: Details, text: str) -> None:
    details.executable = text or None


def _add_use(details: Details, text: str) -> None:
    what, _, value = text.partition(" ")
    details.use[what] = value.strip()


def _add_box(details: Details, text: str) -> None:
    details.box = text.strip() or None


_READERS: dict[str, Callable[[ProcessTable, str], None]] = {
    "want": _want,
    "main": _main,
    "published": _published,
    "refused": _refused,
    "asker": _asker,
    "absent": _absent,
    "clock": _clock,
    "listen": _listen,
    "owner": _owner,
    "kin": _kin,
    "device": _device,
    "rss": _rss,
    "pss": _pss,
    "swap": _swap,
    "lock": _locked,
    "threads": _threads,
    "unit": _unit,
    "end": _end,
    "process": _detail(lambda details, text: None),  # noqa: ARG005 - the number alone makes the row
    "arg": _detail(lambda details, text: details.argv.append(text)),
    "env": _detail(_add_environment),
    "status": _detail(_add_status),
    "cgroup": _detail(lambda details, text: details.cgroup.append(text)),
    "limit": _detail(lambda details, text: details.limits.append(text)),
    "login": _detail(_add_login),
    "exe": _detail(_add_executable),
    "use": _detail(_add_use),
    "group": _detail(lambda details, text: details.groups.append(text)),
    "box": _detail(_add_box),
    "unreadable": _detail(lambda details, text: details.unreadable.append(text)),
}
