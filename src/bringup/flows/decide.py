"""What the rules found in a case, in order: causes before what follows from them, each kind once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bringup.parse.known_lines import KnownLines
from bringup.parse.prose import is_document
from bringup.parse.traceback import is_error
from bringup.rules import Match, Rule
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Severity

_DOUBT = 0.3  # what is left of a match that rests on wrappers or on lines of healthy starts alone
_SURE_ENOUGH = 0.5  # of a cause, to make others its consequences
_MOST_LINES = 6  # quoted per finding
_QUOTED = "The message stands in a document or a program that quotes it, not in a log."
_GOES_ON = "The line itself says that the engine goes on in another way."
_ERROR_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\[E\]|level=error", re.IGNORECASE)
_REMARK_LEVEL = re.compile(  # NCCL warns of what ends it, and Kubernetes of what it ended
    r"^(?:\S+ ){0,6}?\[?(?<!NCCL )(?:INFO|WARN(?:ING)?|DEBUG)\b|\blevel=(?:info|warn|debug)|^\[?[IW]\d{3,4} "
    r"|^warning: |\blevel=(?:INFO|WARN|DEBUG)"
)
_FAILS = re.compile(
    r"fail|error|abort|invalid|unable|cannot|can't|could not|exception|exceed|refused|denied|killed|timed out"
    r"|undefined|: -\d|too (?:large|small|old|many|few|long|short)"
    r"|out of|died|dead|hang|hung|stuck|crash|lost"
    r"|not (?:found|supported|available|enough|compatible)|\bno \w|overflow|corrupt|mismatch",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"\b(?!with|from|this|that|will|your|have|error|warn|info|using)[a-z][a-z_0-9]{3,}|\d{2,}"
)
_SHARED = 3  # words and numbers that two lines of one subject have in common
_GRAVE = (Severity.FAILURE, Severity.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The matches of one case, the most likely cause first."""

    matches: tuple[Match, ...]
    failed: tuple[str, ...] = ()  # rules that could not read the case

    @property
    def is_decided(self) -> bool:
        """Whether something grave is known with some certainty."""
        return any(one.severity in _GRAVE for one in self.matches)


def decide(case: Case, rules: Mapping[str, Rule], known: KnownLines) -> Decision:
    """All that the rules say of a case, ranked."""
    found, failed = list[Match](), list[str]()
    for name, rule in rules.items():
        if not _may_match(case, rule):
            continue
        try:
            found += [_weighed(match, known) for match in rule.read(case)]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")  # the other rules still speak
    merged = [_no_worse_than_it_says(one, case, known) for one in _by_kind(found)]
    if case.is_ready or any(one.sure >= _SURE_ENOUGH for one in merged):
        merged = [one for one in merged if not _is_everyday(one, known)]
    ranked = sorted(merged, key=lambda one: _rank(one, known))
    if is_document(line.raw or line.text for line in case.lines):
        ranked = [
            replace(one, severity=Severity.NOTE, explanation=_QUOTED) for one in ranked if not one.probes
        ]
    return Decision(matches=tuple(_consequences(ranked, known)), failed=tuple(failed))


def _may_match(case: Case, rule: Rule) -> bool:
    """Whether any line has a text of the rule; a rule of probes alone has none."""
    if not rule.literals or case.host is not None or case.texts:
        return True
    return any(literal in line.text for line in case.lines for literal in rule.literals)


def _weighed(match: Match, known: KnownLines) -> Match:
    """The match without lines that decide nothing; doubted where no other is left."""
    telling = tuple(
        line for line in match.lines if not known.is_wrapper(line.text) and not known.is_healthy(line.text)
    )
    if telling or not match.lines:
        return replace(match, lines=telling)
    only_wrappers = all(known.is_wrapper(line.text) for line in match.lines)
    is_calm = match.severity not in _GRAVE
    return match if is_calm or not only_wrappers else replace(match, sure=match.sure * _DOUBT)


def _no_worse_than_it_says(match: Match, case: Case, known: KnownLines) -> Match:
    """A note where all lines say that the engine went on in another way, unless it ended of that."""
    if match.severity is not Severity.FAILURE or match.probes or not match.lines:
        return match
    if not all(_is_mild(line, known) for line in match.lines):
        return match
    if not case.is_ready and _same_subject(match, case):
        return match
    return replace(match, severity=Severity.NOTE, explanation=f"{_GOES_ON} {match.explanation}".strip())


def _is_mild(line: CaseLine, known: KnownLines) -> bool:
    """Whether a line says that the engine goes on in another way, or is a remark that names no failure."""
    if _is_the_end(line):
        return False
    is_remark = _REMARK_LEVEL.search(line.raw) is not None and _FAILS.search(line.text) is None
    return is_remark or known.is_mild(line.text)


def _is_the_end(line: CaseLine) -> bool:
    """Whether a line is an error by its own level or as an exception."""
    return is_error(line.text) or _ERROR_LEVEL.search(line.raw) is not None


def _same_subject(match: Match, case: Case) -> bool:
    """Whether an error of the log is about what the lines are about: words of theirs stand in it."""
    words = {word for line in match.lines for word in _SUBJECT.findall(line.text.lower())}
    quoted = {line.number for line in match.lines}
    return any(
        len(words.intersection(_SUBJECT.findall(line.text.lower()))) >= _SHARED
        for line in case.lines
        if line.number not in quoted and _is_the_end(line)
    )


def _is_everyday(match: Match, known: KnownLines) -> bool:
    """Whether a grave match rests on nothing but lines that healthy starts print as well."""
    return (
        match.severity in _GRAVE
        and bool(match.lines)
        and not match.probes
        and all(known.is_healthy(line.text) for line in match.lines)
    )


def _by_kind(matches: Sequence[Match]) -> list[Match]:
    """Each kind once: several ranks and several rules say the same; the surest speaks."""
    best: dict[str, Match] = {}
    for match in sorted(matches, key=lambda one: (-one.sure, _place(one))):
        before = best.get(match.kind)
        if before is None:
            best[match.kind] = replace(match, lines=_few(match.lines))
        else:
            fixes = before.fixes + tuple(
                fix
                for fix in match.fixes
                if (fix.type, fix.name) not in {(one.type, one.name) for one in before.fixes}
            )
            best[match.kind] = replace(
                before,
                lines=_few((*before.lines, *match.lines)),
                fixes=fixes,
                probes=tuple(dict.fromkeys((*before.probes, *match.probes))),
            )
    return list(best.values())


def _few(lines: Sequence[CaseLine]) -> tuple[CaseLine, ...]:
    """The first lines, each number once."""
    by_number: dict[int, CaseLine] = {}
    for line in lines:
        by_number.setdefault(line.number, line)
    return tuple(by_number.values())[:_MOST_LINES]


def _rank(match: Match, known: KnownLines) -> tuple[bool, bool, float, int]:
    """Grave before calm, causes before followers, then sureness, then the earlier line."""
    return (
        match.severity not in _GRAVE,
        match.kind in known.followers,
        -round(match.sure, 2),
        _place(match),
    )


def _place(match: Match) -> int:
    return min((line.number for line in match.lines), default=0)


def _consequences(ranked: Sequence[Match], known: KnownLines) -> list[Match]:
    """Followers beside a cause say that they follow, and weigh no more than a note."""
    cause = next((one for one in ranked if one.kind not in known.followers and one.severity in _GRAVE), None)
    if cause is None or cause.sure < _SURE_ENOUGH:
        return list(ranked)
    return [
        replace(
            one,
            severity=Severity.NOTE,
            explanation=f"Follows from {cause.kind}. {one.explanation}".strip(),
        )
        if one.kind in known.followers and one.severity in _GRAVE
        else one
        for one in ranked
    ]
