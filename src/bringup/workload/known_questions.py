"""Questions with known answers among the load: a bench of garbage is no result.

A share of the requests end in a question that every instruct model gets right, after filler that makes them
as long as the others. Only the beginning of an answer is judged: with `ignore_eos` a model goes on after its
answer, and what it says then means nothing.

Seen in: SmolLM2-135M-Instruct Q4_1, which answers them after 30, 200 and 800 words of filler.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from bringup.parse.chat import ChatReply
from bringup.parse.known_facts import CAPITAL, JAPAN, OPPOSITE, SUM, WEEK, Fact
from bringup.parse.reasoning import split_reply
from bringup.parse.text_quality import garble_signs
from bringup.values.bench import LoadRequest, RequestRecord
from bringup.workload import Workload
from bringup.workload.filler import WORDS
from bringup.workload.request_body import body_pieces, whole_body
from bringup.workload.synthetic import Synthetic, TextSource

_FACTS = {fact.key: fact for fact in (CAPITAL, JAPAN, SUM, OPPOSITE, WEEK)}
_SECRET = "secret"  # noqa: S105 - a question whose answer stands in this request alone
_KINDS = (*_FACTS, _SECRET, _SECRET)  # in turn; an answer to somebody else's request shows in the secret
_ECHO = "2 + 2"  # a question repeated is no answer
_BEGINNING = 300  # characters of an answer that are judged
_LEAST_TOKENS = 12  # "The opposite of hot is cold." and a tokenizer that cuts small
USUAL_SHARE = 0.02
_FREE_TOKENS = 64  # where the workload sets no length: room for a sentence


class Verdict(StrEnum):
    """What an answer to a known question is."""

    RIGHT = "right"
    WRONG = "wrong"
    GARBLED = "garbled"  # no model says this: numbers, weights or detokeniser
    EMPTY = "empty"
    CUT = "cut"  # ended, as asked, before the answer could come: nothing to judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One answer and what is to be said of it."""

    verdict: Verdict
    reason: str = ""


def question_tails(*, is_chat: bool = True) -> dict[str, str]:
    """The texts that end the prompts of questions, by key, for the calibration; a secret stands for all.

    >>> question_tails()["week"].strip()
    'How many days are in a week? Answer with the number only.'
    """
    return {kind: _tail(kind, WORDS[0], is_chat=is_chat) for kind in dict.fromkeys(_KINDS)}


def _tail(kind: str, secret: str, *, is_chat: bool) -> str:
    """The end of a prompt; where no chat template says whose turn it is, the text does."""
    asked = _question(kind, secret)
    return f"\n\n{asked}" if is_chat else f"\n\nQuestion: {asked}\nAnswer:"


def _question(kind: str, secret: str) -> str:
    if kind == _SECRET:
        return f"The secret word is {secret}. What is the secret word? Answer with one word."
    return _FACTS[kind].question


def _kind(key: str) -> tuple[str, str]:
    """Kind of a question and its secret word, from the key that its request carries."""
    kind, _, secret = key.partition(" ")
    return kind, secret


def _fact(key: str) -> Fact | None:
    kind, secret = _kind(key)
    if kind == _SECRET and secret:
        return Fact(key=key, question=_question(kind, secret), words=(secret,))
    return _FACTS.get(kind)


def question_text(key: str) -> str:
    """The question of a key, for a finding."""
    fact = _fact(key)
    return fact.question if fact else key


def judge_text(text: str, key: str, *, output_tokens: int | None = None) -> Judged:
    """Whether the beginning of `text` answers the question `key`; `output_tokens` is how long it was.

    >>> judge_text("The capital of France is Paris.", "capital").verdict.value
    'right'
    >>> judge_text("!" * 60, "capital").verdict.value
    'garbled'
    """
    fact = _fact(key)
    if fact is None:
        return Judged(verdict=Verdict.CUT, reason=f"no known question: `{key}`")
    answer = split_reply(ChatReply(text=text)).answer
    if any(fact.is_in(part[:_BEGINNING].replace(_ECHO, "")) for part in (answer, text)):
        return Judged(verdict=Verdict.RIGHT)
    beginning = text.strip()[:_BEGINNING]
    hard = next((sign for sign in garble_signs(beginning) if sign.is_hard), None)
    if hard is not None:
        return Judged(verdict=Verdict.GARBLED, reason=hard.words)
    if output_tokens is not None and output_tokens < _LEAST_TOKENS:
        return Judged(verdict=Verdict.CUT, reason=f"{output_tokens} tokens are too few to judge")
    if not beginning:
        return Judged(verdict=Verdict.EMPTY, reason="no text")
    wanted = " or ".join(f"`{word}`" for word in fact.words)
    return Judged(verdict=Verdict.WRONG, reason=f"wanted {wanted}, found `{_short(beginning)}`")


def judge_record(record: RequestRecord) -> Judged | None:
    """The verdict on one record; None when it is no known question or brought no whole answer."""
    if record.question is None or record.error is not None or record.is_cancelled:
        return None
    text = record.text or ""
    if not text.strip() and (record.reasoning_tokens or record.events):
        return Judged(verdict=Verdict.CUT, reason="the answer ended inside the reasoning trace")
    return judge_text(text, record.question, output_tokens=record.output_tokens)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:80]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Which requests are questions: one in every block, the first of all in the first."""

    block_size: int
    seed: int

    def block(self, index: int) -> int:
        return index // self.block_size

    def has(self, index: int) -> bool:
        block, place = divmod(index, self.block_size)
        if block == 0 or self.block_size == 1:
            return place == 0
        drawn = hashlib.blake2b(b"%d question %d" % (self.seed, block), digest_size=8).digest()
        return place == int.from_bytes(drawn, "big") % self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class WithQuestions:
    """A workload in which a share of the requests are known questions of the same lengths.

    Request 0 is always one, and then one in every block of 1/share requests, at a drawn place.
    """

    workload: Workload
    padding: Synthetic  # what stands before the questions: body, calibration, shared prefix
    share: float = USUAL_SHARE
    seed: int = 0

    @property
    def words(self) -> str:
        """The workload and its questions in words."""
        return f"{self.workload.words}, {100 * self.share:.3g} % known questions"

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator, some of them in question form."""
        if self.share <= 0:
            yield from self.workload.requests(generator, generators)
            return
        text = TextSource(self.padding)
        places = _Places(block_size=max(1, round(1 / self.share)), seed=self.seed)
        for request in self.workload.requests(generator, generators):
            if places.has(request.index):
                yield self._question(request, text, places.block(request.index))
            else:
                yield request

    def _question(self, request: LoadRequest, text: TextSource, number: int) -> LoadRequest:
        """The question that takes the place of `request`."""
        calibration = self.padding.calibration
        kind = _KINDS[(number + self.seed) % len(_KINDS)]
        vocabulary = calibration.vocabulary
        secret = vocabulary[Random(f"{self.seed}/{request.index}").randrange(len(vocabulary))]  # noqa: S311
        tokens = request.input_tokens or calibration.overhead + calibration.tail_tokens(kind) + 1
        tail = json.dumps(_tail(kind, secret, is_chat=self.padding.shape.is_chat)).strip('"').encode()
        prompt = text.prompt(request.index, tokens, tail=kind) + tail
        return replace(
            request,
            body=whole_body(body_pieces(self.padding.shape), prompt, request.output_tokens or _FREE_TOKENS),
            input_tokens=calibration.meant(tokens, kind),
            output_tokens=request.output_tokens or _FREE_TOKENS,
            question=f"{kind} {secret}" if kind == _SECRET else kind,
            cancel_after_s=None,
            conversation=None,
        )

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The next turn of a conversation; a question has none."""
        return None if request.question is not None else self.workload.next_turn(request, answer)
