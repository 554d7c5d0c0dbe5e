import pytest

from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.values.exchange import Answer, Problem
from bringup.values.finding import Severity

GOOD = '{"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}]}'


def answer(status=200, body=GOOD, problem=None, detail="", kind="application/json"):
    return Answer(
        key="a", status=status, body=body, problem=problem, detail=detail, headers=(("content-type", kind),)
    )


def test_a_good_answer_has_no_fault():
    assert fault_of(answer()) is None
    assert reply_or_fault(answer()).text == "Paris"


def test_an_answer_cut_off_as_wanted_is_whole():
    assert isinstance(reply_or_fault(answer(problem=Problem.ABORTED)), ChatReply)


@pytest.mark.parametrize(
    ("given", "kind", "severity"),
    [
        (None, FaultKind.NOT_ASKED, "unknown"),
        (answer(problem=Problem.NOT_ASKED, detail="budget"), FaultKind.NOT_ASKED, "unknown"),
        (answer(None, "", Problem.REFUSED), FaultKind.GONE, "failure"),
        (answer(None, "", Problem.UNREACHABLE), FaultKind.GONE, "failure"),
        (answer(None, "", Problem.TIME_LIMIT), FaultKind.SILENT, "failure"),
        (
            answer(200, f"data: {GOOD.replace('message', 'delta')}\n\n", Problem.TIME_LIMIT),
            FaultKind.SLOW,
            "warning",
        ),
        (answer(200, "x", Problem.RESET), FaultKind.BROKEN, "failure"),
        (answer(200, "x", Problem.TRUNCATED), FaultKind.BROKEN, "failure"),
        (answer(None, "x", Problem.MALFORMED), FaultKind.BROKEN, "failure"),
        (answer(200, "x", Problem.TOO_LARGE), FaultKind.TOO_LARGE, "failure"),
        (answer(401, "{}"), FaultKind.NO_ACCESS, "unknown"),
        (answer(403, "{}"), FaultKind.NO_ACCESS, "unknown"),
        (answer(429, "{}"), FaultKind.BUSY, "unknown"),
        (answer(404, "{}"), FaultKind.REFUSED, "unknown"),
        (answer(400, '{"error": {"message": "too long"}}'), FaultKind.REFUSED, "unknown"),
        (answer(500, "boom"), FaultKind.SERVER_ERROR, "failure"),
        (answer(503, "<html>"), FaultKind.SERVER_ERROR, "failure"),
        (answer(200, '{"error": "died"}'), FaultKind.ENGINE_ERROR, "failure"),
        (answer(200, 'data: {"error": {"message": "died"}}\n\n'), FaultKind.ENGINE_ERROR, "failure"),
        (answer(200, "<!DOCTYPE html><html>", kind="text/html"), FaultKind.NOT_A_REPLY, "failure"),
        (answer(200, ""), FaultKind.NOT_A_REPLY, "failure"),
        (answer(200, "{}"), FaultKind.NOT_A_REPLY, "failure"),
        (answer(204, ""), FaultKind.NOT_A_REPLY, "failure"),
        (answer(302, ""), FaultKind.NOT_A_REPLY, "failure"),
    ],
)
def test_kinds(given, kind, severity):
    fault = fault_of(given)
    assert fault is not None
    assert (fault.kind, fault.severity.value) == (kind, severity)
    finding = fault_finding("x", fault, source="answer x/a", expected="an answer")
    assert finding.severity == severity
    assert finding.explanation
    assert finding.action
    assert finding.evidence[0].text
    assert finding.summary.startswith("not measured") is (severity == "unknown")


def test_the_servers_own_words_are_quoted_and_bounded():
    fault = fault_of(answer(500, '{"error": {"message": "CUDA error: ' + "x" * 1000 + '"}}'))
    assert fault is not None
    assert fault.what.startswith("HTTP 500: CUDA error")
    assert len(fault.what) < 200


def test_every_kind_has_a_verdict():
    assert all(Fault(kind=kind, what="w").severity in Severity for kind in FaultKind)
