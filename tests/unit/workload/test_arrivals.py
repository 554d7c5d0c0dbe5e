from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import first, shared_out, synthetic
from bringup.errors import UsageError
from bringup.workload.arrivals import Arrival, Arrivals, Scheduled, read_arrivals

KINDS = st.sampled_from(["poisson", "constant", "bursty:0.3", "ramp:2"])


def gaps(arrivals, count=6000):
    times = list(islice(arrivals.times(), count))
    return times, [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]


def variation(values):
    mean = sum(values) / len(values)
    return (sum((one - mean) ** 2 for one in values) / len(values)) ** 0.5 / mean


@given(kind=KINDS, generators=st.integers(1, 8), seed=st.integers(0, 1000))
def test_a_request_is_due_at_the_same_time_for_any_number_of_generators(kind, generators, seed):
    arrivals = read_arrivals(kind, rate=20, option="-a", seed=seed)
    workload = Scheduled(workload=synthetic("30"), arrivals=arrivals)
    alone = first(workload, 25)
    assert shared_out(workload, 25, generators) == alone
    due = [one.at_s for one in alone]
    assert due == sorted(due)
    assert due[0] >= 0


@pytest.mark.parametrize(
    ("kind", "wanted"), [("poisson", 1.0), ("constant", 0.0), ("bursty:0.25", 2.0), ("bursty:100", 0.1)]
)
def test_gaps_have_the_mean_of_the_rate_and_the_variation_of_their_kind(kind, wanted):
    times, between = gaps(read_arrivals(kind, rate=50, option="-a"))
    assert len(times) / times[-1] == pytest.approx(50, rel=0.06)
    assert variation(between) == pytest.approx(wanted, abs=0.12)


def test_a_constant_stream_is_exact_and_begins_at_once():
    times, _ = gaps(Arrivals(rate=4, kind=Arrival.CONSTANT), 9)
    assert times == [number / 4 for number in range(9)]


@given(start=st.floats(0, 50), end=st.floats(1, 50), ramp=st.floats(0.5, 20))
def test_a_ramp_has_as_many_requests_as_the_area_under_its_rate(start, end, ramp):
    arrivals = Arrivals(rate=start, end_rate=end, ramp_s=ramp, kind=Arrival.CONSTANT)
    times = list(islice(arrivals.times(), 200))
    for number, time in enumerate(times):
        within = min(time, ramp)
        area = start * within + (end - start) / ramp * within**2 / 2 + end * max(0.0, time - ramp)
        assert area == pytest.approx(number, abs=1e-6)


def test_a_ramp_grows_to_its_rate_and_stays_there():
    times, _ = gaps(read_arrivals("ramp:10", rate=100, option="-a"), 3000)
    early, late = (sum(low <= time < low + 1 for time in times) for low in (0, 20))
    assert early < 30
    assert late == pytest.approx(100, abs=35)


def test_no_rate_sends_nothing():
    assert list(Arrivals(rate=0).times()) == []


@pytest.mark.parametrize("text", ["often", "bursty", "bursty:0", "ramp:0", "gamma:-1", ""])
def test_what_is_no_arrival_is_said(text):
    with pytest.raises(UsageError, match=f"no arrivals: `-a {text}`") as raised:
        read_arrivals(text, rate=1, option="-a")
    assert "poisson" in raised.value.hint


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(UsageError, match="more than 0 requests"):
        read_arrivals("poisson", rate=0, option="-a")


def test_the_words_name_rate_and_kind():
    assert read_arrivals("poisson", rate=8, option="-a").words == "poisson arrivals, 8 a second"
    assert (
        read_arrivals("ramp:60", rate=8, option="-a").words == "poisson arrivals, 0.8 to 8 in 60 s a second"
    )
