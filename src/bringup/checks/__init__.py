"""One file per check. A check says what it asks, as data, and judges the answers; it never asks by itself.

Asking is a pure step function: given what has been answered so far it names the next batch, and an empty
batch ends it. So a check can build on earlier answers (run the code that the model wrote, continue a
conversation) without ever touching the world.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask, Program, ProgramResult
from bringup.values.finding import Judgement

MAX_ROUNDS = 12  # a check that still asks after this many batches is a defect


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What a check's own asks and programs brought so far, by key, and (for `reads_all`) everybody's."""

    answers: Mapping[str, Answer]
    programs: Mapping[str, ProgramResult]
    everyone: Mapping[str, Mapping[str, Answer]]  # check -> key -> answer; empty unless the check `reads_all`


Batch = tuple[Ask | Program, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be true of a running deployment.

    Phases run in order: "shared" checks together, then "exclusive" ones one at a time on a quiet engine
    (timing, concurrency), then "hostile" ones one at a time (they may break it), then the "load" (while GPUs
    and engine are sampled), then "last" ones (what is left of it), then those that only judge.
    """

    title: str  # as a person says it: "answers a fact"
    section: str = "function"  # function, resources, capacity
    phase: str = "shared"  # shared, exclusive, hostile, load, last, judge
    depth: Depth = Depth.DEFAULT  # the least depth at which it runs
    asks: Callable[[Deployment, Replies], Batch] | None = None
    judge: Callable[[Deployment, Replies], Judgement]
    reads_all: bool = False
    shows_model: bool = True  # being good shows that the model answers; an open door or a pulse does not
