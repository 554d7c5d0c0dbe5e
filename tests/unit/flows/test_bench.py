"""What a bench decides before and between its loads: limits, the next load, when one is over, who answers."""

import asyncio
import resource
from dataclasses import replace
from typing import ClassVar

import pytest

from bringup.errors import HostError, UnreadableAnswer, UsageError
from bringup.flows import bench_limits
from bringup.flows.bench_request import BenchRequest, generators_for
from bringup.flows.bench_search import found_of, next_load
from bringup.flows.bench_server import ask_server
from bringup.flows.bench_watch import RungWatch
from bringup.load.page import Counts, Wish
from bringup.parse.bench_options import read_concurrency, read_rate, read_slo, read_trace
from bringup.stats.step import Answer, Next
from bringup.transport.http_stream import target_of
from bringup.values.bench import Rung, RungResult
from bringup.values.exchange import Answer as HttpAnswer
from bringup.values.exchange import Problem

TARGET = target_of("http://gpubox:8000")


def request(concurrency=None, rate=None, **fields):
    loads = read_rate(rate) if rate else read_concurrency(concurrency or "auto")
    return BenchRequest(url=TARGET.url, target=TARGET, loads=loads, **fields)


def measured(load, *, tokens=100.0, is_rate=False, **fields):
    given = {
        "concurrency": None if is_rate else load,
        "rate": load if is_rate else None,
        "requests": 100,
        "good": 100,
        "steady_output_tokens_per_s": tokens,
        "mean_running": float(load),
    }
    return RungResult(rung=Rung(**{**given, **fields}), runs=())


class TestNextLoad:
    def test_listed_loads_come_in_their_order_and_once(self):
        asked = request("4,1")
        assert next_load(asked, []) == Next(load=4, why="as listed")
        assert next_load(asked, [measured(4)]).load == 1
        assert isinstance(next_load(asked, [measured(4), measured(1)]), Answer)

    def test_a_resumed_list_goes_on_where_it_was(self):
        assert next_load(request("1,2,4"), [measured(1), measured(4)]).load == 2

    def test_a_search_doubles_while_throughput_grows(self):
        results = [measured(1, tokens=100), measured(2, tokens=198)]
        assert next_load(request("auto"), results).load == 4

    def test_a_search_ends_at_the_largest_that_is_allowed(self):
        results = [measured(load, tokens=100.0 * load) for load in (1, 2, 4)]
        end = next_load(request("auto:4"), results)
        assert isinstance(end, Answer)
        assert not end.is_settled

    def test_a_search_ends_where_nothing_is_answered(self):
        bad = measured(1, good=0, errors={"http 500": 100})
        end = next_load(request("auto"), [bad])
        assert isinstance(end, Answer)
        assert "answered well" in end.why

    def test_limits_are_searched_from_the_first_that_breaks_them_downwards(self):
        asked = request("auto", slo=read_slo("ttft=1s"))
        results = [
            measured(1, requests=1000, good=1000, in_slo=1000, within_slo=True),
            measured(2, in_slo=0, within_slo=False),
        ]
        end = next_load(asked, results)
        assert isinstance(end, Answer)
        assert end.load == 1
        assert found_of(asked, results, end).slo_best == 1

    def test_rates_are_searched_as_fractions(self):
        asked = request(rate="auto", slo=read_slo("ttft=1s"))
        results = [
            measured(1.0, is_rate=True, in_slo=100, within_slo=True),
            measured(2.0, is_rate=True, in_slo=0, within_slo=False),
        ]
        step = next_load(asked, results)
        assert isinstance(step, Next)
        assert 1 < step.load < 2

    def test_a_list_with_limits_tells_the_largest_below_the_first_that_broke_them(self):
        asked = request("1,2,4,8", slo=read_slo("ttft=1s"))
        results = [measured(load, within_slo=load != 4) for load in (1, 2, 4, 8)]
        assert found_of(asked, results, next_load(asked, results)).slo_best == 2

    def test_a_trace_is_one_load(self):
        asked = replace(request("1"), loads=read_trace("trace"))
        assert isinstance(next_load(asked, []), Next)
        assert isinstance(next_load(asked, [measured(1, concurrency=None)]), Answer)


class TestSizeOfTheRun:
    def test_a_few_requests_are_neither_warmed_up_nor_calibrated_nor_questioned(self):
        asked = request("1", requests=1)
        assert (asked.warm_up_requests, asked.calibrates, asked.question_share) == (0, False, 0.0)

    def test_a_real_run_is_all_of_it(self):
        asked = request("1", requests=100)
        assert asked.warm_up_requests > 0
        assert asked.calibrates
        assert asked.question_share > 0

    def test_what_the_user_says_wins(self):
        asked = request("1", requests=1, warm_up=3, questions=1.0)
        assert (asked.warm_up_requests, asked.question_share) == (3, 1.0)

    @pytest.mark.parametrize(
        ("streams", "cores", "wanted"), [(1, 8, 1), (256, 8, 1), (257, 8, 2), (8192, 4, 4)]
    )
    def test_generators_are_as_many_as_the_load_needs_and_cores_allow(self, streams, cores, wanted):
        assert generators_for(read_concurrency(str(streams)), streams, cores=cores) == wanted


class TestLimitsOfTheMachine:
    def test_more_files_than_there_can_be_are_refused_with_the_command_that_helps(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard == resource.RLIM_INFINITY:
            pytest.skip("this machine sets no limit of open files")
        with pytest.raises(UsageError) as error:
            bench_limits.require_files(hard + 1, generators=1)
        assert "ulimit -Hn" in error.value.hint

    def test_the_soft_limit_is_raised_where_the_hard_one_allows(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
            bench_limits.require_files(200, generators=1)
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 200
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_more_connections_than_ports_are_refused(self):
        with pytest.raises(UsageError) as error:
            bench_limits.require_ports(bench_limits.local_ports() + 1)
        assert "ip_local_port_range" in error.value.hint

    def test_generators_have_files_of_their_own(self):
        one, four = (bench_limits.most_connections(generators=count) for count in (1, 4))
        assert one <= four <= bench_limits.local_ports()


class Scripted:
    """A fleet whose counters follow a script, a step at each look."""

    def __init__(self, steps):
        self.steps = iter(steps)
        self.wishes = []
        self.latest = Counts()
        self.is_over = asyncio.Event()

    def counts(self):
        following = next(self.steps, None)
        if following is None:
            self.is_over.set()
        else:
            self.latest = following
        return self.latest

    def ask(self, wish):
        self.wishes.append(wish)
        self.is_over.set()


def watched(steps, **fields):
    """The watch after a rung of one second a look."""
    seconds = iter(range(10_000))

    async def run():
        fleet = Scripted(steps)

        async def rung():
            await fleet.is_over.wait()
            return ()

        watch = RungWatch(
            fleet=fleet, title="4 streams", clock=lambda: float(next(seconds)), tick_s=0.0, **fields
        )
        assert await watch.run(rung()) == ()
        return watch, fleet

    return asyncio.run(run())


class TestWatch:
    STEADY = tuple(
        Counts(started=4 * n, finished=4 * n, running=4, events=400 * n) for n in range(200)
    )  # 400 tokens a look, always
    WILD = tuple(
        Counts(started=4 * n, finished=4 * n, running=4, events=400 * n + 3000 * (n * n % 7))
        for n in range(200)
    )

    def test_a_steady_load_ends_by_itself_once_its_rate_is_known(self):
        watch, fleet = watched(self.STEADY, streams=4, ends_itself=True)
        assert fleet.wishes == [Wish.FINISH]
        assert "token rate was known to" in watch.stopped_because

    def test_a_bounded_load_does_not(self):
        watch, fleet = watched(self.STEADY, streams=4)
        assert fleet.wishes == []
        assert watch.stopped_because == ""

    def test_a_load_whose_streams_are_not_there_is_not_known(self):
        thin = tuple(replace(counts, running=2) for counts in self.STEADY)
        _, fleet = watched(thin, streams=4, ends_itself=True)
        assert fleet.wishes == []

    def test_a_wild_rate_is_not_known_soon(self):
        _, fleet = watched(self.WILD[:60], streams=4, ends_itself=True)
        assert fleet.wishes == []

    def test_progress_tells_rate_and_what_is_left(self):
        told = []
        watched(self.STEADY[:30], streams=4, requests=200, on_progress=told.append)
        latest = told[-4]  # the script ends before the rung does
        assert latest.tokens_per_s == pytest.approx(400)
        assert latest.counts.running == 4
        assert latest.left_s is not None


class Answers:
    """An endpoint that gives recorded answers by path, 404 to all else."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    async def send(self, ask):
        self.asked.append(ask.path)
        found = self.answers.get(ask.path, HttpAnswer(key=ask.path, status=404, body="{}"))
        return replace(found, key=ask.key)

    async def close(self):
        pass


def models(*names, owner="vllm"):
    data = ", ".join(f'{{"id": "{name}", "owned_by": "{owner}"}}' for name in names)
    return HttpAnswer(key="/v1/models", status=200, body=f'{{"object": "list", "data": [{data}]}}')


def asked(answers, model=None):
    endpoint = Answers(answers)
    return asyncio.run(ask_server(endpoint, url="http://gpubox:8000", model=model)), endpoint


class TestServer:
    VLLM: ClassVar = {
        "/v1/models": models("M"),
        "/version": HttpAnswer(key="", status=200, body='{"version": "0.16.0"}'),
        "/metrics": HttpAnswer(key="", status=200, body="vllm:num_requests_running 0\n"),
    }

    def test_three_quick_requests_tell_engine_version_and_model(self):
        server, endpoint = asked(self.VLLM)
        assert (server.name, server.status.version, server.model) == ("vLLM", "0.16.0", "M")
        assert server.ignores_end
        assert sorted(endpoint.asked) == ["/metrics", "/v1/models", "/version"]

    def test_an_unknown_server_is_measured_all_the_same(self):
        server, _ = asked({"/v1/models": models("M", owner="me")})
        assert server.model == "M"
        assert not server.ignores_end

    def test_of_several_models_the_first_and_it_is_said(self):
        server, _ = asked({"/v1/models": models("A", "B")})
        assert server.model == "A"
        assert "`A`" in server.notes[0]

    def test_a_model_that_is_not_listed_is_asked_for_and_it_is_said(self):
        server, _ = asked({"/v1/models": models("A")}, model="Z")
        assert server.model == "Z"
        assert "no model `Z`" in server.notes[0]

    def test_a_named_model_needs_no_list(self):
        server, _ = asked({}, model="Z")
        assert server.model == "Z"

    def test_no_list_and_no_name(self):
        with pytest.raises(UnreadableAnswer, match="no model is told"):
            asked({})

    def test_a_key_is_wanted(self):
        with pytest.raises(HostError, match="wants a key"):
            asked({"/v1/models": HttpAnswer(key="", status=401, body="{}")})

    def test_nothing_listens(self):
        nobody = HttpAnswer(key="", problem=Problem.REFUSED, detail="Connection refused")
        with pytest.raises(HostError, match="Connection refused"):
            asked(dict.fromkeys(("/v1/models", "/version", "/metrics"), nobody))
