"""How long plans take: one as a whole process, every layout on every known card, a thousand in one process.

python bench/plan_speed.py CONFIG_JSON       config.json of any model

Wall-clock seconds, best of several: on a busy machine only ratios mean anything.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.memory import plan_task
from bringup.parse.hf_config import read_config
from bringup.transport.catalogue import load_cards
from bringup.values.engine import EngineSpec
from bringup.values.plan import Gpus, PlanTask


def seconds(work: Callable[[], object], *, times: int) -> float:
    """The best of `times` runs."""
    found: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    config = parser.parse_args().config
    model = read_config(json.loads(config.read_text()), name="m", source=str(config))
    cards = load_cards()
    spec = read_command(["vllm", "serve", "m", "--tensor-parallel-size", "4"])
    if spec is None:
        raise SystemExit("no command")
    task = PlanTask(spec=spec, version=None, model=model, gpus=Gpus(card=cards[0].card, count=8))
    argv = [sys.executable, "-m", "bringup", "plan", "--json", "--gpus", "4x H100 SXM", "--model-config"]
    argv += [str(config), "--", "vllm", "serve", "m", "--tensor-parallel-size", "4"]

    def process() -> None:
        subprocess.run(argv, check=False, stdout=subprocess.DEVNULL)

    def every_layout() -> None:
        free = replace(task, spec=EngineSpec(engine="vllm", model="m"))
        for row in cards:
            plan_task(replace(free, gpus=Gpus(card=row.card, count=8)))

    def thousand() -> None:
        for _ in range(1000):
            plan_task(task)

    print(f"one plan as a whole process: {seconds(process, times=10):.3f} s (aim: 0.150)")
    print(f"all layouts on {len(cards)} cards: {seconds(every_layout, times=1):.2f} s (aim: 2)")
    print(f"1,000 plans in one process: {seconds(thousand, times=1):.2f} s (aim: 2)")


if __name__ == "__main__":
    main()
