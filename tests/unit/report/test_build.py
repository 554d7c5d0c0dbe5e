from dataclasses import replace

import pytest

from bringup.units import mib
from bringup.values.deployment import Ability, Wanted
from bringup.values.finding import Judgement, Measurement, Severity
from bringup.values.host import Disk, HostFacts, HostSnapshot, NumaNode, PciDevice


def test_the_worst_finding_decides_verdict_and_exit_code(deployment, judged, report_of):
    expected = [
        (Severity.OK, "works", 0),
        (Severity.NOTE, "works", 0),
        (Severity.UNKNOWN, "works, not fully measured", 7),
        (Severity.WARNING, "works, with warnings", 1),
        (Severity.FAILURE, "broken", 1),
    ]
    for severity, verdict, code in expected:
        report = report_of(deployment, judged("a", Severity.OK, "fine"), judged("b", severity, "so it is"))
        assert (report.verdict, report.exit_code) == (verdict, code)


def test_without_one_good_function_check_nobody_says_works(deployment, judged, report_of):
    expected = [
        (Severity.OK, "not exercised", 0),
        (Severity.UNKNOWN, "not measured", 7),
        (Severity.WARNING, "not measured, with warnings", 1),
        (Severity.FAILURE, "broken", 1),
    ]
    for severity, verdict, code in expected:
        memory = replace(judged("gpu_memory", severity, "so it is", section="resources"), shows_model=False)
        report = report_of(deployment, memory)
        assert (report.verdict, report.exit_code) == (verdict, code)
    report = report_of(deployment, judged("fact", Severity.UNKNOWN, "no answer came"))
    assert report.verdict == "not measured"
    assert "Whether it works is not known: 0 of 1 function checks are good." in report.paragraph


def test_right_answers_in_a_burst_show_the_model_and_a_remark_on_one_does_not(deployment, judged, report_of):
    stood = judged("under_load", Severity.OK, "up to 16 at once", section="capacity")
    assert report_of(deployment, stood).verdict == "works"
    assert "It answers." in report_of(deployment, stood).paragraph
    weak = judged("under_load", Severity.NOTE, "none right alone either", section="capacity")
    assert report_of(deployment, weak).verdict == "not exercised"


def test_an_open_door_alone_is_no_working_model(deployment, judged, report_of):
    door = replace(judged("exposure", Severity.OK, "guarded"), shows_model=False)
    report = report_of(deployment, door, judged("fact", Severity.UNKNOWN, "not measured: HTTP 401"))
    assert report.verdict == "not measured"
    assert "It answers" not in report.paragraph


def test_what_is_only_noted_is_not_counted_as_good(deployment, judged, report_of):
    noted = judged("arithmetic", Severity.NOTE, "0 of 10 calculations right")
    report = report_of(deployment, judged("fact", Severity.OK, "Paris"), noted)
    assert (
        "It answers: 1 of 2 function checks are good. "
        "Another one has a remark, and nothing is broken: arithmetic." in report.paragraph
    )


def test_an_estimated_speed_is_told_as_one(deployment, judged, report_of):
    speed = Measurement(name="single-stream speed (estimated)", value=2088.4, unit="tokens/s")
    report = report_of(deployment, judged("speed", Severity.OK, "fast", measurements=(speed,)))
    assert "One stream runs at about 2,088 tokens/s." in report.paragraph


def test_a_warning_beside_something_unknown_is_a_warning(deployment, judged, report_of):
    report = report_of(deployment, judged("a", Severity.UNKNOWN, "?"), judged("b", Severity.WARNING, "!"))
    assert report.exit_code == 1


def test_findings_come_worst_first(report):
    assert [finding.severity.value for finding in report.findings] == [
        "failure",
        "warning",
        "unknown",
        "ok",
        "ok",
    ]


def test_the_paragraph_says_what_failed_how_fast_and_what_is_left(report):
    assert "does arithmetic failed (2 of 5 function checks are good)" in report.paragraph
    assert "84 tokens/s, first token after 53.1 ms" in report.paragraph
    # total - reserved - used = 97887 - 636 - 96721
    assert "8 GPUs; the tightest is GPU 0 with 530 MiB really left" in report.paragraph
    assert "Not measured: does code" in report.paragraph
    assert report.paragraph.endswith("Next: Look at the quantisation.")


@pytest.mark.parametrize("names", [("4", "5"), ("GPU-00000004", "gpu-00000005"), ("05:00.0", "0000:06:00.0")])
def test_the_tightest_gpu_is_looked_for_among_those_meant(deployment, judged, report_of, names):
    host = deployment.host
    gpus = tuple(replace(gpu, bus_id=f"0000:{gpu.index + 1:02x}:00.0") for gpu in host.gpus)
    meant = replace(deployment, host=replace(host, gpus=gpus), wanted=Wanted(gpus=names))
    paragraph = report_of(meant, judged("fact", Severity.OK, "Paris")).paragraph
    assert "2 of 8 GPUs; the tightest is GPU 4 with 97,248 MiB really left." in paragraph


def test_a_gpu_that_tells_no_memory_is_neither_full_nor_left_out_in_silence(deployment, judged, report_of):
    first, *others = deployment.host.gpus
    silent = replace(first, memory_used=None, memory_reserved=None)
    host = replace(deployment.host, gpus=(silent, *others))
    paragraph = report_of(replace(deployment, host=host), judged("fact", Severity.OK, "Paris")).paragraph
    assert "the tightest is GPU 1 with 530 MiB really left; GPU 0 told no figure." in paragraph
    dumb = replace(deployment, host=replace(host, gpus=(silent,)))
    paragraph = report_of(dumb, judged("fact", Severity.OK, "Paris")).paragraph
    assert "1 GPU; how much memory is left on them is not told." in paragraph


def test_a_weak_model_is_named_as_weak(deployment, judged, report_of):
    report = report_of(deployment, judged("arithmetic", Severity.NOTE, "77"))
    assert "Another one has a remark, and nothing is broken: arithmetic." in report.paragraph
    small = replace(deployment, ability=Ability.TINY, model=replace(deployment.model, parameters=135_000_000))
    notes = (judged(name, Severity.NOTE, "77") for name in ("arithmetic", "json_schema"))
    assert (
        "Another 2 have a remark, and nothing is broken (a model of 135M parameters is small): "
        "arithmetic and json schema." in report_of(small, *notes).paragraph
    )
    assert report.exit_code == 0


def test_no_check_at_all_is_said(deployment, judged, report_of):
    assert "No function check was run" in report_of(deployment).paragraph


@pytest.mark.parametrize("host_state", ["no NVIDIA GPU on this host", None])
def test_a_host_without_gpu_rows_is_told_in_words(deployment, judged, report_of, host_state):
    bare = replace(deployment, host=replace(deployment.host, gpus=(), gpu_state=host_state))
    paragraph = report_of(bare, judged("fact", Severity.OK, "Paris")).paragraph
    assert (host_state or "No GPU was seen").lower() in paragraph.lower()


def test_the_host_table_says_what_was_observed_and_makes_nothing_up(deployment, judged, report_of):
    facts = HostFacts(
        name="gpubox",
        cpu_model="EPYC",
        clock_skew_s=-90.0,
        iommu="translated",
    )
    host = HostSnapshot(
        taken_at=0.0,
        host="gpubox",
        facts=facts,
        numa_nodes=(NumaNode(index=0), NumaNode(index=1)),
        disks=(
            Disk(path="/m", purpose="model", size=mib(1000), available=mib(10)),
            Disk(path="/c", purpose="cache"),
        ),
        pci_devices=tuple(
            PciDevice(address=str(one), driver=one) for one in ("nvidia", "vfio-pci", "nvidia", None)
        ),
    )
    report = report_of(replace(deployment, host=host), judged("fact", Severity.OK, "Paris"))
    (table,) = (table for table in report.tables if table.title == "Host")
    assert dict(table.rows) == {
        "host": "gpubox",
        "CPU": "EPYC",
        "NUMA nodes": 2,
        "disk free, model": "10.0 MiB of 1,000.0 MiB",
        "IOMMU": "translated",
        "drivers of display devices": "no driver (1), nvidia (2) and vfio-pci (1)",
        "clock": "-90.0 s against here",
    }


def test_without_a_host_the_gpus_are_not_claimed(deployment, judged, report_of):
    report = report_of(replace(deployment, host=None), judged("fact", Severity.OK, "Paris"))
    assert "GPUs were not looked at" in report.paragraph
    assert all(table.title not in ("GPUs", "Host") for table in report.tables)


def test_a_check_that_says_nothing_is_not_counted(deployment, judged, report_of):
    silent = replace(judged("b", Severity.OK, ""), judgement=Judgement(findings=()))
    report = report_of(deployment, judged("a", Severity.OK, "fine"), silent)
    assert "1 of 1 function checks" in report.paragraph
    assert [row[0] for row in report.tables[0].rows] == ["does a"]
