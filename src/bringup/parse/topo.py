"""`nvidia-smi topo -m` and `topo -p2p`: how the devices of a host reach each other.

The header stands in ANSI underline even in a pipe (R590 to R610), columns are parted by tabs or, where a
person pasted it, by blanks. Rows of network cards have no affinity cells. The CPU affinity column is a hint
only: it can be cut (`64-127,192-238` where the kernel has `64-127,192-238,240-255`); sysfs decides.

Source: recorded answers of nvidia-smi and the legend that it prints below them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bringup.errors import UnreadableAnswer
from bringup.values.host import GpuLink

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\w+|[a-z][a-z0-9]*_\d+", re.ASCII)
_KIND = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U", re.ASCII)
_NIC = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*", re.ASCII)
_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_AFFINITY_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Where a device sits, as nvidia-smi shows it: a hint, not a basis for a decision."""

    device: str
    cpus: str | None = None
    numa_nodes: str | None = None  # "0", or a list on GB200: "0,3-9,11-17"
    gpu_numa_node: int | None = None  # the node that is the GPU's own memory (GB200, GH200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The matrix as links, without the diagonal."""

    links: tuple[GpuLink, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    nics: dict[str, str] = field(default_factory=dict[str, str])  # "NIC0" -> "mlx5_0"
    unread: tuple[str, ...] = ()  # rows that do not fit the header


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    device: str
    kinds: tuple[str, ...]
    rest: tuple[str, ...]


def read_topology(text: str) -> Topology:
    """Links and affinities of a matrix.

    A matrix without its header line (a part of a paste) is read as far as the rows name the columns: a row's
    own column holds the X.

    Raises:
        UnreadableAnswer: there is no matrix in it.
    """
    columns: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    rows: list[_Row] = []
    unread: list[str] = []
    lines = _matrix_lines(text)
    for line in lines:
        tokens = line.split()
        if not rows and _is_header(tokens):
            columns = tuple(_devices_of(tokens))
            places = tuple(place for place in _AFFINITY_COLUMNS if place in " ".join(tokens))
        elif tokens and _DEVICE.fullmatch(tokens[0]):
            row = _row(tokens)
            # Without its line end the last cell may be cut: half of "NV18" reads "NV1".
            is_cut = line is lines[-1] and not text.endswith("\n")
            if row.kinds and (row.rest or not is_cut):
                rows.append(replace(row, rest=()) if is_cut else row)
            else:
                unread.append(line)
    if not rows:
        raise UnreadableAnswer("no device matrix in the answer of nvidia-smi topo", text=text)
    names = columns or _columns_by_diagonal(rows)
    fitting = [row for row in rows if _fits(row, names)]
    unread.extend(row.device for row in rows if row not in fitting)
    return Topology(
        links=tuple(link for row in fitting for link in _links(row, names)),
        affinities=tuple(_affinity(row, places) for row in fitting if row.rest),
        nics={match[1]: match[2] for match in map(_NIC.fullmatch, text.splitlines()) if match},
        unread=tuple(unread),
    )


def _matrix_lines(text: str) -> list[str]:
    """Lines up to the legend, escapes taken off."""
    plain = _ANSI.sub("", text).replace("\r", "")
    return [line for line in plain.split("Legend:")[0].split("\n") if line.strip()]


def _devices_of(tokens: Sequence[str]) -> list[str]:
    """The device names at the start of a header line: "GPU NUMA ID" is none."""
    found: list[str] = []
    for token in tokens:
        if not _DEVICE.fullmatch(token):
            break
        found.append(token)
    return found


def _is_header(tokens: Sequence[str]) -> bool:
    devices = _devices_of(tokens)
    return bool(devices) and (len(devices) == len(tokens) or tokens[len(devices)] in ("CPU", "NUMA"))


def _row(tokens: Sequence[str]) -> _Row:
    count = 1
    while count < len(tokens) and _KIND.fullmatch(tokens[count]):
        count += 1
    return _Row(device=tokens[0], kinds=tuple(tokens[1:count]), rest=tuple(tokens[count:]))


def _columns_by_diagonal(rows: Sequence[_Row]) -> tuple[str, ...]:
    """Column names as far as a row's X tells them; "" for the others."""
    names = [""] * max(len(row.kinds) for row in rows)
    for row in rows:
        if row.kinds.count("X") == 1:
            names[row.kinds.index("X")] = row.device
    return tuple(names)


def _fits(row: _Row, names: Sequence[str]) -> bool:
    """Whether the row has a cell for each column and its X, if any, in its own."""
    if len(row.kinds) != len(names):
        return False
    own = [place for place, kind in enumerate(row.kinds) if kind == "X"]
    return own == [place for place, name in enumerate(names) if name == row.device]


def _links(row: _Row, names: Sequence[str]) -> list[GpuLink]:
    pairs = zip(names, row.kinds, strict=True)
    return [
        GpuLink(source=row.device, target=name, kind=kind) for name, kind in pairs if name and kind != "X"
    ]


def _affinity(row: _Row, places: Sequence[str]) -> Affinity:
    """Affinity cells; with fewer cells than columns only the first is sure."""
    told = dict(zip(places or _AFFINITY_COLUMNS, row.rest, strict=False))
    if places and len(row.rest) != len(places):
        told = {place: cell for place, cell in told.items() if place == "CPU Affinity"}
    cpus, nodes, own = (told.get(place, "") for place in _AFFINITY_COLUMNS)
    return Affinity(
        device=row.device,
        cpus=cpus if _LIST.fullmatch(cpus) else None,
        numa_nodes=nodes if _LIST.fullmatch(nodes) else None,
        gpu_numa_node=int(own) if re.fullmatch(r"\d+", own, re.ASCII) else None,
    )
