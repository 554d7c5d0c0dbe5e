"""What `bench` sends, what came back request by request, and what the figures of a rung are.

All times in records are whole nanoseconds after the rung's start on the generator's monotonic clock; all
times in figures are seconds. `None` = not told or not measured, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bringup.values.finding import Finding
from bringup.values.load import LoadTrace


class Failed(StrEnum):
    """Why a request gave no whole answer. HTTP errors carry their status: "http 429"."""

    REFUSED = "refused"  # nothing listens any more
    UNREACHABLE = "unreachable"  # name, route
    TLS = "tls"
    TIME_LIMIT = "time limit"  # not finished within the limit of one request
    RESET = "reset"  # the connection broke
    CLOSED_EARLY = "closed early"  # closed against Content-Length, inside a chunk, or before [DONE]
    MALFORMED = "malformed"  # not HTTP, or events that are no JSON
    TOO_LARGE = "too large"  # one event or one answer beyond the limit
    ERROR_EVENT = "error event"  # an `error` object inside a stream that began with status 200
    EMPTY = "empty"  # a whole answer without one token
    DESCRIPTORS = "no file descriptors"  # EMFILE, ENFILE
    PORTS = "no local ports"  # EADDRNOTAVAIL
    STOPPED = "stopped"  # the rung was ended while the request ran: nobody's fault


class AnswerIs(StrEnum):
    """What the answer to a known question is worth."""

    RIGHT = "right"
    WRONG = "wrong"
    GARBLED = "garbled"  # no language, code or data at all


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTurn:
    """A message of the user that a dataset has after this request."""

    text: str
    output_tokens: int | None = None
    answer: str | None = None  # the dataset's answer to the turn before, when it replaces the server's
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One request to send, complete."""

    index: int  # number within the rung, over all generators; the turns of a conversation share it
    body: bytes
    output_tokens: int | None = None  # asked
    input_tokens: int | None = None  # meant; the server's own count stands in the record
    at_s: float | None = None  # open loop: due this long after the rung's start; None: when a stream is free
    question: str | None = None  # key of the known question, if it is one
    cancel_after_s: float | None = None  # hang up this long after sending
    conversation: int | None = None  # number of the conversation it belongs to
    turn: int = 0
    pause_s: float = 0.0  # between the end of the turn before and this one
    later: tuple[LaterTurn, ...] = ()  # the turns that follow, where a dataset gives them


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one request did. `first` and `last` are the arrivals of its first and last token."""

    index: int
    sent: int  # just before the first byte was given to the kernel
    scheduled: int | None = None  # open loop: when it was due
    ready: int | None = None  # closed loop: when its stream was free for it
    connect: int | None = None  # nanoseconds that a fresh connection took; None on a kept one
    headers: int | None = None  # arrival of the first byte of the answer
    first: int | None = None
    last: int | None = None
    ended: int = 0  # the answer was whole, or the moment of failure
    status: int | None = None
    error: str | None = None  # a value of `Failed`, or "http STATUS"
    detail: str = ""  # the error in words, as the server gave it, cut
    is_cancelled: bool = False  # we hung up as planned: neither good nor an error
    asked_tokens: int | None = None
    meant_input_tokens: int | None = None  # what the prompt was made to have
    input_tokens: int | None = None  # usage
    cached_tokens: int | None = None  # usage
    output_tokens: int | None = None  # usage
    reasoning_tokens: int | None = None  # usage
    events: int = 0  # events that carried text, reasoning or tool calls: not the empty ones
    first_event_tokens: int | None = None  # tokens of the first of them, where the server counts per event
    finish_reason: str | None = None
    question: str | None = None
    conversation: int | None = None
    turn: int = 0
    text: str | None = None  # kept for known questions
    gaps: tuple[int, ...] | None = None  # nanoseconds between events, kept on request
    event_tokens: tuple[int, ...] | None = None  # tokens per event, where the server counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A complete distribution of durations: how often each whole number of microseconds occurred.

    Merging is adding; quantiles are exact to one microsecond, mean and extremes to the nanosecond.
    """

    counts: Mapping[int, int] = field(default_factory=dict[int, int])  # microseconds -> how often
    total_ns: int = 0
    least_ns: int | None = None
    most_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRun:
    """One generator process over one rung: its records and its own health."""

    generator: str  # "local 0", "node-b 1"
    records: tuple[RequestRecord, ...]
    gaps: Tally = Tally()  # between events of good requests that carry one token each
    event_gaps: Tally = Tally()  # between events of the other good requests
    event_gap_tokens: int = 0  # tokens that these events carried after the first event of each request
    lag: Tally = Tally()  # how late the loop served its own alarms
    turns: Tally = Tally()  # of the loop while it had work of its own: so long can bytes have lain
    send_late: Tally = Tally()  # open loop: sent - scheduled
    busy_s: float = 0.0  # processor time, user and system
    began_ns: int | None = None  # the rung's start on the monotonic clock of whoever measures
    started: int = 0  # nanoseconds after the rung's start
    ended: int = 0
    reads: int = 0
    bytes_read: int = 0
    most_open: int = 0  # requests under way at the same time
    token_bins: Mapping[int, int] = field(default_factory=dict[int, int])  # tenth of a second -> events
    alarm_step_ns: int = 0  # resolution of the alarms: what `lag` cannot see below
    clock_error_ns: int = 0  # how far its start can have been off the others', on another machine
    cut: str = ""  # why it ended early: "stopped", "nothing answers any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What the instrument measured of itself before the first request."""

    deliver_p50_s: float  # from a byte written on a local connection until its time is taken
    deliver_p99_s: float
    lag_p50_s: float  # of alarms in an idle loop
    lag_p99_s: float
    clock_step_s: float
    seconds: float  # what the self-test took


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One metric over all requests or tokens of a rung, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfError:
    """How far the instrument itself can have moved the figures of a rung: bounds, in seconds."""

    ttft_s: float
    itl_mean_s: float
    itl_gap_s: float  # of one gap, p99
    lag_p50_s: float
    lag_p99_s: float
    busy_share: float  # of the busiest generator


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDelta:
    """The engine's own counters over a rung: what it says that it did."""

    requests: float | None = None  # finished
    input_tokens: float | None = None
    output_tokens: float | None = None
    preemptions: float | None = None
    cache_hit_rate: float | None = None  # 0..1
    most_running: float | None = None
    most_waiting: float | None = None
    most_kv_used_share: float | None = None
    is_shared: bool | None = None  # others used the engine meanwhile
    is_restarted: bool = False  # its counters fell back: they tell nothing of this rung
    remarks: tuple[str, ...] = ()  # what the reading ran into, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What the GPUs took over a rung."""

    gpus: int
    indices: tuple[int, ...] = ()  # which they are
    joules: float | None = None  # all GPUs, over the rung
    mean_watts: float | None = None
    peak_memory: tuple[int | None, ...] = ()  # bytes per GPU
    throttled: tuple[str, ...] = ()  # "GPU 2: power limit (31 % of the time)"
    source: str = ""  # "NVML energy counter", "nvidia-smi power, 5 readings a second"
    remarks: tuple[str, ...] = ()  # what could not be measured or is uncertain, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The figures of one load: what was asked, what was done, what it was like."""

    concurrency: int | None = None  # asked, closed loop
    rate: float | None = None  # asked, open loop, requests per second
    requests: int = 0  # finished, good or bad
    good: int = 0
    cancelled: int = 0
    stopped: int = 0  # under way when the rung was ended: not among the requests, in no latency
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    wall_s: float = 0.0
    ttft: Distribution | None = None
    itl: Distribution | None = None
    itl_is_estimated: bool = False  # events carried several tokens
    tokens_per_event: float | None = None
    event_gap: Distribution | None = None  # between events, when they are not tokens
    tpot: Distribution | None = None
    e2e: Distribution | None = None
    queued: Distribution | None = None  # open loop: sent - scheduled; closed loop: waiting for a connection
    connect: Distribution | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_counted: str = "usage"  # or "events": the server told no usage
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    steady_output_tokens_per_s: float | None = None  # while the asked load was really there
    steady_requests_per_s: float | None = None  # ended per second in that time
    steady_s: float | None = None  # how long that was; None: never
    requests_per_s: float | None = None
    mean_running: float | None = None  # N of Little's law: requests under way, mean over the steady time
    little_running: float | None = None  # X * R of Little's law over the same time: ought to be N
    most_open: int = 0
    goodput_per_s: float | None = None  # requests per second within the SLO
    in_slo: int | None = None  # requests that kept every limit
    within_slo: bool | None = None  # whether enough of them did
    questions: int = 0
    questions_right: int = 0
    garbled: int = 0  # answers to known questions that are no language at all
    truncated: int = 0
    self_error: SelfError | None = None
    engine: EngineDelta | None = None
    gpu: GpuUse | None = None
    joules_per_token: float | None = None
    cost_per_million_tokens: float | None = None
    stopped_because: str = ""  # "the mean's interval is narrow enough", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits in seconds that a request must keep to count as goodput; `share` of them must."""

    ttft_s: float | None = None
    itl_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    share: float = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the user pays, in any currency. `None` = not named: nothing is assumed."""

    per_gpu_hour: float | None = None
    per_kwh: float | None = None
    gpus: int | None = None  # how many are paid for; None: those that were seen at work


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """One rung with everything it was calculated from."""

    rung: Rung
    runs: tuple[GeneratorRun, ...]
    trace: LoadTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """A whole run: what was asked of which engine, the instrument, the rungs, what is to be said of them."""

    url: str
    model: str
    engine: str | None = None
    engine_version: str | None = None
    started_at: float = 0.0  # Unix time
    bringup_version: str = ""
    workload: str = ""  # in words: "synthetic, 512 in, 128 out, seed 0"
    load: str = ""  # in words: "closed loop, 1, 2, 4 streams"
    seed: int = 0
    generators: int = 1
    warm_up: int = 0  # requests before the first rung, in no figure
    self_test: SelfTest | None = None
    slo: Slo | None = None
    slo_best: float | None = None  # the largest concurrency or rate within the SLO
    slo_why: str = ""  # how the search for it ended
    saturation: float | None = None  # the smallest concurrency at which throughput no longer grows
    saturation_why: str = ""  # how the search for it ended
    rungs: tuple[Rung, ...] = ()
    findings: tuple[Finding, ...] = ()
    is_complete: bool = True  # False: interrupted; can be resumed
    duration_s: float | None = None  # of the whole run
    notes: tuple[str, ...] = ()  # what was decided for the user, in words
    asked: Mapping[str, str | float | bool] = field(default_factory=dict[str, str | float | bool])  # options


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """A run with what each rung was calculated from, as far as it was kept."""

    run: BenchRun
    results: tuple[RungResult, ...] = ()
