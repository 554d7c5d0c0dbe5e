"""From a log, and a machine where one is named, to the cause and what cures it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import cast

from bringup import registry
from bringup.flows.case import Run, cases_of
from bringup.flows.decide import Decision, decide
from bringup.flows.model_shape import shape_of, wants_shape
from bringup.flows.probes import LOCAL, Observed
from bringup.flows.second_reading import read_twice
from bringup.flows.start_log import start_log_readers
from bringup.flows.undecided import first_error, undecided
from bringup.parse.case_lines import ReadLog, read_kept
from bringup.parse.known_lines import KnownLines
from bringup.parse.log_stream import KeptLines, LineSieve
from bringup.parse.log_surroundings import TEXTS
from bringup.parse.model_shape import TEXTS as SHAPE_TEXTS
from bringup.parse.prose import is_document
from bringup.parse.redact import redact
from bringup.rules import Match, Rule
from bringup.transport.catalogue import load_known_lines
from bringup.values.case import Case, CaseLine
from bringup.values.diagnosis import BeforeAfter, Diagnosis
from bringup.values.finding import Evidence, Finding, Fix, Severity, worst
from bringup.values.start_log import Phase

# What every rule may want beside its own texts: tracebacks, and lines that say themselves that they are bad.
_ALWAYS = (
    *(
        "Traceback (most recent call last)",
        'File "',
        "File /",
        "File ~/",
        "Error: ",
        "ERROR ",
        "CRITICAL ",
        "FATAL",
        "Fatal ",
    ),
    *("Exception: ", "Exception\n", "Error\n", "Killed", "Aborted", "core dumped", "Segmentation fault"),
    *("sigquit", "SIGQUIT", "GGML_ASSERT", "died", "restart counter is at"),
    *("signal=SIG", "SIGTERM received", "KeyboardInterrupt", "Shutting down"),  # told to end
)
_MOST_QUOTED = 600  # characters of a line
_MODEL_PLACES = ("HF_HUB_CACHE", "HF_HOME", "HOME")
_SERVICE = re.compile(r"(?:^|\s)([\w@.\\-]+\.service)\b")
_EXITS = {Severity.FAILURE: 1, Severity.WARNING: 1, Severity.UNKNOWN: 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A run and what was decided about it."""

    run: Run
    decision: Decision


def load_rules() -> dict[str, Rule]:
    """Every rule, by the name of its file."""
    return cast("dict[str, Rule]", registry.load("bringup.rules", "RULE"))


def sift(
    pieces: Iterable[bytes], rules: Mapping[str, Rule], on_bytes: Callable[[int], None] | None = None
) -> KeptLines:
    """What may matter of a log that comes in pieces."""
    sieve = LineSieve(texts_wanted(rules))
    done = 0
    for piece in pieces:
        sieve.feed(piece)
        done += len(piece)
        if on_bytes is not None:
            on_bytes(done)
    return sieve.finish()


def model_named(kept: KeptLines) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The model that the last run names, and the variables of its environment that say where models lie."""
    runs = cases_of(read_kept(kept).lines, total_lines=kept.total_lines)
    case = next((run.case for run in reversed(runs) if run.case.model), None)
    if case is None:
        return None, ()
    places = tuple((name, case.environment[name]) for name in _MODEL_PLACES if name in case.environment)
    return case.model, places


def texts_wanted(rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """Every text that a rule or a reader looks for, once."""
    wanted = dict.fromkeys(literal for rule in rules.values() for literal in rule.literals)
    wanted |= dict.fromkeys(text for reader in start_log_readers().values() for text in reader.literals)
    return tuple(wanted | dict.fromkeys((*TEXTS, *SHAPE_TEXTS, *_ALWAYS)))


def diagnose(
    kept: KeptLines,
    rules: Mapping[str, Rule],
    *,
    source: str,
    again: str | None = None,
    observed: Observed | None = None,
) -> Diagnosis:
    """What broke, most likely first, and what cures it.

    `again` is the command that reads the same log and asks the machine too; None: `source` is a file.
    """
    command = again or f"bringup diagnose {quote(source)} --host {LOCAL}"
    return read_twice(
        kept,
        lambda text: sift([text], rules),
        lambda lines: _read(lines, rules, source, command, observed or Observed()),
    )


def _read(
    kept: KeptLines, rules: Mapping[str, Rule], source: str, again: str, observed: Observed
) -> Diagnosis:
    """What the lines say as they stand."""
    known = load_known_lines()
    log = read_kept(kept)
    runs = cases_of(log.lines, total_lines=kept.total_lines)
    if not runs:
        runs = (Run(case=Case(lines=()), place=1, first_line=1, last_line=1),)
    judged = _chosen(runs, rules, known, observed)
    case = judged.run.case
    findings = tuple(_finding(match, case) for match in judged.decision.matches)
    if worst(findings) in (Severity.OK, Severity.NOTE):
        rest = undecided(case, known, again)
        findings = (_redacted(rest), *findings) if rest else findings
    findings = findings or (_redacted(_calm(case, known)),)
    findings += tuple(_broken_rule(words) for words in judged.decision.failed)
    findings, ledger = _planned(findings, case)
    return Diagnosis(
        source=source,
        findings=tuple(_as_numbered(finding, log) for finding in findings),
        case=_case_as_numbered(case, log),
        run=judged.run.place,
        runs=len(runs),
        words=_words(judged.run, runs, log),
        total_lines=kept.total_lines,
        ledger=ledger,
        exit_code=_EXITS.get(worst(findings), 0),
    )


def _planned(findings: tuple[Finding, ...], case: Case) -> tuple[tuple[Finding, ...], BeforeAfter | None]:
    """The findings with what the planner computes for the first, and its ledger before and after."""
    first = findings[0]
    if not wants_shape((first.id,)) or not first.fixes:
        return findings, None
    from bringup.flows.before_after import before_and_after, with_planned_values  # noqa: PLC0415 - loads the planner

    first = with_planned_values(first, case)
    return (first, *findings[1:]), before_and_after(first, case)


def _chosen(runs: Sequence[Run], rules: Mapping[str, Rule], known: KnownLines, observed: Observed) -> _Judged:
    """The run that is diagnosed: the last; of a crash loop the first, as retries change what fails."""
    first: _Judged | None = None
    for run in _candidates(runs):
        case = replace(run.case, host=observed.host, texts=dict(observed.texts))
        judged = _judged(replace(run, case=case), rules, known)
        first = first or judged
        if judged.decision.is_decided:
            return judged
    return cast("_Judged", first)


def _judged(run: Run, rules: Mapping[str, Rule], known: KnownLines) -> _Judged:
    """What is decided about a run; where its cures depend on the model, with what is known of that."""
    decision = decide(run.case, rules, known)
    if not wants_shape(match.kind for match in decision.matches):
        return _Judged(run=run, decision=decision)
    shape = shape_of(run.case)
    if not shape.is_known:
        return _Judged(run=run, decision=decision)
    run = replace(run, case=replace(run.case, shape=shape))
    return _Judged(run=run, decision=decide(run.case, rules, known))


def _candidates(runs: Sequence[Run]) -> list[Run]:
    """Runs in the order in which they are asked: until one says what broke."""
    if runs[-1].case.is_ready:
        return list(reversed(runs))
    loop: list[Run] = []
    for run in reversed(runs):
        if run.case.is_ready or (loop and run.case.argv != loop[-1].case.argv):
            break
        loop.append(run)
    first, *later = reversed(loop)
    others = [run for run in reversed(runs) if run not in loop]
    return [first, *reversed(later), *others]


def _words(run: Run, runs: Sequence[Run], log: ReadLog) -> str:
    """Which run was diagnosed, and why."""
    if len(runs) == 1:
        return ""
    first, last = sorted(log.original(number) for number in (run.first_line, run.last_line))
    where = f"run {run.place} of {len(runs)} in the log, lines {first} to {last}"
    if run.place == len(runs):
        return f"{where}: the last"
    if runs[-1].case.is_ready:
        return f"{where}; the last one came up"
    failed = sum(not one.case.is_ready for one in runs[run.place - 1 :])
    if failed > 1:
        return f"{where}: the first of {failed} that failed one after the other; retries change what fails"
    return where


def _finding(match: Match, case: Case) -> Finding:
    lines = tuple(
        Evidence(source="log", line=line.number, text=(line.raw or line.text).strip())
        for line in _with_frames(match.lines, case)
    )
    probes = tuple(Evidence(source=source, text=text) for source, text in match.probes)
    return _redacted(
        Finding(
            id=match.kind,
            severity=match.severity,
            summary=match.summary,
            explanation=match.explanation,
            evidence=(*lines, *probes),
            fixes=tuple(_with_old(fix, case) for fix in match.fixes),
            next_measurement=_of_the_unit(match.next_measurement, case),
        )
    )


def _of_the_unit(text: str, case: Case) -> str:
    """The command with the name of the unit that the log tells of in place of UNIT."""
    if "UNIT" not in text:
        return text
    told = case.first(_SERVICE)
    engines = case.host.engines if case.host else ()
    seen = next((engine.unit.name for engine in engines if engine.unit), None)
    name = told[1][1] if told else seen
    return re.sub(r"\bUNIT\b", name, text) if name else text


def _with_frames(lines: tuple[CaseLine, ...], case: Case) -> tuple[CaseLine, ...]:
    """The lines and, of the first that ends a traceback, where that happened and where it begins."""
    trace = next((found for line in lines if (found := case.traceback_of(line)) is not None), None)
    if trace is None or trace.innermost is None:
        return lines
    numbers = dict.fromkeys((trace.innermost.number, trace.frames[0].number))
    quoted = {line.number for line in lines}
    by_number = {line.number: line for line in case.lines if line.number in numbers}
    return (*lines, *(by_number[one] for one in numbers if one in by_number and one not in quoted))


def _broken_rule(words: str) -> Finding:
    """A rule of ours that could not read the case: told, so that it can be reported."""
    return Finding(
        id="rule.failed",
        severity=Severity.NOTE,
        summary=f"a rule could not read this log ({words}): please report it with the log",
    )


def _with_old(fix: Fix, case: Case) -> Fix:
    """The fix with the value that the log shows, where the rule left it out."""
    if fix.old is not None:
        return fix
    if fix.type == "flag":
        return replace(fix, old=case.flags.get(fix.name))
    return replace(fix, old=case.environment.get(fix.name)) if fix.type == "env" else fix


def _as_numbered(finding: Finding, log: ReadLog) -> Finding:
    """The finding with the numbers of lines as they are in the input."""
    evidence = tuple(
        replace(one, line=log.original(one.line)) if one.line is not None else one for one in finding.evidence
    )
    return replace(finding, evidence=evidence)


def _case_as_numbered(case: Case, log: ReadLog) -> Case:
    """The case with its phases at the lines of the input."""
    if case.facts is None or not log.is_newest_first:
        return case
    phases = tuple(replace(one, first_line=log.original(one.first_line)) for one in case.facts.phases)
    return replace(case, facts=replace(case.facts, phases=phases))


def _redacted(finding: Finding) -> Finding:
    return replace(
        finding,
        summary=redact(finding.summary),
        explanation=redact(finding.explanation),
        next_measurement=redact(finding.next_measurement),
        evidence=tuple(replace(one, text=redact(one.text[:_MOST_QUOTED])) for one in finding.evidence),
    )


def _took(case: Case) -> str:
    """How long that took, and which phase most of it, where the log has times."""
    phases = (
        [one for one in case.facts.phases if one.seconds and one.name is not Phase.SERVING]
        if case.facts
        else []
    )
    if not phases:
        return ""
    longest = max(phases, key=lambda one: one.seconds or 0.0)
    whole = sum(one.seconds or 0.0 for one in phases)
    name = longest.name.value.replace("_", " ")
    return f" in {whole:.0f} s, {longest.seconds:.0f} s of that for {name}"


def _calm(case: Case, known: KnownLines) -> Finding:
    """What is said where nothing is broken."""
    if case.is_ready:
        return Finding(id="healthy", severity=Severity.OK, summary=f"the engine came up{_took(case)}")
    error = first_error(case, known)
    if error is not None and not is_document(line.raw or line.text for line in case.lines):
        return Finding(
            id="no_start",
            severity=Severity.NOTE,
            summary=f"no start of an engine; line {error.number} is an error that no rule explains",
            evidence=(Evidence(source="log", line=error.number, text=(error.raw or error.text).strip()),),
        )
    return Finding(
        id="no_start",
        severity=Severity.NOTE,
        summary="nothing broken was found, and no start of an engine either",
    )
