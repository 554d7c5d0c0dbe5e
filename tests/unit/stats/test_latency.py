"""What one request was like."""

import pytest

from bringup.stats import latency
from bringup.values.bench import Failed, RequestRecord, Slo


def record(**facts):
    return RequestRecord(**({"index": 0, "sent": 100} | facts))


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"first": 1, "last": 2}, "good"),
        ({"first": 1, "last": 2, "is_cancelled": True}, "cancelled"),
        ({"error": Failed.STOPPED, "is_cancelled": True}, "stopped"),
        ({"error": "http 429"}, "http 429"),
        ({"error": Failed.RESET, "first": 1, "last": 2}, "reset"),
        ({}, "empty"),
    ],
)
def test_what_became_of_a_request(facts, what):
    assert latency.outcome(record(**facts)) == what


def test_an_open_loop_counts_from_when_a_request_was_due():
    late = record(scheduled=40, first=150, last=190)
    assert (latency.ttft_ns(late), latency.e2e_ns(late), latency.queued_ns(late)) == (110, 150, 60)


def test_a_closed_loop_counts_from_the_send_and_shows_the_wait_apart():
    waited = record(ready=30, first=150, last=190, ended=500)
    assert (latency.ttft_ns(waited), latency.e2e_ns(waited), latency.queued_ns(waited)) == (50, 90, 70)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"events": 10, "output_tokens": 10, "finish_reason": "length"}, 9),
        ({"events": 10, "output_tokens": 11, "finish_reason": "stop"}, 9),  # the end token has no text
        ({"events": 10, "output_tokens": 11, "finish_reason": "length"}, 10),  # one event carried two
        ({"events": 5, "output_tokens": 20, "first_event_tokens": 4}, 16),
        ({"events": 3, "output_tokens": 9, "event_tokens": (1, 4, 4)}, 8),
        ({"events": 3, "output_tokens": 9, "event_tokens": (4, 4), "first_event_tokens": 1}, 8),
        ({"events": 10}, 9),
        ({"events": 1, "output_tokens": 1}, 0),
        ({"events": 1, "output_tokens": 2, "finish_reason": "stop"}, 0),
        ({"events": 0, "output_tokens": 0}, 0),
    ],
)
def test_tokens_after_the_first_event(facts, expected):
    assert latency.intervals(record(**facts)) == expected


def test_tokens_come_from_usage_else_from_the_events_counts_else_from_the_events():
    assert latency.tokens(record(events=3, output_tokens=7, event_tokens=(1, 1, 1))) == 7
    assert latency.tokens(record(events=3, event_tokens=(2, 3), first_event_tokens=2)) == 7
    assert latency.tokens(record(events=3)) == 3


def test_time_per_token_knows_only_first_and_last():
    assert latency.tpot_ns(record(first=200, last=1000, events=5)) == 200
    assert latency.tpot_ns(record(first=200, last=200, events=1)) is None


@pytest.mark.parametrize(
    ("facts", "ignores_eos", "is_cut"),
    [
        ({"asked_tokens": 10, "output_tokens": 9, "finish_reason": "length"}, False, True),
        ({"asked_tokens": 10, "output_tokens": 9, "finish_reason": None}, False, True),
        ({"asked_tokens": 10, "output_tokens": 9, "finish_reason": "stop"}, False, False),
        ({"asked_tokens": 10, "output_tokens": 9, "finish_reason": "stop"}, True, True),
        ({"asked_tokens": 10, "output_tokens": 10, "finish_reason": "length"}, True, False),
        ({"asked_tokens": 10, "events": 3}, True, False),  # not told: an event may carry several
        ({"output_tokens": 3, "finish_reason": "length"}, True, False),
    ],
)
def test_a_truncated_answer(facts, ignores_eos, is_cut):
    assert latency.is_truncated(record(**facts), ignores_eos=ignores_eos) is is_cut


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo(ttft_s=0.1), True),
        (Slo(ttft_s=0.0999), False),
        (Slo(itl_s=0.02, tpot_s=0.02), True),
        (Slo(itl_s=0.0199), False),
        (Slo(tpot_s=0.0199), False),
        (Slo(e2e_s=0.3), True),
        (Slo(ttft_s=1.0, e2e_s=0.29), False),
    ],
)
def test_a_request_keeps_every_limit_or_misses(slo, kept):
    ms = 1_000_000
    assert latency.keeps(record(sent=0, first=100 * ms, last=300 * ms, events=11), slo) is kept


def test_a_limit_on_what_a_request_has_not_is_kept():
    assert latency.keeps(record(first=200, last=200, events=1), Slo(itl_s=1e-9))
