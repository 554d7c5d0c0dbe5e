"""How long `bringup --help` takes, and how much CPU `import bringup` costs on top of Python itself.

python bench/startup.py --runs 20
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_HELP_AIM_S = 0.150  # wall
_IMPORT_AIM_S = 0.040  # CPU


def run(*arguments: str) -> tuple[float, float]:
    """Wall and CPU seconds of one Python process."""
    environment = {"PYTHONPATH": str(_ROOT / "src"), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def show(name: str, values: list[float], aim: float | None) -> bool:
    """Prints one row; whether the median meets the aim."""
    middle = statistics.median(values)
    is_good = aim is None or middle < aim
    verdict = "" if aim is None else f"   aim {aim * 1000:.0f} ms: {'met' if is_good else 'missed'}"
    print(f"{name:38} median {middle * 1000:4.0f} ms   least {min(values) * 1000:4.0f} ms{verdict}")
    return is_good


def main() -> int:
    """The exit status: 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    run("-m", "bringup", "--help")  # fills the caches of Python and the disk
    shows_help = [run("-m", "bringup", "--help") for _ in range(runs)]
    bare = [run("-c", "pass") for _ in range(runs)]
    imports = [run("-c", "import bringup") for _ in range(runs)]
    verifies = [run("-c", "import bringup.cli.verify") for _ in range(runs)]
    base = statistics.median(cpu for _, cpu in bare)
    show("python itself, CPU", [cpu for _, cpu in bare], None)
    show("loading all of `verify`, CPU", [cpu - base for _, cpu in verifies], None)
    results = (
        show("bringup --help, wall", [wall for wall, _ in shows_help], _HELP_AIM_S),
        show("import bringup, CPU without python's", [cpu - base for _, cpu in imports], _IMPORT_AIM_S),
    )
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
