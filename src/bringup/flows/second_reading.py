"""A small log that its lines as they stand do not explain, read again as it was before they were broken."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from bringup.parse.log_stream import KeptLines
from bringup.parse.redact import redact
from bringup.parse.rejoined import Rejoined, rejoined
from bringup.values.case import Case
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Evidence, Severity

_MOST_QUOTED = 600  # characters of a line


def read_twice(
    kept: KeptLines, sift: Callable[[bytes], KeptLines], read: Callable[[KeptLines], Diagnosis]
) -> Diagnosis:
    """What `read` says of a log; of the log as it was written, where terminals or forms broke its lines."""
    whole = kept.whole if kept.whole is not None and not kept.has_zeros else b""
    others = rejoined(whole.decode("utf-8", "replace"))
    first = None if any(one.is_wrapped for one in others) else read(kept)
    if first is not None and _is_enough(first) and not _is_cut(first, others):
        return first
    for other in others:
        found = read(sift(other.text.encode()))
        if _is_settled(found):
            if first is not None and _says_the_same(first, found):
                return first  # the next line was none of it: not to be quoted
            return _as_it_stood(found, other, whole, kept.total_lines)
    return first or read(kept)


def _is_enough(found: Diagnosis) -> bool:
    """Whether something broke, or nothing: the engine came up."""
    return _is_settled(found) or (found.case is not None and found.case.is_ready)


def _is_settled(found: Diagnosis) -> bool:
    return any(one.severity in (Severity.FAILURE, Severity.WARNING) for one in found.findings)


def _says_the_same(one: Diagnosis, other: Diagnosis) -> bool:
    """Whether two readings name the same cause first, with the same changes."""
    first, second = one.findings[:1], other.findings[:1]
    return [(each.id, each.fixes) for each in first] == [(each.id, each.fixes) for each in second]


def _is_cut(found: Diagnosis, others: Sequence[Rejoined]) -> bool:
    """Whether a line that decides goes on in the next one."""
    if not others or not _is_settled(found):
        return False
    decisive = {one.line for one in found.findings[0].evidence if one.line is not None}
    return any(len(span) > 1 and not decisive.isdisjoint(span) for span in others[0].lines)


def _as_it_stood(found: Diagnosis, other: Rejoined, whole: bytes, total_lines: int) -> Diagnosis:
    """The diagnosis with the lines of the input."""
    raw = whole.decode("utf-8", "replace").split("\n")
    return replace(
        found,
        findings=tuple(
            replace(one, evidence=tuple(_lines_of(one.evidence, other, raw))) for one in found.findings
        ),
        case=_case_at(found.case, other) if found.case is not None else None,
        total_lines=total_lines,
    )


def _lines_of(evidence: Iterable[Evidence], other: Rejoined, raw: Sequence[str]) -> Iterator[Evidence]:
    """Each line that was put together as the lines that it was made of."""
    for one in evidence:
        if one.line is None or one.line > len(other.lines):
            yield one
            continue
        for number in other.lines[one.line - 1]:
            yield replace(one, line=number, text=redact(raw[number - 1].strip()[:_MOST_QUOTED]))


def _case_at(case: Case, other: Rejoined) -> Case:
    """The case with its phases at the lines of the input."""
    if case.facts is None:
        return case
    phases = tuple(
        replace(one, first_line=other.lines[one.first_line - 1].start)
        if one.first_line <= len(other.lines)
        else one
        for one in case.facts.phases
    )
    return replace(case, facts=replace(case.facts, phases=phases))
