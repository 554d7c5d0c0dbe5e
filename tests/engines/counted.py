"""Requests sent to a running engine in rungs, with what the engine counted of them beside."""

import asyncio
import json
from dataclasses import dataclass

from bringup.flows.bench_beside import Beside
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.values.bench import EngineDelta, Rung
from bringup.values.exchange import Ask
from running_engine import ENGINES, Running

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "it",
    "rains",
    "in",
    "the",
    "old",
    "town",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One rung: what the answers say, and what the engine says."""

    ours: Rung
    engine: EngineDelta


def counted(engine: Running, *, kind: str, model: str, rungs: tuple[int, ...]) -> list[Counted]:
    """So many requests at once in each rung, of growing length; they begin alike."""
    return asyncio.run(_counted(engine, ENGINES[kind], model, rungs))


async def _counted(engine, kind, model, rungs) -> list[Counted]:
    endpoint = HttpEndpoint(target_of(engine.url), environment_proxies=False)
    seen = []
    try:
        async with Beside(endpoint=endpoint, engine=kind, border_s=20.0) as beside:
            for number in rungs:
                async with beside.rung() as rung:
                    asks = [Ask(key=str(one), body=_body(model, one)) for one in range(number)]
                    answers = await asyncio.gather(*(endpoint.send(ask) for ask in asks))
                usages = [json.loads(answer.body)["usage"] for answer in answers]
                ours = Rung(
                    requests=number,
                    good=number,
                    input_tokens=sum(usage["prompt_tokens"] for usage in usages),
                    output_tokens=sum(usage["completion_tokens"] for usage in usages),
                )
                seen.append((rung, ours))
        return [Counted(ours=ours, engine=beside.engine_delta(rung, ours)) for rung, ours in seen]
    finally:
        await endpoint.close()


def _body(model: str, number: int) -> str:
    text = " ".join(WORDS[index % len(WORDS)] for index in range(8 + 5 * number))
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 5 + 3 * number, "seed": 7})
