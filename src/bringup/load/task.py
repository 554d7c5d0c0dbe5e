"""What one generator is told to do over one rung."""

from dataclasses import dataclass, field

from bringup.transport.http_stream import Target
from bringup.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rung for one generator: its share of the streams and of the requests."""

    target: Target
    workload: Workload
    path: str = "/v1/chat/completions"
    headers: tuple[tuple[str, str], ...] = ()
    generator: int = 0
    generators: int = 1
    streams: int | None = None  # closed loop: this generator's requests under way; None: open loop
    most_open: int = 4096  # open loop: this generator's connections
    requests: int | None = None  # this generator's share
    duration_s: float | None = None
    request_limit_s: float = 600.0
    ramp_s: float = 0.0  # closed loop: the streams begin spread over this time
    fresh_connections: bool = False
    keep_gaps: bool = False  # every gap in its record
    name: str = field(default="local 0")
