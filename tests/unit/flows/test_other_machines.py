"""Case A on machines that are set up in other ways: what is said of memory stays true on each."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from machine import Box, Neighbour, Worker
from touchstones import box_a, case_a, under_load

from bringup.flows.reach import replayed
from bringup.flows.verify import verify
from bringup.report.text import render_text
from bringup.transport.recording import save
from bringup.units import mib
from bringup.values.finding import Finding, Severity
from bringup.values.recording import Recording
from bringup.values.report import Report

MEMORY = ("gpu_set", "rank_balance", "memory_by_design", "headroom", "kv_capacity")


def verified(recording: Recording, folder: Path, **wanted: object) -> Report:
    recording = replace(recording, options={**recording.options, **wanted})
    save(folder / "case.json.gz", recording)
    return asyncio.run(verify(*replayed(folder / "case.json.gz"))).report


def memory(report: Report) -> dict[str, Finding]:
    return {one.id: one for one in report.findings if one.id.partition(".")[0] in MEMORY}


def loud(report: Report) -> set[str]:
    quiet = (Severity.OK, Severity.NOTE)
    return {name for name, one in memory(report).items() if one.severity not in quiet}


def told(recording: Recording, index: int, values: Mapping[str, str]) -> Recording:
    """The recording with some fields of one card told otherwise by nvidia-smi."""
    snapshot = dict(recording.snapshots["before"])
    answer = snapshot["nvidia.gpus"]
    lines = answer.stdout.splitlines(keepends=True)
    names = next(line for line in lines if line.startswith("@fields")).split()[1].split(",")
    for number, line in enumerate(lines):
        if line.startswith(f"{index}, "):
            cells = line.rstrip().split(", ")
            for name, value in values.items():
                cells[names.index(name)] = value
            lines[number] = ", ".join(cells) + "\n"
    snapshot["nvidia.gpus"] = replace(answer, stdout="".join(lines))
    return replace(recording, snapshots={"before": snapshot, "after": snapshot})


def in_a_container(box: Box) -> Box:
    """The driver lists the ranks by pids of the host, which the engine's own process table does not know."""
    names = {"name": "[Not Found]", "is_engine": False}
    return replace(box, workers=tuple(replace(one, pid=900_000 + one.card, **names) for one in box.workers))


def two_engines(box: Box) -> Box:
    """Qwen3-32B twice, each on one card, behind one endpoint."""
    cards = tuple(replace(one, used_mib=88_800 if one.index < 2 else 3) for one in box.cards)
    argv = (*box.argv[:3], "Qwen/Qwen3-32B", "--data-parallel-size", "2", "--max-model-len", "32768")
    workers = tuple(replace(one, mib=88_790) for one in box.workers[:2])
    return replace(box, cards=cards, workers=workers, argv=argv)


def flags(*more: str):
    def change(box: Box) -> Box:
        return replace(box, argv=(*box.argv, *more))

    return change


def test_pids_of_another_process_table_are_the_engines_and_no_strangers(tmp_path: Path) -> None:
    report = verified(case_a(in_a_container), tmp_path)
    assert not loud(report)
    assert "96,721 MiB per GPU are by design" in memory(report)["memory_by_design"].summary


def test_with_data_parallelism_a_card_holds_its_own_engines_cache(tmp_path: Path) -> None:
    # The endpoint tells the blocks of both engines; 12,400 / 2 x 16 x 262,144 B = 24.2 GiB on each card.
    report = verified(case_a(two_engines, blocks=12_400), tmp_path)
    for one in report.facts["account"].carriers:
        assert one.line("kv_pool").bytes == 6_200 * 16 * 262_144
        assert one.line("working").bytes > 0
    assert not loud(report)
    assert "198,400 tokens of KV cache" in memory(report)["kv_capacity"].summary


class TestInstances:
    """A card that is cut by MIG: the driver's figures are those of the whole card."""

    def report(self, folder: Path) -> Report:
        return verified(told(case_a(), 0, {"mig.mode.current": "Enabled"}), folder)

    def test_nothing_is_concluded_from_figures_of_the_whole_card(self, tmp_path: Path) -> None:
        found = memory(self.report(tmp_path))
        assert found["memory_by_design"].severity is Severity.UNKNOWN
        assert "GPU 0 is cut by MIG" in found["memory_by_design"].summary
        assert "nvidia-smi" in found["memory_by_design"].action

    def test_what_is_left_on_the_card_is_not_left_to_the_instance(self, tmp_path: Path) -> None:
        headroom = memory(self.report(tmp_path))["headroom.tight"]
        assert "are really left on GPUs 1-3," in headroom.summary


def test_tokens_that_no_engine_told_are_said_to_be_computed(tmp_path: Path) -> None:
    recording = case_a()
    probes = {path: answer for path, answer in recording.probes.items() if path != "/metrics"}
    capacity = memory(verified(replace(recording, probes=probes), tmp_path))["kv_capacity"]
    assert capacity.summary.startswith("about ")
    assert "by the rules as the engine tells none" in capacity.summary


def test_no_more_requests_are_held_than_the_scheduler_runs(tmp_path: Path) -> None:
    report = verified(case_a(flags("--max-num-seqs", "2")), tmp_path, need_concurrency=4)
    found = memory(report)["kv_capacity.concurrency"]
    assert "4 requests of 131,072 tokens at once are needed, 2.0 are held" in found.summary
    assert found.explanation == "2 requests run at once (--max-num-seqs 2), whatever the cache holds"
    assert found.action.startswith("--max-num-seqs 4, where memory allows it")
    assert [(fix.name, fix.old, fix.new) for fix in found.fixes] == [("--max-num-seqs", "2", "4")]
    fine = memory(verified(case_a(flags("--max-num-seqs", "2")), tmp_path))["kv_capacity"]
    assert (
        "2.0 requests of 131,072 tokens at once, limited by --max-num-seqs 2, not by tokens" in fine.summary
    )
    assert found.expected == "4 x 131,072 tokens, for which the cache has room"


class TestAnotherShare:
    """The reading of case A beside a command line that says 0.90."""

    def test_a_pool_beyond_its_bounds_is_not_called_explained(self, tmp_path: Path) -> None:
        report = verified(case_a(share="0.90"), tmp_path)
        (table,) = [table for table in report.tables if table.title == "Memory of GPUs 0-3"]
        assert table.note == "Outside of what the rules allow: KV cache by 3,146 MiB."


class TestOnOneScreen:
    """What somebody reads of case A in a terminal of 80 x 40."""

    def text(self, folder: Path) -> str:
        return render_text(verified(case_a(), folder), width=80, color=False)

    def test_it_fits(self, tmp_path: Path) -> None:
        lines = self.text(tmp_path).splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 80

    @pytest.mark.parametrize(
        "said",
        [
            "works, tight",
            "GPUs 0-3 carry the model, GPUs 4-7 are idle",
            "by design: --gpu-memory-utilization 0.95",
            "530 MiB are really left",
            "the driver keeps 636 MiB, and none of it is room for the KV cache",
            "at 1,024, the default, 7,522 MiB",
            "4.4 requests of 131,072 tokens",
            "4 x 83.3 W with the model at rest + 4 x 33.5 W idle = 467 W (limit 600 W)",
        ],
    )
    def test_it_says(self, tmp_path: Path, said: str) -> None:
        assert said in " ".join(self.text(tmp_path).split())

    def test_the_letters_are_explained_in_whole_pieces(self, tmp_path: Path) -> None:
        lines = self.text(tmp_path).splitlines()
        assert "       + work space 6.8 GiB  . free 530.0 MiB" in lines


def test_a_burst_that_was_stood_is_in_the_paragraph(tmp_path: Path) -> None:
    report = verified(under_load(case_a(), box_a()), tmp_path)
    assert "Up to 16 requests at once answered as right as alone" in report.paragraph


def test_the_lines_of_a_card_with_pids_of_another_table_add_up(tmp_path: Path) -> None:
    report = verified(case_a(in_a_container), tmp_path)
    for one in report.facts["account"].gpus:
        assert sum(line.bytes for line in one.lines) == mib(97_887)


def sharing(box: Box) -> Box:
    """Qwen3-8B on half of GPU 0, and another engine on port 8001 on the other half."""
    used = 2 * 44_600
    cards = tuple(replace(one, used_mib=used if one.index == 0 else 3) for one in box.cards)
    argv = (*box.argv[:3], "Qwen/Qwen3-8B", "--max-model-len", "32768", "--gpu-memory-utilization", "0.45")
    other = Worker(pid=5000, card=0, mib=44_590, name="VLLM::EngineCore", is_engine=False)
    return replace(
        box,
        cards=cards,
        workers=(replace(box.workers[0], mib=44_590), other),
        argv=argv,
        environment={"CUDA_VISIBLE_DEVICES": "0"},
        neighbours=(Neighbour(pid=5000, port=8001, argv=(*argv, "--port", "8001")),),
    )


class TestTwoEnginesOnOneCard:
    """0.45 and 0.45 of one card, on purpose."""

    def test_the_other_one_is_named_and_nothing_is_to_be_ended(self, tmp_path: Path) -> None:
        report = verified(case_a(sharing, blocks=10_000), tmp_path)
        assert not loud(report)
        found = memory(report)["gpu_set.neighbour"]
        assert found.severity is Severity.NOTE
        assert found.summary == (
            "GPU 0 is shared with another engine on port 8001 (process 5000 VLLM::EngineCore): 44,610 MiB "
            "here and 44,590 MiB there, together 89,200 MiB of 97,887 MiB"
        )
        assert "gpu_set.shared" not in memory(report)

    def test_one_that_answers_nowhere_is_looked_at(self, tmp_path: Path) -> None:
        def left_over(box: Box) -> Box:
            return replace(sharing(box), neighbours=())

        found = loud(verified(case_a(left_over, blocks=10_000), tmp_path))
        assert "gpu_set.shared" in found

    def test_too_little_room_for_both_is_a_warning(self, tmp_path: Path) -> None:
        def full(box: Box) -> Box:
            box = sharing(box)
            cards = tuple(replace(one, used_mib=97_150) if one.index == 0 else one for one in box.cards)
            mine, other = box.workers
            return replace(box, cards=cards, workers=(mine, replace(other, mib=97_150 - 44_610)))

        assert loud(verified(case_a(full, blocks=10_000), tmp_path)) == {"headroom.tight"}


def in_stages(*used: int, tensor: int = 1):
    """Case A cut into stages of a pipeline, `tensor` cards to a stage."""

    def change(box: Box) -> Box:
        argv = (*box.argv[:4], "--pipeline-parallel-size", str(4 // tensor))
        argv += ("--tensor-parallel-size", str(tensor), "--max-num-seqs", "256", "--max-model-len", "131072")
        argv += ("--gpu-memory-utilization", "0.95")
        cards = tuple(replace(one, used_mib=used[one.index]) for one in box.cards[:4])
        workers = tuple(replace(one, mib=used[one.card] - 9) for one in box.workers)
        return replace(box, argv=argv, cards=(*cards, *box.cards[4:]), workers=workers)

    return change


class TestPipeline:
    """62 layers in stages of 15, 16, 16 and 15: the first and the last hold less by rule."""

    def test_stages_are_not_held_against_each_other(self, tmp_path: Path) -> None:
        report = verified(case_a(in_stages(92_200, 96_720, 96_700, 92_300)), tmp_path)
        assert not loud(report)
        balance = memory(report)["rank_balance"]
        assert "stage 0 (layers 0-14) on GPU 0 92,200 MiB, stage 1 (layers 15-30) on GPU 1" in balance.summary
        assert any(
            one.text.startswith("stage 3: 15 layers, 53,724 MiB of weights and 32,945 MiB of KV cache")
            for one in balance.evidence
        )

    def test_the_ledger_of_each_stage_has_its_own_layers(self, tmp_path: Path) -> None:
        report = verified(case_a(in_stages(92_200, 96_720, 96_700, 92_300)), tmp_path)
        first, second, *_ = report.facts["account"].carriers
        # 35,840 blocks of 1 MiB where 16 layers are, 15 / 16 of it where 15 are
        assert second.line("kv_pool").bytes == mib(35_840)
        assert first.line("kv_pool").bytes == mib(33_600)
        assert first.unexplained == second.unexplained == 0

    def test_a_stage_that_holds_more_than_its_layers_need(self, tmp_path: Path) -> None:
        found = loud(verified(case_a(in_stages(96_700, 96_720, 96_700, 92_300)), tmp_path))
        assert found == {"memory_by_design.more"}

    def test_ranks_of_one_stage_hold_the_same(self, tmp_path: Path) -> None:
        even = verified(case_a(in_stages(96_000, 96_000, 95_000, 95_000, tensor=2)), tmp_path)
        summary = memory(even)["rank_balance"].summary
        assert "stage 0 (layers 0-30) on GPUs 0, 1 96,000 MiB, stage 1 (layers 31-61) on GPUs 2, 3" in summary
        odd = verified(case_a(in_stages(96_000, 96_000, 95_000, 92_000, tensor=2)), tmp_path)
        assert memory(odd)["rank_balance"].severity is Severity.WARNING
        assert "GPU 2 holds 3,000 MiB more" in memory(odd)["rank_balance"].summary
