import pytest

from bringup.checks.recovery_action import CHECK


def judge(make, *gpus):
    return make.judge(CHECK, make.deployment(host=make.box(*gpus)))


def found(make, *gpus):
    return make.found(judge(make, *gpus))


def test_none(make):
    assert found(make, make.card(0), make.card(1)) == {"recovery_action": "ok"}


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({"recovery_action": "GPU Reset"}, "reset the card"),
        ({"recovery_action": "Node Reboot"}, "restart the machine"),
        ({"recovery_action": "Drain and Reset"}, "let the requests end"),
        ({"recovery_action": "Drain P2P"}, "let the requests end"),
        ({"recovery_action": None, "reset_required": "Yes"}, "reset the card"),
        ({"recovery_action": None, "drain_recommended": "Yes"}, "let the requests end"),
        ({"recovery_action": "Something New"}, "look up"),
    ],
)
def test_each_action_is_a_failure_with_what_to_do(make, fields, action):
    judgement = judge(make, make.card(0), make.card(1, **fields))
    assert make.found(judgement) == {"recovery_action": "failure"}
    assert judgement.findings[0].summary.startswith("the driver wants for GPU 1: ")
    assert action in judgement.findings[0].action


def test_a_card_that_is_not_used_is_a_warning(make):
    assert found(make, make.card(0), make.idle_card(1, recovery_action="GPU Reset")) == {
        "recovery_action": "warning"
    }


def test_error_words_beside_a_good_number(make):
    sick = make.card(
        1, power=None, temperature=None, said={"power": "ERR!", "temperature": "[Unknown Error]"}
    )
    judgement = judge(make, make.card(0), sick)
    assert make.found(judgement) == {"recovery_action.sick": "failure"}
    assert found(make, make.card(0, said={"power": "[Unknown Error]"})) == {"recovery_action.sick": "warning"}


def test_plain_absence_is_no_sickness(make):
    gpu = make.card(said={"fabric_state": "N/A", "serial": "[Not Supported]", "vbios": "(empty)"})
    assert found(make, gpu) == {"recovery_action": "ok"}


def test_drivers_that_tell_nothing_of_it(make):
    assert found(make, make.card(recovery_action=None)) == {}
    assert found(make, make.card(recovery_action=None, reset_required="No")) == {"recovery_action": "ok"}
    assert found(make) == {}
