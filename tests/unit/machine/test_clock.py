import pytest

from bringup.machine.facts import SUBJECT
from bringup.values.host import CommandResult, HostSnapshot


@pytest.mark.parametrize(
    ("said", "elapsed_s", "received_at", "skew"),
    [
        ("1000.25", 0.5, 1000.5, 0.0),  # read half-way through the round trip: no skew
        ("1003.25", 0.5, 1000.5, 3.0),
        ("1000.25", 0.5, None, -49.0),  # no moment of arrival: the snapshot's own (asked at 1049)
        ("1000.25", None, 1000.5, None),
        ("no clock", 0.5, 1000.5, None),
    ],
)
def test_skew_is_taken_from_the_middle_of_the_round_trip(said, elapsed_s, received_at, skew):
    clock = CommandResult(
        key="transport.clock", status=0, stdout=said, elapsed_s=elapsed_s, received_at=received_at
    )
    snapshot = SUBJECT.read(HostSnapshot(taken_at=1049.0, host="box"), {"transport.clock": clock})
    assert snapshot.facts.clock_skew_s == (skew if skew is None else pytest.approx(skew))
