"""Judgements of a run to a `Report`: the verdict, its paragraph, findings worst first, tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bringup.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN
from bringup.report.load import load_table
from bringup.report.memory import bars, ledger_tables
from bringup.units import bytes_text, mib_text, seconds_text
from bringup.values.deployment import Ability, Deployment
from bringup.values.finding import WORST_FIRST, Finding, Fingerprint, Judgement, Measurement, Severity, worst
from bringup.values.host import Gpu, HostSnapshot
from bringup.values.report import Cell, Report, Table

_SKEW_S = 1.0  # seconds between two clocks from which logs of both no longer tell what came first
# Checks whose results are told in the paragraph when they are good, in the order of telling.
_SPOKEN = ("gpu_set", "memory_by_design", "kv_capacity", "headroom", "power_state")
SECTIONS = ("function", "resources", "capacity")
_TITLES = {
    Severity.OK: "works",
    Severity.NOTE: "works",
    Severity.UNKNOWN: "works, not fully measured",
    Severity.WARNING: "works, with warnings",
    Severity.FAILURE: "broken",
}
_TITLES_UNTRIED = {  # no check that asks the model came out good: nobody may say "works"
    Severity.OK: "not exercised",
    Severity.NOTE: "not exercised",
    Severity.UNKNOWN: "not measured",
    Severity.WARNING: "not measured, with warnings",
    Severity.FAILURE: "broken",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One check with what it concluded."""

    name: str
    title: str
    section: str
    judgement: Judgement
    shows_model: bool = True  # being good shows that the model answers

    @property
    def severity(self) -> Severity:
        """The worst of its findings."""
        return worst(self.judgement.findings)


def build_report(
    deployment: Deployment,
    judged: Sequence[Judged],
    *,
    taken_at: float,
    duration_s: float | None,
    tool_version: str,
) -> Report:
    """The report of one verification."""
    # A check that says nothing had nothing to judge here: it is neither good nor counted.
    spoke = [one for one in judged if one.judgement.findings]
    ordered = sorted(spoke, key=lambda one: (SECTIONS.index(one.section), one.name))
    findings = tuple(
        sorted(
            (finding for one in ordered for finding in one.judgement.findings),
            key=lambda finding: WORST_FIRST.index(finding.severity),
        )
    )
    measurements = tuple(measurement for one in ordered for measurement in one.judgement.measurements)
    severity = worst(findings)
    return Report(
        kind="verify",
        verdict=_verdict(severity, findings, is_shown=_is_shown(ordered)),
        title=_title(deployment),
        paragraph=_paragraph(deployment, ordered, findings, measurements),
        findings=findings,
        measurements=measurements,
        tables=tuple(
            table
            for table in (
                *((load_table(deployment.load),) if deployment.load else ()),
                *(replace(table, is_detail=True) for table in _tables(deployment, ordered)),
            )
            if table.rows
        ),
        bars=bars(deployment.account) if deployment.account else (),
        fingerprint=_fingerprint(ordered),
        facts=_facts(deployment),
        taken_at=taken_at,
        duration_s=duration_s,
        tool_version=tool_version,
        exit_code=exit_code(severity),
    )


def _verdict(severity: Severity, findings: Sequence[Finding], *, is_shown: bool) -> str:
    """The verdict in a few words; that little memory is left belongs to it even where all else is well."""
    title = (_TITLES if is_shown else _TITLES_UNTRIED)[severity]
    is_tight = any(finding.id == "headroom.tight" for finding in findings)
    return f"{title}, tight" if is_tight and title == "works" else title


def exit_code(severity: Severity) -> int:
    """The exit code that the worst severity stands for."""
    if severity in (Severity.FAILURE, Severity.WARNING):
        return EXIT_FINDINGS
    return EXIT_UNKNOWN if severity is Severity.UNKNOWN else EXIT_OK


def _title(deployment: Deployment) -> str:
    engine = deployment.engine
    version = f" {engine.version}" if engine.version else ""
    place = deployment.url.partition("://")[2]
    return f"{deployment.model.id} on {engine.display_name}{version} at {place}"


def _paragraph(
    deployment: Deployment,
    judged: Sequence[Judged],
    findings: Sequence[Finding],
    measurements: Sequence[Measurement],
) -> str:
    sentences = (
        _function_sentence(judged),
        _notes_sentence(deployment, judged),
        _speed_sentence(measurements),
        _load_sentence(judged),
        *(
            _memory_sentences(deployment, judged)
            or (_capacity_sentence(deployment), _gpu_sentence(deployment))
        ),
        _unknown_sentence(judged),
        _next_sentence(findings),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _function(judged: Sequence[Judged]) -> list[Judged]:
    return [one for one in judged if one.section == "function"]


def _is_shown(judged: Sequence[Judged]) -> bool:
    """Whether any check shows that the model answers."""
    return any(_shows(one) for one in judged)


def _shows(one: Judged) -> bool:
    """Whether it shows that the model answers: any sign of life does among functions, a result elsewhere."""
    if not one.shows_model or one.severity not in (Severity.OK, Severity.NOTE):
        return False
    return one.section == "function" or any(
        finding.severity is Severity.OK for finding in one.judgement.findings
    )


def _function_sentence(judged: Sequence[Judged]) -> str:
    function = _function(judged)
    broken = [one for one in function if one.severity is Severity.FAILURE]
    if not function:
        return "It answers." if _is_shown(judged) else "No function check was run."
    good = sum(one.severity is Severity.OK for one in function)
    count = f"{good} of {len(function)} function checks are good"
    if not broken:
        return f"{'It answers' if _is_shown(judged) else 'Whether it works is not known'}: {count}."
    names = _listing([one.title for one in broken])
    first = next(finding for finding in broken[0].judgement.findings if finding.severity is Severity.FAILURE)
    return f"It does not work: {names} failed ({count}). {_sentence(first.summary)}"


def _notes_sentence(deployment: Deployment, judged: Sequence[Judged]) -> str:
    """Which checks only have a note: weak, lenient or not supported, and no reason to call it broken."""
    noted = [one.name for one in judged if one.section == "function" and one.severity is Severity.NOTE]
    if not noted:
        return ""
    size = deployment.model.parameters
    is_small = size and deployment.ability in (Ability.TINY, Ability.SMALL)
    of_size = f" (a model of {_count_text(size)} parameters is small)" if size and is_small else ""
    have = "one has" if len(noted) == 1 else f"{len(noted)} have"
    names = _listing([name.replace("_", " ") for name in noted])
    return f"Another {have} a remark, and nothing is broken{of_size}: {names}."


def _speed_sentence(measurements: Sequence[Measurement]) -> str:
    by_name = {measurement.name: measurement.value for measurement in measurements}
    counted, estimated = (by_name.get(f"single-stream speed{how}") for how in ("", " (estimated)"))
    speed, first = estimated if counted is None else counted, by_name.get("time to first token")
    if not isinstance(speed, int | float):
        return ""
    about = "about " if counted is None else ""
    pace = f"{speed:.3g}" if speed < 1000 else f"{speed:,.0f}"
    text = f"One stream runs at {about}{pace} tokens/s"
    return (
        f"{text}, first token after {seconds_text(first)}." if isinstance(first, int | float) else f"{text}."
    )


def _load_sentence(judged: Sequence[Judged]) -> str:
    """What a burst showed, where one was asked for and stood."""
    found = (
        one for one in judged if one.name == "under_load" and one.severity in (Severity.OK, Severity.NOTE)
    )
    return next((_sentence(one.judgement.findings[0].summary) for one in found), "")


def _memory_sentences(deployment: Deployment, judged: Sequence[Judged]) -> tuple[str, ...]:
    """What carries the model, what its memory is, what is left and what it holds, where that was judged."""
    said = {one.name: one for one in judged if one.name in _SPOKEN}
    is_on_host = deployment.account is not None and deployment.account.host is not None
    if "gpu_set" not in said and not (is_on_host and "memory_by_design" in said):
        return ()
    return tuple(
        _sentence(said[name].judgement.findings[0].summary)
        for name in _SPOKEN
        if name in said and said[name].severity in (Severity.OK, Severity.NOTE)
    )


def _capacity_sentence(deployment: Deployment) -> str:
    parts: list[str] = []
    if deployment.model.context_tokens:
        parts.append(f"{deployment.model.context_tokens:,} tokens per request")
    if deployment.engine.kv.tokens:
        parts.append(f"{deployment.engine.kv.tokens:,} tokens of KV cache")
    if deployment.engine.kv.slots:
        parts.append(f"{deployment.engine.kv.slots} slots")
    return f"Room: {_listing(parts)}." if parts else ""


def _gpu_sentence(deployment: Deployment) -> str:
    host, gpus = deployment.host, deployment.gpus
    if host is None:
        return "GPUs were not looked at: name their machine with --host."
    if not host.gpus:
        state = host.gpu_state or "No GPU was seen"
        return _sentence(state)
    there = len(host.main_gpus)
    of_all = f" of {there}" if deployment.wanted.gpus else ""
    count = f"{len(gpus)}{of_all} GPU{'' if there == 1 else 's'}"
    left = [(room, gpu.label) for gpu in gpus if (room := gpu.memory_headroom) is not None]
    if not left:
        return f"{count}; how much memory is left on them is not told."
    room, label = min(left)
    silent = [gpu.label for gpu in gpus if gpu.memory_headroom is None]
    untold = f"; {_listing(silent)} told no figure" if silent else ""
    return f"{count}; the tightest is {label} with {mib_text(room)} really left{untold}."


def _unknown_sentence(judged: Sequence[Judged]) -> str:
    unknown = [one.title for one in judged if one.severity is Severity.UNKNOWN]
    return f"Not measured: {_listing(unknown)}." if unknown else ""


def _next_sentence(findings: Sequence[Finding]) -> str:
    for finding in findings:
        if finding.severity in (Severity.FAILURE, Severity.WARNING, Severity.UNKNOWN) and finding.action:
            return f"Next: {_sentence(finding.action)}"
    return ""


def _sentence(text: str) -> str:
    """`text` with a capital and a full stop."""
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _listing(names: Sequence[str]) -> str:
    """A list in words.

    >>> _listing(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def _count_text(count: int) -> str:
    """A number of parameters as people say it.

    >>> _count_text(134_515_008), _count_text(230_000_000_000)
    ('135M', '230B')
    """
    if count >= 1e9:
        return f"{count / 1e9:.3g}B"
    return f"{count / 1e6:.3g}M"


def _tables(deployment: Deployment, judged: Sequence[Judged]) -> tuple[Table, ...]:
    checks = Table(
        title="Checks",
        columns=("check", "result", "found"),
        rows=tuple((one.title, one.severity.value, _found(one)) for one in judged),
    )
    measured = Table(
        title="Measured",
        columns=("what", "value", "unit"),
        rows=tuple(
            (measurement.name, measurement.value, measurement.unit)
            for one in judged
            for measurement in one.judgement.measurements
        ),
    )
    tables = [checks, measured, _engine_table(deployment)]
    if deployment.account is not None:
        tables += ledger_tables(deployment.account)
    if deployment.host is not None:
        tables += [_gpu_table(deployment.host), _host_table(deployment.host)]
    return tuple(tables)


def _found(one: Judged) -> str:
    """The worst finding's summary: what a row has room for."""
    ranked = sorted(one.judgement.findings, key=lambda finding: WORST_FIRST.index(finding.severity))
    return ranked[0].summary if ranked else ""


def _engine_table(deployment: Deployment) -> Table:
    engine, model = deployment.engine, deployment.model
    rows: list[tuple[Cell, ...]] = [
        ("engine", f"{engine.display_name} {engine.version or '(version not told)'}"),
        ("model", model.id),
        ("parameters", model.parameters),
        ("context per request", model.context_tokens),
        ("requests at once", engine.max_running or engine.kv.slots),
        ("KV cache tokens", engine.kv.tokens),
        ("proxy in front", engine.proxy),
    ]
    rows += [("identified by", text) for text in engine.evidence[:3]]
    process = deployment.process
    if process is not None:
        rows += [("process", str(process.pid)), ("command", " ".join(process.argv) or None)]
        if process.unit is not None:
            rows.append(("unit", process.unit.name))
    return Table(
        title="Engine", columns=("what", "value"), rows=tuple(row for row in rows if row[1] is not None)
    )


def _gpu_table(host: HostSnapshot) -> Table:
    def row(gpu: Gpu) -> tuple[Cell, ...]:
        sizes = (gpu.memory_used, gpu.memory_reserved, gpu.memory_headroom, gpu.memory_total)
        return (
            gpu.index,
            gpu.name,
            *(None if size is None else mib_text(size) for size in sizes),
            None if gpu.power is None else f"{gpu.power:.0f} W",
            None if gpu.utilization is None else f"{gpu.utilization:.0%}",
        )

    return Table(
        title="GPUs",
        columns=("GPU", "name", "used", "reserved", "left", "total", "power", "busy"),
        rows=tuple(row(gpu) for gpu in host.gpus),
    )


def _host_table(host: HostSnapshot) -> Table:
    facts = host.facts
    count = f" ({facts.cpu_count} CPUs)" if facts.cpu_count else ""
    owners = Counter(device.driver or "no driver" for device in host.pci_devices)
    skew = facts.clock_skew_s
    rows: list[tuple[Cell, ...]] = [
        ("host", facts.name or host.host),
        ("system", facts.operating_system),
        ("kernel", facts.kernel),
        ("CPU", facts.cpu_model and f"{facts.cpu_model}{count}"),
        ("NUMA nodes", len(host.numa_nodes) or None),
        ("memory free", _room(facts.memory_available, facts.memory_total)),
        *((f"disk free, {disk.purpose}", _room(disk.available, disk.size)) for disk in host.disks),
        ("container", facts.container),
        ("virtualization", facts.virtualization),
        ("IOMMU", facts.iommu),
        ("GPUs", host.gpu_state),
        (
            "drivers of display devices",
            _listing([f"{name} ({many})" for name, many in sorted(owners.items())]),
        ),
        ("clock", f"{skew:+.1f} s against here" if skew is not None and abs(skew) >= _SKEW_S else None),
    ]
    rows += [("not seen", text) for text in host.missing]
    return Table(title="Host", columns=("what", "value"), rows=tuple(row for row in rows if row[1]))


def _room(free: int | None, total: int | None) -> str | None:
    return None if free is None or total is None else f"{bytes_text(free)} of {bytes_text(total)}"


def _fingerprint(judged: Sequence[Judged]) -> Fingerprint | None:
    found = (one.judgement.fingerprint for one in judged if one.judgement.fingerprint is not None)
    return next(found, None)


def _facts(deployment: Deployment) -> dict[str, object]:
    return {
        "url": deployment.url,
        "depth": deployment.depth.name.lower(),
        "ability": deployment.ability.name.lower(),
        "engine": deployment.engine,
        "model": deployment.model,
        "host": deployment.host,
        "host_after": deployment.host_after,
        "load": deployment.load,
        "account": replace(deployment.account, task=None) if deployment.account else None,
    }
