"""A diagnosis as JSON, schema `bringup/diagnosis/1`."""

import msgspec

from bringup.report.plain import plain_record
from bringup.values.diagnosis import BeforeAfter, Diagnosis
from bringup.values.finding import Finding
from bringup.values.start_log import StartLog

SCHEMA = "bringup/diagnosis/1"


def render_diagnosis_json(diagnosis: Diagnosis) -> str:
    """The diagnosis as one JSON object with two-space indent and a final newline."""
    case = diagnosis.case
    facts: dict[str, object] = {"source": diagnosis.source, "lines": diagnosis.total_lines}
    if case is not None:
        facts |= {
            "engine": case.engine,
            "version": case.version,
            "model": case.model,
            "phase": case.phase,
            "is_ready": case.is_ready,
            "flags": case.flags,
            "gpus": case.gpus,
            "run": diagnosis.run,
            "runs": diagnosis.runs,
            "chosen_because": diagnosis.words,
        }
        if case.facts is not None:
            facts["phases"] = [
                {"name": one.name, "first_line": one.first_line, "seconds": one.seconds}
                for one in case.facts.phases
            ]
            facts["capacity"] = _capacity(case.facts)
        if case.shape.is_known:
            facts["model_sizes"] = plain_record(case.shape)
    plain: dict[str, object] = {
        "schema": SCHEMA,
        "findings": [_plain(one) for one in diagnosis.findings],
        "log": facts,
    }
    if diagnosis.ledger is not None:
        plain["ledger"] = _ledger(diagnosis.ledger)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _capacity(start: StartLog) -> dict[str, object]:
    """What the log says that the start can hold; of ranks the fullest."""
    fullest = start.most_loaded
    return {
        "kv_tokens": start.kv_tokens,
        "max_concurrency": start.max_concurrency,
        "context_tokens": start.context_tokens,
        "running": start.running,
        "weights_bytes": fullest.weights if fullest else None,
        "kv_bytes": max((rank.kv_pool for rank in start.ranks if rank.kv_pool), default=None),
    }


def _plain(finding: Finding) -> dict[str, object]:
    record = plain_record(finding)
    return {
        name: record[name]
        for name in ("id", "severity", "summary", "evidence", "explanation", "fixes", "next_measurement")
    }


def _ledger(ledger: BeforeAfter) -> dict[str, object]:
    """One GPU before and after the first flag, in bytes; `reason` says why it could not be planned."""
    plain: dict[str, object] = {"change": plain_record(ledger.change)}
    if ledger.reason:
        return {**plain, "reason": ledger.reason}
    for key, is_later in (("lines", False), ("afterwards", True)):
        plain[key] = [
            {"name": row.name, "before_bytes": row.before, "after_bytes": row.after}
            for row in ledger.rows
            if row.is_later is is_later
        ]
    before, after = ledger.tokens
    return {
        **plain,
        "kv_tokens": {"before": before, "after": after},
        "fits": {"before": ledger.fits[0], "after": ledger.fits[1]},
    }
