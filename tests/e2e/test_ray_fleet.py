"""Generators on the nodes of a real Ray cluster: several nodes, all on this machine."""

import asyncio
import importlib.util
from collections.abc import Iterator

import load_server
import pytest
from load_server import Plan, Server, task_of

from bringup.errors import HostError
from bringup.load.fleet import shares
from bringup.load.page import Wish
from bringup.load.ray_fleet import RayFleet, ray_fleet
from bringup.values.bench import Failed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'bringup[ray]'"
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from ray import cloudpickle  # noqa: PLC0415 - an extra
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - an extra

    cloudpickle.register_pickle_by_value(load_server)  # the nodes have bringup, not its tests
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def run(fleet: RayFleet, coroutine):
    async def whole():
        try:
            return await asyncio.wait_for(coroutine, 60)
        finally:
            await fleet.close()

    return asyncio.run(whole())


def test_two_nodes_share_a_rung_and_start_together(address: str, server: Server) -> None:
    fleet = ray_fleet(address, None)
    assert fleet.size == 2
    runs = run(fleet, fleet.run(shares(task_of(server, Plan()), 2)))
    assert sorted(record.index for one in runs for record in one.records) == list(range(40))
    assert all(record.error is None for one in runs for record in one.records)
    assert len({one.generator for one in runs}) == 2
    assert all(one.clock_error_ns > 0 for one in runs)


def test_the_nodes_test_themselves_and_stop_when_told(address: str, server: Server) -> None:
    fleet = ray_fleet(address, 2)

    async def rung():
        test = await fleet.test()
        task = task_of(server, Plan(tokens=50), requests=None)
        running = asyncio.create_task(fleet.run(shares(task, 2)))
        while fleet.counts().finished < 8:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.02)
        fleet.ask(Wish.CUT)
        return test, await running

    test, runs = run(fleet, rung())
    assert test.deliver_p50_s > 0
    assert {one.cut for one in runs} == {"stopped"}
    assert {record.error for one in runs for record in one.records} <= {None, Failed.STOPPED}


def test_no_cluster_is_said() -> None:
    with pytest.raises(HostError, match="no Ray cluster"):
        ray_fleet("127.0.0.1:1", None)
