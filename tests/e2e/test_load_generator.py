"""The generator against a real server on this machine that keeps its own record of everything."""

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from load_server import Plan, Server, task_of

from bringup.load.fleet import shares
from bringup.load.local_fleet import local_fleet
from bringup.load.page import Wish
from bringup.load.task import Task
from bringup.values.bench import Failed, GeneratorRun


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def run(server: Server | None, task: Task, generators: int = 1, *, during=None) -> tuple[GeneratorRun, ...]:
    fleet = local_fleet(generators)

    async def rung() -> tuple[GeneratorRun, ...]:
        try:
            running = asyncio.create_task(fleet.run(shares(task, generators)))
            if during is not None:
                await during(fleet)
            return await asyncio.wait_for(running, 60)
        finally:
            await fleet.close()

    return asyncio.run(rung())


def test_every_request_is_answered_and_timed_after_it_was_sent(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan()))
    assert len(done.records) == len(server.served) == 40
    assert {record.index for record in done.records} == set(range(40))
    assert all(record.error is None for record in done.records)
    assert sum(done.gaps.counts.values()) == 40 * 4
    assert sum(done.token_bins.values()) == 200
    assert done.most_open <= 4
    assert server.most_running <= 4
    assert server.connections == 4
    sent_of = {one.index: one for one in server.served}
    origins = []
    for record in done.records:
        one = sent_of[record.index]
        assert record.first is not None
        assert record.last is not None
        # one clock for both sides: an arrival cannot be before its departure
        origins.append((one.arrived - record.sent, one.sent[0] - record.first, one.sent[-1] - record.last))
        assert record.last - record.first >= 0
    start_at_most = min(arrived for arrived, _, _ in origins)
    start_at_least = max(max(first, last) for _, first, last in origins)
    assert start_at_least <= start_at_most


def test_the_total_of_the_gaps_is_the_time_between_first_and_last(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), keep_gaps=True))
    assert done.gaps.total_ns == sum(record.last - record.first for record in done.records)
    for record in done.records:
        assert record.gaps is not None
        assert sum(record.gaps) == record.last - record.first


def test_several_generators_share_the_requests(server: Server) -> None:
    runs = run(server, task_of(server, Plan(), streams=6), generators=2)
    assert sorted(record.index for one in runs for record in one.records) == list(range(40))
    assert {record.index % 2 for record in runs[0].records} == {0}
    assert sum(one.most_open for one in runs) <= 6


def test_faults_are_counted_by_kind_and_leave_the_others_alone(server: Server) -> None:
    plan = Plan(hows=("", "429", "closes", "never"))
    (done,) = run(server, task_of(server, plan, request_limit_s=0.5))
    kinds = [record.error for record in done.records]
    assert len(kinds) == 40
    assert kinds.count(None) == kinds.count("http 429") == kinds.count(Failed.CLOSED_EARLY) == 10
    assert kinds.count(Failed.TIME_LIMIT) == 10
    assert sum(done.gaps.counts.values()) == 10 * 4
    assert next(record.detail for record in done.records if record.error == "http 429") == "busy"


def test_an_open_loop_counts_from_the_schedule(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(interval_s=0.01), streams=None))
    due = {record.index: record.scheduled for record in done.records}
    assert due == {index: index * 10_000_000 for index in range(40)}
    assert all(record.sent >= record.scheduled for record in done.records if record.scheduled is not None)


def test_an_open_loop_waits_for_a_connection_and_says_so(server: Server) -> None:
    task = task_of(server, Plan(interval_s=0.0, pause=0.01), streams=None, most_open=2, requests=8)
    (done,) = run(server, task)
    assert server.connections == 2
    late = sorted(record.sent - (record.scheduled or 0) for record in done.records)
    assert late[-1] > late[0]
    assert sum(done.send_late.counts.values()) == 8


def test_fresh_connections_tell_what_each_took(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), fresh_connections=True))
    assert server.connections == 40
    assert all(record.connect for record in done.records)


def test_a_conversation_goes_on_with_what_was_answered(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(turns=2, tokens=2)))
    assert len(done.records) == 40
    assert {record.turn for record in done.records} == {0, 1}
    assert {record.text for record in done.records} == {" t0 t1"}


def test_cancelled_requests_are_no_errors(server: Server) -> None:
    plan = Plan(tokens=50, pause=0.01, cancel_after_s=0.05)
    (done,) = run(server, task_of(server, plan, requests=8))
    assert all(record.is_cancelled and record.error is None for record in done.records)
    assert not done.gaps.counts


def test_a_duration_ends_the_sending_and_not_the_answers(server: Server) -> None:
    (done,) = run(server, task_of(server, Plan(), requests=None, duration_s=0.3))
    assert done.records
    assert all(record.error is None for record in done.records)


def test_a_server_that_is_gone_ends_the_rung(server: Server) -> None:
    server.close()
    (done,) = run(None, task_of(server, Plan(), requests=100_000))
    assert {record.error for record in done.records} <= {Failed.REFUSED, Failed.RESET}
    assert "in a row failed" in done.cut
    assert len(done.records) < 1000


def test_an_open_loop_on_a_server_that_is_gone_ends_although_requests_wait_for_a_connection(
    server: Server,
) -> None:
    server.close()
    task = task_of(server, Plan(interval_s=0.0), streams=None, most_open=2, requests=12)
    (done,) = run(None, task)
    assert [record.error for record in done.records] == [Failed.REFUSED] * 12


def test_an_answer_without_end_is_hung_up_on_and_leaves_the_others_alone(server: Server) -> None:
    plan = Plan(hows=("", "endless"))
    (done,) = run(server, task_of(server, plan, requests=8))
    kinds = [record.error for record in done.records]
    assert kinds.count(None) == kinds.count(Failed.TOO_LARGE) == 4
    assert max(record.events for record in done.records) < 1_000_000  # one slice beyond the bound
    assert {record.detail.partition(" events")[2] for record in done.records if record.error} == {
        " where 5 tokens were asked for"
    }


def test_an_open_loop_waits_where_there_are_no_more_file_descriptors(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = len(list(Path("/dev/fd").iterdir())) + 30
    task = task_of(server, Plan(interval_s=0.0, pause=0.02), streams=None, requests=100)

    async def rung() -> tuple[GeneratorRun, ...]:
        fleet = local_fleet(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            return await asyncio.wait_for(fleet.run(shares(task, 1)), 60)
        finally:
            await fleet.close()

    resource.setrlimit(resource.RLIMIT_NOFILE, (left, hard))
    try:
        (done,) = asyncio.run(rung())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {record.error for record in done.records} == {None}
    assert len(done.records) == 100
    assert 1 < done.most_open < 30


@pytest.mark.parametrize(("wish", "error"), [(Wish.FINISH, None), (Wish.CUT, Failed.STOPPED)])
def test_a_wish_ends_the_rung_with_what_there_is(server: Server, wish: Wish, error: str | None) -> None:
    async def stop(fleet) -> None:
        while fleet.counts().finished < 8:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)
        fleet.ask(wish)

    (done,) = run(server, task_of(server, Plan(tokens=50), requests=None), during=stop)
    assert len(done.records) >= 8
    assert {record.error for record in done.records[:8]} == {None}
    assert {record.error for record in done.records[8:]} <= {None, error}
    assert done.cut == "stopped"
