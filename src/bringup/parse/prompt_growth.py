"""How many prompt tokens more one request had than another, by the engine's own count.

What reaches a model is counted. A part of a request that adds no tokens was dropped on the way, whatever the
model is able to do with it.
"""

from dataclasses import dataclass

from bringup.parse.answer_fault import Fault, reply_or_fault
from bringup.values.exchange import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGrowth:
    """The two counts."""

    with_it: int
    without: int

    @property
    def tokens(self) -> int:
        """Tokens that the part in question added."""
        return self.with_it - self.without


def prompt_growth(with_it: Answer | None, without: Answer | None) -> PromptGrowth | None:
    """The counts of two answers; None when one of them did not come or was not counted."""
    longer, shorter = reply_or_fault(with_it), reply_or_fault(without)
    if isinstance(longer, Fault) or isinstance(shorter, Fault):
        return None
    if longer.prompt_tokens is None or shorter.prompt_tokens is None:
        return None
    return PromptGrowth(with_it=longer.prompt_tokens, without=shorter.prompt_tokens)
