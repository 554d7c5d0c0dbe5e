"""The two touchstone cases replayed, whole and with one fault each: each fault has its finding."""

from dataclasses import replace
from pathlib import Path

import pytest
from broken_cases import (
    Change,
    cold,
    elsewhere,
    empty,
    foreign,
    narrow,
    spinning,
    stale,
    unreserved,
    unseen,
    verified,
)
from machine import Box
from touchstones import BLOCKS, box_a, case_a, case_b, under_load

from bringup.units import mib
from bringup.values.finding import Finding, Severity
from bringup.values.host import CommandResult
from bringup.values.recording import Recording
from bringup.values.report import Report

MEMORY = ("gpu_set", "rank_balance", "memory_by_design", "headroom", "kv_capacity")


def memory(report: Report) -> dict[str, Finding]:
    """What the checks of memory said, by id."""
    return {one.id: one for one in report.findings if one.id.partition(".")[0] in MEMORY}


def loud(report: Report) -> dict[str, Finding]:
    """Warnings and worse among them."""
    return {
        name: one
        for name, one in memory(report).items()
        if one.severity in (Severity.WARNING, Severity.FAILURE, Severity.UNKNOWN)
    }


class TestCaseA:
    """MiniMax-M2.5 on vLLM 0.16.0, four of eight cards, 96,721 MiB each."""

    def test_it_works_by_design_and_is_tight(self, tmp_path: Path) -> None:
        found = memory(verified(case_a(), tmp_path))
        assert {name: one.severity.value for name, one in found.items()} == {
            "gpu_set": "ok",
            "rank_balance": "ok",
            "memory_by_design": "ok",
            "headroom.tight": "note",
            "kv_capacity": "ok",
        }

    def test_530_mib_are_left_of_which_the_driver_keeps_636(self, tmp_path: Path) -> None:
        headroom = memory(verified(case_a(), tmp_path))["headroom.tight"]
        assert "530 MiB are really left on GPUs 0-3, tight" in headroom.summary
        assert "the driver keeps 636 MiB" in headroom.explanation
        assert "97,887 - 636 - 96,721 = 530 MiB" in headroom.evidence[0].text

    def test_why_256_sequences_fit_and_1024_do_not(self, tmp_path: Path) -> None:
        why = memory(verified(case_a(), tmp_path))["headroom.tight"].explanation
        # 256 x 200,064 x 38.5 B = 1,881 MiB; at 1,024 four times that, 1,024 x 200,064 x 12 B in one piece
        assert "256 takes 1,880 MiB of the 2,410 MiB" in why
        assert "at 1,024, the default, 7,522 MiB, 2,344 MiB in one piece: out of memory" in why

    def test_a_text_model_in_order_has_no_remark_among_its_functions(self, tmp_path: Path) -> None:
        report = verified(case_a(), tmp_path)
        assert report.paragraph.startswith("It answers: 20 of 20 function checks are good. One stream ")
        assert not [one for one in report.findings if one.id == "vision"]

    def test_tokens_and_requests(self, tmp_path: Path) -> None:
        report = verified(case_a(), tmp_path)
        # 35,840 blocks x 16 tokens / 131,072
        assert (
            "573,440 tokens of KV cache hold 4.4 requests of 131,072" in memory(report)["kv_capacity"].summary
        )

    def test_the_same_reading_is_not_by_design_at_the_default_share(self, tmp_path: Path) -> None:
        found = loud(verified(case_a(share="0.90"), tmp_path))
        assert set(found) == {"memory_by_design.more"}
        assert "4,385 MiB more than by design" in found["memory_by_design.more"].summary
        assert "0.95 would explain it" in found["memory_by_design.more"].action
        tight = memory(verified(case_a(share="0.90"), tmp_path))["headroom.tight"]
        assert "lower by 0.01 than the one really in force" in tight.action


class TestCaseB:
    """Qwen3.5-397B on SGLang 0.5.9, 78,193 to 79,043 MiB on four cards."""

    def test_it_is_explained(self, tmp_path: Path) -> None:
        report = verified(case_b(), tmp_path)
        assert not loud(report)
        found = memory(report)
        assert "rank 0 (GPU 0), which holds 674 MiB more" in found["rank_balance"].summary
        assert "--mem-fraction-static 0.7897" in found["memory_by_design"].summary

    def test_what_is_free_is_reserve_and_the_guide_wants_less_of_it(self, tmp_path: Path) -> None:
        headroom = memory(verified(case_b(), tmp_path))["headroom"]
        assert headroom.severity is Severity.NOTE
        assert "none of it is room for the KV cache" in headroom.explanation
        # (18,208 - 6,656) / 96,329 = 0.12 more than 0.7897
        assert "--mem-fraction-static 0.91 leaves 6.5 GiB" in headroom.action

    def test_states_limit_the_requests_of_usual_length(self, tmp_path: Path) -> None:
        capacity = memory(verified(case_b(), tmp_path))["kv_capacity"]
        assert "137.4 MiB of states" in capacity.summary


class TestFaults:
    """One fault each in a whole case."""

    def test_a_foreign_process_on_a_rank(self, tmp_path: Path) -> None:
        found = loud(verified(case_b(foreign), tmp_path))
        assert set(found) == {"gpu_set.shared"}
        assert (
            "3,072 MiB of GPU 2 are held by another process, 999 python3" in found["gpu_set.shared"].summary
        )

    def test_a_rank_above_the_others_without_a_name(self, tmp_path: Path) -> None:
        found = loud(verified(case_b(unseen), tmp_path))
        assert set(found) == {"rank_balance"}
        assert "GPU 2 holds 3,072 MiB more than the other ranks" in found["rank_balance"].summary

    def test_a_card_that_carries_nothing(self, tmp_path: Path) -> None:
        found = loud(verified(case_a(cold), tmp_path, gpus=["0", "1", "2", "3"]))
        assert found["gpu_set.wrong"].severity is Severity.FAILURE
        assert "GPU 3 carries nothing" in found["gpu_set.wrong"].summary
        assert any("P8, 32 W" in one.text for one in found["gpu_set.wrong"].evidence)

    def test_a_stale_process_on_an_idle_card(self, tmp_path: Path) -> None:
        report = verified(case_a(stale), tmp_path)
        assert not loud(report)
        assert "GPU 5 is used by process 3333 python3 (20,480 MiB)" in memory(report)["gpu_set"].summary

    def test_other_cards_than_meant(self, tmp_path: Path) -> None:
        found = loud(verified(case_a(elsewhere), tmp_path, gpus=["0", "1", "2", "3"]))
        assert set(found) == {"gpu_set.wrong"}
        assert found["gpu_set.wrong"].summary == "GPUs 0-3 carry nothing, it runs on GPUs 4-7"
        assert "CUDA_VISIBLE_DEVICES=0,1,2,3 (it is 4,5,6,7)" in found["gpu_set.wrong"].action

    def test_reserved_memory_is_not_told(self, tmp_path: Path) -> None:
        headroom = memory(verified(case_a(unreserved), tmp_path))["headroom.tight"]
        assert "what the driver keeps is not told" in headroom.explanation
        assert "530 MiB are really left" in headroom.summary  # the driver's own figure of what is free

    def test_half_the_pool(self, tmp_path: Path) -> None:
        found = loud(verified(case_a(empty, blocks=BLOCKS // 2), tmp_path))
        assert set(found) == {"memory_by_design.pool"}
        assert "286,720 tokens, 50% of the" in found["memory_by_design.pool"].summary

    @pytest.mark.parametrize("needed", [(131_072, 4, True), (131_072, 6, False), (262_144, 1, False)])
    def test_what_is_needed(self, tmp_path: Path, needed: tuple[int, int, bool]) -> None:
        context, concurrency, is_enough = needed
        report = verified(case_a(), tmp_path, need_context=context, need_concurrency=concurrency)
        assert (not loud(report)) is is_enough


def test_the_lines_of_every_account_add_up(tmp_path: Path) -> None:
    for recording in (case_a(), case_b(foreign), case_a(stale), case_b(), case_b(unseen)):
        report = verified(recording, tmp_path)
        account = report.facts["account"]
        for one in account.gpus:
            assert sum(line.bytes for line in one.lines) == one.gpu.memory_total == mib(97_887)


LOG = "\n".join(
    f"(Worker_TP{rank} pid={4101 + rank}) INFO 11-30 10:00:{rank:02} [gpu_model_runner.py:3421] "
    f"Model loading took {53.75 + rank / 100:.2f} GiB memory and 31.2 seconds"
    for rank in range(4)
)


def test_weights_come_from_the_engines_log_where_there_is_one(tmp_path: Path) -> None:
    recording = case_a()
    line = CommandResult(key="machine.engine_log", status=0, stdout=f"{LOG}\n@@ end of the log\n")
    after = {**recording.snapshots["after"], line.key: line}
    report = verified(replace(recording, snapshots={**recording.snapshots, "after": after}), tmp_path)
    weights = [one.line("weights") for one in report.facts["account"].carriers]
    assert [one.source.value for one in weights] == ["log"] * 4
    assert [round(one.bytes / 2**30, 2) for one in weights] == [53.75, 53.76, 53.77, 53.78]
    assert "line 3: " in weights[2].words
    assert not loud(report)


def remarks(report: Report) -> dict[str, str]:
    """Severities of all findings that are not good, of whatever check, by id."""
    return {one.id: one.severity.value for one in report.findings if one.severity is not Severity.OK}


A_REMARKS = {"headroom.tight": "note"}  # what the whole case A says
B_REMARKS = {
    "context_limit": "note",
    "vision": "note",
    "headroom": "note",
}


class TestWholeReports:
    """Each fault is said once, and nothing else is said for its sake."""

    @pytest.mark.parametrize(
        ("recording", "fault", "gone"),
        [
            (case_a(), {}, ()),
            (case_a(share="0.90"), {"memory_by_design.more": "warning"}, ()),
            (case_a(cold), {"gpu_set.wrong": "warning"}, ()),
            (case_a(narrow), {"pcie_link.width": "warning"}, ()),
            (case_a(spinning), {"utilisation": "warning"}, ()),
            (case_a(stale), {}, ()),
            (case_a(unreserved), {}, ()),
            (case_a(empty, blocks=BLOCKS // 2), {"memory_by_design.pool": "warning"}, ("headroom.tight",)),
        ],
        ids=["whole", "share", "cold", "narrow", "spinning", "stale", "unreserved", "empty"],
    )
    def test_of_case_a(
        self, tmp_path: Path, recording: Recording, fault: dict[str, str], gone: tuple[str, ...]
    ) -> None:
        usual = {name: severity for name, severity in A_REMARKS.items() if name not in gone}
        assert remarks(verified(recording, tmp_path)) == usual | fault

    @pytest.mark.parametrize("change", [cold, elsewhere])
    def test_of_case_a_with_named_gpus(self, tmp_path: Path, change: Change) -> None:
        report = verified(case_a(change), tmp_path, gpus=["0", "1", "2", "3"])
        assert remarks(report) == A_REMARKS | {"gpu_set.wrong": "failure"}

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            (lambda box: box, {}),
            (foreign, {"gpu_set.shared": "warning"}),
            (unseen, {"rank_balance": "warning"}),
        ],
        ids=["whole", "foreign", "unseen"],
    )
    def test_of_case_b(self, tmp_path: Path, change: Change, fault: dict[str, str]) -> None:
        assert remarks(verified(case_b(change), tmp_path)) == B_REMARKS | fault

    def test_what_the_faults_say(self, tmp_path: Path) -> None:
        assert warned(verified(case_a(narrow), tmp_path)) == {
            "pcie_link.width": "GPU 2 linked by 4 of 16 lanes"
        }
        assert warned(verified(case_a(spinning), tmp_path)) == {
            "utilisation": "GPUs 0-3 100 % busy at 140 W of 600 W in 7 of 7 samples"
        }


def kind(box: Box, name: str, **more: float | None) -> Box:
    """The box with cards of another kind."""
    full = f"NVIDIA RTX PRO 6000 Blackwell {name}"
    return replace(box, cards=tuple(replace(one, name=full, **more) for one in box.cards))


class TestPower:
    """Watts by what the cards do, against the limit of their kind."""

    def test_the_whole_box(self, tmp_path: Path) -> None:
        report = verified(case_a(), tmp_path)
        (power,) = [one for one in report.findings if one.id.startswith("power_state")]
        # 84.30 + 84.49 + 82.39 + 81.89 and 34.31 + 33.58 + 33.58 + 32.60: with rounded means it is 466
        assert power.summary == "4 x 83.3 W with the model at rest + 4 x 33.5 W idle = 467 W (limit 600 W)"
        assert power.severity is Severity.OK

    @pytest.mark.parametrize("usual", [300.0, None])
    def test_a_max_q_card_has_300_watts(self, tmp_path: Path, usual: float | None) -> None:
        def change(box: Box) -> Box:
            return kind(box, "Max-Q Workstation Edition", limit=300.0, usual_limit=usual)

        report = verified(case_a(change), tmp_path)
        assert remarks(report) == A_REMARKS
        assert any("= 467 W (limit 300 W)" in one.summary for one in report.findings)

    @pytest.mark.parametrize("usual", [600.0, None])
    def test_a_server_card_with_300_watts_is_capped(self, tmp_path: Path, usual: float | None) -> None:
        def change(box: Box) -> Box:
            return kind(box, "Server Edition", limit=300.0, usual_limit=usual)

        report = verified(case_a(change), tmp_path)
        assert remarks(report) == A_REMARKS | {"power_state.cap": "note"}
        assert any("capped to 300 W, of 600 W by default" in one.summary for one in report.findings)


class TestUnderLoad:
    """A burst over case A, with what the cards did meanwhile."""

    def test_it_stands_the_burst(self, tmp_path: Path) -> None:
        report = verified(under_load(case_a(), box_a()), tmp_path)
        found = {one.id: one for one in report.findings if one.id.startswith("under_load")}
        assert {name: one.severity.value for name, one in found.items()} == {"under_load": "ok"}
        assert "up to 16 requests at once answered as right as alone" in found["under_load"].summary
        (table,) = [table for table in report.tables if table.title == "Under load"]
        power = next(row for row in table.rows if row[0] == "GPU 0 power")
        assert power[1:4] == ("84", "410", "W")
        assert len(report.facts["load"].gpus[0].moments) == 30

    def test_a_burst_alone_shows_that_it_works(self, tmp_path: Path) -> None:
        report = verified(under_load(case_a(), box_a()), tmp_path, only=["under_load"])
        assert report.verdict == "works"
        assert report.paragraph.startswith("It answers. Up to 16 requests at once answered")

    def test_a_card_that_gets_too_hot(self, tmp_path: Path) -> None:
        heat = {"clocks_throttle_reasons.active": "0x0000000000000020", "temperature.gpu": 93}
        found = warned(verified(under_load(case_a(), box_a(), heat), tmp_path))
        assert found == {
            "clocks_and_heat.slowed": "GPUs 0-3 slowed by heat (driver) under load, up to 93 C",
        }

    def test_a_link_that_stays_slow(self, tmp_path: Path) -> None:
        found = warned(verified(under_load(case_a(), box_a(), {"pcie.link.gen.current": 1}), tmp_path))
        assert found == {"pcie_link.generation": "GPUs 0-3 at generation 1 of 5 while working"}

    def test_memory_that_is_nearly_gone(self, tmp_path: Path) -> None:
        found = warned(verified(under_load(case_a(), box_a(), {"memory.used": 97_200}), tmp_path))
        assert set(found) == {"under_load.memory"}
        assert "479 MiB more under load than at rest, 51 MiB were left" in found["under_load.memory"]

    def test_memory_that_stays_taken_is_told_by_the_looks_at_rest(self, tmp_path: Path) -> None:
        recording = under_load(case_a(), box_a(), {"memory.used": 97_100})
        grown = replace(box_a(), cards=tuple(replace(one, used_mib=97_100) for one in box_a().cards[:4]))
        after = {**recording.snapshots["after"], **grown.answers()}
        recording = replace(recording, snapshots={**recording.snapshots, "after": after})
        found = warned(verified(recording, tmp_path))
        assert "under_load.memory" not in found
        assert "grew by up to 379 MiB" in found["gpu_memory"]


def warned(report: Report) -> dict[str, str]:
    """Summaries of warnings and worse, by id."""
    bad = (Severity.WARNING, Severity.FAILURE, Severity.UNKNOWN)
    return {one.id: one.summary for one in report.findings if one.severity in bad}
