from dataclasses import replace

import pytest

from bringup.checks.xid import CHECK
from bringup.values.host import EngineProcess, GpuError, KernelLog

DAY = 86400.0


def error(code, at=1000.0, bus="06", text="", pid=None):
    return GpuError(code=code, text=text, bus_id=f"0000:{bus}:00.0", at=at, pid=pid)


def log(*errors, **more):
    return KernelLog(errors=errors, **{"uptime": 3 * DAY, "begins_at": 0.0, **more})


def judge(make, before, after=None, started_at=None, gpus=None):
    # taken_at of the box is 1,000,000: the boot was at 740,800
    engine = EngineProcess(pid=100, port=8000, started_at=started_at)
    engines = (engine,) if started_at is not None else ()
    host = make.box(*(gpus or (make.card(0), make.card(1))), gpu_log=before, engines=engines)
    later = replace(host, gpu_log=after) if after is not None else None
    return make.judge(CHECK, make.deployment(host=host, host_after=later))


def found(make, *arguments, **more):
    return make.found(judge(make, *arguments, **more))


def test_a_clean_log(make):
    judgement = judge(make, log())
    assert make.found(judgement) == {"xid": "ok"}
    assert judgement.findings[0].summary == "none in the 3.0 days since the boot"


def test_a_log_without_its_beginning_says_so(make):
    assert "begins 2.0 h after the boot" in judge(make, log(begins_at=7200.0)).findings[0].summary


def test_a_log_that_may_not_be_read_is_not_clean(make):
    judgement = judge(make, KernelLog(refused="dmesg: read kernel buffer failed: Operation not permitted"))
    assert make.found(judgement) == {"xid": "unknown"}
    assert "sudo dmesg" in judgement.findings[0].action


def test_not_asked_is_not_spoken_of(make):
    assert found(make, None) == {}
    assert make.found(make.judge(CHECK, make.deployment())) == {}


@pytest.mark.parametrize(
    ("code", "severity"),
    [(79, "failure"), (48, "warning"), (119, "warning"), (74, "warning"), (149, "warning"), (999, "warning")],
)
def test_errors_of_the_card(make, code, severity):
    judgement = judge(make, log(error(code)))
    assert make.found(judgement) == {"xid": severity}
    assert judgement.findings[0].summary.startswith(f"Xid {code} on GPU 0 3 days ago: ")


@pytest.mark.parametrize("code", [13, 31, 43])
def test_errors_of_a_program_before_the_engine_are_noted(make, code):
    assert found(make, log(error(code)), started_at=900_000.0) == {"xid": "note"}
    assert found(make, log(error(code, at=200_000.0)), started_at=900_000.0) == {"xid": "warning"}


def test_a_bad_address_of_an_unknown_client_needs_a_reboot(make):
    judgement = judge(make, log(error(31, text="pid=1, MMU Fault: UNRECOGNIZED_CLIENT")))
    assert judgement.findings[0].action == "restart the machine"
    assert make.found(judgement) == {"xid": "warning"}


def test_the_earliest_of_a_row_is_the_cause(make):
    row = (
        error(149, at=10.0),
        error(45, at=10.1, bus="07", text="caused by previous Xid 149"),
        error(154, at=11.0),
    )
    judgement = judge(make, log(*row))
    assert judgement.findings[0].summary.startswith("Xid 149 on GPU 0")
    assert "2 more behind it" in judgement.findings[0].summary


def test_a_follower_is_not_taken_for_the_cause(make):
    assert judge(make, log(error(45, at=9.0), error(48, at=9.1))).findings[0].summary.startswith("Xid 48")


def test_the_gravest_episode_is_told_and_the_others_counted(make):
    judgement = judge(make, log(error(13, at=10.0), error(79, at=5000.0, bus="07"), error(43, at=100_000.0)))
    summary = judgement.findings[0].summary
    assert summary.startswith("Xid 79 on GPU 1")
    assert summary.endswith("2 earlier or later")
    assert len(judgement.findings[0].evidence) == 3


def test_an_error_during_the_exercises(make):
    judgement = judge(make, log(error(13)), log(error(13), error(31, at=3 * DAY)), started_at=900_000.0)
    assert make.found(judgement) == {"xid": "failure"}
    assert judgement.findings[0].summary.startswith("Xid 31")


def test_the_same_errors_twice_are_not_new(make):
    assert found(make, log(error(13)), log(error(13)), started_at=900_000.0) == {"xid": "note"}


def test_a_card_that_is_no_longer_shown_is_named_by_its_address(make):
    judgement = judge(make, log(error(79, bus="99")))
    assert "on 0000:99:00.0" in judgement.findings[0].summary
    assert make.found(judgement) == {"xid": "failure"}


def test_a_card_that_the_model_does_not_use(make):
    gpus = (make.card(0), make.idle_card(1))
    assert found(make, log(error(79, bus="07")), gpus=gpus) == {"xid": "warning"}
    assert found(make, log(error(13, bus="07", at=200_000.0)), gpus=gpus, started_at=900_000.0) == {
        "xid": "note"
    }
