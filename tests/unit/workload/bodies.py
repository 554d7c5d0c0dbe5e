"""What requests say, for the tests of this folder."""

import json
from itertools import islice

from bringup.values.bench import LoadRequest
from bringup.workload import Workload
from bringup.workload.calibration import Calibration
from bringup.workload.lengths import read_lengths
from bringup.workload.request_body import BodyShape
from bringup.workload.synthetic import Synthetic

CALIBRATED = Calibration(overhead=9, spread=0.0, tails=(("capital", 14), ("secret", 19)))


def synthetic(lengths_in="200", lengths_out="16", **fields) -> Synthetic:
    fields = {"shape": BodyShape(model="m"), "calibration": CALIBRATED} | fields
    return Synthetic(
        input_lengths=read_lengths(lengths_in, option="-i"),
        output_lengths=read_lengths(lengths_out, option="-o"),
        **fields,
    )


def first(workload: Workload, count: int, generator: int = 0, generators: int = 1) -> list[LoadRequest]:
    return list(islice(workload.requests(generator, generators), count))


def shared_out(workload: Workload, count: int, generators: int) -> list[LoadRequest]:
    """The first `count` requests, made by several generators and put in order."""
    made = [one for number in range(generators) for one in first(workload, count, number, generators)]
    return sorted(made, key=lambda one: one.index)[:count]


def said(request: LoadRequest) -> str:
    """The text of the last message."""
    body = json.loads(request.body)
    return body["messages"][-1]["content"] if "messages" in body else body["prompt"]


def words(request: LoadRequest) -> list[str]:
    return said(request).split()
