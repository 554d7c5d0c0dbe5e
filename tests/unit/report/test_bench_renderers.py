"""A run of `bench` in every format: what is told, that no number is cut, and that JSON comes back whole."""

import csv
import io
import json
import re
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.parse.bench_result import read_bench_result
from bringup.report.bench import TextStyle, render_bench_text
from bringup.report.bench_compare import Sides, is_worse, render_comparison_json, render_comparison_text
from bringup.report.bench_csv import render_bench_csv
from bringup.report.bench_json import render_bench_json, render_bench_result
from bringup.report.bench_plot import Point, figure, plot
from bringup.report.bench_records import render_jsonl, render_parquet
from bringup.report.bench_words import paragraph, verdict
from bringup.report.columns import table_lines
from bringup.report.words import cell_text
from bringup.stats.compare import compare
from bringup.values.bench import (
    BenchResult,
    BenchRun,
    Distribution,
    GeneratorRun,
    RequestRecord,
    Rung,
    RungResult,
    SelfError,
    SelfTest,
    Slo,
    Tally,
)
from bringup.values.finding import Finding, Severity
from bringup.values.report import Table


def spread(middle: float) -> Distribution:
    return Distribution(
        count=100,
        mean=middle,
        p50=middle,
        p90=1.5 * middle,
        p95=2 * middle,
        p99=3 * middle,
        max=4 * middle,
        min=0.5 * middle,
    )


def rung(streams: int, **fields: Any) -> Rung:
    """A load whose throughput grows up to 16 streams."""
    given = {
        "concurrency": streams,
        "requests": 100,
        "good": 100,
        "wall_s": 20.0,
        "ttft": spread(0.05 * max(1, streams / 16)),
        "itl": spread(0.0119),
        "tpot": spread(0.0119),
        "e2e": spread(1.6 * max(1, streams / 16)),
        "output_tokens": 12_800,
        "output_tokens_per_s": 80.0 * min(streams, 16),
        "steady_output_tokens_per_s": 84.31 * min(streams, 16),
        "steady_requests_per_s": 0.66 * min(streams, 16),
        "mean_running": float(streams),
        "self_error": SelfError(
            ttft_s=0.0003,
            itl_mean_s=0.000012,
            itl_gap_s=0.0004,
            lag_p50_s=0.00006,
            lag_p99_s=0.0003,
            busy_share=0.21,
        ),
    }
    return Rung(**{**given, **fields})


RUN = BenchRun(
    url="http://gpubox:8000",
    model="MiniMaxAI/MiniMax-M2.5",
    engine="vLLM",
    engine_version="0.16.0",
    workload="synthetic, 512 in (exact), 128 out, seed 0",
    load="closed loop, searched from 1 to at most 1024 streams",
    warm_up=4,
    self_test=SelfTest(
        deliver_p50_s=12e-6,
        deliver_p99_s=6e-5,
        lag_p50_s=5e-5,
        lag_p99_s=2e-4,
        clock_step_s=1e-7,
        seconds=0.05,
    ),
    rungs=tuple(rung(streams) for streams in (1, 4, 16, 64)),
    saturation=16,
    saturation_why="1,349 of at most 1,349 tokens/s",
)


def text(run: BenchRun = RUN, *, width: int = 100, **more: Any) -> str:
    style = {name: more.pop(name) for name in ("has_color", "is_ascii", "show_all") if name in more}
    return render_bench_text(run, TextStyle(width=width, **style), **more)


class TestText:
    def test_says_what_one_user_gets_and_where_more_bring_nothing(self):
        shown = " ".join(text().split())
        assert shown.startswith("full at 16 streams MiniMaxAI/MiniMax-M2.5 on vLLM 0.16.0")
        assert "1 stream gets 84 tokens/s, the first token after 50 ms, then 11.9 ms for each" in shown
        assert "Throughput stops growing at 16 streams: 1,349 tokens/s" in shown
        assert "All 400 requests were answered." in shown

    def test_states_its_own_error(self):
        shown = " ".join(text().split())
        assert "at most 21 % busy" in shown
        assert "at most 0.3 ms of a ttft, 0.012 ms (0.1 %) of a mean itl" in shown
        assert "4 requests before the first load are in no figure" in shown

    def test_a_late_instrument_is_named_in_the_verdict_of_those_loads_alone(self):
        late = rung(4, self_error=replace(RUN.rungs[0].self_error, itl_mean_s=0.0005))
        assert "At 4 streams the instrument was late" in paragraph(replace(RUN, rungs=(rung(1), late)))
        assert "instrument" not in paragraph(RUN)

    def test_errors_are_counted_by_kind(self):
        run = replace(RUN, rungs=(rung(1), rung(4, requests=10, good=7, errors={"http 429": 2, "reset": 1})))
        assert "3 of 110 requests failed (2 http 429, 1 reset)." in paragraph(run)

    def test_a_server_without_a_good_answer_has_no_speed(self):
        run = replace(RUN, rungs=(Rung(concurrency=1, requests=3, errors={"refused": 3}),), saturation=None)
        assert verdict(run) == "no good answer"
        assert "has no speed" in paragraph(run)
        assert "3 of 3 requests failed (3 refused)" in text(run)

    def test_what_was_hung_up_on_was_not_answered(self):
        some = replace(RUN, rungs=(rung(4, requests=60, good=22, cancelled=38),))
        assert "All 22 other requests were answered. 38 were hung up on as planned." in paragraph(some)
        every = replace(RUN, rungs=(Rung(concurrency=1, requests=3, cancelled=3),), saturation=None)
        assert verdict(every) == "nothing measured"
        assert paragraph(every).startswith("3 were hung up on as planned.")

    def test_an_interrupted_run_says_so_and_how_to_go_on(self):
        run = replace(RUN, is_complete=False, saturation=None)
        assert verdict(run).startswith("interrupted")
        assert "--resume" in text(run)

    def test_nothing_measured_is_no_crash(self):
        run = replace(RUN, is_complete=False, rungs=(), saturation=None)
        assert verdict(run) == "nothing measured"
        assert "no load was measured" in text(run)

    def test_limits_and_the_largest_load_within_them(self):
        slo = Slo(ttft_s=0.5, itl_s=0.05)
        rungs = (rung(1, within_slo=True, goodput_per_s=0.6), rung(4, within_slo=False, goodput_per_s=1.1))
        run = replace(RUN, slo=slo, slo_best=1, rungs=rungs, saturation=None)
        assert verdict(run) == "within the SLO up to 1 stream"
        assert "Within ttft 500 ms and itl 50 ms for 99 % of the requests: up to 1 stream" in paragraph(run)
        assert "in SLO" in text(run)
        missed = replace(run, slo_best=None, rungs=rungs[1:])
        assert verdict(missed) == "SLO missed"

    def test_an_open_loop_says_from_when_latencies_count(self):
        run = replace(RUN, rungs=(replace(rung(4), concurrency=None, rate=2.5),), saturation=None)
        shown = " ".join(text(run).split())
        assert "2.5/s" in shown
        assert "count from the moment a request was due" in shown

    def test_latencies_per_event_are_said_to_be_estimated(self):
        run = replace(RUN, rungs=(rung(4, itl_is_estimated=True, tokens_per_event=4.8),))
        assert "itl is estimated: the server sends up to 4.8 tokens in one event" in " ".join(
            text(run).split()
        )

    def test_findings_stand_there_worst_first_with_what_to_do(self):
        findings = (
            Finding(id="bench.few_requests", severity=Severity.NOTE, summary="few"),
            Finding(id="bench.errors", severity=Severity.FAILURE, summary="many failed", action="look"),
        )
        shown = text(replace(RUN, findings=findings))
        assert shown.index("bench.errors") < shown.index("bench.few_requests")
        assert "do: look" in shown

    def test_another_run_stands_beside(self):
        other = replace(RUN, model="other/model", rungs=(rung(4, steady_output_tokens_per_s=999.4),))
        shown = text(width=200, beside=other)
        assert "tokens/s beside" in shown
        assert "999.4" in shown
        assert "beside: other/model" in shown

    def test_what_a_server_says_cannot_steer_the_terminal(self):
        assert "\x1b" not in text(replace(RUN, model="a\x1b[2Jb"))

    def test_colour_only_where_it_is_wanted(self):
        assert "\x1b[" in text(has_color=True)
        assert "\x1b[" not in text()

    def test_ascii_draws_no_other_letters(self):
        drawn = text(is_ascii=True)
        assert drawn.isascii(), [letter for letter in drawn if not letter.isascii()]

    @pytest.mark.parametrize("width", [20, 33, 40, 60, 80, 100, 120, 160, 200])
    def test_no_number_is_cut_and_no_line_is_longer_than_the_terminal(self, width):
        shown = text(width=width)
        longest = max(len(word) for word in shown.split())
        assert max(map(len, shown.splitlines())) <= max(width, longest + 12)
        plain = " ".join(shown.split())
        for one in RUN.rungs:
            assert cell_text(float(f"{one.steady_output_tokens_per_s:.4g}")) in plain
            assert cell_text(round(1000 * one.ttft.p95, 1)).removesuffix(".0") in plain


class TestPlot:
    @given(
        points=st.lists(
            st.tuples(st.floats(0, 1e7), st.floats(1e-6, 1e5), st.integers(1, 8192)), min_size=2, max_size=20
        ),
        width=st.integers(20, 200),
        is_ascii=st.booleans(),
    )
    def test_stays_within_its_columns_whatever_it_draws(self, points, width, is_ascii):
        drawn = plot(
            [Point(x=x, y=y, label=str(label)) for x, y, label in points],
            width=width,
            x_title="output tokens per second",
            y_title="seconds per request, median",
            is_ascii=is_ascii,
        )
        lines = drawn.splitlines()
        assert max(map(len, lines)) <= width
        assert sum(line.count("o" if is_ascii else "●") for line in lines[1:-3]) >= 1

    def test_every_point_that_lies_apart_is_drawn_with_its_label(self):
        points = [Point(x=100.0 * number, y=float(number), label=str(2**number)) for number in range(1, 7)]
        drawn = plot(points, width=100, x_title="x", y_title="y")
        assert drawn.count("●") == 6
        assert all(re.search(rf"\b{2**number}\b", drawn) for number in range(1, 7))

    def test_a_point_further_up_is_slower_and_one_further_right_faster(self):
        slow, fast = Point(x=10, y=9, label="S"), Point(x=90, y=1, label="F")
        lines = plot([slow, fast], width=60, x_title="x", y_title="y").splitlines()
        (up, left), (down, right) = (
            next((row, line.index(label)) for row, line in enumerate(lines) if label in line)
            for label in "SF"
        )
        assert up < down
        assert left < right

    def test_one_point_is_no_plot(self):
        assert not plot([Point(x=1, y=1, label="1")], width=80, x_title="x", y_title="y")

    def test_figures_are_never_exponents(self):
        assert figure(123_456_789) == "123,456,789"
        assert figure(0.000012) == "0.000012"


class TestColumns:
    TABLE = Table(title="", columns=("load", "tokens/s"), rows=((1, 84.31), (1024, 1_234_567.0), (8, None)))

    def test_figures_end_below_one_another(self):
        lines = table_lines(self.TABLE, width=40)
        assert len({len(line) for line in lines}) == 1
        assert lines[-1].endswith("-")

    def test_too_narrow_a_terminal_gets_a_line_per_figure(self):
        assert any("1,234,567" in line for line in table_lines(self.TABLE, width=8))


class TestCsv:
    def test_a_row_per_load_with_every_figure_of_the_records(self):
        rows = list(csv.DictReader(io.StringIO(render_bench_csv(RUN))))
        assert [row["concurrency"] for row in rows] == ["1", "4", "16", "64"]
        assert float(rows[0]["ttft_p95_s"]) == RUN.rungs[0].ttft.p95
        assert float(rows[0]["self_error_ttft_s"]) == 0.0003
        assert rows[0]["rate"] == ""  # not known is empty, never 0


def values(hint: object) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one line per kind of type
    """Values of a record's field, by its type: JSON has no infinity."""
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is int:
        return st.integers(-(2**53), 2**53)
    if hint is Finding:
        return st.just(Finding(id="bench.x", severity=Severity.WARNING, summary="s", expected="ä"))
    if is_dataclass(hint):
        return records(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([st.none() if part is NoneType else values(part) for part in parts])
    if origin is tuple:
        return st.lists(values(parts[0]), max_size=2).map(tuple)
    if origin is not None and len(parts) == 2:
        return st.dictionaries(values(parts[0]), values(parts[1]), max_size=2)
    return st.from_type(hint)


def records(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})


@st.composite
def results(draw: st.DrawFn) -> BenchResult:
    rungs = draw(st.lists(records(Rung), max_size=2))
    found = []
    for one in rungs:
        runs = draw(st.lists(records(GeneratorRun), max_size=2))
        found.append(RungResult(rung=one, runs=tuple(runs)))
    run = draw(records(BenchRun))
    return BenchResult(run=replace(run, rungs=tuple(rungs)), results=tuple(found))


class TestJson:
    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(result=results())
    def test_a_kept_result_comes_back_whole(self, result):
        assert read_bench_result(render_bench_result(result), name="r.json") == result

    @settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
    @given(result=results())
    def test_the_printed_result_comes_back_without_its_requests(self, result):
        found = read_bench_result(render_bench_json(result.run), name="r.json")
        assert found.run == result.run
        assert all(one.runs == () for one in found.results)

    def test_has_the_names_of_the_contract(self):
        body = json.loads(render_bench_json(RUN))
        assert body["schema"] == "bringup/bench/1"
        assert {"lag_p50_s", "lag_p99_s", "busy_share"} <= set(body["instrument"])
        wanted = {"concurrency", "rate", "requests", "errors", "wall_s", "ttft_s", "itl_s", "tpot_s", "e2e_s"}
        wanted |= {"queued_s", "output_tokens_per_s", "requests_per_s", "joules_per_token"}
        assert wanted <= set(body["rungs"][0])
        assert {"mean", "p50", "p90", "p95", "p99", "max"} <= set(body["rungs"][0]["ttft_s"])
        assert body["findings"] == []

    def test_every_field_of_a_load_is_told(self):
        names = {field.name for field in fields(Rung)}
        told = {name.removesuffix("_s") for name in json.loads(render_bench_json(RUN))["rungs"][0]}
        assert {name.removesuffix("_s") for name in names} == told

    def test_the_instrument_is_as_bad_as_in_its_worst_load(self):
        late = rung(4, self_error=replace(RUN.rungs[0].self_error, lag_p99_s=0.5))
        body = json.loads(render_bench_json(replace(RUN, rungs=(rung(1), late))))
        assert body["instrument"]["lag_p99_s"] == 0.5

    def test_without_a_load_the_self_test_speaks_for_the_instrument(self):
        body = json.loads(render_bench_json(replace(RUN, rungs=())))
        assert body["instrument"]["lag_p99_s"] == 2e-4

    @pytest.mark.parametrize(
        ("written", "said"),
        [
            ("", "no result"),
            ("{}", "no result"),
            ('{"schema": "bringup/plan/1"}', "no result"),
            ('{"schema": "bringup/bench/9"}', "known here is"),
            ('{"schema": "bringup/bench/1"}', "damaged"),
            ('{"schema": "bringup/bench/1", "url": 3, "rungs": []}', "damaged"),
            ('{"schema": "bringup/bench/1", "url": "u", "model": "m", "rungs": {}}', "damaged"),
        ],
    )
    def test_another_file_is_named_as_what_it_is_not(self, written, said):
        with pytest.raises(UsageError, match=said):
            read_bench_result(written, name="r.json")

    @given(cut=st.integers(0, 4000))
    def test_a_cut_file_is_never_a_crash(self, cut):
        whole = render_bench_result(
            BenchResult(run=RUN, results=tuple(RungResult(rung=one, runs=()) for one in RUN.rungs))
        )
        with pytest.raises(UsageError):
            read_bench_result(whole[: min(cut, len(whole) - 2)], name="r.json")


def test_requests_per_second_are_those_of_the_whole_load():
    one = rung(4, requests_per_s=2.5, steady_requests_per_s=0.25)
    shown = text(replace(RUN, rungs=(one,)), width=160).split()
    assert "2.5" in shown
    assert "0.25" not in shown


def measured(latency: float, *, requests: int = 200) -> RungResult:
    """A load of 4 streams whose requests took about `latency` seconds, with a course that repeats."""
    taken = [round((latency + 0.001 * (number * 7 % 11)) * 1e9) for number in range(requests)]
    found, at = [], [0, 0, 0, 0]
    for number, took in enumerate(taken):
        sent = at[number % 4]
        at[number % 4] = ended = sent + took
        record = RequestRecord(
            index=number,
            sent=sent,
            first=sent + took // 2,
            last=ended,
            ended=ended,
            status=200,
            output_tokens=10,
            events=10,
            finish_reason="length",
        )
        found.append(record)
    run = GeneratorRun(generator="local 0", records=tuple(found), lag=Tally(counts={1: 5}), ended=max(at))
    return RungResult(rung=rung(4, e2e=spread(latency), ttft=spread(latency / 2)), runs=(run,))


class TestComparison:
    def sides(self, before: RungResult, after: RungResult, **after_run: Any) -> Sides:
        return Sides(
            before=RUN,
            after=replace(RUN, **after_run),
            before_name="a.json",
            after_name="b.json",
            comparison=compare([before], [after]),
        )

    def test_a_slower_run_is_worse(self):
        sides = self.sides(measured(0.5), measured(0.6))
        assert is_worse(sides.comparison)
        shown = render_comparison_text(sides, TextStyle(width=160))
        assert re.search(r"e2e mean +\S+ +\S+ +ms +\+20\.0 %.*higher, worse", shown)

    def test_the_same_run_shows_no_difference(self):
        sides = self.sides(measured(0.5), measured(0.5))
        assert not is_worse(sides.comparison)
        assert "No difference shown" in render_comparison_text(sides, TextStyle(width=160))

    def test_without_requests_nothing_is_judged(self):
        kept = measured(0.5)
        sides = self.sides(replace(kept, runs=()), replace(kept, runs=()))
        assert "Not known" in render_comparison_text(sides, TextStyle())

    def test_what_was_measured_unlike_is_said(self):
        sides = self.sides(measured(0.5), measured(0.5), workload="synthetic, 64 in, 8 out", model="other")
        shown = " ".join(render_comparison_text(sides, TextStyle(width=160)).split())
        assert "model: MiniMaxAI/MiniMax-M2.5, then other" in shown
        assert "then synthetic, 64 in, 8 out" in shown
        assert json.loads(render_comparison_json(sides))["unlike"]


class TestRecords:
    def test_parquet_holds_what_the_lines_hold(self):
        parquet = pytest.importorskip(
            "pyarrow.parquet", reason="needs pyarrow: pip install 'bringup[parquet]'"
        )
        result = BenchResult(run=RUN, results=(measured(0.5, requests=5), measured(0.7, requests=3)))
        table = parquet.read_table(io.BytesIO(render_parquet(result)))
        rows = [
            {name: value for name, value in row.items() if value is not None} for row in table.to_pylist()
        ]
        lines = [json.loads(line) for line in render_jsonl(result).splitlines()]
        assert rows == [{name: value for name, value in row.items() if value is not None} for row in lines]

    def test_a_line_per_request_with_its_load(self):
        result = BenchResult(run=RUN, results=(measured(0.5, requests=5),))
        rows = [json.loads(line) for line in render_jsonl(result).splitlines()]
        assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
        assert rows[0]["concurrency"] == 4
        assert rows[0]["first_ns"] == measured(0.5, requests=5).runs[0].records[0].first
