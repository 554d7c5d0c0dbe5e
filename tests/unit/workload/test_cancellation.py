import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import first, shared_out, synthetic
from bringup.errors import UsageError
from bringup.workload.cancellation import Cancelled, read_cancellation
from bringup.workload.known_questions import WithQuestions


def cancelled(text):
    return Cancelled(workload=synthetic(), cancellation=read_cancellation(text, option="--cancel", seed=3))


@given(generators=st.integers(1, 7))
def test_the_same_requests_are_hung_up_on_for_any_number_of_generators(generators):
    assert shared_out(cancelled("30%"), 40, generators) == first(cancelled("30%"), 40)


def test_the_asked_share_is_hung_up_on_within_the_asked_times():
    after = [one.cancel_after_s for one in first(cancelled("25%,0.5:3"), 2000)]
    cut = [time for time in after if time is not None]
    assert len(cut) / len(after) == pytest.approx(0.25, abs=0.03)
    assert 0.5 <= min(cut) < 0.6
    assert 2.9 < max(cut) <= 3


@pytest.mark.parametrize(
    ("text", "share", "low", "high"),
    [("10%", 0.1, 0.1, 2.0), ("0.1", 0.1, 0.1, 2.0), ("1,2", 1.0, 2.0, 2.0), ("5%, 1:4s", 0.05, 1.0, 4.0)],
)
def test_an_option_says_share_and_times(text, share, low, high):
    found = read_cancellation(text, option="--cancel")
    assert (found.share, found.low_s, found.high_s) == (share, low, high)


@pytest.mark.parametrize("text", ["", "often", "10", "150%", "10%,3:1", "10%,x"])
def test_what_is_no_cancellation_is_said(text):
    with pytest.raises(UsageError, match="--cancel"):
        read_cancellation(text, option="--cancel")


def test_a_known_question_is_never_hung_up_on():
    inner = WithQuestions(workload=synthetic(), padding=synthetic(), share=0.5)
    made = first(Cancelled(workload=inner, cancellation=read_cancellation("100%", option="-c")), 20)
    assert all((one.question is None) is (one.cancel_after_s is not None) for one in made)


def test_nobody_goes_on_talking_after_hanging_up():
    workload = cancelled("100%")
    assert workload.next_turn(first(workload, 1)[0], "yes") is None
    assert workload.words.endswith("100 % hung up on after 0.1 to 2 s")
