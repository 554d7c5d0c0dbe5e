"""Microseconds of processor time that one request costs to make, per workload.

Run: PYTHONPATH=src python bench/workload_cost.py
"""

import json
import time
from itertools import islice

from bringup.workload import Workload
from bringup.workload.arrivals import Arrivals, Scheduled
from bringup.workload.cancellation import Cancelled, read_cancellation
from bringup.workload.dataset import open_dataset
from bringup.workload.known_questions import WithQuestions
from bringup.workload.lengths import read_lengths
from bringup.workload.request_body import BodyShape
from bringup.workload.source import InMemory
from bringup.workload.synthetic import Synthetic

REQUESTS = 5_000


def microseconds(workload: Workload) -> float:
    """Processor time of one request, the least of three rounds."""
    rounds: list[float] = []
    for _ in range(3):
        requests = workload.requests(0, 1)
        next(requests)
        begun = time.process_time()
        for _request in islice(requests, REQUESTS):
            pass
        rounds.append((time.process_time() - begun) / REQUESTS * 1e6)
    return min(rounds)


def synthetic(lengths: str, **fields: float) -> Synthetic:
    return Synthetic(
        shape=BodyShape(model="m"),
        input_lengths=read_lengths(lengths, option="-i"),
        output_lengths=read_lengths("128", option="-o"),
        **fields,
    )


def trace() -> Workload:
    line = {"timestamp": 0, "input_length": 7000, "output_length": 9, "hash_ids": list(range(14))}
    source = InMemory(name="trace", text=f"{json.dumps(line)}\n" * (REQUESTS + 1))
    return open_dataset(source, synthetic("1000"))


def main() -> None:
    plain = synthetic("1000")
    table: dict[str, Workload] = {
        "100 tokens": synthetic("100"),
        "1,000 tokens": plain,
        "10,000 tokens": synthetic("10000"),
        "1,000, half shared": synthetic("1000", prefix_share=0.5),
        "log-normal 1,000": synthetic("lognormal:1000,300"),
        "1,000, questions": WithQuestions(workload=plain, padding=plain),
        "1,000, Poisson": Scheduled(workload=plain, arrivals=Arrivals(rate=100)),
        "1,000, hung up on": Cancelled(workload=plain, cancellation=read_cancellation("10%", option="-c")),
        "Mooncake, 7,000": trace(),
    }
    for name, workload in table.items():
        print(f"{name:20} {microseconds(workload):6.1f} us")


if __name__ == "__main__":
    main()
