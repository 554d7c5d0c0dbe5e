"""Readings of every GPU a few times a second: what `nvidia-smi --query-gpu=... -lms 200` printed for a while.

A line `@fields index,...` says the columns of the rows that follow it.

Source: the loop option of nvidia-smi (`--help`, drivers 390 to 610).
"""

from bringup.parse.nvidia_smi import read_gpu, read_rows
from bringup.values.load import GpuMoment

# Old fields alone: every driver since 390 knows them. The last was renamed in R535, and the old name stayed.
TRACED = (
    "index",
    "memory.used",
    "power.draw",
    "utilization.gpu",
    "clocks.sm",
    "temperature.gpu",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "clocks_throttle_reasons.active",
)
INTERVAL_S = 0.2


def read_trace(text: str, *, begun_at: float) -> dict[int, tuple[GpuMoment, ...]]:
    r"""Readings by GPU index; the first of each is at `begun_at` seconds, the others follow by the interval.

    >>> read_trace("@fields index,power.draw\n0, 90.5\n0, 91.5\n", begun_at=1.0)[0][1].at
    1.2
    """
    found: dict[int, list[GpuMoment]] = {}
    columns: tuple[str, ...] = ()
    whole = text[: text.rfind("\n") + 1]  # a cut last line may hold half a number
    for line in whole.split("\n"):
        if line.startswith("@fields "):
            columns = tuple(line.removeprefix("@fields ").strip().split(","))
            continue
        if not columns or not line.strip() or line.startswith("@"):
            continue
        for row in read_rows(f"{line}\n", columns).rows:
            gpu = read_gpu(row)
            if gpu.index is None:
                continue
            moments = found.setdefault(gpu.index, [])
            moments.append(
                GpuMoment(
                    at=round(begun_at + len(moments) * INTERVAL_S, 3),
                    memory_used=gpu.memory_used,
                    power=gpu.power,
                    utilization=gpu.utilization,
                    clock_sm=gpu.clock_sm,
                    temperature=gpu.temperature,
                    pcie_generation=gpu.pcie_generation,
                    pcie_width=gpu.pcie_width,
                    clocks_event_reasons=gpu.clocks_event_reasons,
                )
            )
    return {index: tuple(moments) for index, moments in found.items()}
