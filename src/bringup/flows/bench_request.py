"""What a run of `bench` is asked to do."""

from dataclasses import dataclass, field
from pathlib import Path

from bringup.parse.bench_options import Loads
from bringup.transport.http_stream import Target
from bringup.values.bench import Slo
from bringup.workload.cancellation import Cancellation
from bringup.workload.lengths import Lengths, fixed_length

LARGEST_SEARCHED = 1024  # streams, unless the user says more
RUNG_S = 20.0  # of a load that neither requests nor seconds bound
BUDGET_S = 600.0  # of a search: no further load begins after it
REQUEST_LIMIT_S = 600.0
_STREAMS_PER_GENERATOR = 256  # some 13,000 events a second: a third of what a core of 2020 manages
_RATE_PER_GENERATOR = 100.0  # guess: requests per second, each on a connection of its own at worst
_QUESTIONS = 0.02  # of the requests: enough to see garbage, too few to move a figure
_FEW = 10  # requests of a whole run: too short a run for anything to be warmed up before it


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """Everything that the user can choose, but not where the results go."""

    url: str  # normalised; `target` may be the near end of a forwarded port
    target: Target
    loads: Loads
    input_lengths: Lengths = field(default_factory=lambda: fixed_length(512))
    output_lengths: Lengths = field(default_factory=lambda: fixed_length(128))
    is_chat: bool = True
    model: str | None = None
    arrivals: str = "poisson"
    requests: int | None = None  # of each load
    duration_s: float | None = None  # of each load
    slo: Slo | None = None
    warm_up: int | None = None  # requests; None: by the size of the run
    seed: int = 0
    request_limit_s: float = REQUEST_LIMIT_S
    budget_s: float = BUDGET_S
    fresh_connections: bool = False
    prefix_share: float = 0.0
    prefix_groups: int = 1
    dataset: Path | None = None
    dataset_format: str | None = None
    has_output_lengths: bool = False  # named by the user: they replace those of a data file
    turns: Lengths | None = None  # of synthetic conversations
    turn_lengths: Lengths = field(default_factory=lambda: fixed_length(64))
    questions: float | None = None  # share of the requests; None: by the size of the run
    cancellation: Cancellation | None = None
    extra_body: str = ""
    keeps_gaps: bool = False  # every gap in its record
    started_at: float = 0.0  # Unix time
    asked: dict[str, str | float | bool] = field(default_factory=dict[str, str | float | bool])

    @property
    def warm_up_requests(self) -> int:
        """How many requests come before the first load."""
        if self.warm_up is not None:
            return self.warm_up
        return 0 if self.requests is not None and self.requests < _FEW else 4

    @property
    def question_share(self) -> float:
        """The share of known questions among the requests."""
        if self.questions is not None:
            return self.questions
        return 0.0 if self.requests is not None and self.requests < _FEW else _QUESTIONS

    @property
    def calibrates(self) -> bool:
        """Whether the lengths of prompts are asked of the server: not for the sake of a few requests."""
        return self.requests is None or self.requests >= _FEW

    @property
    def largest(self) -> float:
        """The largest load that may be tried."""
        if self.loads.values:
            return max(self.loads.values)
        return self.loads.high or LARGEST_SEARCHED


def generators_for(loads: Loads, largest: float, *, cores: int) -> int:
    """How many generators the largest load needs, as far as there are cores for them.

    >>> from bringup.parse.bench_options import read_concurrency
    >>> generators_for(read_concurrency("1-600"), 600, cores=8)
    3
    """
    each = _RATE_PER_GENERATOR if loads.is_rate else _STREAMS_PER_GENERATOR
    return max(1, min(cores, -int(-largest // each)))
