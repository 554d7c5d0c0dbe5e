"""What stands between GPUs that carry one model, and when it does not matter."""

import pytest

from bringup.checks.iommu_p2p import CHECK
from bringup.values.host import EngineProcess, Gpu, GpuLink, GpuProcess, HostFacts, HostSnapshot, KernelLine

FAULT = "nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x12 address=0x2006 flags=0x20]"
OTHER = "nvme 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x12 address=0x2006 flags=0x20]"


def judge(make, *, count=2, link=None, lines=(), argv=(), environment=None, **facts):
    gpus = tuple(
        Gpu(index=number, uuid=f"GPU-{number}", bus_id=f"0000:0{number}:00.0") for number in range(count)
    )
    links = [
        GpuLink(source=f"GPU{one}", target=f"GPU{two}", kind=link)
        for one in range(count)
        for two in range(count)
        if link and one != two
    ]
    host = HostSnapshot(
        taken_at=0.0,
        host="box",
        facts=HostFacts(**{"virtualization": "none", **facts}),
        gpus=gpus,
        links=tuple(links),
        processes=tuple(GpuProcess(pid=812, gpu_uuid=gpu.uuid) for gpu in gpus),
        kernel_lines=tuple(KernelLine(at=1.0, text=text) for text in lines),
        engines=(EngineProcess(pid=812, port=8000, argv=argv, environment=environment or {}),),
    )
    return make.judge(CHECK, make.deployment(host=host))


def found(make, **what):
    return make.found(judge(make, **what))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"iommu": "passthrough", "acs": "off"}, {"iommu_p2p": "ok"}),
        ({"iommu": "off", "acs": "off"}, {"iommu_p2p": "ok"}),
        ({"iommu": "translated", "acs": "redirecting"}, {"iommu_p2p.translated": "note"}),
        ({"iommu": "passthrough", "acs": "redirecting"}, {"iommu_p2p.redirected": "note"}),
        ({"iommu": "translated", "sev_snp": True}, {"iommu_p2p.sev_snp": "warning"}),
        ({"iommu": "off", "acs": "off", "virtualization": "kvm"}, {}),  # the host below decides
        ({"iommu": "passthrough", "acs": None}, {}),
        ({"iommu": None, "acs": None}, {}),
    ],
)
def test_states(make, facts, expected):
    assert found(make, **facts) == expected


@pytest.mark.parametrize(("line", "severity"), [(FAULT, "warning"), (OTHER, "note")])
def test_faults_of_these_gpus_make_it_a_warning(make, line, severity):
    assert found(make, iommu="translated", lines=[line]) == {"iommu_p2p.translated": severity}


@pytest.mark.parametrize("count", [0, 1])
def test_one_gpu_copies_to_nobody(make, count):
    assert found(make, count=count, iommu="translated", sev_snp=True) == {}


@pytest.mark.parametrize(("link", "fires"), [("NV18", False), ("SYS", True), ("PIX", True)])
def test_nvlink_does_not_pass_there(make, link, fires):
    assert bool(found(make, link=link, iommu="translated")) is fires


def test_where_peer_copies_are_off_nothing_is_said(make):
    off = {"NCCL_P2P_DISABLE": "1"}
    argv = ("vllm", "serve", "m", "--disable-custom-all-reduce")
    assert found(make, iommu="translated", environment=off, argv=argv) == {}
    assert found(make, iommu="translated", environment=off) == {"iommu_p2p.translated": "note"}
