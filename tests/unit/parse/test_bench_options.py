"""What the options of `bench` say, and what they must not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.parse.bench_options import read_concurrency, read_duration, read_rate, read_slo, read_trace


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", (8,)),
        ("1,2,4", (1, 2, 4)),
        (" 1 , 2 ", (1, 2)),
        ("1-8", (1, 2, 4, 8)),
        ("3-10", (3, 6, 10)),
        ("4..9", (4, 8, 9)),
        ("1-4,64", (1, 2, 4, 64)),
        ("2,2,1", (2, 1)),
        ("1_000", (1000,)),
    ],
)
def test_streams_are_listed_or_doubled(text, values):
    assert read_concurrency(text).values == values


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "8-1", "1,,2", "auto:0", "auto:x", "70000", "viel"])
def test_what_is_no_load_is_refused(text):
    with pytest.raises(UsageError):
        read_concurrency(text)


def test_a_search_may_be_bounded():
    assert read_concurrency("auto").is_auto
    assert read_concurrency("AUTO:64").high == 64


def test_rates_may_be_fractions():
    assert read_rate("0.25,1").values == (0.25, 1)
    assert read_rate("2").is_rate
    with pytest.raises(UsageError):
        read_rate("0")


@pytest.mark.parametrize("text", ["trace:0", "trace:fast"])
def test_a_trace_without_a_speed_is_refused(text):
    with pytest.raises(UsageError):
        read_trace(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250us", 0.00025), ("0.5", 0.5), ("90s", 90), ("2m", 120), ("2min", 120), ("1h", 3600)],
)
def test_durations(text, seconds):
    assert read_duration(text, option="--duration") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "-3s", "s", "1d", "1e9999s", "nan", "inf"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError):
        read_duration(text, option="--duration")


@pytest.mark.parametrize(
    "text", ["", "share=99%", "ttft", "ttft=", "ttft=1s,ttft=2s", "x=1s", "e2e=1s,share=0"]
)
def test_limits_that_limit_nothing_are_refused(text):
    with pytest.raises(UsageError):
        read_slo(text)


@given(text=st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    for read in (read_concurrency, read_rate, read_slo):
        try:
            read(text)
        except UsageError:
            continue
