import pytest

from bringup.checks.ecc_and_remap import CHECK


def found(make, *gpus, after=()):
    hosts = {"host": make.box(*gpus), "host_after": make.box(*after) if after else None}
    return make.found(make.judge(CHECK, make.deployment(**hosts)))


def test_sound(make):
    assert found(make, make.card(0), make.card(1)) == {"ecc_and_remap": "ok"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ecc_uncorrected": 2}, {"ecc_and_remap.uncorrected": "failure"}),
        ({"remapped_rows_failure": "Yes"}, {"ecc_and_remap.failed": "failure"}),
        ({"remapped_rows_pending": "Yes"}, {"ecc_and_remap.pending": "warning"}),
        ({"retired_pages_pending": "Yes"}, {"ecc_and_remap.pending": "warning"}),
        ({"ecc_uncorrected_ever": 1}, {"ecc_and_remap.history": "note"}),
        ({"remapped_rows": 1}, {"ecc_and_remap.history": "note"}),
        ({"ecc_corrected": 5000}, {"ecc_and_remap.history": "note"}),
        ({"ecc_corrected": 3}, {"ecc_and_remap": "ok"}),
        ({"ecc_mode": "Disabled", "ecc_uncorrected": None}, {"ecc_and_remap.mode": "warning"}),
        ({"ecc_mode_pending": "Disabled"}, {"ecc_and_remap.mode": "note"}),
        ({"ecc_mode_pending": "Enabled"}, {"ecc_and_remap": "ok"}),
    ],
)
def test_each_figure(make, fields, expected):
    assert found(make, make.card(0), make.card(1, **fields)) == expected


def test_ecc_off_everywhere_is_a_choice(make):
    off = [make.card(index, ecc_mode="Disabled", ecc_uncorrected=None) for index in range(2)]
    assert found(make, *off) == {"ecc_and_remap.mode": "note"}


def test_an_error_on_a_card_without_the_model(make):
    gpus = (make.card(0), make.idle_card(1, ecc_uncorrected=2))
    assert found(make, *gpus) == {"ecc_and_remap.uncorrected": "warning"}


def test_an_error_that_comes_with_the_exercises(make):
    after = (make.card(0, ecc_uncorrected=1),)
    assert found(make, make.card(0), after=after) == {"ecc_and_remap.uncorrected": "failure"}


def test_a_mode_without_counts_is_no_proof(make):
    bare = {"ecc_uncorrected": None, "remapped_rows_pending": None, "remapped_rows_failure": None}
    assert found(make, make.card(**bare)) == {"ecc_and_remap": "note"}


def test_cards_without_ecc_are_not_spoken_of(make):
    none = {
        "ecc_mode": None,
        "ecc_uncorrected": None,
        "remapped_rows_pending": None,
        "remapped_rows_failure": None,
    }
    assert found(make, make.card(**none, said={"ecc_mode": "[N/A]"})) == {}
    assert found(make) == {}
