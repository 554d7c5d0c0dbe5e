"""CPU time that the resource checks add: reading and judging a host, and the script that asks it.

The first is taken from case A of the tests: a fresh process verifies its recording whole, another without its
host, so that only the endpoint is judged. What lies between them is reading, the account of the GPUs, the
checks and the modules that all this loads. The second is the snapshot's script on this machine, as `verify`
runs it: every question in one round, then each question in a round of its own, with the bare round taken off.

    python bench/resource_cost.py --runs 10
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cases"))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from bringup.values.host import Question

_AIM_MS = 200.0  # what reading and judging may add, from the issue that asked for the resource checks
_MOST_QUESTIONS = 12  # shown, the dearest first


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--one", choices=("whole", "endpoint"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(one_verification(has_host=given.one == "whole")))
        return
    show_judging(given.runs)
    asyncio.run(show_script(given.runs))


def one_verification(*, has_host: bool) -> dict[str, float]:
    """CPU milliseconds of a verification in this process: the first, which loads modules, and the second."""
    from broken_cases import CASES  # noqa: PLC0415 - what is measured begins after the case was built

    from bringup.flows.reach import replayed  # noqa: PLC0415 - see above
    from bringup.transport.recording import save  # noqa: PLC0415 - see above

    build, wanted = CASES["a"]
    recording = build()
    recording = replace(recording, options={**recording.options, **wanted})
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json.gz"
        save(path, recording)
        for name in ("first", "second"):
            request, world = replayed(path)
            begun = time.process_time()
            from bringup.flows.verify import verify  # noqa: PLC0415 - a part of what is measured

            asyncio.run(verify(request, world if has_host else replace(world, runner=None)))
            found[name] = 1000 * (time.process_time() - begun)
    return found


def show_judging(runs: int) -> None:
    costs: dict[str, list[dict[str, float]]] = {"endpoint": [], "whole": []}
    for _ in range(runs):
        for what, rows in costs.items():
            argv = [sys.executable, str(Path(__file__)), "--one", what]
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
    print(f"verifying case A, CPU, median of {runs} processes")
    print(f"{'':<26}{'endpoint alone':>16}{'with its host':>16}{'added':>10}")
    for name, words in (("first", "first, loading modules"), ("second", "again in one process")):
        alone, whole = (statistics.median(row[name] for row in costs[what]) for what in costs)
        aim = f"   aim: under {_AIM_MS:.0f} ms" if name == "first" else ""
        print(f"{words:<26}{alone:>13.0f} ms{whole:>13.0f} ms{whole - alone:>7.0f} ms{aim}")


async def show_script(runs: int) -> None:
    from bringup.flows.snapshot import sources  # noqa: PLC0415 - not in the processes that are measured
    from bringup.machine import Target  # noqa: PLC0415 - see above

    every = sources().questions(Target())
    again = [question for question in every if not question.is_first_look_only]
    nothing = (Question(key="nothing", script=":"),)
    bare_cpu, bare_wall = await measured(nothing, runs)
    print(f"\nthe script on this machine, median of {runs} rounds, CPU and wall")
    for words, questions in (("nothing", nothing), ("first look", every), ("second look", again)):
        cpu, wall = await measured(questions, runs)
        print(f"{words:<26}{len(questions):>3} questions{cpu:>9.0f} ms{wall:>9.0f} ms")
    costs = [(*await measured((question,), max(3, runs // 3)), question.key) for question in every]
    for cpu, wall, key in sorted(costs, reverse=True)[:_MOST_QUESTIONS]:
        print(f"  {key:<36}{cpu - bare_cpu:>9.0f} ms{wall - bare_wall:>9.0f} ms")


async def measured(questions: Sequence[Question], runs: int) -> tuple[float, float]:
    """Median CPU and wall milliseconds of one round with these questions."""
    from bringup.transport.local import LocalRunner  # noqa: PLC0415 - not in the processes that are measured

    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(runs):
        runner = LocalRunner()
        before, begun = spent(), time.perf_counter()
        await runner.ask(questions)
        wall.append(1000 * (time.perf_counter() - begun))
        await runner.close()
        cpu.append(1000 * (spent() - before))
    return statistics.median(cpu), statistics.median(wall)


def spent() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
