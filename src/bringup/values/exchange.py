"""One question to an endpoint and what came back, as data: asked by flows, judged by checks.

An answer keeps the bytes' arrival times and the raw body; whatever is read out of them is read later, by
pure code, so that a recording of answers replays to the same judgement.
"""

from dataclasses import dataclass
from enum import StrEnum


class Problem(StrEnum):
    """Why an answer is not whole. An HTTP error status is an answer, not a problem."""

    REFUSED = "refused"  # nothing listens
    UNREACHABLE = "unreachable"  # name, route, TLS or proxy
    TIME_LIMIT = "time_limit"  # asked and not finished in time
    QUEUED = "queued"  # the same, while the engine was at work and others waited too
    SLOW = "slow"  # the same, while the engine was at work
    RESET = "reset"  # the connection broke before the answer was whole
    TRUNCATED = "truncated"  # closed early against Content-Length or inside a chunk
    TOO_LARGE = "too_large"  # more bytes than the ask allows; the rest was not read
    MALFORMED = "malformed"  # not HTTP
    ABORTED = "aborted"  # we hung up, as the ask wanted
    NOT_ASKED = "not_asked"  # never sent: budget used up, endpoint gone, or not in the recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One HTTP request to the endpoint under test. `path` is relative to the base URL's root.

    `body` is sent as UTF-8; lone surrogates become the bytes they stand for ("surrogateescape").
    """

    key: str  # unique within its check
    path: str = "/v1/chat/completions"
    method: str = "POST"
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    authorize: bool = True  # send the API key
    time_limit_s: float = 120.0
    max_bytes: int = 2_000_000  # 2,048 tokens streamed with their log-probabilities take 1 MB
    abort_after_events: int | None = None  # hang up once this many `data:` lines have arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one ask. Times are seconds since the request began to be sent."""

    key: str
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    body: str = ""  # decoded as UTF-8; bytes that are not UTF-8 became U+FFFD
    problem: Problem | None = None
    detail: str = ""  # the problem in words
    sent_at: float = 0.0  # Unix time, seconds
    connect_s: float | None = None  # None on a reused connection
    first_byte_s: float | None = None
    total_s: float | None = None
    arrivals: tuple[tuple[float, int], ...] = ()  # (seconds, bytes of body received so far), one per read


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Python source written by the model, to be run only where it can be isolated.

    `calls` are expressions evaluated after the source; each one's `repr` goes back to the check.
    """

    key: str
    source: str
    calls: tuple[str, ...]
    time_limit_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """What an isolated program did."""

    key: str
    unavailable: str = ""  # why isolation was not to be had; then nothing was run
    results: tuple[str, ...] = ()  # one repr per call, "!TypeError: ..." for a raised exception
    problem: str = ""  # "time limit", "memory limit", "exit status 139", syntax error text
    elapsed_s: float | None = None
