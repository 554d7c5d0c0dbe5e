import asyncio
import sys

import pytest

from bringup.transport.spawn import started


@pytest.mark.parametrize("turns", range(6))
def test_a_cancelled_start_ends_and_leaves_no_process(turns):
    """At whatever turn of the loop the cancellation comes, the caller gets it back and nothing runs on."""
    pids = []

    async def start():
        sleeper = asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
        pids.append((await started(sleeper)).pid)
        await asyncio.sleep(60)

    async def run():
        task = asyncio.create_task(start())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)

    asyncio.run(run())
    assert pids == []  # the creation was under way: whoever asked for it was never handed the process
