"""NVLinks are all up, and where there is an NVSwitch the fabric is ready.

Where no card has an NVLink nothing is said. On a machine with NVSwitch every card must have joined the
fabric, else CUDA ends with error 802; a card that alone has no NVLink cannot take part in tensor parallelism
at speed.

Source: nvidia-smi `nvlink -s`, `topo -m` and `fabric.state`; a B200 with NODE and SYS only among cards of
NV18 (vLLM issue 16336).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import meant_gpus
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu, GpuLink

_EXPECTED = "every NVLink active, every card alike, the fabric Completed with Success"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """State of fabric and links; nothing where there are none."""
    _ = replies
    host = deployment.host
    gpus = tuple(gpu for gpu in host.main_gpus if gpu.mig_mode != "Enabled") if host is not None else ()
    meant = meant_gpus(deployment)
    linked = [gpu for gpu in gpus if _active(gpu)]
    kinds = _kinds(host.links if host is not None else ())
    switched = [gpu for gpu in gpus if gpu.fabric_state is not None]
    problems = (
        *_fabric(switched, meant),
        *_inactive(gpus, meant),
        *_unlike(gpus, linked, meant),
        *_alone(gpus, kinds, meant),
    )
    has_any = linked or switched or any(kinds.values())
    if problems or not has_any:
        return Judgement(findings=problems)
    return Judgement(findings=(_fine(linked, switched, kinds),))


def _active(gpu: Gpu) -> int:
    return sum(1 for link in gpu.nvlinks if link.rate is not None)


def _kinds(links: Sequence[GpuLink]) -> dict[int, Counter[str]]:
    """NVLink connections to other GPUs, by GPU index, of the topology matrix."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for link in links:
        if not (_is_gpu(link.source) and _is_gpu(link.target)) or link.source == link.target:
            continue
        for end in (link.source, link.target):
            counts = found[int(end.removeprefix("GPU"))]
            if link.kind.startswith("NV"):
                counts[link.kind] += 1
    return found


def _is_gpu(name: str) -> bool:
    return name.startswith("GPU") and name.removeprefix("GPU").isdecimal()


def _severity(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Severity:
    return Severity.FAILURE if any(gpu in meant for gpu in gpus) else Severity.WARNING


def _fabric(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    bad = [
        gpu
        for gpu in gpus
        if gpu.fabric_state != "Completed"
        or (gpu.fabric_status is not None and gpu.fabric_status != "Success")
    ]
    if bad:
        state = f"{bad[0].fabric_state}, {bad[0].fabric_status or 'no status'}"
        yield Finding(
            id="nvlink_fabric.state",
            severity=_severity(bad, meant),
            summary=f"{gpus_text(bad)} did not join the NVLink fabric: {state}",
            expected=_EXPECTED,
            explanation="CUDA programs end with error 802 (system not yet initialised) on these cards",
            action="`systemctl status nvidia-fabricmanager`: it must run, in the driver's own version",
            evidence=tuple(
                Evidence(
                    source="nvidia-smi", text=f"{gpu.label}: fabric {gpu.fabric_state}, {gpu.fabric_status}"
                )
                for gpu in bad
            ),
        )


def _inactive(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards some of whose links are down, others up."""
    partly = [gpu for gpu in gpus if 0 < _active(gpu) < len(gpu.nvlinks)]
    if partly:
        first = partly[0]
        down = [str(link.number) for link in first.nvlinks if link.rate is None]
        yield Finding(
            id="nvlink_fabric.inactive",
            severity=Severity.WARNING if any(gpu in meant for gpu in partly) else Severity.NOTE,
            summary=f"{gpus_text(partly)}: {_active(first)} of {len(first.nvlinks)} NVLinks active "
            f"(down: {', '.join(down)})",
            expected=_EXPECTED,
            explanation="links that are down take their share of the speed between cards with them",
            action="look for Xid 74 or 144 to 150 in the kernel log; check the bridge or restart the machine",
            evidence=_rows(partly),
        )


def _rows(gpus: Sequence[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(source="nvidia-smi nvlink", text=f"{gpu.label}: {_active(gpu)} of {len(gpu.nvlinks)} active")
        for gpu in gpus
    )


def _unlike(gpus: Sequence[Gpu], linked: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards of one kind with different numbers of active links, as far as it is not told already."""
    for name in sorted({gpu.name or "" for gpu in linked}):
        peers = [
            gpu for gpu in gpus if (gpu.name or "") == name and (gpu.nvlinks or not gpu.said.get("uuid"))
        ]
        most = max(_active(gpu) for gpu in peers)
        fewer = [gpu for gpu in peers if _active(gpu) < most and _active(gpu) == len(gpu.nvlinks)]
        if fewer:
            yield Finding(
                id="nvlink_fabric.fewer",
                severity=_severity(fewer, meant),
                summary=f"{gpus_text(fewer)} show {_active(fewer[0])} NVLinks, others of their kind {most}",
                expected=_EXPECTED,
                explanation="tensor parallelism goes at the speed of the card with the fewest links",
                action="check the bridge or the fabric manager; leave the card out until it has them",
                evidence=_rows(peers),
            )


def _alone(gpus: Sequence[Gpu], kinds: dict[int, Counter[str]], meant: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards that reach no other by NVLink although others of their kind do."""
    by_index = {gpu.index: gpu for gpu in gpus if gpu.index is not None}
    joined = {index for index, counts in kinds.items() if counts}
    names = {by_index[index].name for index in joined if index in by_index}
    alone = [
        by_index[index]
        for index in sorted(kinds)
        if index not in joined and index in by_index and by_index[index].name in names
    ]
    alone = [gpu for gpu in alone if not (gpu.nvlinks and not _active(gpu))]
    if alone and len(joined) > 1:
        yield Finding(
            id="nvlink_fabric.alone",
            severity=_severity(alone, meant),
            summary=f"{gpus_text(alone)}: no NVLink to any other card, {len(joined)} others have one",
            expected=_EXPECTED,
            explanation="collectives with that card go over PCIe, or fail",
            action="leave the card out of the layout; check its baseboard and the fabric manager",
            evidence=tuple(
                Evidence(
                    source="nvidia-smi topo -m", text=f"GPU {index}: {', '.join(counts) or 'no NV link'}"
                )
                for index, counts in sorted(kinds.items())
            ),
        )


def _fine(linked: Sequence[Gpu], switched: Sequence[Gpu], kinds: dict[int, Counter[str]]) -> Finding:
    parts: list[str] = []
    evidence: tuple[Evidence, ...] = ()
    if linked:
        counts = sorted({_active(gpu) for gpu in linked})
        parts.append(f"{' or '.join(map(str, counts))} NVLinks active on {gpus_text(linked)}")
        evidence = _rows(linked)
    elif any(kinds.values()):
        names = sorted({name for counts in kinds.values() for name in counts})
        parts.append(f"cards joined by {', '.join(names)}")
        evidence = (Evidence(source="nvidia-smi topo -m", text=", ".join(names)),)
    if switched:
        parts.append(f"fabric {switched[0].fabric_state}")
        evidence = (
            *evidence,
            Evidence(source="nvidia-smi", text=f"fabric.state: {switched[0].fabric_state}"),
        )
    return Finding(
        id="nvlink_fabric",
        severity=Severity.OK,
        summary="; ".join(parts),
        expected=_EXPECTED,
        evidence=evidence,
    )


CHECK = Check(
    title="has its NVLinks",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
