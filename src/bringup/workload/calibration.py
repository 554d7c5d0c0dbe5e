"""How many words of filler make how many tokens for this server: asked, not assumed.

Three short prompts, each with an answer of one token, tell it: the first half of the words, the second half,
and all of them. What the halves cost together more than the whole is the chat template; what is left is the
words. Only if a word is not one token in this vocabulary, a second step asks for groups of words and keeps
those whose words are.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.parse.json_value import int_at, json_or_none, list_at
from bringup.values.exchange import Answer, Ask
from bringup.workload.filler import WORDS
from bringup.workload.request_body import BodyShape, prompt_body

_USUAL_OVERHEAD = 20  # guess: tokens of a chat template around one user message, until the server was asked
_GROUP = 16  # words asked at once in the second step
_LEAST_WORDS = 2 * _GROUP  # with fewer, prompts say little else than their beginnings
_HALF = len(WORDS) // 2
_FIRST, _SECOND, _WHOLE = "first half", "second half", "whole"
_TAIL_LEAD = " ".join(WORDS[:_GROUP])  # what stands before a tail while it is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the server counts for a prompt of n words: `overhead` + n * `tokens_per_word`."""

    overhead: int = _USUAL_OVERHEAD
    tokens_per_word: float = 1.0
    spread: float | None = None  # standard deviation of one word's tokens; None: the server was not asked
    vocabulary: tuple[str, ...] = WORDS  # the words that may be used
    tails: tuple[tuple[str, int], ...] = ()  # tokens of the texts that may end a prompt, by their keys

    @property
    def is_exact(self) -> bool:
        """Whether a prompt has exactly the tokens that were asked for."""
        return self.spread == 0

    @property
    def words(self) -> str:
        """The exactness in words."""
        if self.spread is None:
            return "estimated"
        return "exact" if self.is_exact else f"about, {self.tokens_per_word:.2f} tokens a word"

    def within(self, tokens: int) -> int | None:
        """How far the server's count of a prompt of `tokens` may lie from it; None: not known.

        Three standard deviations, and half a word because a prompt has whole words.
        """
        if self.spread is None:
            return None
        if self.is_exact:
            return 0
        return math.ceil(3 * self.spread * math.sqrt(self.words_for(tokens)) + self.tokens_per_word / 2)

    def words_for(self, tokens: int, tail: str | None = None) -> int:
        """How many words a prompt of `tokens` has beside the template and the text `tail`."""
        room = tokens - self.overhead - (self.tail_tokens(tail) if tail else 0)
        return max(1, round(room / self.tokens_per_word))

    def meant(self, tokens: int, tail: str | None = None) -> int:
        """The tokens that the server will count for a prompt that was asked to have `tokens`."""
        counted = round(self.words_for(tokens, tail) * self.tokens_per_word)
        return self.overhead + counted + (self.tail_tokens(tail) if tail else 0)

    def tail_tokens(self, tail: str) -> int:
        """The tokens of the text with the key `tail`: asked, or guessed by its length."""
        return dict(self.tails).get(tail, _USUAL_OVERHEAD)


UNASKED = Calibration()


def calibration_asks(
    shape: BodyShape, counts: Mapping[str, int | None], tails: Mapping[str, str], *, engine: str | None = None
) -> tuple[Ask, ...]:
    """What to ask next, given what has been counted so far, by key; nothing when enough is known.

    `tails` are texts that will end some prompts, by key. With an `engine` that counts without running the
    model, the asks go to its tokenizer, else they are requests for one token.
    """
    if not counts:
        texts = {_FIRST: WORDS[:_HALF], _SECOND: WORDS[_HALF:], _WHOLE: WORDS}
        first = [_ask(shape, key, " ".join(words), engine) for key, words in texts.items()]
        ends = [_ask(shape, _tail_key(key), f"{_TAIL_LEAD}{text}", engine) for key, text in tails.items()]
        return (*first, *ends)
    measured = _halves(counts)
    if measured is None or measured[1:] == (_HALF, len(WORDS) - _HALF) or _group_key(0) in counts:
        return ()
    return tuple(
        _ask(shape, _group_key(number), " ".join(words), engine) for number, words in enumerate(_groups())
    )


def calibration(counts: Mapping[str, int | None]) -> Calibration:
    """What the counts say; `UNASKED` when they say nothing of use.

    >>> counted = {"first half": 137, "second half": 137, "whole": 265}
    >>> calibration(counted).overhead, calibration(counted).is_exact
    (9, True)
    """
    measured = _halves(counts)
    if measured is None:
        return UNASKED
    overhead, first_half, second_half = measured
    if (first_half, second_half) == (_HALF, len(WORDS) - _HALF):
        tails = _tails(counts, overhead + _GROUP)
        return Calibration(overhead=overhead, spread=0.0, tails=tails)
    return _by_groups(counts, overhead, first_half + second_half)


def _by_groups(counts: Mapping[str, int | None], overhead: int, total: int) -> Calibration:
    """The words that are one token each, if they are enough; else all of them, with their mean and spread."""
    costs = [
        (words, counted - overhead)
        for number, words in enumerate(_groups())
        if (counted := counts.get(_group_key(number))) is not None
    ]
    lead_tokens = next((cost for words, cost in costs if words == _groups()[0]), _GROUP)
    tails = _tails(counts, overhead + lead_tokens)
    single = tuple(word for words, cost in costs if cost == len(words) for word in words)
    if len(single) >= _LEAST_WORDS:
        return Calibration(overhead=overhead, spread=0.0, vocabulary=single, tails=tails)
    mean = total / len(WORDS)
    if len(costs) < 2:
        return Calibration(overhead=overhead, tokens_per_word=mean, tails=tails)
    # Words of a group vary as much as groups do, times the root of their number.
    variance = sum((cost - _GROUP * mean) ** 2 for _, cost in costs) / (len(costs) - 1) / _GROUP
    return Calibration(
        overhead=overhead, tokens_per_word=mean, spread=max(0.01, math.sqrt(variance)), tails=tails
    )


def _tails(counts: Mapping[str, int | None], before: int) -> tuple[tuple[str, int], ...]:
    prefix = _tail_key("")
    return tuple(
        (key.removeprefix(prefix), counted - before)
        for key, counted in counts.items()
        if key.startswith(prefix) and counted is not None
    )


def _halves(counts: Mapping[str, int | None]) -> tuple[int, int, int] | None:
    """Template, first half of the words and second half, in tokens; None when the server did not say.

    Nor does it when its counts cannot be those of what it was sent: a template of less than nothing, or less
    than half a token a word.
    """
    first, second, whole = (counts.get(key) for key in (_FIRST, _SECOND, _WHOLE))
    if first is None or second is None or whole is None:
        return None
    if whole > first + second or 2 * whole - first - second < len(WORDS) / 2:
        return None
    return first + second - whole, whole - second, whole - first


def _groups() -> tuple[tuple[str, ...], ...]:
    return tuple(WORDS[start : start + _GROUP] for start in range(0, len(WORDS), _GROUP))


def _group_key(number: int) -> str:
    return f"group {number}"


def _tail_key(key: str) -> str:
    return f"tail {key}"


def _ask(shape: BodyShape, key: str, text: str, engine: str | None) -> Ask:
    """One prompt to be counted."""
    if engine == "vllm":
        fields: dict[str, object] = {"model": shape.model}
        said = [{"role": "user", "content": text}]
        if shape.system is not None:
            said.insert(0, {"role": "system", "content": shape.system})
        fields |= {"messages": said} if shape.is_chat else {"prompt": text}
        return Ask(key=key, path="/tokenize", body=json.dumps(fields))
    if engine in ("sglang", "llama.cpp") and not shape.is_chat:  # theirs know no chat template
        fields = {"model": shape.model, "prompt": text, "content": text, "add_special": True}
        return Ask(key=key, path="/tokenize", body=json.dumps(fields))
    body = prompt_body(shape, text, 1, {"stream": False, "stream_options": None})
    path = "/v1/chat/completions" if shape.is_chat else "/v1/completions"
    return Ask(key=key, path=path, body=body.decode())


def read_count(answer: Answer) -> int | None:
    """The tokens of the prompt by the server's count; None when it does not tell.

    >>> read_count(Answer(key="whole", status=200, body='{"usage": {"prompt_tokens": 265}}'))
    265
    >>> read_count(Answer(key="whole", status=200, body='{"tokens": [1, 2, 3]}'))
    3
    """
    if answer.status != 200:
        return None
    value = json_or_none(answer.body)
    told = int_at(value, "usage", "prompt_tokens")
    if told is None:
        told = int_at(value, "count")
    return told if told is not None else (len(list_at(value, "tokens")) or None)
