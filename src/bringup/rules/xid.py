"""Faults that the NVIDIA driver writes to the kernel log: the first root names the culprit, others follow.

Seen in: NVIDIA's Xid catalogue (numbers and their immediate action), open-gpu-kernel-modules 595 and 610,
`src/nvidia/src/kernel/gpu/rc`, all drivers with `NVRM: Xid (PCI:...): N`; `XidCriticalError: Xid=N` is the
Kubernetes device plugin's wording.
"""

import re
from dataclasses import dataclass

from bringup.rules import Match, Rule
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix, Severity

_XID = re.compile(
    r"\bXid(?: \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]{7,16})\):? |=|\s)(?P<xid>\d{1,3})\b(?=,| \(| on Device"
    r"| [A-Z]|:|$)"
)
_PREVIOUS = re.compile(r"(?:caused by|due to) previous Xid (?P<xid>\d{1,3})")
_LINE = re.compile(r"NVRM: Xid|Xid \(|XidCriticalError|^\s*Xid \d{1,3} \(|previous Xid \d")
_SWITCH = re.compile(r"SXid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<xid>\d+)")
_OFF_BUS = re.compile(
    r"^\W*(?:\S+ )?(?:.*NVRM: .*|.*kernel: .*)?GPU has fallen off the bus|GPU lost from the bus"
    r"|NVMLError_GpuIsLost|GPU is lost\.  ?Reboot the system"
    r"|^\W*(?:.*NVRM:\s+)fallen off the bus and is not responding"
)
_GSP = re.compile(
    r"Timeout waiting for RPC from GSP|Timeout after \d+s of waiting for RPC response from GPU"
    r"|[Hh]eartbeat timed out, currentTimeMs|\*{4,} GSP Timeout \*{4,}"
)
_ECC = re.compile(
    r"uncorrectable ECC error encountered|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE"
)
_NVLINK = re.compile(r"[Uu]ncorrectable NVLink error detected|cudaErrorNvlinkUncorrectable")
_REMAP = re.compile(r"^\s*Remapped Rows\b")
_PENDING = re.compile(r"^\s*Pending\s*:\s*(Yes)|^\s*Remapping Failure Occurred\s*:\s*(Yes)")
_REMAP_NEAR = 8  # lines between the heading of `nvidia-smi -q` and its last row
_UNRECOGNIZED = re.compile(r"UNRECOGNIZED_CLIENT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What one number means."""

    kind: str
    words: str
    sure: float
    cures: tuple[Fix, ...]
    then: str = ""  # the next measurement


def _fix(type_: str, name: str, new: str, *, old: str | None = None, cost: str = "") -> Fix:
    kind = "workaround" if "GSP" in name else "cure"
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


_RESET = _fix("hardware", "GPU", "gpu-reset (`nvidia-smi -r -i N`) or reboot", cost="the card's work is lost")
_REPLACE = _fix("hardware", "GPU", "replace the card if it comes back after a reset")
_REBOOT = _fix("hardware", "node, NVLink and NVSwitch", "reboot, then field diagnostics of the fabric")
_DRIVER = _fix("driver", "nvidia", "newer driver and fabric manager of the same version")
_BRANCH = _fix("driver", "nvidia", "the newest release of another branch")
_EAGER = _fix("env", "CUDA_LAUNCH_BLOCKING", "1", cost="slow: only to find the kernel")
_BACKEND = _fix("flag", "--attention-backend", "another backend", cost="may be slower")
_MEMCHECK = "compute-sanitizer --tool memcheck COMMAND  # names the kernel; nvidia-smi -q -d ECC for counters"

_LINK = _Fault(
    kind="xid.74_nvlink",
    words="a fault on an NVLink link",
    sure=0.95,
    cures=(_REBOOT, _DRIVER, _fix("hardware", "GPU", "reseat or replace when one link repeats")),
    then="nvidia-smi nvlink -e; nvidia-smi topo -m  # one card without NV# is the one",
)
_FAULTS: dict[int, _Fault] = {
    13: _Fault(
        kind="xid.13",
        words="an exception in a kernel on an SM: nearly always the program, rarely the card",
        sure=0.9,
        cures=(_BACKEND, _EAGER),
        then=_MEMCHECK,
    ),
    31: _Fault(
        kind="xid.31",
        words="an MMU fault: a kernel or a copy engine used a bad address",
        sure=0.9,
        cures=(
            _BRANCH,
            _fix("kernel-param", "iommu", "pt", cost="none on a host without untrusted devices"),
            _EAGER,
        ),
        then=_MEMCHECK,
    ),
    48: _Fault(
        kind="xid.48",
        words="a double-bit ECC error: memory that cannot be corrected",
        sure=0.95,
        cures=(_RESET, _REPLACE),
        then="nvidia-smi -q -d ECC,ROW_REMAPPER",
    ),
    62: _Fault(
        kind="xid.62",
        words="the card's own controller halted",
        sure=0.9,
        cures=(_RESET, _BRANCH),
        then="nvidia-smi -q | grep -i 'recovery action'",
    ),
    63: _Fault(
        kind="xid.63_64",
        words="a memory row was marked for remapping, which needs a reset to take effect",
        sure=0.9,
        cures=(_RESET,),
        then="nvidia-smi -q -d ROW_REMAPPER",
    ),
    64: _Fault(
        kind="xid.63_64",
        words="a memory row could not be remapped",
        sure=0.95,
        cures=(_RESET, _REPLACE),
        then="nvidia-smi -q -d ROW_REMAPPER",
    ),
    79: _Fault(
        kind="xid.79",
        words="the card is off the PCIe bus",
        sure=0.97,
        cures=(
            _fix(
                "hardware",
                "PCIe slot, riser or cable, power connectors",
                "reseat; a direct slot or one generation less",
            ),
            _fix(
                "hardware",
                "power limit and cooling",
                "lower limit (nvidia-smi -pl), capped clocks (nvidia-smi -lgc), airflow",
            ),
            _fix("kernel-param", "pcie_aspm", "off", cost="some watts at idle"),
        ),
        then="dmesg -T | grep -iE 'aer|pcieport|NVRM'; lspci -s BUS -vv | grep -E 'LnkSta|AER'",
    ),
    94: _Fault(
        kind="xid.94_95",
        words="a contained ECC error: only the process that used the page is lost",
        sure=0.95,
        cures=(_fix("service", "engine", "restart it, drain the card and reset it when idle"), _RESET),
        then="nvidia-smi -q -d ECC,ROW_REMAPPER",
    ),
    95: _Fault(
        kind="xid.94_95",
        words="an uncontained ECC error: every process on the card is lost",
        sure=0.95,
        cures=(_fix("hardware", "GPU", "reboot or reset before anything runs on it"), _REPLACE),
        then="nvidia-smi -q -d ECC,ROW_REMAPPER",
    ),
    119: _Fault(
        kind="xid.119",
        words="the card's GSP firmware no longer answers",
        sure=0.95,
        cures=(
            _fix("driver", "nvidia", "newest release of the branch (525: at least 525.105.17)"),
            _fix("hardware", "GPU", "power cycle of the machine when a reset fails"),
            _fix(
                "kernel-param",
                "nvidia.NVreg_EnableGpuFirmware",  # GSP off
                "0",
                old="1",
                cost="only the old proprietary module on cards before Blackwell can",
            ),
        ),
        then="nvidia-smi -q | grep -iE 'GSP|driver version'",
    ),
    149: _Fault(
        kind="xid.149",
        words="an NVLink NETIR error",
        sure=0.96,
        cures=(_REBOOT, _DRIVER),
        then="nvidia-smi nvlink -e; journalctl -k | grep -E 'Xid|SXid' | head",
    ),
}
_FAULTS.update(dict.fromkeys((74, 144, 145, 146, 147, 148, 150), _LINK))
_FAULTS.update({120: _FAULTS[119], 61: _FAULTS[62], 69: _FAULTS[13], 32: _FAULTS[31], 140: _FAULTS[48]})
_FOLLOWERS = {
    43: "channel stopped",
    45: "channel torn down",
    109: "context switch timed out",
    154: "recovery action",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    number: int
    bus: str | None
    line: CaseLine | None  # None: from a probe
    text: str


def _events(case: Case) -> list[_Event]:
    found: list[_Event] = []
    for line in case.lines:
        found.extend(_event(line.text, line))
    for text in case.texts.values():
        for row in text.splitlines():
            found.extend(_event(row, None))
    return found


def _event(text: str, line: CaseLine | None) -> list[_Event]:
    if "Xid" not in text:
        return []
    switch = _SWITCH.search(text)
    if switch:
        return [_Event(number=74, bus=switch["bus"], line=line, text=text)]
    if not _LINE.search(text):
        return []
    match = _XID.search(text)
    previous = _PREVIOUS.search(text)
    bus = match["bus"] if match else None
    number = int(previous["xid"] if previous else match["xid"] if match else 0)
    return [_Event(number=number, bus=bus, line=line, text=text)] if number else []


def _in_time(events: list[_Event]) -> list[_Event]:
    """As they happened: by the times of their lines where all have one."""
    if all(event.line and event.line.time is not None for event in events):
        return sorted(events, key=lambda event: (event.line.time if event.line else 0) or 0)
    return events


def read(case: Case) -> tuple[Match, ...]:
    """The root fault first; others that are not its followers after it."""
    events = _in_time(_events(case))
    roots = [event for event in events if event.number in _FAULTS]
    matches: list[Match] = []
    for kind in dict.fromkeys(_FAULTS[event.number].kind for event in roots):
        own = [event for event in roots if _FAULTS[event.number].kind == kind]
        matches.append(_match(own, events, rank=len(matches)))
    if not roots:
        matches = [*_without_number(case), *_alone(events)]
    return (*matches, *_rows(case))


def _match(own: list[_Event], events: list[_Event], *, rank: int) -> Match:
    fault = _FAULTS[own[0].number]
    where = f" on {own[0].bus}" if own[0].bus else ""
    cards = dict.fromkeys(event.bus for event in events if event.bus)
    others = [str(event.number) for event in events if event.number in _FOLLOWERS]
    follow = f"; {', '.join(dict.fromkeys(others))} only follow" if others else ""
    first = f" (first of {len(cards)} cards)" if len(cards) > 1 and rank == 0 else ""
    reboot = any(_UNRECOGNIZED.search(event.text) for event in own)
    lines = tuple(event.line for event in own if event.line)[:6]
    return Match(
        kind=fault.kind,
        sure=fault.sure - min(rank, 3) * 0.15,
        lines=lines,
        summary=f"Xid {own[0].number}{where}{first}: {fault.words}{follow}",
        explanation="The earliest fault in time is the cause; what other cards and later numbers say follows "
        "from it." + (" UNRECOGNIZED_CLIENT: only a reboot of the machine clears it." if reboot else ""),
        fixes=((_REBOOT, *fault.cures) if reboot else fault.cures),
        next_measurement=fault.then,
        probes=tuple(("kernel log", event.text.strip()) for event in own if event.line is None)[:6],
    )


def _without_number(case: Case) -> list[Match]:
    """What the driver or CUDA says of a few faults in words."""
    matches: list[Match] = []
    for pattern, number in ((_OFF_BUS, 79), (_GSP, 119), (_ECC, 94), (_NVLINK, 74)):
        lines = tuple(line for line, _ in case.matches(pattern))[:6]
        if lines:
            fault = _FAULTS[number]
            matches.append(
                Match(
                    kind=fault.kind,
                    sure=0.9,
                    lines=lines,
                    summary=f"the driver says that {fault.words}",
                    fixes=fault.cures,
                    next_measurement=fault.then,
                )
            )
    return matches


def _alone(events: list[_Event]) -> list[Match]:
    """A follower without its leader: what came first is not in this log."""
    if not events:
        return []
    lines = tuple(event.line for event in events if event.line)[:6]
    number = events[0].number
    return [
        Match(
            kind="xid.43" if number == 43 else "xid.other",
            sure=0.5,
            lines=lines,
            summary=f"Xid {number} ({_FOLLOWERS.get(number, 'see the catalogue')}) without the fault before "
            f"it",
            explanation="This number follows another fault, or a process that ended; alone it names no "
            "cause.",
            next_measurement="journalctl -k -b | grep -E 'NVRM|Xid|AER' | head -40; nvidia-smi -q -d "
            "ECC,ROW_REMAPPER",
            severity=Severity.WARNING,
            probes=tuple(("kernel log", event.text.strip()) for event in events if event.line is None)[:6],
        )
    ]


def _rows(case: Case) -> list[Match]:
    """Rows that wait for remapping: as `nvidia-smi -q` prints it, and as the host's cards say."""
    heading = case.first(_REMAP)
    pending = [
        line
        for line, _ in case.matches(_PENDING)
        if heading and 0 < line.number - heading[0].number <= _REMAP_NEAR
    ]
    gpus = case.host.gpus if case.host else ()
    probes = tuple(
        (
            "nvidia-smi",
            f"{gpu.label}: rows pending {gpu.remapped_rows_pending}, failed {gpu.remapped_rows_failure}",
        )
        for gpu in gpus
        if _yes(gpu.remapped_rows_pending) or _yes(gpu.remapped_rows_failure)
    )
    if not probes and not (heading and pending):
        return []
    fault = _FAULTS[63]
    return [
        Match(
            kind=fault.kind,
            sure=0.9,
            lines=(heading[0], *pending)[:6] if heading and pending else (),
            summary=fault.words,
            fixes=fault.cures,
            next_measurement=fault.then,
            probes=probes,
        )
    ]


def _yes(said: str | None) -> bool:
    return (said or "").strip().lower() in {"yes", "1"}


RULE = Rule(
    kinds=(
        *dict.fromkeys(fault.kind for fault in _FAULTS.values()),
        "xid.43",
        "xid.other",
    ),
    title="a fault that the NVIDIA driver logged (Xid)",
    literals=(
        "Xid (",
        "SXid",
        "Xid=",
        "XidCriticalError",
        "NVRM: Xid",
        "Xid 1",
        "previous Xid",
        "fallen off the bus",
        "GPU lost from the bus",
        "GpuIsLost",
        "GPU is lost",
        "RPC from GSP",
        "eartbeat timed out, currentTimeMs",
        "GSP Timeout",
        "ncorrectable ECC",
        "ECCUncorrectable",
        "ECC_UNCORRECTABLE",
        "ncorrectable NVLink",
        "NvlinkUncorrectable",
        "RPC response from GPU",
        "Remapped Rows",
        "Pending ",
        "Remapping Failure Occurred",
    ),
    read=read,
    meaning="The driver saw a fault of a card, its memory, its links or a program on it, and wrote its "
    "number.",
    told_apart="The earliest number in time is the cause and its card the culprit. 43, 45, 109 and 154 "
    "follow others. "
    "13 and 31 come from programs first; 48, 63, 64, 94, 95, 74, 79 and 119 from the card or its links.",
    cure="By number: reset or reboot, other driver, other kernel backend, power and slot, replacement on "
    "repeat.",
    source="NVIDIA Xid catalogue; open-gpu-kernel-modules 595, `NVRM: Xid (PCI:...): N`, "
    "`kernel_gsp.c` (heartbeat, RPC time-out); "
    "k8s-device-plugin `XidCriticalError`; `nvidia-smi -q` section `Remapped Rows`",
)
