"""Several readings of every GPU within a second: what `nvidia-smi --query-gpu=... -lms 200` printed.

A line `@fields index,...` says the columns of the rows that follow it.

Source: the loop option of nvidia-smi (`--help`, drivers 390 to 610).
"""

from bringup.parse.nvidia_smi import read_gpu, read_rows
from bringup.values.host import GpuSample

SAMPLED = ("index", "utilization.gpu", "power.draw", "clocks.sm", "pcie.link.gen.current")
_INSTANT = "power.draw.instant"  # where it is told, it is worth more than the average of a second


def read_samples(text: str) -> dict[int, tuple[GpuSample, ...]]:
    r"""Samples by GPU index, in the order of time; a row that has no index is left out.

    >>> read_samples("@fields index,utilization.gpu,power.draw\n0, 100, 141.20\n0, 99, 140.02\n")[0][1].power
    140.02
    """
    found: dict[int, list[GpuSample]] = {}
    columns: tuple[str, ...] = ()
    whole = text[: text.rfind("\n") + 1]  # a cut last line may hold half a number
    for line in whole.split("\n"):
        if line.startswith("@fields "):
            columns = tuple(line.removeprefix("@fields ").strip().split(","))
            continue
        if not columns or not line.strip() or line.startswith("@"):
            continue
        for row in read_rows(f"{line}\n", columns).rows:
            gpu = read_gpu({**row, "power.draw": row[_INSTANT]} if _tells(row) else row)
            if gpu.index is None:
                continue
            sample = GpuSample(
                utilization=gpu.utilization,
                power=gpu.power,
                clock_sm=gpu.clock_sm,
                pcie_generation=gpu.pcie_generation,
            )
            found.setdefault(gpu.index, []).append(sample)
    return {index: tuple(samples) for index, samples in found.items()}


def _tells(row: dict[str, str]) -> bool:
    return row.get(_INSTANT, "")[:1].isdecimal()
