"""What stands between GPUs that copy to each other over PCIe: IOMMU translation, ACS redirection, SEV-SNP.

GPUs that are joined by NVLink do not copy over PCIe, and one GPU copies to nobody.

Seen in: RTX PRO 6000, 4090 and 5090 with a translating IOMMU: the start hangs after NCCL's `Init COMPLETE`,
or peer copies are dropped while they report success (vllm-project/vllm #33041, NVIDIA/nccl #1999,
pytorch/pytorch #84803); AMDESE/AMDSEV #227, #287 for SEV-SNP.
"""

import re
from collections.abc import Iterator
from itertools import combinations

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.host import Gpu, HostSnapshot

_EXPECTED = "nothing that translates or redirects copies between GPUs of one model"
_FAULTS = re.compile(r"IO_PAGE_FAULT|RMP_PAGE_FAULT|DMAR: .*fault", re.IGNORECASE)
_PROOF = "compare answers with `NCCL_P2P_DISABLE=1`, and read a peer write back on its destination"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What each state of the machine means for peer copies of the GPUs that carry the model."""
    _ = replies
    host, process = deployment.host, deployment.process
    gpus = deployment.carriers
    if host is None or process is None or len(gpus) < 2 or _is_linked(host, gpus):
        return Judgement(findings=())
    if process.environment.get("NCCL_P2P_DISABLE") == "1" and "--disable-custom-all-reduce" in process.argv:
        return Judgement(findings=())  # nothing copies from GPU to GPU
    latest = deployment.host_after or host
    found = tuple(_snp(host)) or tuple(_translated(host, latest, gpus)) or tuple(_redirected(host))
    return Judgement(findings=found or tuple(_sound(host)))


def _is_linked(host: HostSnapshot, gpus: tuple[Gpu, ...]) -> bool:
    """Whether NVLink joins each two of them."""
    kinds = {frozenset((link.source, link.target)): link.kind for link in host.links}
    names = [f"GPU{gpu.index}" for gpu in gpus]
    return all(kinds.get(frozenset(pair), "").startswith("NV") for pair in combinations(names, 2))


def _sound(host: HostSnapshot) -> Iterator[Finding]:
    # What a guest sees of IOMMU and bridges says nothing of those below it.
    is_bare = host.facts.virtualization == "none"
    if is_bare and host.facts.iommu is not None and host.facts.acs is not None:
        summary = f"peer copies go their own way: IOMMU {host.facts.iommu}, ACS {host.facts.acs}"
        yield Finding(id="iommu_p2p", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _snp(host: HostSnapshot) -> Iterator[Finding]:
    if not host.facts.sev_snp:
        return
    yield Finding(
        id="iommu_p2p.sev_snp",
        severity=Severity.WARNING,
        summary="SEV-SNP is on: GPUs of this host cannot be relied on to copy to each other",
        expected=_EXPECTED,
        explanation="it forces the IOMMU to translate and to check every write: peer copies fault or vanish",
        action="switch SNP off in the BIOS of a host that serves models, or set `NCCL_P2P_DISABLE=1`",
        evidence=(Evidence(source="/sys/module/kvm_amd/parameters/sev_snp", text="Y"),),
        next_measurement=_PROOF,
    )


def _translated(host: HostSnapshot, latest: HostSnapshot, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    if host.facts.iommu != "translated":
        return
    addresses = [gpu.bus_id.partition(".")[0].lower() for gpu in gpus if gpu.bus_id]
    faults = [
        line.text
        for line in latest.kernel_lines
        if _FAULTS.search(line.text) and any(address in line.text.lower() for address in addresses)
    ]
    evidence = (Evidence(source="/sys/kernel/iommu_groups", text="type DMA or DMA-FQ"),)
    has_acs = " and ACS redirects" if host.facts.acs == "redirecting" else ""
    yield Finding(
        id="iommu_p2p.translated",
        severity=Severity.WARNING if faults else Severity.NOTE,
        summary=f"the IOMMU refused writes between GPUs ({len(faults)} faults in the kernel log)"
        if faults
        else f"the IOMMU translates{has_acs}: copies between the {len(gpus)} GPUs may be slow or get lost",
        expected=_EXPECTED,
        explanation="a write that is dropped reports success: the start hangs, or answers are wrong",
        action="boot with `iommu=pt`, or switch the IOMMU off; until then `NCCL_P2P_DISABLE=1` and "
        "`--disable-custom-all-reduce`",
        evidence=(*(Evidence(source="kernel log", text=text) for text in faults[:1]), *evidence),
        fixes=(Fix(type="kernel-param", name="iommu", new="pt"),),
        next_measurement=_PROOF,
    )


def _redirected(host: HostSnapshot) -> Iterator[Finding]:
    if host.facts.acs != "redirecting":
        return
    yield Finding(
        id="iommu_p2p.redirected",
        severity=Severity.NOTE,
        summary="ACS sends copies between GPUs up to the root and back",
        expected=_EXPECTED,
        explanation="GPUs below one switch then share its one link upward",
        action="switch ACS off in the BIOS or with `setpci` at boot, unless GPUs are passed to guests",
        evidence=(Evidence(source="lspci -vvv", text="ACSCtl: ReqRedir+ above a GPU"),),
        next_measurement=_PROOF,
    )


CHECK = Check(
    title="copies between GPUs unhindered",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
