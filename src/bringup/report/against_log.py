"""The comparison of a plan with a start's log, for a terminal and for JSON."""

from dataclasses import replace

from bringup.report.plain import plain_record
from bringup.units import bytes_text, in_mib
from bringup.values.against_log import AgainstLog, Agreement, ComparedLine
from bringup.values.finding import Evidence, Finding, Severity
from bringup.values.report import Report, Table
from bringup.values.start_log import RankStart, StartLog

_NAMES = {
    "free_at_start": "free at the start",
    "weights": "weights",
    "activations": "activations at their peak",
    "outside": "outside the allocator",
    "consumed": "weights and outside the allocator",
    "graphs": "CUDA graphs",
    "state_pool": "recurrent states",
    "kv_pool": "KV cache",
    "free_after_pools": "free after the pools",
    "kv_tokens": "tokens of KV cache",
    "blocks": "blocks of KV cache",
    "max_concurrency": "requests at once",
}


def with_comparison(report: Report, against: AgainstLog) -> Report:
    """The report with the table of both and a finding for each line that nothing explains."""
    findings = tuple(_finding(line) for line in against.unexplained)
    notes = tuple(
        Finding(id="plan.against_log", severity=Severity.NOTE, summary=note)
        for note in (against.words, *against.notes)
        if note
    )
    return replace(
        report,
        verdict=f"{report.verdict}, differs from the log" if findings else report.verdict,
        findings=(*findings, *report.findings, *notes),
        tables=(_table(against), *report.tables),
        exit_code=against.exit_code(report.exit_code),
    )


def plain_comparison(against: AgainstLog) -> dict[str, object]:
    """The comparison as the value of `against_log`."""
    start = against.start
    return {
        "source": against.source,
        "which_start": against.words,
        "engine": start.engine,
        "engine_version": start.version,
        "model": start.model,
        "is_ready": start.is_ready,
        "first_line": start.first_line,
        "last_line": start.last_line,
        "command": list(start.spec.argv) if start.spec else [],
        "ranks": [plain_rank(rank) for rank in start.ranks],
        "phases": _phases(start),
        "lines": [_plain_line(line) for line in against.lines],
        "notes": list(against.notes),
    }


def plain_rank(rank: RankStart) -> dict[str, object]:
    """One rank's facts under their names in JSON; sizes say that they are bytes."""
    plain = plain_record(rank)
    same = ("label", "gpu", "pid")
    seconds = {"load_seconds": "load_s", "graph_seconds": "graph_s"}
    return {
        name if name in same else seconds.get(name, f"{name.removesuffix('_bytes')}_bytes"): value
        for name, value in plain.items()
    }


def _phases(start: StartLog) -> list[dict[str, object]]:
    return [
        {"name": phase.name.value, "first_line": phase.first_line, "seconds_s": phase.seconds}
        for phase in start.phases
    ]


def _plain_line(line: ComparedLine) -> dict[str, object]:
    cite = line.cite
    return {
        "name": line.name,
        "ranks": list(line.ranks),
        "unit": line.unit,
        "predicted": line.predicted,
        "low": line.low,
        "high": line.high,
        "log": line.told,
        "log_rounding": line.within,
        "difference": line.difference,
        "difference_share": line.share,
        "agreement": line.agreement.value,
        "explanation": line.explanation,
        "evidence": {"line": cite.line, "text": cite.text} if cite else None,
    }


def _table(against: AgainstLog) -> Table:
    rows = tuple(
        (
            _NAMES.get(line.name, line.name),
            _ranks(line),
            _size(line.predicted, line.unit),
            _between(line),
            _size(line.told, line.unit),
            _size(line.difference, line.unit, signed=True),
            f"{line.share:+.1%}" if line.share is not None else "",
            _why(line),
        )
        for line in against.lines
    )
    return Table(
        title=f"Plan against {against.source} (sizes in MiB)",
        columns=("what", "rank", "plan", "between", "log", "difference", "%", "why"),
        rows=rows,
    )


def _why(line: ComparedLine) -> str:
    if line.agreement is Agreement.TOLD_ONLY:
        return "no such line in the plan"
    return line.explanation or line.agreement.value


def _ranks(line: ComparedLine) -> str:
    if len(line.ranks) <= 2:
        return ", ".join(line.ranks)
    return f"{line.ranks[0]} to {line.ranks[-1]} ({len(line.ranks)})"


def _size(value: float | None, unit: str, *, signed: bool = False) -> str:
    if value is None:
        return ""
    sign = "+" if signed else ""
    if unit == "bytes":
        return f"{in_mib(round(value)):{sign},.0f}"
    return f"{value:{sign},.2f}" if unit == "requests" else f"{value:{sign},.0f}"


def _between(line: ComparedLine) -> str:
    if line.low is None or line.low == line.high:
        return ""
    return f"{_size(line.low, line.unit)} and {_size(line.high, line.unit)}"


def _finding(line: ComparedLine) -> Finding:
    name = _NAMES.get(line.name, line.name)
    where = f" on {_ranks(line)}" if line.ranks else ""
    said, planned = _words(line.told, line.unit), _words(line.predicted or 0.0, line.unit)
    cite = line.cite
    return Finding(
        id=f"plan.against_log.{line.name}",
        severity=Severity.WARNING,
        summary=f"{name}{where}: the log says {said}, the plan {planned}; no rule explains the difference",
        evidence=(Evidence(source="engine log", text=cite.text, line=cite.line),) if cite else (),
        action="look whether the log's command, version, model and GPUs are those planned",
    )


def _words(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(round(value))
    return f"{value:,.1f} {unit}" if unit == "requests" else f"{value:,.0f} {unit}"
