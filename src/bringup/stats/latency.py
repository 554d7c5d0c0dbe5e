"""What one request was like, in nanoseconds: the definitions that all figures share.

Open loop counts from the moment a request was due, so that a late send is never hidden; closed loop from the
send. What failed, was hung up on or was stopped is in no latency.
"""

from bringup.values.bench import Failed, RequestRecord, Slo

GOOD = "good"
CANCELLED = "cancelled"
STOPPED = "stopped"
# Ends that the model chose itself; "length" and anything else is not.
NATURAL_ENDS = frozenset({"stop", "tool_calls", "function_call"})
_NS = 1e9


def outcome(record: RequestRecord) -> str:
    """`good`, `cancelled`, `stopped`, or the kind of its error.

    >>> outcome(RequestRecord(index=0, sent=0, error="http 429"))
    'http 429'
    """
    if record.error == Failed.STOPPED:
        return STOPPED
    if record.is_cancelled:
        return CANCELLED
    if record.error is not None:
        return record.error
    if record.first is None or record.last is None:
        return Failed.EMPTY.value
    return GOOD


def starts(record: RequestRecord) -> int:
    """The moment from which it counts: when it was due, or else when it was sent."""
    return record.sent if record.scheduled is None else record.scheduled


def tokens(record: RequestRecord) -> int:
    """Output tokens: as the server's usage says, else as its events say, else one per event."""
    if record.output_tokens is not None:
        return record.output_tokens
    later = _later_tokens(record)
    return record.events if later is None else later + (record.first_event_tokens or 1)


def intervals(record: RequestRecord) -> int:
    """Tokens that arrived after the first event: what the time from first to last was spent on.

    An engine counts the end token in its usage but sends nothing for it, so with one token per event and an
    end of the model's own choice `usage` is one more than what arrived. Without a count of the first
    event's tokens it is taken to be one: a prefill yields one token.

    >>> record = RequestRecord(index=0, sent=0, output_tokens=11, events=10, finish_reason="stop")
    >>> intervals(record)
    9
    """
    later = _later_tokens(record)
    if later is not None:
        return later
    arrived = tokens(record)
    if record.finish_reason in NATURAL_ENDS and arrived == record.events + 1:
        arrived = record.events
    return max(0, arrived - (record.first_event_tokens or 1))


def _later_tokens(record: RequestRecord) -> int | None:
    """Tokens of all events but the first, where each was counted; the first may or may not be listed."""
    if not record.event_tokens:
        return None
    return sum(record.event_tokens[1:] if len(record.event_tokens) == record.events else record.event_tokens)


def ttft_ns(record: RequestRecord) -> int | None:
    """Time to the first token."""
    return None if record.first is None else record.first - starts(record)


def e2e_ns(record: RequestRecord) -> int | None:
    """Time to the last token, not to the end of the stream."""
    return None if record.last is None else record.last - starts(record)


def tpot_ns(record: RequestRecord) -> float | None:
    """Mean time per token after the first event; `None` where nothing followed it.

    The mean over a request's inter-token latencies is the same number: only the first and the last arrival
    count.
    """
    after = intervals(record)
    if not after or record.first is None or record.last is None:
        return None
    return (record.last - record.first) / after


def queued_ns(record: RequestRecord) -> int | None:
    """Time that it waited on this side: since it was due, or since its stream was free for it."""
    due = record.ready if record.scheduled is None else record.scheduled
    return None if due is None else record.sent - due


def is_truncated(record: RequestRecord, *, ignores_eos: bool) -> bool:
    """Whether fewer tokens came than were asked, without an end that was the model's to choose.

    Only usage settles it: an event may carry several tokens.
    """
    if record.asked_tokens is None or record.output_tokens is None:
        return False
    may_end = record.finish_reason in NATURAL_ENDS and not ignores_eos
    return record.output_tokens < record.asked_tokens and not may_end


def keeps(record: RequestRecord, slo: Slo) -> bool:
    """Whether a good request kept every limit; a limit on what it did not have (one token) is kept."""
    tpot = tpot_ns(record)
    pairs = (
        (slo.ttft_s, ttft_ns(record)),
        (slo.itl_s, tpot),
        (slo.tpot_s, tpot),
        (slo.e2e_s, e2e_ns(record)),
    )
    return all(limit is None or took is None or took / _NS <= limit for limit, took in pairs)
