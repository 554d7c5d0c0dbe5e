from dataclasses import replace

import pytest

from bringup.checks.alive import CHECK
from bringup.values.exchange import Answer, Problem
from bringup.values.host import EngineProcess, HostSnapshot

UP = (Answer(key="health", status=200), Answer(key="models", status=200, body="{}"))
NOT_ASKED = tuple(
    Answer(key=key, problem=Problem.NOT_ASKED, detail="the endpoint stopped listening (refused)")
    for key in ("health", "models")
)
TAKEN_AT = 1000.0


def host(*, pid=7, started_at=900.0, taken_at=TAKEN_AT):
    process = EngineProcess(pid=pid, port=8000, started_at=started_at)
    return HostSnapshot(taken_at=taken_at, host="local", engines=(process,))


def judged(make, *looks, before=None, after=None, **everyone):
    under_test = replace(make.deployment(), host=before, host_after=after)
    judgement = make.judge(CHECK, under_test, *looks, alive=looks, **everyone)
    assert make.found(judgement)  # complete
    return judgement.findings[0]


def test_asks_once_and_after_everybody(make):
    result = make.run(CHECK, make.deployment(), lambda ask: Answer(key=ask.key, status=200))
    assert [ask.path for ask in result.asked] == ["/health", "/v1/models"]
    assert CHECK.phase == "last"


def test_still_there(make):
    finding = judged(make, *UP, fact=[make.whole("capital", "Paris")], before=host(), after=host())
    assert finding.severity == "ok"
    assert "3 answers" in finding.summary


def test_died_at_its_first_request(make):
    said = replace(make.error("7x13", 500, "EngineCore encountered an issue"), sent_at=1.0)
    refused = Answer(key="add", problem=Problem.REFUSED, detail="Connection refused", sent_at=2.0)
    finding = judged(
        make, *NOT_ASKED, arithmetic=[said], code=[refused], before=host(), after=replace(host(), engines=())
    )
    assert finding.severity == "failure"
    assert "stopped listening" in finding.summary
    assert [row.source for row in finding.evidence] == ["answer arithmetic/7x13", "connection", "process"]
    assert "EngineCore" in finding.evidence[0].text


def test_a_burst_that_ends_it_is_named(make):
    """And its errors are not told a second time by the check of the burst."""
    broken = [
        Answer(key=f"4 at once, {number} sum", problem=Problem.REFUSED, detail="refused", sent_at=2.0)
        for number in range(1, 5)
    ]
    right = make.whole("alone sum", "42")
    finding = judged(make, *NOT_ASKED, under_load=[right, *broken], before=host(), after=host())
    assert finding.summary == "the engine stopped listening while it was being asked 4 at once in the burst"


def test_restarted_behind_our_back(make):
    finding = judged(make, *UP, before=host(), after=host(pid=9, started_at=1010.0, taken_at=1100.0))
    assert finding.severity == "failure"
    assert "started again" in finding.summary


@pytest.mark.parametrize("started_at", [900.0, 899.0, None])
def test_another_process_of_the_same_engine_is_no_restart(make, started_at):
    after = host(pid=9, started_at=started_at, taken_at=1100.0)
    assert judged(make, *UP, before=host(), after=after).severity == "ok"


def test_sick_afterwards(make):
    looks = (Answer(key="health", status=503), UP[1])
    finding = judged(make, *looks, fact=[make.error("capital", 500, "CUDA error")])
    assert finding.severity == "failure"
    assert "503" in finding.summary
    assert finding.evidence[0].text == "CUDA error"


def test_an_engine_without_these_paths_is_no_sick_one(make):
    looks = (Answer(key="health", status=404), Answer(key="models", status=401))
    assert judged(make, *looks).severity == "ok"


def test_hangs(make):
    looks = tuple(
        Answer(key=key, problem=Problem.TIME_LIMIT, detail="no byte in 10 s") for key in ("health",)
    )
    assert judged(make, *looks).severity == "failure"


def test_not_known_when_the_time_was_used_up(make):
    looks = (Answer(key="models", problem=Problem.NOT_ASKED, detail="the time (60 s) was used up"),)
    finding = judged(make, *looks)
    assert finding.severity == "unknown"
    assert "used up" in finding.summary
    assert judged(make).severity == "unknown"


def test_healthy_only_since(make):
    under_test = make.deployment()
    under_test = replace(under_test, engine=replace(under_test.engine, is_healthy=False))
    assert make.found(make.judge(CHECK, under_test, *UP)) == {"alive": "note"}
