"""Whole logs with cures computed from the model's sizes, and the account before and after."""

import json
from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.report.diagnosis import build_diagnosis_report
from bringup.report.diagnosis_json import render_diagnosis_json
from bringup.report.text import render_text
from bringup.units import MIB
from bringup.values.diagnosis import BeforeAfter, Diagnosis

FOLDER = Path(__file__).parents[2] / "golden" / "diagnose"
NAMES = sorted(path.stem for path in FOLDER.glob("*.log"))
CASE_A = "vllm-0.16-sampler-warm-up"
RULES = load_rules()


def read(text: str) -> Diagnosis:
    return diagnose(sift([text.encode()], RULES), RULES, source="x.log")


def diagnosed(name: str) -> Diagnosis:
    return read((FOLDER / f"{name}.log").read_text(encoding="utf-8"))


def ledger_as_expected(ledger: BeforeAfter | None) -> object:
    if ledger is None:
        return None
    if ledger.reason:
        return {"reason": ledger.reason}
    (pool,) = [row for row in ledger.rows if row.name == "kv_pool"] or [None]
    sizes = [round((size or 0) / MIB) for size in (pool.before, pool.after)] if pool else [0, 0]
    return {"kv_pool_mib": sizes, "fits": list(ledger.fits)}


def as_expected(found: Diagnosis) -> dict[str, object]:
    first = found.findings[0]
    return {
        "id": first.id,
        "fixes": [[fix.name, fix.old, fix.new] for fix in first.fixes],
        "cost": first.fixes[0].cost,
        "ledger": ledger_as_expected(found.ledger),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_log_gives_this_cause_these_values_and_this_account(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.expected.json").read_text(encoding="utf-8"))
    assert as_expected(diagnosed(name)) == expected


def test_there_are_cases() -> None:
    assert len(NAMES) >= 11


def test_the_sampler_of_case_a_gets_what_fits_and_the_cache_what_that_frees() -> None:
    found = diagnosed(CASE_A)
    first = found.findings[0]
    assert first.id == "mem.sampler_warmup_oom"
    running = first.fixes[0]
    assert (running.name, running.old, running.new) == ("--max-num-seqs", "1024", "256")
    assert "256 x 200,064 logits x 38.5 B" in running.cost
    assert any(fix.name == "VLLM_USE_FLASHINFER_SAMPLER" for fix in first.fixes)
    assert found.ledger is not None
    # 768 requests fewer x 200,064 logits x 38.5 B
    assert found.ledger.gained() == pytest.approx(768 * 200_064 * 38.5, rel=0.001)


@pytest.mark.parametrize(
    ("free", "wanted"), [("1.10 GiB", "256"), ("200.00 MiB", "128"), ("6.50 GiB", "256")]
)
def test_less_free_memory_gives_fewer_requests(free: str, wanted: str) -> None:
    text = (FOLDER / f"{CASE_A}.log").read_text(encoding="utf-8")
    changed = text.replace("of which 1.10 GiB is free", f"of which {free} is free")
    assert changed != text or free == "1.10 GiB"
    assert read(changed).findings[0].fixes[0].new == wanted


def test_a_version_with_another_sampler_is_not_told_to_change_it() -> None:
    text = (FOLDER / f"{CASE_A}.log").read_text(encoding="utf-8").replace("0.16.0", "0.30.0")
    assert not any(fix.name == "VLLM_USE_FLASHINFER_SAMPLER" for fix in read(text).findings[0].fixes)


def test_text_and_json_show_the_account_and_why_there_is_none() -> None:
    found, unknown = diagnosed(CASE_A), diagnosed("vllm-unknown-model")
    text = render_text(build_diagnosis_report(found, tool_version="0"), width=120, color=False)
    assert "KV cache 5.5 GiB larger per GPU" in text
    plain = json.loads(render_diagnosis_json(found))
    assert plain["ledger"]["change"]["to"] == "256"
    sums = {
        side: sum(line[f"{side}_bytes"] or 0 for line in plain["ledger"]["lines"])
        for side in ("before", "after")
    }
    assert sums["before"] == sums["after"]
    assert plain["log"]["model_sizes"]["vocabulary"] == 200_064
    why = json.loads(render_diagnosis_json(unknown))["ledger"]["reason"]
    assert "someone/private-13b" in why
    text = render_text(build_diagnosis_report(unknown, tool_version="0"), width=160, color=False)
    assert why in text
