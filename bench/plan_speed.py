"""How long plans take: one as a whole process, every layout on every known card, a thousand in one process.

python bench/plan_speed.py CONFIG_JSON...       config.json of any models; stored ones in a wrapper too

Wall and CPU seconds. A busy machine stretches the first a lot and the second a little: the ratios, to
starting Python and to a fixed calculation in the same run, can be compared between machines and days.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.memory import plan_task
from bringup.parse.hf_config import read_config
from bringup.transport.catalogue import load_cards
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, PlanTask

_SOURCE = Path(__file__).resolve().parents[1] / "src"
_COMMAND = ("vllm", "serve", "m", "--tensor-parallel-size", "4")
_GPUS = 8  # of every card


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds that some work took."""

    wall: float
    cpu: float


def cost(work: Callable[[], object], *, who: int = resource.RUSAGE_SELF) -> Cost:
    """What one run of `work` costs this process, or those that it starts."""
    begun, before = time.perf_counter(), resource.getrusage(who)
    work()
    wall, after = time.perf_counter() - begun, resource.getrusage(who)
    return Cost(wall=wall, cpu=after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def process(*arguments: str, runs: int) -> Cost:
    """The least that one Python process costs, its byte code being there already."""
    environment = {"PYTHONPATH": str(_SOURCE), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=False, stdout=subprocess.DEVNULL, env=environment)

    run()
    found = [cost(run, who=resource.RUSAGE_CHILDREN) for _ in range(runs)]
    return Cost(wall=min(one.wall for one in found), cpu=min(one.cpu for one in found))


def calibration() -> int:
    """A fixed calculation of dictionaries and whole numbers, as planning is."""
    table: dict[int, int] = {}
    for number in range(1_000_000):
        table[number % 997] = table.get(number % 991, 0) // 2 + number
    return len(table)


def every_layout(model: ModelSpec) -> None:
    """All layouts of a model on `_GPUS` of every card of the catalogue."""
    for row in load_cards():
        gpus = Gpus(card=row.card, count=_GPUS)
        spec = EngineSpec(engine="vllm", model="m")
        plan_task(PlanTask(spec=spec, version=None, model=model, gpus=gpus))


def thousand(model: ModelSpec) -> None:
    """A thousand plans, no two of the same command line."""
    card = load_cards()[0].card
    for number in range(1000):
        spec = read_command((*_COMMAND, "--max-num-seqs", str(number + 1)))
        if spec is None:
            raise SystemExit("no command")
        gpus = Gpus(card=replace(card, cuda_total=card.cuda_total - number), count=_GPUS)
        plan_task(PlanTask(spec=spec, version=None, model=model, gpus=gpus))


def show(name: str, found: Cost, *, aim: float, unit: Cost, unit_name: str) -> None:
    """Prints one row."""
    print(
        f"{name:44} {found.wall:6.3f} s wall {found.cpu:6.3f} s CPU (aim {aim:g}), "
        f"{found.cpu / unit.cpu:5.1f} x {unit_name}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configs", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=10, help="of each process")
    arguments = parser.parse_args()
    start = process("-c", "pass", runs=arguments.runs)
    fixed = cost(calibration)
    print(
        f"python -c pass: {start.wall:.3f} s wall {start.cpu:.3f} s CPU; calibration: {fixed.cpu:.3f} s CPU"
    )
    for path in arguments.configs:
        stored = json.loads(path.read_text())
        model = read_config(stored.get("config", stored), name=path.stem, source=str(path))
        plan = ("-m", "bringup", "plan", "--json", "--gpus", "4x H100 SXM", "--model-config", str(path))
        whole = process(*plan, "--", *_COMMAND, runs=arguments.runs)
        print(path.stem)
        show("  one plan as a whole process", whole, aim=0.15, unit=start, unit_name="python -c pass")
        cards = f"  all layouts on {_GPUS} of each of {len(load_cards())} cards"
        layouts = cost(lambda model=model: every_layout(model))
        show(cards, layouts, aim=2, unit=fixed, unit_name="calibration")
        plans = cost(lambda model=model: thousand(model))
        show("  1,000 different plans in one process", plans, aim=2, unit=fixed, unit_name="calibration")


if __name__ == "__main__":
    main()
