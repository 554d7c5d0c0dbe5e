from bringup.flows.probes import LOCAL, observe, questions, texts_of
from bringup.machine import Target
from bringup.values.host import CommandResult


def test_what_was_not_answered_is_absent():
    answers = {
        "diagnose.kernel": CommandResult(key="diagnose.kernel", status=0, stdout="NVRM: Xid 79\n"),
        "diagnose.shm": CommandResult(key="diagnose.shm", status=0, stdout=" \n"),
        "transport.clock": CommandResult(key="transport.clock", status=0, stdout="1"),
    }
    assert texts_of(answers) == {"kernel": "NVRM: Xid 79\n"}


def test_a_unit_is_asked_for_only_where_one_is_named_and_quoted_for_the_shell():
    assert not any(one.key == "diagnose.unit" for one in questions(Target()))
    (asked,) = [one for one in questions(Target(unit="a; b")) if one.key == "diagnose.unit"]
    assert "'a; b'" in asked.script


def test_this_machine_answers():
    seen = observe(LOCAL, Target())
    assert seen.host is not None
    assert seen.host.disks
    assert "ulimit" in seen.texts
    assert "df.inodes" in seen.texts
