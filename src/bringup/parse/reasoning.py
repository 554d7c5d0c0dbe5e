"""A reply split into reasoning trace and answer proper, wherever the trace was put."""

import re
from dataclasses import dataclass
from enum import StrEnum

from bringup.parse.chat import ChatReply

# Opening and closing marks as models write them. Source: the chat templates of Qwen3, DeepSeek-R1, MiniMax-M2
# and GLM-4.5 (think), Magistral (THINK), Seed-OSS, Kimi-VL and gpt-oss (harmony channels).
_MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
_HARMONY_REST = re.compile(r"<\|(?:end|start|return|channel|message)\|>(?:assistant|final)?")


class Place(StrEnum):
    """Where the reasoning trace was found."""

    NONE = "none"
    FIELD = "field"  # `reasoning_content` or `reasoning`: a parser took it out
    IN_ANSWER = "in answer"  # both marks stand in the answer
    CLOSING_ONLY = "closing only"  # the chat template opened it, so only the closing mark is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What a model said, in two parts."""

    answer: str
    trace: str = ""
    place: Place = Place.NONE
    is_finished: bool = True  # False: the trace was cut off, so there is no answer to judge

    @property
    def is_leaking(self) -> bool:
        """Whether a client that shows the answer shows the trace too."""
        return self.place in (Place.IN_ANSWER, Place.CLOSING_ONLY)


def split_reply(reply: ChatReply) -> Spoken:
    r"""Trace and answer of a reply.

    >>> split_reply(ChatReply(text="<think>7 x 13</think>\n91")).answer
    '91'
    >>> split_reply(ChatReply(text="<think>7 x", finish_reason="length")).is_finished
    False
    """
    text = reply.text
    for opening, closing in _MARKS:
        before, closed, after = text.rpartition(closing)
        begun, opened, inside = (before if closed else text).partition(opening)
        if closed:
            place = Place.IN_ANSWER if opened else Place.CLOSING_ONLY
            trace = f"{reply.reasoning}{inside if opened else before}"
            return Spoken(answer=_clean(f"{begun if opened else ''}{after}"), trace=trace, place=place)
        if opened:
            return Spoken(
                answer=_clean(begun),
                trace=f"{reply.reasoning}{inside}",
                place=Place.IN_ANSWER,
                is_finished=False,
            )
    if reply.reasoning:
        is_finished = bool(text.strip() or reply.tool_calls) or reply.finish_reason != "length"
        return Spoken(answer=_clean(text), trace=reply.reasoning, place=Place.FIELD, is_finished=is_finished)
    return Spoken(answer=_clean(text))


def _clean(text: str) -> str:
    return _HARMONY_REST.sub("", text).strip()
