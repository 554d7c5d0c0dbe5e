"""Asks again with more room where an answer was cut off: a reasoning model needs more tokens than others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bringup.parse.answer_fault import Fault, reply_or_fault
from bringup.parse.json_value import json_or_none
from bringup.parse.reasoning import split_reply
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Answer, Ask

_MORE = ".more"  # the key of a second try is the first one's with this behind it


def next_asks(first: Sequence[Ask], answers: Mapping[str, Answer], deployment: Deployment) -> tuple[Ask, ...]:
    """The first tries, then a second one for each that was cut off, then nothing."""
    missing = tuple(ask for ask in first if ask.key not in answers)
    if missing:
        return missing
    return tuple(
        _with_room(ask, deployment)
        for ask in first
        if f"{ask.key}{_MORE}" not in answers and _wants_room(answers[ask.key], deployment.ability)
    )


def settled(answers: Mapping[str, Answer], key: str) -> Answer | None:
    """The answer that counts for `key`: the second try where there was one."""
    return answers.get(f"{key}{_MORE}", answers.get(key))


def room(deployment: Deployment) -> int:
    """Most tokens of an answer with its reasoning trace; at most half of what the model takes."""
    wanted = 1024 if deployment.depth is Depth.QUICK else 2048
    served = deployment.model.context_tokens
    return wanted if served is None else max(1, min(wanted, served // 2))


def _wants_room(answer: Answer, ability: Ability) -> bool:
    """Whether an answer was cut off for want of tokens, and more tokens may help.

    A tiny model without a trace rambles on; more room would only take time.
    """
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault):
        return False
    if not split_reply(reply).is_finished:
        return True
    return reply.finish_reason == "length" and ability is not Ability.TINY


def _with_room(ask: Ask, deployment: Deployment) -> Ask:
    body = json_or_none(ask.body)
    fields = body if isinstance(body, dict) else {}
    wider = json.dumps(fields | {"max_tokens": room(deployment)}, ensure_ascii=False)
    return replace(ask, key=f"{ask.key}{_MORE}", body=wider, time_limit_s=max(ask.time_limit_s, 300.0))
