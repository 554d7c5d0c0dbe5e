"""A diagnosis as a report: verdict, what broke and why, the exact line to change."""

import re
from dataclasses import replace

from bringup.report.changed_line import as_typed, can_be_run, changed_command, spelled
from bringup.units import bytes_text, in_mib
from bringup.values.case import Case
from bringup.values.diagnosis import BeforeAfter, Diagnosis, LedgerRow
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.report import Cell, Report, Table
from bringup.values.setting_names import flag_of, value_of

_DISPLAY = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "tensorrt_llm": "TensorRT-LLM"}
_VERDICTS = {
    Severity.FAILURE: "broken",
    Severity.WARNING: "in trouble",
    Severity.UNKNOWN: "not decided",
    Severity.NOTE: "nothing broken",
    Severity.OK: "nothing broken",
}


# PyTorch's own advice at the end of its message: never ours, and long.
_ADVICE = re.compile(r" If reserved but unallocated memory is large.*$", re.DOTALL)


def build_diagnosis_report(diagnosis: Diagnosis, *, tool_version: str) -> Report:
    """The report of a diagnosis."""
    first = diagnosis.findings[0]
    case = diagnosis.case
    paragraph = _paragraph(diagnosis, first)
    tables = [*_cures(diagnosis.findings, case), *_ledger(diagnosis.ledger, case)]
    if case is not None and case.facts is not None and first.severity in (Severity.OK, Severity.NOTE):
        tables += _healthy(case)
    return Report(
        kind="diagnose",
        verdict=_VERDICTS[first.severity],
        title=_title(diagnosis),
        paragraph=paragraph,
        findings=tuple(_once(_quoting_lines(one), paragraph) for one in diagnosis.findings),
        tables=tuple(tables),
        tool_version=tool_version,
        exit_code=diagnosis.exit_code,
    )


def _title(diagnosis: Diagnosis) -> str:
    case = diagnosis.case
    who = ""
    if case is not None and case.engine:
        version = f" {case.version}" if case.version else ""
        model = f"{case.model} on " if case.model else ""
        who = f"{model}{_DISPLAY.get(case.engine, case.engine)}{version}, "
    return f"{who}{diagnosis.source}, {diagnosis.total_lines:,} lines"


def _paragraph(diagnosis: Diagnosis, first: Finding) -> str:
    case = diagnosis.case
    sentences = [f"{_begun(first.summary)}."]
    if first.severity in (Severity.FAILURE, Severity.WARNING) and case is not None and case.phase:
        sentences.append(f"It came as far as: {case.phase.value.replace('_', ' ')}.")
    cure = next((fix for fix in first.fixes if fix.kind == "cure"), None) or next(iter(first.fixes), None)
    if cure is not None:
        sentences.append(f"Change: {spelled(cure, case)}.")
    elif first.next_measurement and first.severity is not Severity.OK:
        sentences.append(f"Next: {first.next_measurement}")
    if diagnosis.ledger is not None and diagnosis.ledger.reason:
        sentences.append(f"Memory is not planned: {diagnosis.ledger.reason}.")
    if diagnosis.words:
        sentences.append(f"({_begun(diagnosis.words)}.)")
    return " ".join(sentences)


def _begun(text: str) -> str:
    """The text as a sentence begins; names such as vLLM stay as they are."""
    first = text.split(" ", maxsplit=1)[0]
    return f"{text[:1].upper()}{text[1:]}" if first.islower() and "." not in first else text


def _once(finding: Finding, paragraph: str) -> Finding:
    """The finding without the command that the paragraph has told."""
    is_told = bool(finding.next_measurement) and finding.next_measurement in paragraph
    return replace(finding, next_measurement="") if is_told else finding


def _quoting_lines(finding: Finding) -> Finding:
    """The finding with the number of each quoted line where it is read."""
    return replace(
        finding,
        evidence=tuple(
            replace(
                one,
                source=f"{one.source}:{one.line}" if one.line is not None else one.source,
                text=_ADVICE.sub(" ...", one.text),
            )
            for one in finding.evidence
        ),
    )


def _cures(findings: tuple[Finding, ...], case: Case | None) -> list[Table]:
    """What to change for each finding, the best first, and the whole command with it.

    Beside something that is broken notes keep theirs to themselves.
    """
    tables: list[Table] = []
    is_broken = findings[0].severity in (Severity.FAILURE, Severity.WARNING)
    for finding in findings:
        is_aside = finding.severity in (Severity.NOTE, Severity.OK) and is_broken
        if not finding.fixes or is_aside or finding.id.startswith("benign."):
            continue
        rows: list[tuple[Cell, ...]] = [
            (spelled(fix, case), fix.kind, fix.cost or None) for fix in finding.fixes
        ]
        tables.append(
            Table(
                title=f"Cures of {finding.id}",
                columns=("change", "kind", "cost"),
                rows=tuple(rows),
                note=_command(finding.fixes, case),
            )
        )
    return tables


def _ledger(ledger: BeforeAfter | None, case: Case | None) -> list[Table]:
    """One GPU before and after the first flag."""
    if ledger is None or ledger.reason:
        return []
    title = "One GPU before and after, in MiB, planned"
    change = spelled(ledger.change, case)
    rows: list[tuple[Cell, ...]] = [
        (_row_name(row), _whole_mib(row.before), _whole_mib(row.after)) for row in ledger.rows
    ]
    words = {True: "fits", False: "does not fit"}
    rows.append(("tokens of KV cache", *ledger.tokens))
    rows.append(("weights and one longest request", *(words[fits] for fits in ledger.fits)))
    gained = ledger.gained()
    more = (
        f"KV cache {bytes_text(abs(gained))} {'larger' if gained > 0 else 'smaller'} per GPU; "
        if gained
        else ""
    )
    note = f"{more}estimated from the arguments and the model's sizes, not measured: bringup plan says how"
    return [Table(title=title, columns=("what", "as it was", change), rows=tuple(rows), note=note)]


def _row_name(row: LedgerRow) -> str:
    name = row.name.replace("_", " ")
    return f"{name}, afterwards, takes" if row.is_later else name


def _whole_mib(size: int | None) -> int | None:
    return round(in_mib(size)) if size is not None else None


def _command(fixes: tuple[Fix, ...], case: Case | None) -> str:
    if case is None:
        return ""
    able = [fix for fix in fixes if can_be_run(case, fix)]
    best = next((fix for fix in able if fix.kind == "cure"), None) or next(iter(able), None)
    return f"run: {as_typed(changed_command(case, best))}" if best is not None else ""


def _healthy(case: Case) -> list[Table]:
    """What the start took per phase, and what it can hold."""
    start = case.facts
    if start is None:
        return []
    phases = tuple((one.name.value.replace("_", " "), one.first_line, one.seconds) for one in start.phases)
    tables = [Table(title="Start by phase", columns=("phase", "from line", "seconds"), rows=phases)]
    facts: tuple[tuple[str, Cell], ...] = (
        ("tokens of KV cache", start.kv_tokens),
        ("requests of the longest length at once", start.max_concurrency),
        ("tokens of the longest request", start.context_tokens),
        ("requests that may run at once", start.running or _asked_for(case, "running")),
        ("weights of the fullest rank", _size(start.most_loaded.weights if start.most_loaded else None)),
        ("KV cache of a rank", _size(max((one.kv_pool or 0 for one in start.ranks), default=0) or None)),
    )
    known = tuple(row for row in facts if row[1] is not None)
    if known:
        tables.append(Table(title="Capacity", columns=("what", "figure"), rows=known))
    return tables


def _asked_for(case: Case, setting: str) -> int | None:
    """The whole number that the arguments give a setting."""
    text = value_of(case, flag_of(case.engine, setting))
    return int(text) if text and text.isdecimal() else None


def _size(value: int | None) -> str | None:
    return bytes_text(value) if value is not None else None
