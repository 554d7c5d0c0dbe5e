import re

import pytest

from bringup.flows.decide import decide
from bringup.parse.known_lines import KnownLines
from bringup.rules import Match, Rule
from bringup.transport.catalogue import load_known_lines
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix, Severity

KNOWN = KnownLines(
    mild=re.compile("falling back"),
    wrapper=re.compile("wrapped"),
    healthy=re.compile("everyday"),
    followers=frozenset({"late.kind"}),
)


def line(number: int, text: str) -> CaseLine:
    return CaseLine(number=number, text=text)


def rule(*matches: Match, literals: tuple[str, ...] = ()) -> Rule:
    texts = dict.fromkeys(("title", "meaning", "told_apart", "cure", "source"), "x")
    return Rule(kinds=tuple(one.kind for one in matches), literals=literals, read=lambda _: matches, **texts)


def match(kind: str, sure: float, *lines: CaseLine, **more: object) -> Match:
    return Match(kind=kind, sure=sure, lines=lines, summary=kind, **more)


def kinds(case: Case, *rules: Rule) -> list[str]:
    return [one.kind for one in decide(case, {str(n): one for n, one in enumerate(rules)}, KNOWN).matches]


CASE = Case(lines=(line(1, "alpha"), line(2, "wrapped"), line(3, "everyday"), line(4, "beta")))


def test_the_surest_comes_first_then_the_earlier():
    sure, early, late = (
        match("a", 0.9, line(4, "x")),
        match("b", 0.7, line(1, "x")),
        match("c", 0.7, line(4, "x")),
    )
    assert kinds(CASE, rule(late), rule(early), rule(sure)) == ["a", "b", "c"]


def test_grave_before_calm_however_sure():
    calm = match("calm", 1.0, line(1, "x"), severity=Severity.NOTE)
    assert kinds(CASE, rule(calm), rule(match("grave", 0.4, line(4, "x")))) == ["grave", "calm"]


def test_one_kind_of_several_ranks_is_one_finding_with_the_lines_and_cures_of_all():
    first = match("a", 0.9, line(1, "x"), fixes=(Fix(type="flag", name="--x", new="1"),))
    second = match(
        "a", 0.8, line(4, "y"), fixes=(Fix(type="flag", name="--x", new="2"), Fix(type="env", name="Y"))
    )
    (one,) = decide(CASE, {"1": rule(first), "2": rule(second)}, KNOWN).matches
    assert [two.number for two in one.lines] == [1, 4]
    assert [(fix.name, fix.new) for fix in one.fixes] == [("--x", "1"), ("Y", None)]


def test_wrappers_are_no_evidence_beside_a_telling_line_and_weigh_little_alone():
    (one,) = decide(CASE, {"1": rule(match("a", 0.9, line(2, "wrapped"), line(4, "beta")))}, KNOWN).matches
    assert [two.number for two in one.lines] == [4]
    alone, other = match("a", 0.9, line(2, "wrapped")), match("b", 0.5, line(4, "beta"))
    assert kinds(CASE, rule(alone), rule(other)) == ["b", "a"]


def test_lines_of_healthy_starts_are_no_cause_once_it_serves_or_beside_something_sure():
    everyday = rule(match("a", 0.9, line(3, "everyday")))
    assert kinds(Case(lines=CASE.lines, is_ready=True), everyday) == []
    assert kinds(CASE, everyday, rule(match("b", 0.8, line(4, "beta")))) == ["b"]


def test_what_follows_from_a_cause_is_a_note_that_says_so():
    late, cause = match("late.kind", 0.99, line(1, "x")), match("cause", 0.6, line(4, "x"))
    first, second = decide(CASE, {"1": rule(late), "2": rule(cause)}, KNOWN).matches
    assert (first.kind, second.severity) == ("cause", Severity.NOTE)
    assert "Follows from cause" in second.explanation
    assert decide(CASE, {"1": rule(late)}, KNOWN).matches[0].severity is Severity.FAILURE


def test_a_rule_without_its_text_is_not_asked_and_one_that_fails_takes_no_other_with_it():
    def fail(_case: Case) -> tuple[Match, ...]:
        raise ValueError("7 is no number")

    texts = dict.fromkeys(("title", "meaning", "told_apart", "cure", "source"), "x")
    broken = Rule(kinds=("x",), literals=("alpha",), read=fail, **texts)
    absent = rule(match("absent", 1.0), literals=("nowhere",))
    found = decide(CASE, {"broken": broken, "absent": absent, "fine": rule(match("a", 0.9))}, KNOWN)
    assert [one.kind for one in found.matches] == ["a"]
    assert found.failed == ("broken: ValueError: 7 is no number",)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "Received sigquit from a child process. It usually means the child failed.",
        "Error executing method 'load_model'. This might cause deadlock in distributed execution.",
        "Model architectures ['X'] failed to be inspected. Please check the logs for more details.",
        "./entrypoint.sh: line 47: 28 Killed",
    ],
)
def test_messages_that_do_not_identify_a_cause_are_known(text):
    assert load_known_lines().is_wrapper(text)


def test_causes_are_no_wrappers():
    known = load_known_lines()
    for text in (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Exception: Capture cuda graph failed: CUDA out of memory",
        "ValueError: No available memory for the cache blocks.",
    ):
        assert not known.is_wrapper(text)
        assert not known.is_healthy(text)
