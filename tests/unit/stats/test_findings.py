"""Each statement about a run is made when it is true, with an honest severity, and not otherwise."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import replace

import pytest

from bringup import registry
from bringup.stats.findings import Judge
from bringup.stats.rung import rung_of
from bringup.stats.tally import tally_of
from bringup.values.bench import EngineDelta, Failed, GpuUse, Rung, RungResult, Slo
from bringup.values.finding import Finding, Severity

MS = 1_000_000
JUDGES = registry.load("bringup.stats.findings", "JUDGE")
NOTE, UNKNOWN, WARNING = Severity.NOTE, Severity.UNKNOWN, Severity.WARNING
FAILURE = Severity.FAILURE


@pytest.fixture(scope="session")
def sound(make):
    """A rung in which nothing is to be said."""
    return make.result(make.closed_loop(streams=4, requests=200, ttft=0.05, itl=0.02), concurrency=4)


def said(run, *results, name=None):
    """Severities by id."""
    judges = JUDGES if name is None else {name: JUDGES[name]}
    found = [one for judge in judges.values() for one in judge.judge(run, results)]
    assert all(isinstance(one, Finding) for one in found)
    assert len({one.id for one in found}) == len(found)
    return {one.id.removeprefix("bench."): one for one in found}


def severities(found):
    return {key: one.severity for key, one in found.items()}


def with_records(make, result, **facts):
    """`result` with these facts in every record, its rung made anew."""
    runs = tuple(
        replace(run, records=tuple(replace(record, **facts) for record in run.records)) for run in result.runs
    )
    return RungResult(rung=rung_of(runs, concurrency=result.rung.concurrency), runs=runs)


def test_the_folder_is_the_registry():
    package = importlib.import_module("bringup.stats.findings")
    names = {info.name for info in pkgutil.iter_modules(package.__path__)}
    assert set(JUDGES) == names
    assert len(names) >= 24
    for name in names:
        module = importlib.import_module(f"bringup.stats.findings.{name}")
        assert isinstance(module.JUDGE, Judge)
        assert len((module.__doc__ or "").split()) >= 6
        ids = re.findall(r'id=f?"bench\.(\w+)', inspect.getsource(module))
        assert ids
        assert set(ids) == {name}, name


def test_of_a_sound_run_nothing_is_said(make, sound):
    assert said(make.bench(sound, sound), sound, sound) == {}


def test_of_an_empty_run_nothing_is_said_and_nothing_breaks(make):
    assert said(make.bench()) == {}
    nothing = RungResult(rung=Rung(concurrency=4), runs=())
    assert said(make.bench(nothing), nothing) == {}
    assert said(make.bench(nothing)) == {}


# Name, figures of the rung, facts of the run, what is said. The figures replace those of a sound rung.
BY_FIGURES = [
    ("instrument_busy", {"self_error": {"busy_share": 0.81}}, {}, {"instrument_busy": WARNING}),
    ("instrument_busy", {"self_error": {"busy_share": 0.79}}, {}, {}),
    ("instrument_lag", {"self_error": {"lag_p50_s": 0.0003}}, {}, {"instrument_lag": UNKNOWN}),
    ("instrument_lag", {"self_error": {"itl_mean_s": 0.0003}}, {}, {"instrument_lag": UNKNOWN}),
    ("instrument_lag", {"self_error": {"ttft_s": 0.006}}, {}, {"instrument_lag.single": NOTE}),
    ("instrument_lag", {"self_error": {"lag_p99_s": 0.0003}}, {}, {"instrument_lag.single": NOTE}),
    ("instrument_lag", {"self_error": {"lag_p99_s": 0.0001}}, {}, {}),
    ("instrument_lag", {"self_error": None}, {}, {}),
    ("streams_missing", {"most_open": 3}, {}, {"streams_missing": WARNING}),
    ("streams_missing", {"most_open": 4}, {}, {}),
    ("streams_missing", {"most_open": 3, "concurrency": None, "rate": 9.0}, {}, {}),
    ("waiting_here", {"queued": {"mean": 0.2}}, {}, {"waiting_here": WARNING}),
    ("waiting_here", {"queued": {"mean": 0.01}}, {}, {}),
    ("late_sends", {"queued": {"p99": 0.02}, "concurrency": None, "rate": 9.0}, {}, {"late_sends": WARNING}),
    ("late_sends", {"queued": {"p99": 0.002}, "concurrency": None, "rate": 9.0}, {}, {}),
    ("late_sends", {"queued": {"p99": 0.02}}, {}, {}),
    ("cut_short", {"stopped": 30}, {}, {"cut_short": NOTE}),
    ("cut_short", {"stopped": 10}, {}, {}),
    ("cut_short", {}, {"is_complete": False}, {"cut_short.run": NOTE}),
    ("answers", {"questions": 9, "questions_right": 8, "garbled": 1}, {}, {"answers.garbled": FAILURE}),
    ("answers", {"questions": 9, "questions_right": 7}, {}, {"answers.wrong": NOTE}),
    ("answers", {"questions": 9, "questions_right": 9}, {}, {}),
    ("truncated", {"truncated": 1}, {}, {"truncated": WARNING}),
    ("cancels_missing", {}, {"asked": {"cancel_share": "10%"}}, {"cancels_missing": WARNING}),
    ("cancels_missing", {"cancelled": 1}, {"asked": {"cancel_share": "10%"}}, {}),
    ("cancels_missing", {"good": 19}, {"asked": {"cancel_share": "10%"}}, {}),
    ("preemptions", {"engine": {"preemptions": 3.0}}, {}, {"preemptions": NOTE}),
    ("preemptions", {"engine": {"preemptions": 30.0}}, {}, {"preemptions": WARNING}),
    ("preemptions", {"engine": {"preemptions": 0.0}}, {}, {}),
    ("prefix_cache", {"engine": {"cache_hit_rate": 0.5}}, {}, {"prefix_cache": NOTE}),
    ("prefix_cache", {"engine": {"cache_hit_rate": 0.1}}, {}, {}),
    ("engine_shared", {"engine": {"is_shared": True, "requests": 300.0}}, {}, {"engine_shared": WARNING}),
    ("engine_shared", {"engine": {"is_shared": None, "requests": 300.0}}, {}, {}),
    ("engine_restarted", {"engine": {"is_restarted": True}}, {}, {"engine_restarted": WARNING}),
    ("engine_restarted", {"engine": {}}, {}, {}),
    ("token_counts", {"tokens_counted": "events"}, {}, {"token_counts": NOTE}),
    ("itl_estimated", {"itl_is_estimated": True, "tokens_per_event": 5.0}, {}, {"itl_estimated": NOTE}),
    ("slo", {"within_slo": False, "in_slo": 5}, {"slo": Slo(ttft_s=0.5)}, {"slo.missed": WARNING}),
    ("slo", {"within_slo": True, "in_slo": 200}, {"slo": Slo(ttft_s=0.5)}, {}),
    (
        "slo",
        {"within_slo": False, "in_slo": 5},
        {"slo": Slo(ttft_s=0.5), "slo_best": 3.0},
        {"slo.best": NOTE},
    ),
    ("saturated", {}, {"saturation": 16.0}, {"saturated": NOTE}),
    ("throttled", {"gpu": GpuUse(gpus=1, throttled=("GPU 0: heat",))}, {}, {"throttled": NOTE}),
    ("throttled", {"gpu": GpuUse(gpus=1)}, {}, {}),
    ("little", {"little_running": 2.0}, {}, {"little": WARNING}),
    ("little", {"little_running": 3.9}, {}, {}),
    (
        "little",
        {"little_running": 2.0, "steady_requests_per_s": 5.0, "rate": 9.0, "concurrency": None},
        {},
        {"little.overload": WARNING},
    ),
    ("few_requests", {"good": 99}, {}, {"few_requests": NOTE}),
    ("few_requests", {"good": 100}, {}, {}),
    ("few_requests", {"good": 0}, {}, {}),
    ("errors", {"errors": {"http 429": 1}}, {}, {"errors.http_429": WARNING}),
    ("errors", {"errors": {"refused": 9}, "good": 0}, {}, {"errors.refused": FAILURE}),
    ("first_wave", {"requests": 4}, {}, {"first_wave.only": NOTE}),
    ("counters_disagree", {"engine": {"requests": 199.0}}, {}, {"counters_disagree": WARNING}),
    ("counters_disagree", {"engine": {"requests": 200.0, "output_tokens": 10_000.0}}, {}, {}),
    ("counters_disagree", {"engine": {"output_tokens": 10_201.0}}, {}, {"counters_disagree": WARNING}),
    ("counters_disagree", {"engine": {"output_tokens": 9_799.0}}, {}, {"counters_disagree": WARNING}),
    ("counters_disagree", {"engine": {"output_tokens": 10_200.0}}, {}, {"counters_disagree.by_rule": NOTE}),
    ("counters_disagree", {"engine": {"output_tokens": 20_000.0, "is_shared": True}}, {}, {}),
    ("counters_disagree", {"engine": {"output_tokens": 20_000.0}, "cancelled": 1}, {}, {}),
    (
        "counters_disagree",
        {"engine": {"output_tokens": 5_000.0}, "cancelled": 1},
        {},
        {"counters_disagree": WARNING},
    ),
    ("counters_disagree", {"engine": {"output_tokens": 20_000.0}, "tokens_counted": "events"}, {}, {}),
]


def filled(rung, figures):
    """`rung` with these figures; a mapping changes parts of what stands there."""
    whole = {}
    for name, value in figures.items():
        if name == "engine":
            whole[name] = EngineDelta(**value)
        elif name in {"self_error", "queued"} and value is not None:
            whole[name] = replace(getattr(rung, name), **value)
        else:
            whole[name] = value
    return replace(rung, **whole)


@pytest.mark.parametrize(("name", "figures", "facts", "expected"), BY_FIGURES)
def test_what_figures_show(make, sound, name, figures, facts, expected):
    changed = replace(sound, rung=filled(sound.rung, figures))
    for results in ([], [changed]):  # the same with and without the records
        assert severities(said(make.bench(changed, **facts), *results, name=name)) == expected


def test_every_statement_has_a_summary_what_it_was_measured_against_and_evidence(make, sound):
    for name, figures, facts, expected in BY_FIGURES:
        changed = replace(sound, rung=filled(sound.rung, figures))
        for one in said(make.bench(changed, **facts), changed, name=name).values():
            assert expected
            assert one.summary
            assert one.expected, one.id
            assert one.explanation or one.action or one.severity is NOTE, one.id
            assert one.evidence or one.id == "bench.cut_short.run", one.id
            assert not one.summary.endswith(".")


def test_one_bad_rung_among_good_ones_is_named(make, sound):
    bad = make.changed(sound, concurrency=64, most_open=5)
    found = said(make.bench(sound, bad), sound, bad, name="streams_missing")
    assert found["streams_missing"].summary.endswith("at 64 streams")
    assert len(found["streams_missing"].evidence) == 1


def test_worse_answers_under_load_are_a_warning_and_equally_bad_ones_are_not(make, sound):
    def asked(right):
        return make.changed(sound, questions=20, questions_right=right)

    assert severities(said(make.bench(asked(20), asked(12)), name="answers")) == {
        "answers.worse_under_load": WARNING
    }
    assert severities(said(make.bench(asked(13), asked(12)), name="answers")) == {"answers.wrong": NOTE}
    assert severities(said(make.bench(asked(20), asked(19)), name="answers")) == {"answers.wrong": NOTE}
    assert said(make.bench(asked(20), asked(20)), name="answers") == {}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Failed.DESCRIPTORS, "ulimit -n"),
        (Failed.PORTS, "ip_local_port_range"),
        ("http 429", "limits requests"),
    ],
)
def test_errors_come_with_what_to_do(make, sound, kind, words):
    found = said(make.bench(make.changed(sound, errors={kind: 3})), name="errors")
    (one,) = found.values()
    assert words in one.action
    assert "3 of 200 requests failed" in one.summary
    assert bool(one.fixes) == (kind in {Failed.DESCRIPTORS, Failed.PORTS})


def test_every_kind_of_failure_says_what_to_do():
    known = importlib.import_module("bringup.stats.findings.errors")._ACTIONS
    assert {kind.value for kind in Failed} - set(known) == {"stopped"}


def test_errors_are_quoted_in_the_servers_words_the_most_frequent_first(make):
    requests = [
        make.made(i, error="http 429", detail="too many" if i else "one more", status=429) for i in range(3)
    ]
    result = make.result(requests, concurrency=1)
    found = said(make.bench(result), result, name="errors")["errors.http_429"]
    assert found.severity is FAILURE
    assert [line.text for line in found.evidence] == ["1 stream: 3 of 3", "too many", "one more"]


def burst(make, *, slow, turns, streams=4):
    """Streams whose first time to the first token is so many times the later ones."""
    return make.result(
        [
            make.made(
                turn * streams + stream, sent=turn * 3000 * MS, ttft=50 * MS * (slow if not turn else 1)
            )
            for stream in range(streams)
            for turn in range(turns)
        ],
        concurrency=streams,
    )


def test_the_first_wave_is_named_where_it_moves_the_mean(make):
    def about(result):
        return severities(said(make.bench(result), result, name="first_wave"))

    assert about(burst(make, slow=8, turns=10)) == {"first_wave": NOTE}
    assert about(burst(make, slow=8, turns=200)) == {}
    assert about(burst(make, slow=1, turns=10)) == {}
    assert about(burst(make, slow=8, turns=1)) == {"first_wave.only": NOTE}


def stalled(make, *, longest, times, lag=10_000):
    gaps = (20 * MS,) * 50 + (longest,) * times
    requests = [make.made(i, sent=i * 10_000 * MS, gaps=gaps) for i in range(10)]
    run = make.run_of(requests, lag=tally_of([lag] * 100))
    return RungResult(rung=rung_of([run], concurrency=1), runs=(run,))


def test_stalls_are_a_note_and_where_they_take_much_of_the_time_a_warning(make):
    def about(**asked):
        result = stalled(make, **asked)
        return severities(said(make.bench(result), result, name="stalls"))

    assert about(longest=190 * MS, times=1) == {}
    assert about(longest=210 * MS, times=1) == {"stalls": WARNING}
    assert about(longest=210 * MS, times=0) == {}
    few = [make.made(i, gaps=(20 * MS,) * 500 + ((300 * MS,) if not i else ())) for i in range(10)]
    result = make.result(few, concurrency=10)
    found = said(make.bench(result), result, name="stalls")
    assert severities(found) == {"stalls": NOTE}
    assert "up to 300 ms" in found["stalls"].summary
    assert "1 of 5,001 gaps" in found["stalls"].evidence[0].text


def test_what_this_sides_own_lag_explains_is_no_stall(make):
    result = stalled(make, longest=300 * MS, times=1, lag=400 * MS)
    assert said(make.bench(result), result, name="stalls") == {}


def test_a_rung_that_was_given_up_is_a_warning(make, sound):
    dead = replace(sound, runs=(replace(sound.runs[0], cut="nothing answers any more"),))
    found = said(make.bench(dead), dead, name="cut_short")
    assert severities(found) == {"cut_short.dead": WARNING}
    assert "nothing answers any more" in found["cut_short.dead"].summary
    stopped = replace(sound, runs=(replace(sound.runs[0], cut="stopped"),))
    assert said(make.bench(stopped), stopped, name="cut_short") == {}


@pytest.mark.parametrize(
    ("facts", "name", "expected"),
    [
        ({"asked_tokens": 64, "finish_reason": "stop"}, "early_ends", {"early_ends": NOTE}),
        ({"asked_tokens": 51, "finish_reason": "stop"}, "early_ends", {}),
        ({"asked_tokens": 64, "finish_reason": "length"}, "early_ends", {}),  # truncated is another matter
        ({"asked_tokens": 64, "finish_reason": "stop", "question": "capital"}, "early_ends", {}),
        ({"meant_input_tokens": 8}, "prompt_lengths", {"prompt_lengths": NOTE}),
        ({"meant_input_tokens": 12}, "prompt_lengths", {"prompt_lengths": NOTE}),
        ({"meant_input_tokens": 10}, "prompt_lengths", {}),
        ({"meant_input_tokens": 8, "input_tokens": None}, "prompt_lengths", {}),
        ({"cached_tokens": 5}, "prefix_cache", {"prefix_cache": NOTE}),
        ({"cached_tokens": 1}, "prefix_cache", {}),
        ({"last": 0}, "clock", {"clock.backwards": FAILURE}),
    ],
)
def test_what_records_show(make, sound, facts, name, expected):
    result = with_records(make, sound, **facts)
    assert severities(said(make.bench(result), result, name=name)) == expected


def test_a_coarse_clock(make, sound):
    coarse = replace(make.bench().self_test, clock_step_s=0.001)
    run = make.bench(sound, self_test=coarse)
    assert severities(said(run, sound, name="clock")) == {"clock.coarse": WARNING}
    assert said(replace(run, self_test=None), sound, name="clock") == {}


def test_a_generator_that_sees_another_server_is_named(make):
    fast = make.run_of(make.closed_loop(streams=2, requests=40), name="node-a 0")
    slow = make.run_of(make.closed_loop(streams=2, requests=40, ttft=0.09), name="node-b 0")
    few = make.run_of(make.closed_loop(streams=2, requests=5, ttft=0.9), name="node-c 0")

    def about(*runs):
        result = RungResult(rung=rung_of(runs, concurrency=4), runs=runs)
        return said(make.bench(result), result, name="generators_unequal")

    found = about(fast, slow, few)
    assert severities(found) == {"generators_unequal": WARNING}
    assert [line.source for line in found["generators_unequal"].evidence] == ["node-a 0", "node-b 0"]
    assert about(fast, fast) == about(fast, few) == about(slow) == {}


def test_an_overloaded_queue_is_said_to_be_one_and_a_loaded_one_is_not(make):
    full = make.result(make.queue(rate=15, capacity=10, requests=3000), rate=15)
    assert severities(said(make.bench(full), full, name="little")) == {"little.overload": WARNING}
    loaded = make.result(make.queue(rate=7, capacity=10, requests=3000), rate=7)
    assert said(make.bench(loaded), loaded, name="little") == {}


@pytest.mark.parametrize(("tokens", "is_said"), [(50, True), (3, False)])
def test_answers_that_come_in_one_piece_have_no_first_token(make, sound, tokens, is_said):
    (run,) = sound.runs
    records = tuple(replace(one, first=one.last, output_tokens=tokens, events=1) for one in run.records)
    whole = RungResult(rung=sound.rung, runs=(replace(run, records=records),))
    found = said(make.bench(whole), whole, name="not_streamed")
    assert severities(found) == ({"not_streamed": WARNING} if is_said else {})
    assert said(make.bench(sound), sound, name="not_streamed") == {}
    away = replace(sound.rung, self_error=replace(sound.rung.self_error, lag_p99_s=sound.rung.e2e.p50))
    assert said(make.bench(whole), replace(whole, rung=away), name="not_streamed") == {}


@pytest.mark.parametrize(
    ("kind", "whose"), [(Failed.REFUSED, "server's log"), (Failed.PORTS, "this machine")]
)
def test_a_rung_that_was_given_up_is_blamed_on_whose_limit_it_was(make, sound, kind, whose):
    dead = replace(sound, runs=(replace(sound.runs[0], cut=f"20 connections in a row failed ({kind})"),))
    assert whose in said(make.bench(dead), dead, name="cut_short")["cut_short.dead"].action
