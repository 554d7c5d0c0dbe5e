"""Outputs of real machines as hosts: the checks of the GPUs' health give a sensible verdict.

The captures lie beside the repository and are not part of it: without them these tests are skipped. A capture
holds a part of what a host would tell; what it lacks is "not asked", and nothing is said of it.
"""

import pytest
from captures import FOLDER, KINDS, READERS, cards, text_of

from bringup import registry
from bringup.checks import Check, Replies
from bringup.flows.snapshot import Sources, read_snapshot
from bringup.parse.nvidia_list import read_nvlinks
from bringup.parse.topo import read_topology
from bringup.parse.xid_log import read_errors
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.finding import Finding
from bringup.values.host import CommandResult, Gpu, HostSnapshot, KernelLine, KernelLog, NvLink
from bringup.vendors.nvidia import VENDOR

pytestmark = pytest.mark.skipif(not KINDS, reason=f"no captures in {FOLDER}")

OURS = (
    "clocks_and_heat",
    "driver",
    "ecc_and_remap",
    "mig_vgpu",
    "nvlink_fabric",
    "pcie_link",
    "power_state",
    "recovery_action",
    "utilisation",
    "xid",
)
CHECKS = {name: check for name, check in registry.load("bringup.checks", "CHECK").items() if name in OURS}


def host_of(*gpus: Gpu, **more: object) -> HostSnapshot:
    return HostSnapshot(taken_at=1e6, host="captured", gpus=gpus, **more)


def found(host: HostSnapshot, after: HostSnapshot | None = None) -> list[Finding]:
    deployment = Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        host=host,
        host_after=after,
    )
    nothing = Replies(answers={}, programs={}, everyone={})
    findings: list[Finding] = []
    for check in CHECKS.values():
        assert isinstance(check, Check)
        findings += check.judge(deployment, nothing).findings
    return findings


def verdict(findings: list[Finding]) -> dict[str, str]:
    """Findings that are neither good nor a note."""
    return {one.id: one.severity.value for one in findings if one.severity not in ("ok", "note")}


def check_honesty(findings: list[Finding]) -> None:
    """What holds for any host: a measured value with its source, an action, and nothing said twice."""
    for one in findings:
        assert one.evidence, one
        assert one.expected, one
        assert len(one.summary) <= 120, one.summary
        assert one.severity == "ok" or (one.explanation and one.action), one
    assert len({one.id for one in findings}) == len(findings)
    assert len({one.summary for one in findings}) == len(findings)


# Everything else is good or a note. The reasons were read by eye in the captures.
WORSE = {
    "m_fan_err.txt": {"power_state.unread": "unknown"},  # fan ERR! and power N/A
    "m_gtx770_win.txt": {"power_state.unread": "unknown"},
    "xml_tg_gtx-1070-ti.txt": {"power_state.unread": "unknown"},
    "xml_tg_quadro-p400.txt": {"power_state.unread": "unknown"},
}


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].startswith(tuple(READERS))])
def test_every_capture_of_cards_has_a_sensible_verdict(name: str) -> None:
    host = host_of(*cards(name))
    findings = found(host)
    check_honesty(findings)
    assert verdict(findings) == WORSE.get(name, {})
    assert verdict(found(host, after=host)) == WORSE.get(name, {})


def summaries(host: HostSnapshot) -> dict[str, str]:
    return {one.id: one.summary for one in found(host)}


def test_eight_cards_of_600_watts_at_rest() -> None:
    gpus = cards("rtxpro6000se_x8_q.txt")
    links = read_topology(text_of("rtxpro6000se_x8_topo.txt")).links
    said = summaries(host_of(*gpus, links=links))
    assert said["power_state"] == "8 x 38.5 W idle = 308 W (limit 600 W)"
    assert said["pcie_link"] == "x16 on GPUs 0-7; generation 1 at rest, as is normal"
    assert said["recovery_action"] == "none for GPUs 0-7"
    assert not {name for name in said if name.startswith("nvlink")}  # there is none on these cards


def test_an_h200_at_work_and_at_rest() -> None:
    (busy,), (idle,) = cards("h200-590_csv-load.txt"), cards("h200-590_csv-idle.txt")
    (links,) = read_nvlinks(text_of("h200-590_nvlink.txt"))
    rates = tuple(NvLink(number=number, rate=rate) for number, rate in links.rates.items())
    assert summaries(host_of(busy))["power_state"] == "627.4 W busy (limit 700 W)"
    assert summaries(host_of(busy))["utilisation"] == "GPU 0: 100 % at 627 W in one sample"
    linked = Gpu(index=0, name=idle.name, fabric_state=idle.fabric_state, nvlinks=rates)
    assert summaries(host_of(linked))["nvlink_fabric"] == "18 NVLinks active on GPU 0; fabric Completed"


def test_a_card_that_is_busy_because_its_driver_starts_is_no_hang() -> None:
    said = summaries(host_of(*cards("l40s-595_csv-idle.txt")))
    assert "utilisation" not in said  # 100 % with 0 MiB used
    assert said["power_state.persistence"] == "persistence mode is off on GPU 0"


def test_one_b200_without_nvlink() -> None:
    rows = text_of("m_b200_topo_broken_nvlink.txt").split("\n")
    lines = [row.split() for row in rows if row.startswith("GPU")]
    matrix = "\t".join(["", *(line[0] for line in lines)]) + "\n"
    matrix += "\n".join("\t".join(line[: len(lines) + 1]) for line in lines) + "\n"
    gpus = [Gpu(index=index, name="NVIDIA B200") for index in range(len(lines))]
    findings = found(host_of(*gpus, links=read_topology(matrix).links))
    check_honesty(findings)
    assert verdict(findings) == {"nvlink_fabric.alone": "failure"}
    assert findings[0].summary.startswith("GPU 2: no NVLink")


def test_a_card_that_wants_to_be_reset() -> None:
    lines = [KernelLine(at=None, text=line) for line in text_of("m_xid154.txt").split("\n")]
    log = KernelLog(errors=read_errors(lines, boot=None))
    gpu = Gpu(index=0, bus_id="0000:01:00.0", recovery_action="GPU Reset")
    findings = found(host_of(gpu, gpu_log=log))
    check_honesty(findings)
    assert verdict(findings) == {"recovery_action": "failure", "xid": "warning"}
    assert next(one for one in findings if one.id == "xid").summary == (
        "Xid 62 on GPU 0: the card's controller halted, 1 more behind it"
    )


ERRORS = [name for name, kind in KINDS.items() if kind == "error"]


@pytest.mark.parametrize("name", ERRORS)
def test_an_answer_without_a_card_is_told_by_the_driver_check_or_by_none(name: str) -> None:
    text = text_of(name)
    bus = "@pci\n@pci 0000:17:00.0 nvidia\n"
    answer = f"@driver 570.133.20\n{bus}@fields index,uuid\n@answer all 255\n{text}\n@end\n"
    result = CommandResult(key="nvidia.gpus", status=255, stdout=answer)
    only = Sources(vendors={"nvidia": VENDOR}, subjects={})
    host = read_snapshot({"nvidia.gpus": result}, only, host="captured", taken_at=1e6)
    findings = found(host)
    check_honesty(findings)
    is_mismatch = "Driver/library version mismatch" in text
    assert verdict(findings) == ({"driver.mismatch": "failure"} if is_mismatch else {})


def test_a_host_without_gpus_is_not_spoken_of() -> None:
    assert found(host_of(gpu_state="no NVIDIA GPU on this host")) == []
