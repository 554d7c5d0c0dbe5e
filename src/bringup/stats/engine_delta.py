"""What the engine's own counters say about a rung: the difference of two readings, and whose work it was.

A reading counts only where nothing of ours ran while it was taken: it was asked after the flow had come to
rest and was whole before the next request was sent. Otherwise there is no difference, and a remark why.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bringup.values.bench import EngineDelta, Rung
from bringup.values.load import EngineMoment, LoadTrace

_COUNTERS = ("requests", "input_tokens", "output_tokens", "preemptions", "cache_queries", "cache_hits")
_FOREIGN_SHARE = 0.01  # guess: a health probe now and then makes a token, and is no load
_FOREIGN_TOKENS = 32
_FOREIGN_REQUESTS = 2
_SLOW_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a rung ran, in seconds on the axis of what was sampled beside it."""

    started: float
    ended: float
    idle_from: float = -math.inf  # from here until `started` nothing of ours ran
    idle_until: float = math.inf  # from `ended` until here nothing of ours ran


def engine_delta(
    trace: LoadTrace, window: Window, *, ours: Rung | None = None, gauges_lag: bool = False
) -> EngineDelta:
    """What the engine counted over the rung; `ours` is what we know to have sent it.

    With `gauges_lag` a request that is said to run may have ended long ago, and proves nothing.
    """
    moments = trace.engine
    before, after = _before(moments, window), _after(moments, window)
    between = [one for one in moments if _is_between(one, before, after, window)]
    is_restarted = _fell(between)
    grown = _growth(before, after) if not is_restarted else {}
    inside = [one for one in moments if window.started <= one.at <= window.ended]
    queries, hits = grown.get("cache_queries"), grown.get("cache_hits")
    return EngineDelta(
        requests=grown.get("requests"),
        input_tokens=grown.get("input_tokens"),
        output_tokens=grown.get("output_tokens"),
        preemptions=grown.get("preemptions"),
        cache_hit_rate=None if hits is None or not queries else min(1.0, hits / queries),
        most_running=_most(one.running for one in inside),
        most_waiting=_most(one.waiting for one in inside),
        most_kv_used_share=_most(one.kv_used_share for one in inside),
        is_shared=_is_shared(None if gauges_lag else before, grown, ours),
        is_restarted=is_restarted,
        remarks=tuple(_remarks(trace, window, before, after, is_restarted=is_restarted)),
    )


def _before(moments: Sequence[EngineMoment], window: Window) -> EngineMoment | None:
    """The last reading of the quiet engine before the rung."""
    quiet = (one for one in moments if window.idle_from <= one.at and one.at + one.took <= window.started)
    return max(quiet, key=lambda one: one.at, default=None)


def _after(moments: Sequence[EngineMoment], window: Window) -> EngineMoment | None:
    """The last reading before anything of ours runs again: what an engine counts late is in it."""
    quiet = (one for one in moments if window.ended <= one.at and one.at + one.took <= window.idle_until)
    return max(quiet, key=lambda one: one.at, default=None)


def _is_between(
    one: EngineMoment, before: EngineMoment | None, after: EngineMoment | None, window: Window
) -> bool:
    begin = window.started if before is None else before.at
    end = window.ended if after is None else after.at
    return begin <= one.at <= end


def _fell(moments: Sequence[EngineMoment]) -> bool:
    """Whether some counter went back. Readings may overtake each other: they are taken in order of time."""
    ordered = sorted(moments, key=lambda one: one.at)
    for name in _COUNTERS:
        highest, until = -math.inf, -math.inf
        for one in ordered:
            value: float | None = getattr(one, name)
            if value is None:
                continue
            if value < highest and one.at >= until:  # asked after the higher one was whole
                return True
            if value >= highest:
                highest, until = value, one.at + one.took
    return False


def _growth(before: EngineMoment | None, after: EngineMoment | None) -> dict[str, float]:
    if before is None or after is None:
        return {}
    grown: dict[str, float] = {}
    for name in _COUNTERS:
        first, last = getattr(before, name), getattr(after, name)
        if first is not None and last is not None:
            grown[name] = last - first
    return grown


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _is_shared(before: EngineMoment | None, grown: dict[str, float], ours: Rung | None) -> bool | None:
    """Whether the engine did more than we asked for, or had work when we came; None where nothing tells.

    Requests that failed or were hung up made tokens that nobody counted here: then only requests compare.
    """
    if before is not None and ((before.running or 0) > 0 or (before.waiting or 0) > 0):
        return True
    if ours is None:
        return None
    is_whole = ours.requests == ours.good and not ours.stopped and ours.tokens_counted == "usage"
    known = ours.output_tokens if is_whole else None
    compared: list[bool] = []
    if known is not None and "output_tokens" in grown:
        compared.append(_is_more(grown["output_tokens"], known, _FOREIGN_TOKENS))
    if "requests" in grown:
        compared.append(_is_more(grown["requests"], ours.requests + ours.stopped, _FOREIGN_REQUESTS))
    return any(compared) if compared else None


def _is_more(counted: float, known: float, least: float) -> bool:
    return counted - known > max(least, _FOREIGN_SHARE * known)


def _remarks(
    trace: LoadTrace,
    window: Window,
    before: EngineMoment | None,
    after: EngineMoment | None,
    *,
    is_restarted: bool,
) -> Iterator[str]:
    """What stood in the way of the counters, in words."""
    if is_restarted:
        yield "the engine's counters fell back during the rung: it was restarted, and they tell nothing of it"
    elif trace.engine and (before is None or after is None):
        side = "before" if before is None else "after"
        took = max((one.took for one in trace.engine), default=0.0)
        why = f", a reading took up to {took:.1f} s" if took > _SLOW_S else ""
        yield f"no reading of the engine's counters fell into the quiet {side} the rung{why}"
    begin = window.started if before is None else before.at
    end = window.ended if after is None else after.at + after.took
    lapses = [one for one in trace.lapses if begin <= one.at <= end]
    if lapses:
        count = len(lapses) + sum(begin <= one.at <= end for one in trace.engine)
        yield f"{len(lapses)} of {count} readings of the engine's counters failed: {lapses[0].words}"
