"""Ranks that meet and then wait for ever: lost peer copies, custom all-reduce, waiting watchdogs.

Seen in: PyTorch `c10d/ProcessGroupNCCL.cpp` (watchdog), SGLang 0.2 to 0.5 `managers/scheduler.py`
("Watchdog timeout"), vLLM `distributed/device_communicators` (`pynccl.py`, `custom_all_reduce.py`,
`shm_broadcast.py`), `csrc/custom_all_reduce.cuh`; `lspci -vvv` (ACSCtl). A hang itself leaves no line:
where the log stops counts.
"""

import re

from bringup.parse.case_facts import last_line_number, seconds_between, spelled, tensor_parallel_size
from bringup.rules import Match, Rule, Sign, match_of
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix, Severity
from bringup.values.host import HostSnapshot
from bringup.values.start_log import Phase

_ACS = re.compile(r"ACSCtl:.*SrcValid\+")
_REDIRECT = re.compile(r"ReqRedir\+")
_IOMMU = re.compile(
    r"IOMMU in its default translated mode|IO_PAGE_FAULT|DMAR: \[DMA (?:Write|Read)[^\]]*\].*fault"
    r"|AMD-Vi: Event logged"
)
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?P<work>[^)]*)\)|detected by watchdog at work"
    r"|due to ProcessGroupNCCL watchdog hang|ProcessGroupNCCL's watchdog got stuck"
    r"|Heartbeat monitor timed out|Some NCCL operations have failed or timed out"
)
_FIRST_WORK = re.compile(r"SeqNum=1\b")
_NEVER = re.compile(r"last completed NCCL work: -1")
_MET = re.compile(r"Init COMPLETE")
_SGLANG = re.compile(r"Watchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+)\)")
_RANK = re.compile(r"\[?(?:[Rr]ank ?|Rank )(?P<rank>\d+)\]")
_BLOCK = re.compile(r"No available shared memory broadcast block found in \d+ ?(?:seconds|s)")
_LAST = re.compile(
    r"vLLM is using nccl==|NCCL version \d|Init COMPLETE|Init torch distributed begin|custom_all_reduce"
    r"|Custom allreduce|"
    r"SymmMemCommunicator|via P2P/|Connected all (?:rings|trees)|ncclCommInitRank|world_size=\d+ rank=\d+"
    r"|sglang is using nccl=="
    r"|NCCL INFO |Found nccl from library|Setting up custom all-?reduce|initializing model parallel"
    r"|rank \d+ in world size \d+"
)
_ERROR = re.compile(
    r"Traceback \(most|\b[A-Z]\w+(?:Error|Exception)\b|ERROR|FATAL|CRITICAL|[Ff]ailed|SIG(?:BUS|SEGV|KILL"
    r"|TERM|QUIT)|Killed|Xid"
    r"|[Ee]xit(?:ed|ing)?\b.*(?:code|status)|[Ss]hutting down|[Tt]imeout"
)
_JOINS = re.compile(  # others of `_LAST` stand in logs of any kind
    r"using nccl==|NCCL version \d|Init COMPLETE|Init torch distributed begin|world_size=\d+ rank=\d+"
)
_CALM = re.compile(r"P2P test failed|NET/Plugin|libnccl|Failed to open libibverbs|TORCH_NCCL|NCCL_\w+ set by")
_AFTER = re.compile(
    r"Load weight begin|Starting to load model|Loading (?:safetensors|model)|load_tensors|Loading weights"
    r"|(?:[Ll]oading|[Cc]apturing|shards)[^|]{0,80}\d+%"
)
_TAIL = 3  # lines after the last sign of NCCL that may still follow it
_PEER = re.compile(r"peer access is not supported between these two devices|peer mapping resources exhausted")
_CUSTOM = re.compile(
    r"custom_all_reduce\.(?:cuh|cu|hip):\d+|pcie_allreduce\.cu|custom_all_reduce\.py.*(?:CUDA error"
    r"|invalid argument|RuntimeError)"
)
_FRAMES = r"custom_all_reduce|custom_allreduce|quick_all_reduce|pcie_allreduce"
_EXPANDABLE = re.compile(r"expandable_segments:True|expandable_segments: ?True")
SPIN_POWER = 200.0  # watts; a collective that spins was seen at 45 to 140 W on cards of 300 to 600 W
SPIN_BUSY = 0.98


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


def _cures(case: Case) -> tuple[Fix, ...]:
    facts = case.host.facts if case.host else None
    return (
        _fix(
            "kernel-param",
            "iommu",
            "pt",
            old=facts.iommu if facts else None,
            cost="reboot; not together with SEV-SNP",
        ),
        _fix(
            "file", "setpci ACS", "off at boot", old="on", cost="cards are no longer isolated from each other"
        ),
        _fix("env", "NCCL_P2P_DISABLE", "1", kind="workaround", cost="slower: traffic through host memory"),
        _fix(
            "flag",
            spelled(case, "custom all-reduce off"),
            "True",
            kind="workaround",
            cost="slower small all-reduces",
        ),
    )


_TEST = (
    "two-rank all_reduce with a value check, as is and with NCCL_P2P_DISABLE=1; lspci -vvv | grep ACSCtl; "
    "nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv -l 1 for 10 s"
)


def _acs(case: Case) -> tuple[Match, ...]:
    lines = [line for line, _ in case.matches(_ACS)]
    iommu = [line for line, _ in case.matches(_IOMMU)]
    if not lines and not iommu:
        return ()
    on = [line for line in lines if _REDIRECT.search(line.text)]
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.9 if on else 0.75,
            lines=(*on, *iommu, *(line for line in lines if line not in on))[:6],
            summary="PCIe access control or a translating IOMMU sends peer copies astray"
            if on or iommu
            else "access control is still switched on at a bridge (SrcValid+): check every bridge between "
            "the cards",
            explanation="Capability queries stay positive: only a collective with a value check proves that "
            "bytes arrive.",
            fixes=_cures(case),
            next_measurement=_TEST,
        ),
    )


def _custom(case: Case) -> tuple[Match, ...]:
    """Custom all-reduce: failed by its own message, or by a traceback that ends in it."""
    lines = [line for line, _ in case.matches(_CUSTOM)]
    ends = [
        one.error
        for one in case.tracebacks
        if one.error and one.innermost and re.search(_FRAMES, one.innermost.file)
    ]
    peer = [line for line, _ in case.matches(_PEER)]
    if not lines and not ends and not peer:
        return ()
    segments = case.first(_EXPANDABLE)
    is_set = segments is not None or "expandable" in case.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    off = _fix("flag", spelled(case, "custom all-reduce off"), "True", cost="slower small all-reduces")
    memory = _fix(
        "env", "PYTORCH_CUDA_ALLOC_CONF", "unset", old="expandable_segments:True", cost="more fragmentation"
    )
    return (
        Match(
            kind="nccl.custom_ar",
            sure=0.95 if lines else 0.8,
            lines=(*lines, *ends, *peer, *((segments[0],) if segments else ()))[:6],
            summary="custom all-reduce failed: these cards cannot map each other's memory",
            explanation="It is used for exactly two PCIe cards (or NVLink) and maps memory by CUDA IPC: "
            "without peer access, "
            "or with expandable segments, that fails. NCCL's own path works.",
            fixes=(memory, off) if is_set else (off, memory) if not peer else (off, _cures(case)[2]),
            next_measurement="nvidia-smi topo -p2p r; echo $PYTORCH_CUDA_ALLOC_CONF",
        ),
    )


def _ranks(lines: list[CaseLine]) -> list[int]:
    told = [re.search(r"(?:TP|rank )(\d+)", line.rank or "") or _RANK.search(line.text) for line in lines]
    return sorted({int(match[1]) for match in told if match})


def _waiting(case: Case) -> tuple[Match, ...]:
    """Watchdogs of ranks that waited: the silent one is where to look."""
    lines = [line for line, _ in case.matches(_WATCHDOG)]
    if not lines:
        return ()
    ranks = _ranks(lines)
    size = tensor_parallel_size(case)
    silent = [rank for rank in range(size or 0) if rank not in ranks]
    who = f"; silent: {', '.join(map(str, silent))}" if silent and ranks else ""
    return (
        Match(
            kind="nccl.watchdog",
            sure=0.6,
            lines=tuple(lines[:6]),
            summary=f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks)) or '?'} waited for a "
            f"collective that another did not join{who}",
            explanation="The watchdog reports who waits, never who failed: look at the rank that did not log "
            "it, and at the "
            "earliest error of any rank.",
            fixes=(
                _fix(
                    "env",
                    "NCCL_DEBUG",
                    "INFO",
                    kind="workaround",
                    cost="no cure: names the collective and its ranks",
                ),
                _fix(
                    "flag",
                    spelled(case, "watchdog"),
                    "1200",
                    old="300",
                    kind="workaround",
                    cost="hangs are seen later",
                ),
            ),
            next_measurement="py-spy dump --pid of the silent rank; journalctl -k | grep -E 'Xid|oom-kill'",
        ),
    )


def _first_collective(case: Case) -> tuple[Match, ...]:
    """The very first collective of a communicator that no rank got through."""
    found = [(line, match["work"] or "") for line, match in case.matches(_WATCHDOG)]
    first = [line for line, work in found if _FIRST_WORK.search(work)]
    told = _ranks(first)
    # Ranks that have never completed anything wait for a path, not for one that has gone elsewhere.
    never = len(told) > 1 and case.first(_NEVER) is not None and case.first(_MET) is not None
    silent = (tensor_parallel_size(case) or 0) > len(told) > 0 and not never
    if case.is_ready or not first or silent or len(first) < len([work for _, work in found if work]):
        return ()  # where one rank is silent, the others wait for it
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.65,
            lines=tuple(first[:6]),
            summary="the first collective between these ranks never returned",
            explanation="The ranks met, and nothing arrived. A rank that was ended before it joined looks "
            "the same: it has an earlier error.",
            fixes=_cures(case),
            next_measurement=_TEST,
        ),
    )


def _first_error(case: Case) -> CaseLine | None:
    """The first line that names an error, other than what healthy starts print."""
    return next((line for line, _ in case.matches(_ERROR) if not _CALM.search(line.text)), None)


def _stops(case: Case) -> tuple[Match, ...]:
    """A log that ends while communicators are set up, with no error at all."""
    signs = [line for line, _ in case.matches(_LAST)]
    if not case.first(_JOINS) or case.is_ready or _first_error(case) or case.first(_AFTER):
        return ()
    size = tensor_parallel_size(case)
    later = case.phase not in (None, Phase.ARGUMENTS, Phase.DEVICE, Phase.COMMUNICATORS)
    if size == 1 or later or last_line_number(case) - signs[-1].number > _TAIL:
        return ()
    lasted = seconds_between(case)
    blocks = [line for line, _ in case.matches(_BLOCK)]
    long = f" for {lasted:.0f} s" if lasted and lasted > 0 else ""
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.5,
            lines=(signs[-1], *blocks, *signs[-3:-1])[:4],
            summary=f"the log stops while ranks are joined{long}, without an error",
            explanation="Perhaps peer copies that never arrive (cards 100 % busy at low power, memory does "
            "not grow), a CUDA shim "
            "in LD_PRELOAD, or only a slow start: the next measurement tells which.",
            fixes=_cures(case),
            next_measurement=_TEST,
            severity=Severity.WARNING,
        ),
    )


def _sglang(case: Case) -> tuple[Match, ...]:
    """SGLang's watchdog before it served, at more than one rank."""
    lines = [line for line, _ in case.matches(_SGLANG)]
    if not lines or case.is_ready or (tensor_parallel_size(case) or 1) < 2:
        return ()
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.4,
            lines=tuple(lines[:4]),
            summary="all ranks stood still at the same time: perhaps a collective that never returns",
            fixes=_cures(case),
            next_measurement=_TEST,
        ),
    )


def _blocks(case: Case) -> tuple[Match, ...]:
    """A worker that does not answer for ten minutes and longer."""
    lines = [line for line, _ in case.matches(_BLOCK)]
    if len(lines) < 10 or case.is_ready:
        return ()
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.45,
            lines=(lines[0], lines[-1]),
            summary=f"a worker has not answered for {len(lines)} minutes: a hang, or a very long compile",
            fixes=(*_cures(case), _fix("env", "NCCL_DEBUG", "INFO", kind="workaround", cost="no cure")),
            next_measurement=_TEST,
            severity=Severity.WARNING,
        ),
    )


def _spins(host: HostSnapshot) -> tuple[str, ...]:
    return tuple(
        f"{gpu.label}: {gpu.utilization:.0%} busy at {gpu.power:.0f} W"
        for gpu in host.main_gpus
        if gpu.utilization is not None
        and gpu.power is not None
        and gpu.utilization >= SPIN_BUSY
        and gpu.power <= min(SPIN_POWER, 0.4 * (gpu.power_limit or SPIN_POWER / 0.4))
    )


def _probe(case: Case) -> tuple[Match, ...]:
    """Cards that spin: fully busy, little power, and the start goes no further."""
    if case.host is None or case.is_ready:
        return ()
    spins = _spins(case.host)
    if len(spins) < 2:
        return ()
    facts = case.host.facts
    why = tuple(
        (name, text)
        for name, text in (("IOMMU", facts.iommu), ("ACS", facts.acs))
        if text in ("translated", "redirecting")
    )
    return (
        Match(
            kind="nccl.p2p_hang",
            sure=0.9 if why else 0.75,
            lines=(),
            summary=f"{len(spins)} cards spin: busy at low power while the start stands still",
            explanation="Peer copies do not arrive. A compile or a load would not keep the cards busy.",
            fixes=_cures(case),
            next_measurement=_TEST,
            probes=(*(("nvidia-smi", text) for text in spins), *why),
        ),
    )


_NO_PEER = Sign(
    kind="nccl.p2p_hang",
    pattern=re.compile(r"(?:AllReduce|all_reduce|all-reduce|collective)s? (?:hangs?|never returns?|stuck)"),
    sure=0.6,
    summary="a collective never returns",
    fixes=lambda case, _found: _cures(case),
    next_measurement=_TEST,
)


def read(case: Case) -> tuple[Match, ...]:
    """The surest statement of each kind about ranks that wait."""
    told = match_of(_NO_PEER, case)
    every = [
        *_probe(case),
        *_acs(case),
        *_custom(case),
        *_waiting(case),
        *_first_collective(case),
        *_stops(case),
        *_sglang(case),
        *_blocks(case),
        *((told,) if told else ()),
    ]
    best: dict[str, Match] = {}
    for match in every:
        if match.kind not in best or match.sure > best[match.kind].sure:
            best[match.kind] = match
    return tuple(best.values())


RULE = Rule(
    kinds=("nccl.p2p_hang", "nccl.custom_ar", "nccl.watchdog"),
    title="ranks that wait for ever",
    literals=(
        "Heartbeat monitor",
        "ACSCtl",
        "IOMMU",
        "IO_PAGE_FAULT",
        "DMAR:",
        "AMD-Vi",
        "atchdog",
        "Some NCCL operations",
        "broadcast block",
        "nccl==",
        "NCCL INFO",
        "Found nccl from",
        "NCCL version",
        "Init COMPLETE",
        "Init torch distributed",
        "ustom allreduce",
        "ustom all-reduce",
        "ustom all_reduce",
        "custom_all_reduce",
        "pcie_allreduce",
        "SymmMem",
        "via P2P/",
        "Connected all",
        "ncclCommInitRank",
        "world_size=",
        "in world size",
        "peer access is not supported",
        "peer mapping resources",
        "expandable_segments",
        "AllReduce",
        "all_reduce",
        "Load weight begin",
        "Starting to load model",
    ),
    read=read,
    meaning="Setting up succeeded, and the first data between cards never arrives; or one rank is gone and "
    "the others wait.",
    told_apart="Busy at low power without memory growth is a spin; memory or disk moving is a load; "
    "compilers among the children "
    "are a compile. TP2 failing where TP4 works on PCIe cards is custom all-reduce. Watchdog lines come from "
    "ranks that wait.",
    cure="iommu=pt or ACS off for peer copies (NCCL_P2P_DISABLE=1 meanwhile); custom all-reduce off; find "
    "the silent rank.",
    source="torch c10d/ProcessGroupNCCL.cpp; sglang srt/managers/scheduler.py; vllm "
    "csrc/custom_all_reduce.cuh and "
    "distributed/device_communicators/; pciutils ACSCtl; NVIDIA NCCL troubleshooting guide (ACS, IOMMU)",
)
