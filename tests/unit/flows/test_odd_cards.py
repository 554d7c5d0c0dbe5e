"""Cards that MIG cuts, and cards without memory of their own: what is told is used, nothing is guessed."""

from pathlib import Path

import pytest
from broken_cases import verified
from odd_cards import cut, spark, uuid_of

from bringup.errors import EXIT_UNKNOWN
from bringup.units import mib
from bringup.values.finding import Finding, Severity
from bringup.values.recording import Recording
from bringup.values.report import Report


def report_of(recording: Recording, folder: Path) -> Report:
    # Its answers were recorded of an endpoint with another context.
    return verified(recording, folder, skip=["models_endpoint"])


def by_id(report: Report) -> dict[str, Finding]:
    return {one.id: one for one in report.findings}


def unknown(report: Report) -> set[str]:
    return {one.id for one in report.findings if one.severity is Severity.UNKNOWN}


class TestMemoryOfTheHost:
    """A GB10: `[N/A]` for all memory, a figure for each process, and the kernel's own."""

    def test_a_sound_one_leaves_nothing_open(self, tmp_path: Path) -> None:
        report = report_of(spark(), tmp_path)
        assert (report.verdict, report.exit_code) == ("works", 0)
        found = by_id(report)
        assert (
            "62,900 MiB are by design: --gpu-memory-utilization 0.5 of" in found["memory_by_design"].summary
        )
        # 58,000,000 KiB of MemAvailable
        assert found["headroom"].summary.startswith("56,641 MiB are really left on GPU 0")
        assert found["headroom"].evidence[0].source == "kernel"
        assert found["gpu_memory"].severity is Severity.OK

    def test_the_ledger_adds_up_to_the_hosts_memory(self, tmp_path: Path) -> None:
        (one,) = report_of(spark(), tmp_path).facts["account"].gpus
        names = {line.name: line.bytes for line in one.lines}
        assert sum(names.values()) == 127_600_640 * 1024
        assert names["free"] == 58_000_000 * 1024
        # 127,600,640 - 58,000,000 KiB in use, 62,900 MiB of it the engine's on the card
        assert names["other_programs"] == (127_600_640 - 58_000_000) * 1024 - mib(62_900)

    def test_it_has_a_bar(self, tmp_path: Path) -> None:
        (bar,) = report_of(spark(), tmp_path).bars
        assert [part.name for part in bar.segments] == ["weights", "KV cache", "work space", "others", "free"]

    def test_more_than_by_design_is_seen_there_as_well(self, tmp_path: Path) -> None:
        found = by_id(report_of(spark(engine_mib=67_500), tmp_path))
        assert found["memory_by_design.more"].severity is Severity.WARNING

    def test_without_figures_of_processes_nothing_is_made_up(self, tmp_path: Path) -> None:
        report = report_of(spark(processes=False), tmp_path)
        assert "gpu_set.none" not in by_id(report)
        assert not report.bars
        assert "gpu_memory" in unknown(report)


class TestInstances:
    """A card of three instances, the first of them the engine's."""

    @pytest.mark.parametrize(
        "recording",
        [cut(), cut(used=(36_600, 15_000, 9), visible=uuid_of(0))],
        ids=["the only one in use", "named by the environment"],
    )
    def test_the_figures_are_those_of_the_engines_instance(
        self, tmp_path: Path, recording: Recording
    ) -> None:
        report = report_of(recording, tmp_path)
        assert report.exit_code == 0
        found = by_id(report)
        assert "36,600 MiB are by design: --gpu-memory-utilization 0.9" in found["memory_by_design"].summary
        # 40,448 - 36,600
        assert "3,848 MiB are really left on GPU 0 (MIG 3g.40gb)" in found["headroom"].summary
        (one,) = report.facts["account"].gpus
        assert sum(line.bytes for line in one.lines) == mib(40_448)

    def test_the_instance_that_is_named_counts(self, tmp_path: Path) -> None:
        report = report_of(cut(used=(36_600, 15_000, 9), visible=uuid_of(1)), tmp_path)
        (one,) = report.facts["account"].gpus
        assert (one.gpu.part, one.engine_bytes) == ("MIG 2g.20gb", mib(15_000))

    @pytest.mark.parametrize(
        ("recording", "why"),
        [
            (cut(used=(36_600, 15_000, 9)), "it cannot be told which of its instances the engine has"),
            (cut(has_table=False), "the sizes of its instances were not told"),
        ],
        ids=["two in use", "no sizes"],
    )
    def test_what_cannot_be_told_is_said_once(self, tmp_path: Path, recording: Recording, why: str) -> None:
        report = report_of(recording, tmp_path)
        assert report.exit_code == EXIT_UNKNOWN
        assert unknown(report) == {"memory_by_design"}
        assert by_id(report)["memory_by_design"].summary == f"not measured: GPU 0 is cut by MIG, and {why}"
        assert sum(why in one.summary for one in report.findings) == 1
        assert not report.bars  # the card's figures are those of all its instances
