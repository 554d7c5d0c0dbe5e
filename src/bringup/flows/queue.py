"""Whether an engine that lets a request wait is at work meanwhile: then it is full or slow, and not hung."""

import asyncio

from bringup.engines import Engine
from bringup.transport import Endpoint
from bringup.values.engine import EngineStatus
from bringup.values.exchange import Ask, Problem

_APART_S = 2.0  # between two looks: an engine at work has gone on by then
_LIMIT_S = 5.0


async def at_work(
    engine: Engine | None, endpoint: Endpoint, *, apart_s: float = _APART_S
) -> tuple[Problem, str] | None:
    """What keeps a request waiting, in words too; None where nothing moves, or nothing tells."""
    first = await _look(engine, endpoint, 0)
    if first is None or not (first.running or first.waiting):
        return None
    await asyncio.sleep(apart_s)
    second = await _look(engine, endpoint, 1)
    if second is None or not _has_moved(first, second):
        return None
    words = f"{first.running or 0} requests run and {first.waiting or 0} wait"
    return (Problem.QUEUED if first.waiting else Problem.SLOW), words


def _has_moved(first: EngineStatus, second: EngineStatus) -> bool:
    """Whether tokens came, or the cache filled or emptied. More that wait are no sign of life."""
    tokens, later = (one.metrics.get("output_tokens_total", 0.0) for one in (first, second))
    return later > tokens or first.kv.used_share != second.kv.used_share or first.running != second.running


async def _look(engine: Engine | None, endpoint: Endpoint, number: int) -> EngineStatus | None:
    path = engine.metrics_path if engine is not None else None
    if engine is None or path is None:
        return None
    ask = Ask(key=f"queue/{number}", path=path, method="GET", time_limit_s=_LIMIT_S)
    found = engine.identify({path: await endpoint.send(ask)})
    return found[1] if found is not None else None
