"""The figures of a rung are those of its records, whoever recorded them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.stats import latency
from bringup.stats.rung import rung_of
from bringup.values.bench import AnswerIs, Failed, Rung, Slo

MS = 1_000_000


@st.composite
def some_requests(draw, make):
    """Requests with any schedule, some failed, hung up on or cut."""
    found = []
    for index in range(draw(st.integers(1, 12))):
        gaps = draw(st.lists(st.integers(0, 80 * MS), max_size=5))
        kind = draw(st.sampled_from(["good", "good", "good", "failed", "cancelled", "stopped"]))
        more = {
            "failed": {"error": draw(st.sampled_from(["http 429", Failed.RESET]))},
            "cancelled": {"is_cancelled": True},
            "stopped": {"error": Failed.STOPPED},
            "good": {},
        }[kind]
        sent = draw(st.integers(0, 2000 * MS))
        found.append(make.made(index, sent=sent, ttft=draw(st.integers(1, 500 * MS)), gaps=gaps, **more))
    return found


@given(st.data(), st.integers(2, 4), st.randoms())
def test_any_split_over_generators_in_any_order_gives_the_same_rung(make, data, generators, random):
    requests = data.draw(some_requests(make))
    slo = Slo(ttft_s=0.2, itl_s=0.05)
    whole = rung_of([make.run_of(requests)], concurrency=3, slo=slo)
    random.shuffle(requests)
    runs = make.split(requests, generators)
    random.shuffle(runs)
    parted = rung_of(runs, concurrency=3, slo=slo)
    # How busy a generator was is its own; all else that the instrument says of itself is not.
    error = replace(parted.self_error, busy_share=whole.self_error.busy_share)
    assert replace(parted, self_error=error) == whole


@given(st.data())
def test_every_request_is_counted_once_and_only_good_ones_are_measured(make, data):
    requests = data.draw(some_requests(make))
    rung = rung_of([make.run_of(requests)], concurrency=3)
    assert rung.requests + rung.stopped == len(requests)
    assert rung.requests == rung.good + rung.cancelled + sum(rung.errors.values())
    good = [one for one in requests if latency.outcome(one.record) == "good"]
    assert rung.good == len(good) == (rung.ttft.count if rung.ttft else 0)
    assert (rung.output_tokens or 0) == sum(len(one.arrivals) for one in good)
    gaps = [(b - a) / 1e9 for one in good for a, b in zip(one.arrivals, one.arrivals[1:], strict=False)]
    assert (rung.itl.count if rung.itl else 0) == len(gaps)
    if gaps:
        assert rung.itl.mean == pytest.approx(sum(gaps) / len(gaps))
        assert rung.itl.max == pytest.approx(max(gaps))


def test_a_server_in_lockstep_gives_exactly_its_schedule(make):
    """4 streams, 5 requests each, 50 ms to the first token, 99 gaps of 20 ms: 4 / 20 ms of tokens at most."""
    requests = [
        make.made(5 * stream + turn, sent=turn * 2030 * MS, ready=turn * 2030 * MS, gaps=(20 * MS,) * 99)
        for stream in range(4)
        for turn in range(5)
    ]
    rung = rung_of([make.run_of(requests)], concurrency=4)
    assert (rung.ttft.mean, rung.ttft.max, rung.itl.mean, rung.itl.p99) == (0.05, 0.05, 0.02, 0.02)
    assert (rung.tpot.mean, rung.e2e.mean, rung.wall_s, rung.queued.max) == (0.02, 2.03, 10.15, 0.0)
    assert (rung.itl.count, rung.itl_is_estimated, rung.tokens_per_event) == (1980, False, 1.0)
    assert (rung.output_tokens, rung.input_tokens, rung.tokens_counted) == (2000, 200, "usage")
    assert rung.output_tokens_per_s == pytest.approx(2000 / 10.15)
    assert rung.total_tokens_per_s == pytest.approx(2200 / 10.15)
    assert rung.requests_per_s == pytest.approx(20 / 10.15)
    assert (rung.most_open, rung.mean_running) == (4, pytest.approx(4.0))
    assert rung.steady_output_tokens_per_s == pytest.approx(400 / 2.03, rel=0.01)


def test_the_ramp_and_the_drain_are_not_in_the_steady_throughput(make):
    """Two streams give 10 tokens/s each; the second starts 10 s late and the first goes on 10 s longer."""
    first = [make.made(i, sent=i * 10_000 * MS, ttft=100 * MS, gaps=(100 * MS,) * 99) for i in range(3)]
    second = make.made(3, sent=10_000 * MS, ttft=100 * MS, gaps=(100 * MS,) * 99)
    rung = rung_of([make.run_of([*first, second])], concurrency=2)
    assert rung.output_tokens_per_s == pytest.approx(400 / 30)
    assert rung.steady_s == pytest.approx(10.0)
    assert rung.steady_output_tokens_per_s == pytest.approx(20.0, rel=0.01)
    assert rung.mean_running == pytest.approx(2.0)


def test_a_load_that_was_never_there_has_no_steady_throughput(make):
    rung = rung_of([make.run_of([make.made(gaps=(100 * MS,) * 30)])], concurrency=8)
    assert (rung.steady_output_tokens_per_s, rung.steady_s, rung.little_running) == (None, None, None)
    assert (rung.most_open, rung.mean_running) == (1, pytest.approx(1.0))


def test_a_queue_obeys_the_known_formula(make):
    """M/M/1 at 8 of 10 per second: a mean stay of 1 / (10 - 8) s, four requests there."""
    rung = rung_of([make.run_of(make.queue(rate=8, capacity=10, requests=20_000))], rate=8)
    assert rung.e2e.mean == pytest.approx(0.5, rel=0.1)
    assert rung.mean_running == pytest.approx(4.0, rel=0.1)
    assert rung.little_running == pytest.approx(rung.mean_running, rel=0.02)
    assert rung.steady_requests_per_s == pytest.approx(8.0, rel=0.03)
    assert (rung.itl, rung.tpot, rung.rate) == (None, None, 8)


def test_the_time_until_an_open_loop_has_filled_the_server_is_not_steady(make):
    """10 requests a second that stay 5 s each: 50 are there, once the first 5 s are over."""
    requests = [
        make.made(i, sent=i * 100 * MS, scheduled=i * 100 * MS, ttft=50 * MS, gaps=(99 * MS,) * 50)
        for i in range(200)
    ]
    rung = rung_of([make.run_of(requests)], rate=10)
    assert rung.steady_s == pytest.approx(19.9 - 5.0)
    assert rung.mean_running == pytest.approx(50, rel=0.01)
    assert rung.steady_requests_per_s == pytest.approx(10, rel=0.01)
    assert rung.steady_output_tokens_per_s == pytest.approx(510, rel=0.01)


def test_what_was_sent_late_in_an_open_loop_is_in_the_latency(make):
    late = [make.made(i, sent=i * 100 * MS + 30 * MS, scheduled=i * 100 * MS) for i in range(10)]
    rung = rung_of([make.run_of(late)], rate=10)
    assert (rung.ttft.mean, rung.queued.mean) == (pytest.approx(0.08), pytest.approx(0.03))
    assert rung.self_error.ttft_s == pytest.approx(0.03 + 2 * 10e-6)  # p99 and p50 of the lag


def test_events_with_several_tokens_are_never_shown_as_tokens(make):
    """20 events 100 ms apart, the first with one token, the others with 5."""
    request = make.made(gaps=(100 * MS,) * 19, output_tokens=96, first_event_tokens=1)
    rung = rung_of([make.run_of([request], several=True)], concurrency=1)
    assert rung.itl_is_estimated
    assert rung.tokens_per_event == pytest.approx(5.0)
    assert (rung.event_gap.mean, rung.event_gap.count) == (pytest.approx(0.1), 19)
    assert (rung.itl.mean, rung.itl.count) == (pytest.approx(0.02), 95)
    assert rung.tpot.mean == pytest.approx(0.02)
    assert rung.steady_output_tokens_per_s == pytest.approx(96 / 2.0, rel=0.1)


def test_a_single_request_with_several_tokens_per_event_makes_it_an_estimate(make):
    exact = make.run_of([make.made(0, gaps=(20 * MS,) * 9)])
    several = make.run_of([make.made(1, gaps=(40 * MS,) * 9, output_tokens=19)], several=True)
    rung = rung_of([exact, several], concurrency=2)
    assert rung.itl_is_estimated
    assert rung.tokens_per_event == pytest.approx(27 / 18)
    assert rung.itl.mean == pytest.approx((9 * 20 + 9 * 40) / 27 / 1000)


def test_without_usage_tokens_are_events_and_that_is_said(make):
    requests = [make.made(i, gaps=(20 * MS,) * 9, output_tokens=None) for i in range(2)]
    assert rung_of([make.run_of(requests)]).tokens_counted == "events"
    requests.append(make.made(2, gaps=(20 * MS,) * 9))
    rung = rung_of([make.run_of(requests)])
    assert (rung.tokens_counted, rung.output_tokens) == ("usage and events", 30)


def test_unknown_input_tokens_are_not_guessed(make):
    requests = [make.made(0), make.made(1, input_tokens=None)]
    rung = rung_of([make.run_of(requests)])
    assert (rung.input_tokens, rung.total_tokens_per_s) == (None, None)


def test_failed_requests_miss_the_limits_and_stopped_ones_do_not_count(make):
    slo = Slo(ttft_s=0.06, share=0.9)
    good = [make.made(i, sent=i * 1000 * MS) for i in range(9)]
    stopped = make.made(20, sent=8000 * MS, error=Failed.STOPPED)
    within = rung_of([make.run_of([*good, stopped, make.made(21, is_cancelled=True)])], slo=slo)
    assert (within.in_slo, within.within_slo) == (9, True)
    assert within.goodput_per_s == pytest.approx(9 / within.wall_s)
    one_failed = rung_of([make.run_of([*good, make.made(9, error="http 500")])], slo=slo)
    assert (one_failed.in_slo, one_failed.within_slo) == (9, True)  # 9 of 10
    two_failed = [make.made(i, error="http 500") for i in (9, 10)]
    assert rung_of([make.run_of([*good, *two_failed])], slo=slo).within_slo is False


def test_without_limits_there_is_no_goodput(make):
    rung = rung_of([make.run_of([make.made()])])
    assert (rung.goodput_per_s, rung.in_slo, rung.within_slo) == (None, None, None)


def test_answers_to_known_questions_are_graded(make):
    texts = ("Paris", "London", "!!!!!!", None)
    requests = [make.made(i, question="capital", text=text) for i, text in enumerate(texts)]

    def grade(question, text):
        assert question == "capital"
        return {"Paris": AnswerIs.RIGHT, "London": AnswerIs.WRONG}.get(text, AnswerIs.GARBLED)

    rung = rung_of([make.run_of([*requests, make.made(9)])], grade=grade)
    assert (rung.questions, rung.questions_right, rung.garbled) == (3, 1, 1)


def test_truncated_answers_are_counted(make):
    requests = [
        make.made(0, asked_tokens=5),
        make.made(1, asked_tokens=5, finish_reason="stop"),
        make.made(2),
    ]
    assert rung_of([make.run_of(requests)]).truncated == 1
    assert rung_of([make.run_of(requests)], ignores_eos=True).truncated == 2


def test_nothing_measured_is_nothing_and_not_zero(make):
    for runs in ([], [make.run_of([])]):
        rung = rung_of(runs, concurrency=4)
        assert (rung.requests, rung.ttft, rung.itl, rung.e2e, rung.connect) == (0, None, None, None, None)
        assert (rung.output_tokens, rung.output_tokens_per_s, rung.requests_per_s) == (None, None, None)
    assert rung_of([], concurrency=4) == Rung(concurrency=4)


def test_only_failures_have_no_latency(make):
    rung = rung_of([make.run_of([make.made(i, error=Failed.TIME_LIMIT) for i in range(3)])], concurrency=1)
    assert (rung.errors, rung.good, rung.ttft) == ({"time limit": 3}, 0, None)
    assert rung.requests_per_s == 0.0


def test_connections_are_measured_where_they_were_fresh(make):
    requests = [make.made(0, connect=3 * MS), make.made(1), make.made(2, connect=5 * MS)]
    rung = rung_of([make.run_of(requests)])
    assert (rung.connect.count, rung.connect.mean) == (2, pytest.approx(0.004))


def test_tokens_of_failed_and_cancelled_requests_are_in_the_steady_throughput_only(make):
    """Two streams of 10 tokens/s; every second request breaks, yet the server made its tokens."""
    requests = [
        make.made(
            2 * turn + stream,
            sent=turn * 2000 * MS,
            ttft=100 * MS,
            gaps=(100 * MS,) * 19,
            **({"error": Failed.RESET, "output_tokens": None} if stream else {}),
        )
        for turn in range(5)
        for stream in range(2)
    ]
    rung = rung_of([make.run_of(requests)], concurrency=2)
    assert (rung.good, rung.output_tokens, rung.output_tokens_per_s) == (5, 100, pytest.approx(10.0))
    assert rung.steady_output_tokens_per_s == pytest.approx(20.0, rel=0.02)
