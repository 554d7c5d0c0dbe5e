import math

from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.parse.prometheus import labels_of, largest, read_samples, sum_of_largest, total, totals

PAGE = """# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 2.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="a \\"quoted\\" {name}"} 1.5e+03
fwd_occupancy NaN
limit +Inf
"""


def test_names_labels_and_values() -> None:
    samples = read_samples(PAGE)
    assert [sample.name for sample in samples] == [
        "vllm:num_requests_running",
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "fwd_occupancy",
        "limit",
    ]
    assert samples[2].labels == {"model_name": 'a "quoted" {name}'}
    assert samples[2].value == 1500


def test_sums_and_maxima_over_labels() -> None:
    samples = read_samples(PAGE)
    assert total(samples, "vllm:num_requests_running") == 5
    assert largest(samples, "vllm:num_requests_running") == 3


def test_what_is_absent_or_no_number_is_none_and_never_zero() -> None:
    samples = read_samples(PAGE)
    assert math.isnan(next(sample.value for sample in samples if sample.name == "fwd_occupancy"))
    for name in ("fwd_occupancy", "limit", "nowhere"):
        assert total(samples, name) is None
        assert largest(samples, name) is None
        assert sum_of_largest(samples, name, by="x") is None
    assert labels_of(samples, "nowhere") == ()


def test_ranks_that_repeat_a_count_count_once() -> None:
    samples = read_samples('a{dp="0",tp="0"} 2\na{dp="0",tp="1"} 2\na{dp="1",tp="0"} 3\n')
    assert sum_of_largest(samples, "a", by="dp") == 5
    assert sum_of_largest(samples, "a", by="nowhere") == 3


def test_the_first_name_that_is_there_is_taken() -> None:
    samples = read_samples("old 1\n")
    assert totals(samples, {"x": ("new", "old"), "y": ("none",)}) == {"x": 1}


def test_a_bad_line_does_not_take_the_others_with_it() -> None:
    samples = read_samples('good 1\nbad{unfinished="x 2\nno number here\n\nalso_good 3\n')
    assert [(sample.name, sample.value) for sample in samples] == [("good", 1), ("also_good", 3)]


def test_a_page_or_json_has_no_samples() -> None:
    assert read_samples("<html>up 1</html>") == ()
    assert read_samples('[{"iter": 1}]') == ()
    assert read_samples("") == ()


@settings(deadline=None)
@given(st.text(max_size=300) | st.integers(0, len(PAGE)).map(lambda cut: PAGE[:cut] + "\x00" + PAGE[cut:]))
def test_no_text_crashes(text: str) -> None:
    assert all(sample.name for sample in read_samples(text))


def test_a_sum_beyond_any_float_is_not_known():
    samples = read_samples('a{rank="0"} 1e308\na{rank="1"} 1e308\n')
    assert total(samples, "a") is None
    assert sum_of_largest(samples, "a", by="rank") is None
    assert largest(samples, "a") == 1e308


def test_a_whole_number_beyond_any_float_is_left_out():
    samples = read_samples(f"a {'9' * 400}\nb 2\n")
    assert [(sample.name, sample.value) for sample in samples] == [("b", 2.0)]
