"""The PCI Express link of each card has all its lanes and, at work, its full speed.

The width never falls at rest, so it is judged always. The generation does, down to 1, to save power: it is
judged in samples in which the card works, and in none else. A slot that can do less than the card limits it
for good.

Source: nvidia-smi `pcie.link.*`; RTX PRO 6000 and RTX 4090 show generation 1 at rest; `max_link_width` of the
port above a card in sysfs. Ports that a virtual machine shows are made up: there only the link itself counts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import BUSY, looks_at, meant_gpus, moments_of, tool_of
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu, GpuSample, PciDevice

_EXPECTED = "all lanes that the card has, and its full generation at work"
_ENOUGH = 2  # samples at work
_FEW = 4  # lanes: fewer are felt even by one card alone
_INTEGRATED = frozenset(
    ("8.7", "11.0", "12.1")
)  # Orin, Thor, GB10: the memory is the host's, the link a formality


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A card's link with everything that bounds it."""

    gpu: Gpu
    width: int
    width_max: int | None  # of card and slot together, as the driver tells
    card_width: int | None  # lanes of the card alone
    slot_width: int | None  # lanes of the port above it
    working: tuple[GpuSample, ...]  # samples at work that tell a generation

    @property
    def is_slot_short(self) -> bool:
        """Whether the slot has fewer lanes than the card."""
        reach = self.slot_width if self.slot_width is not None else self.width_max
        return self.card_width is not None and reach is not None and reach < self.card_width


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Width, generation at work, and what the slots can do."""
    _ = replies
    host = deployment.host
    gpus = host.main_gpus if host is not None else ()
    links = _links(gpus, deployment)
    meant = meant_gpus(deployment)
    problems = (
        *_narrow(links, meant),
        *_short_slots(links, meant),
        *_slow(links, meant),
        *_slot_generation(links),
    )
    if problems or not links:
        return Judgement(findings=problems)
    return Judgement(findings=(_fine(links),))


def _links(gpus: Sequence[Gpu], deployment: Deployment) -> list[_Link]:
    devices = _devices(deployment)
    widest: dict[str | None, int] = defaultdict(int)
    for gpu in gpus:
        device = devices.get(gpu.bus_id or "")
        lanes = (gpu.pcie_width_max, device.link_width_max if device is not None else None)
        widest[gpu.name] = max(widest[gpu.name], *(lane or 0 for lane in lanes))
    found: list[_Link] = []
    for gpu in gpus:
        if gpu.pcie_width is None or gpu.compute_capability in _INTEGRATED:
            continue
        device = devices.get(gpu.bus_id or "")
        found.append(
            _Link(
                gpu=gpu,
                width=gpu.pcie_width,
                width_max=gpu.pcie_width_max,
                card_width=widest[gpu.name] or None,
                slot_width=device.slot_width_max if device is not None else None,
                working=_working(gpu, deployment),
            )
        )
    return found


def _devices(deployment: Deployment) -> dict[str, PciDevice]:
    host = deployment.host
    if host is None or host.facts.virtualization not in (None, "none"):
        return {}
    return {device.address: device for device in host.pci_devices}


def _working(gpu: Gpu, deployment: Deployment) -> tuple[GpuSample, ...]:
    samples: list[GpuSample] = []
    for look in looks_at(gpu, deployment):
        samples.append(GpuSample(utilization=look.utilization, pcie_generation=look.pcie_generation))
        samples += look.samples
    samples += [
        GpuSample(utilization=moment.utilization, pcie_generation=moment.pcie_generation)
        for moment in moments_of(gpu, deployment)
    ]
    return tuple(one for one in samples if (one.utilization or 0) >= BUSY and one.pcie_generation is not None)


def _severity(links: Sequence[_Link], meant: Sequence[Gpu]) -> Severity:
    return Severity.WARNING if any(link.gpu in meant for link in links) else Severity.NOTE


def _rows(links: Sequence[_Link]) -> tuple[Evidence, ...]:
    return tuple(Evidence(source=tool_of(link.gpu), text=_row(link)) for link in links)


def _row(link: _Link) -> str:
    gpu = link.gpu
    parts = [f"x{link.width} of x{link.width_max or '?'}"]
    if link.slot_width is not None:
        parts.append(f"slot x{link.slot_width}")
    parts.append(f"generation {gpu.pcie_generation or '?'} of {gpu.pcie_generation_max or '?'}")
    at_work = sorted({sample.pcie_generation or 0 for sample in link.working})
    if at_work:
        seen = " and ".join(map(str, at_work))
        parts.append(f"at work {seen} in {len(link.working)} sample{'s' if len(link.working) > 1 else ''}")
    return f"{gpu.label} ({gpu.bus_id}): {', '.join(parts)}"


def _narrow(links: Sequence[_Link], meant: Sequence[Gpu]) -> Iterator[Finding]:
    narrow = [link for link in links if link.width_max is not None and link.width < link.width_max]
    if narrow:
        least = min(narrow, key=lambda link: link.width)
        yield Finding(
            id="pcie_link.width",
            severity=_severity(narrow, meant) if len(meant) > 1 or least.width <= _FEW else Severity.NOTE,
            summary=f"{gpus_text(link.gpu for link in narrow)} linked by {least.width} of "
            f"{least.width_max} lanes",
            expected=_EXPECTED,
            explanation="lanes do not rest: the link came up narrow, and every copy over it is slower by as "
            "much; with tensor parallelism the slowest card decides",
            action="seat the card and its riser or cable anew, clean the contacts, check the slot's "
            "bifurcation in the firmware",
            evidence=_rows(narrow),
        )


def _short_slots(links: Sequence[_Link], meant: Sequence[Gpu]) -> Iterator[Finding]:
    short = [link for link in links if link.is_slot_short and link.width == (link.width_max or link.width)]
    if short:
        least = min(short, key=lambda link: link.width)
        is_shared = any(link.gpu in meant for link in short) and len(meant) > 1
        yield Finding(
            id="pcie_link.slot",
            severity=Severity.WARNING if is_shared and least.width <= _FEW else Severity.NOTE,
            summary=f"{gpus_text(link.gpu for link in short)}: a slot of {least.width} lanes, "
            f"the card has {least.card_width}",
            expected=_EXPECTED,
            explanation="copies between cards go at the slot's speed; one card by itself loses little but "
            "load time",
            action="move the card to a full slot, or use slots alike for the cards that share a model",
            evidence=_rows(short),
        )


def _slow(links: Sequence[_Link], meant: Sequence[Gpu]) -> Iterator[Finding]:
    slow = [link for link in links if _is_slow(link)]
    if slow:
        seen = max(sample.pcie_generation or 0 for link in slow for sample in link.working)
        full = max(link.gpu.pcie_generation_max or 0 for link in slow)
        yield Finding(
            id="pcie_link.generation",
            severity=_severity(slow, meant),
            summary=f"{gpus_text(link.gpu for link in slow)} at generation {seen} of {full} while working",
            expected=_EXPECTED,
            explanation="a link that stays slow at work was trained down after errors, or is held by power "
            "saving",
            action="look for PCIe bus errors in the kernel log; seat the card or riser anew; set ASPM off",
            evidence=_rows(slow),
        )


def _is_slow(link: _Link) -> bool:
    full = link.gpu.pcie_generation_max
    if full is None or len(link.working) < _ENOUGH:
        return False
    return max(sample.pcie_generation or 0 for sample in link.working) < full


def _slot_generation(links: Sequence[_Link]) -> Iterator[Finding]:
    old = [
        link
        for link in links
        if link.gpu.pcie_generation_host is not None
        and link.gpu.pcie_generation_card is not None
        and link.gpu.pcie_generation_host < link.gpu.pcie_generation_card
    ]
    if old:
        first = old[0].gpu
        yield Finding(
            id="pcie_link.host",
            severity=Severity.NOTE,
            summary=f"the slots of {gpus_text(link.gpu for link in old)} do generation "
            f"{first.pcie_generation_host}, the card {first.pcie_generation_card}",
            expected=_EXPECTED,
            explanation="each generation less halves the speed of copies; one card by itself loses little",
            action="check that the firmware does not limit the slot; else it is the board",
            evidence=tuple(
                Evidence(
                    source=tool_of(link.gpu),
                    text=f"{link.gpu.label}: gpumax {link.gpu.pcie_generation_card}, "
                    f"hostmax {link.gpu.pcie_generation_host}",
                )
                for link in old
            ),
        )


def _fine(links: Sequence[_Link]) -> Finding:
    widths = sorted({link.width for link in links})
    lanes = " and ".join(f"x{width}" for width in widths)
    judged = [link for link in links if len(link.working) >= _ENOUGH and link.gpu.pcie_generation_max]
    told = [link.gpu.pcie_generation for link in links if link.gpu.pcie_generation is not None]
    if judged:
        speed = f"generation {max(link.gpu.pcie_generation_max or 0 for link in judged)} at work"
    elif told and all(link.gpu.pcie_generation_max in (None, link.gpu.pcie_generation) for link in links):
        speed = f"generation {min(told)}"
    elif told:
        speed = f"generation {min(told)} at rest, as is normal"
    else:
        speed = "the generation is not told"
    return Finding(
        id="pcie_link",
        severity=Severity.OK,
        summary=f"{lanes} on {gpus_text(link.gpu for link in links)}; {speed}",
        expected=_EXPECTED,
        evidence=_rows(links),
    )


CHECK = Check(
    title="has its full PCIe link",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
